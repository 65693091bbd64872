//! What happens in a run, as events for whoever shows or records them.
//!
//! They are a projection of the journal: the same entries give the same events, live or years
//! later. What a model says before its reply is complete is not among them; see
//! [`crate::worker::Progress::Delta`].

use std::sync::Arc;

use futures::{Stream, StreamExt as _, TryStreamExt as _, stream as streams};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Follower, JobEvent};
use crate::clock::Millis;
use crate::job::{Job, JobId, JobState};
use crate::model::{CallRequest, ToolCalling, Usage};
use crate::port::{JobQueries, RepositoryError};
use crate::run::journal::{CallOutcome, Entry, Recorded};
use crate::run::phase::AGENT_STEP;
use crate::run::{Run, finish};
use crate::skill::SkillCallArgs;
use crate::text::plural;
use crate::tool::ToolErrorCategory;

/// Who said something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Speaker {
    /// The person who asks.
    User,
    /// The agent, or a skill it called.
    Agent,
}

/// How a call ended, for those who watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolOutcome {
    /// It did what was asked.
    Done,
    /// It ran and failed.
    Failed,
    /// It was never run.
    Refused,
    /// It was in flight when its worker died; whether it took effect is not known.
    Unknown,
    /// The run ended first.
    Overtaken,
}

/// One thing that happened. `depth` is the number of skills it happened inside of; a call of a
/// skill counts that skill, so it is 1 where the root calls one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// Somebody said something. An answer given in plain words is a message too; the complete
    /// answer is always in `done`.
    Message {
        /// Who.
        role: Speaker,
        /// What.
        text: String,
        /// See [`Event`].
        depth: usize,
    },
    /// A tool or a skill begins. Each has exactly one [`Event::ToolEnd`] after it.
    #[serde(rename = "tool.start")]
    ToolStart {
        /// Its name.
        name: String,
        /// Its arguments; a string where the model wrote no JSON.
        args: Value,
        /// The call whose program made it, where one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// The call's id, unique within the run.
        call_id: String,
        /// Whether it is a skill.
        is_skill: bool,
        /// See [`Event`].
        depth: usize,
        /// What a skill is given, checked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<SkillCallArgs>,
    },
    /// A tool or a skill ended.
    #[serde(rename = "tool.end")]
    ToolEnd {
        /// Its name.
        name: String,
        /// The id it began with.
        call_id: String,
        /// What the model is told.
        result: String,
        /// How it ended.
        outcome: ToolOutcome,
        /// What kind of failure, where it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        category: Option<ToolErrorCategory>,
        /// Whether it is a skill.
        is_skill: bool,
        /// See [`Event`].
        depth: usize,
    },
    /// The agent asks people; the job waits until every question is settled.
    Question {
        /// Its position among those asked at once, from 0.
        question: u32,
        /// What it asks.
        text: String,
    },
    /// A question is settled.
    Answer {
        /// Its position among those asked last.
        question: u32,
        /// The answer; absent when nobody gave one in time.
        text: Option<String>,
    },
    /// Something that the model was told, or that was decided about the run.
    Note {
        /// In words.
        text: String,
    },
    /// Older messages of the conversation were replaced by a summary of them; the journal keeps them.
    Compacted {
        /// How many.
        messages: usize,
        /// The summary.
        summary: String,
        /// See [`Event`].
        depth: usize,
    },
    /// The model gave no answer, or a skill that it called could not begin. Not the end: that is told by `done`.
    Error {
        /// Why, in words.
        text: String,
    },
    /// The job has ended. Exactly one, and nothing after it.
    Done {
        /// `completed`, `cancelled`, or what else ended it.
        status: String,
        /// The answer, or the last words there were.
        text: String,
        /// Why, when it is not plainly the answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Tokens used, over all attempts.
        usage: Usage,
        /// Model requests answered.
        turns: u32,
        /// Names of the tools it used, sorted.
        tools_used: Vec<String>,
        /// Price in millionths of a US dollar, where prices are configured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_microusd: Option<u64>,
        /// Where in its work it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        phase: Option<String>,
    },
}

/// An event with its position and time. Serialises to one line of JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Happened {
    /// The job.
    pub job: JobId,
    /// The journal entry it comes from; for `done` the position after the last one.
    pub seq: u64,
    /// When.
    pub at: Millis,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

/// A call that has begun and not ended.
#[derive(Debug, Clone, PartialEq)]
struct Begun {
    call_id: String,
    name: String,
    is_skill: bool,
    depth: usize,
}

impl Begun {
    fn end(self, outcome: ToolOutcome, category: Option<ToolErrorCategory>, result: &str) -> Event {
        let Begun { call_id, name, is_skill, depth } = self;
        Event::ToolEnd { name, call_id, result: result.to_owned(), outcome, category, is_skill, depth }
    }
}

/// The projection: entries in, events out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Events {
    run: Run,
    next_seq: u64,
    begun: Vec<Begun>,
}

impl Events {
    /// Takes in the run's next entry and gives what it means.
    pub fn take(&mut self, entry: &Entry) -> Vec<Event> {
        let mut out = Vec::new();
        let depth = self.run.depth();
        match entry {
            Entry::Began { goal, .. } => out.push(Event::Message { role: Speaker::User, text: goal.clone(), depth }),
            Entry::Turn(turn) => {
                let text = turn.said();
                if !text.trim().is_empty() {
                    out.push(Event::Message { role: Speaker::Agent, text, depth });
                }
            }
            Entry::TurnFailed { reason, .. } => out.push(Event::Error { text: reason.clone() }),
            Entry::CallStarted { call_id } => self.start(call_id, false, &mut out),
            Entry::SkillBegan { call_id } => self.start(call_id, true, &mut out),
            Entry::ProgramBegan { .. } | Entry::CallMade { .. } => {}
            Entry::CallEnded { call_id, outcome, text, .. } => self.end(call_id, *outcome, text, &mut out),
            Entry::FellBack { call_id, category, text, .. } => {
                self.end(call_id, CallOutcome::Failed { category: *category }, text, &mut out);
            }
            Entry::Asked { questions, .. } => {
                let asked = (0..).zip(questions);
                out.extend(asked.map(|(question, text)| Event::Question { question, text: text.clone() }));
            }
            Entry::Answered { question, answer } => {
                out.push(Event::Answer { question: *question, text: answer.clone() });
            }
            Entry::Replanned { reason, .. } => {
                out.push(Event::Note { text: format!("begins anew with another plan: {reason}") });
            }
            Entry::Note { text } | Entry::Doubted { text, .. } => out.push(Event::Note { text: text.clone() }),
            Entry::Reopened => out.push(Event::Note { text: "re-run by hand; the run goes on from here".into() }),
            Entry::Restarted => {
                self.overtake(&mut out);
                out.push(Event::Note { text: "the job was changed; the run begins anew".into() });
            }
            Entry::Ended { .. } => self.overtake(&mut out),
            Entry::Compacted { cut, summary } => {
                out.push(Event::Compacted {
                    messages: cut.to.saturating_sub(cut.from),
                    summary: summary.clone(),
                    depth,
                });
            }
            Entry::Shortened { shortenings } => {
                let text = format!("{} of the conversation shortened", plural(shortenings.len() as u64, "message"));
                out.push(Event::Note { text });
            }
            Entry::Summarised { failure: Some(why), .. } => {
                out.push(Event::Error { text: format!("a summary could not be written: {why}") });
            }
            Entry::Counted { .. } | Entry::Summarised { .. } => {}
        }
        self.run.apply(entry);
        out
    }

    /// The same with its position and time.
    pub fn happened(&mut self, job: JobId, recorded: &Recorded) -> Vec<Happened> {
        let (seq, at) = (recorded.seq, recorded.at);
        self.next_seq = seq + 1;
        self.take(&recorded.entry).into_iter().map(|event| Happened { job, seq, at, event }).collect()
    }

    /// The last events of a job that has ended: of calls that it overtook, then `done`.
    pub fn finish(&mut self, job: &Job) -> Vec<Event> {
        let mut out = Vec::new();
        self.overtake(&mut out);
        let output = job.output.clone().unwrap_or_else(|| self.run.output());
        let status = match (job.state, output.status.as_str()) {
            (JobState::Cancelled, _) => "cancelled".to_owned(),
            // It was given up between two steps.
            (JobState::Discarded, "unfinished") => "failed".to_owned(),
            (_, status) => status.to_owned(),
        };
        out.push(Event::Done {
            status,
            text: output.text,
            reason: job.reason.clone().or(output.reason),
            usage: output.usage,
            turns: output.turns,
            tools_used: output.tools_used,
            cost_microusd: output.cost_microusd,
            phase: output.phase,
        });
        out
    }

    /// What a job event means for the run.
    fn of(&mut self, event: &JobEvent) -> Vec<Happened> {
        match event {
            JobEvent::Entry { job, recorded } => self.happened(*job, recorded),
            JobEvent::Ended { job } => {
                let (seq, at) = (self.next_seq, job.finalized_at.unwrap_or(job.created_at));
                self.finish(job).into_iter().map(|event| Happened { job: job.id, seq, at, event }).collect()
            }
            JobEvent::Claimed { .. } | JobEvent::AttemptEnded { .. } => Vec::new(),
        }
    }

    /// The run as its entries so far tell it.
    pub fn run(&self) -> &Run {
        &self.run
    }

    fn call(&self, call_id: &str) -> Option<CallRequest> {
        self.run.open_call(call_id).map(|call| call.request.clone())
    }

    fn start(&mut self, call_id: &str, is_skill: bool, out: &mut Vec<Event>) {
        // A call that was in flight when its worker died, and runs again, has begun before.
        if self.begun.iter().any(|begun| begun.call_id == call_id) {
            return;
        }
        let Some(CallRequest { name, arguments, .. }) = self.call(call_id) else { return };
        let args: Value = serde_json::from_str(&arguments).unwrap_or(Value::String(arguments));
        let input = if is_skill { SkillCallArgs::check(args.clone()).ok() } else { None };
        let depth = self.run.depth() + usize::from(is_skill);
        let program = self.run.program().filter(|program| program.has_open(call_id));
        let by = program.map(|program| program.call_id.clone());
        let call_id = call_id.to_owned();
        self.begun.push(Begun { call_id: call_id.clone(), name: name.clone(), is_skill, depth });
        out.push(Event::ToolStart { name, args, by, call_id, is_skill, depth, input });
    }

    fn end(&mut self, call_id: &str, outcome: CallOutcome, text: &str, out: &mut Vec<Event>) {
        let (told, category) = match outcome {
            CallOutcome::Done => (ToolOutcome::Done, None),
            CallOutcome::Failed { category } => (ToolOutcome::Failed, Some(category)),
            CallOutcome::Refused => (ToolOutcome::Refused, None),
            CallOutcome::Unknown => (ToolOutcome::Unknown, None),
        };
        if !self.begun.iter().any(|begun| begun.call_id == call_id) {
            match self.call(call_id) {
                Some(call) if call.name == finish::FINISH || call.name == AGENT_STEP => {
                    // No tool: what the model is told of it is worth a word when it was wrong.
                    if outcome != CallOutcome::Done {
                        out.push(Event::Note { text: text.to_owned() });
                    }
                    return;
                }
                Some(call) => {
                    let is_skill = self.run.skills().any(|skill| skill.spec.name == call.name);
                    self.start(call_id, is_skill, out);
                    if is_skill && outcome == CallOutcome::Refused {
                        out.push(Event::Error { text: text.to_owned() });
                    }
                }
                None => return,
            }
        }
        let Some(at) = self.begun.iter().position(|begun| begun.call_id == call_id) else { return };
        out.push(self.begun.remove(at).end(told, category, text));
    }

    /// Ends what has begun, innermost first.
    fn overtake(&mut self, out: &mut Vec<Event>) {
        let overtaken = self.begun.drain(..).rev();
        out.extend(overtaken.map(|begun| begun.end(ToolOutcome::Overtaken, None, finish::RUN_ENDED)));
    }
}

/// Follows the events of one job's run.
pub struct RunFollower {
    follower: Follower,
    events: Events,
}

impl RunFollower {
    /// From the job's beginning.
    pub fn new(queries: Arc<dyn JobQueries>, job: JobId) -> RunFollower {
        RunFollower { follower: Follower::new(queries, job), events: Events::default() }
    }

    /// Where the job was at the last look.
    pub fn state(&self) -> Option<JobState> {
        self.follower.job().map(|job| job.state)
    }

    /// How the run's model is asked for tools, once it has begun and while it speaks to the person and not for a skill.
    pub fn calling_for_person(&self) -> Option<ToolCalling> {
        let run = self.events.run();
        run.opening().filter(|_| run.depth() == 0).map(|opening| opening.calling)
    }

    /// What happened since the last call. After `done` there is nothing more.
    pub async fn poll(&mut self) -> Result<Vec<Happened>, RepositoryError> {
        let events = self.follower.poll().await?;
        Ok(events.iter().flat_map(|event| self.events.of(event)).collect())
    }

    /// Waits until there may be something new.
    pub async fn changed(&mut self) {
        self.follower.changed().await;
    }
}

/// The events of `job` from its beginning, as they come, until `done`. Ends after the first error.
pub fn stream(
    queries: Arc<dyn JobQueries>,
    job: JobId,
) -> impl Stream<Item = Result<Happened, RepositoryError>> + Send + Unpin {
    let looks = streams::try_unfold((RunFollower::new(queries, job), false), |(mut follower, wait)| async move {
        if follower.follower.is_done() {
            return Ok(None);
        }
        if wait {
            follower.changed().await;
        }
        let happened = follower.poll().await?;
        Ok::<_, RepositoryError>(Some((streams::iter(happened.into_iter().map(Ok)), (follower, true))))
    });
    looks.try_flatten().boxed()
}
