//! A conversation: what a person types becomes jobs of a session, worked in this process, and what
//! the agent says is written out as it comes.
//!
//! What the agent answers goes to standard output, everything else to standard error; see [`Voice`]
//! for what else it says.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use posse_core::event::{Event, Follower, Happened, Outcome, Speaker};
use posse_core::job::change::{Change, Edit};
use posse_core::job::{Job, JobId, JobState};
use posse_core::model::{Delta, ToolCalling};
use posse_core::port::{JobQueries, JobRelations, JobRepository, QuestionFilter};
use posse_core::question::{Answered, Question, check_answer};
use posse_core::session::Session;
use posse_core::usecase::enqueue::{Ask, accept};
use posse_core::worker::Progress;
use tokio::sync::broadcast;

mod answer;
mod lines;
mod log;
mod voice;

pub use lines::{Line, Lines};
pub use log::{EventLog, write_whole};

use crate::exit::Exit;
use crate::fleet::{Heard, Signals};
use crate::models::{self, Catalog};
use crate::output::Out;
use crate::output::text::{because, one_line, visible};
use crate::wire::now;
use voice::Voice;

/// Who answers questions here.
const PERSON: &str = "person";

/// What a chat is made of.
pub struct Conversation {
    /// Changes jobs.
    pub jobs: Arc<dyn JobRepository>,
    /// Changes jobs by hand.
    pub relations: Arc<dyn JobRelations>,
    /// Asks about jobs.
    pub queries: Arc<dyn JobQueries>,
    /// What the agent is asked with.
    pub models: Arc<Catalog>,
    /// The session.
    pub session: Session,
    /// Where sessions keep their events; nowhere where what is said is sealed.
    pub folder: Option<PathBuf>,
    /// What every job of the chat has, its goal aside.
    pub ask: Ask,
    /// The roles that some persona plays.
    pub roles: Vec<String>,
}

/// A chat at its prompt.
pub struct Chat {
    out: Out,
    with: Conversation,
    lines: Lines,
    heard: Option<broadcast::Receiver<Progress>>,
}

/// What ended the wait for a turn.
enum Turn {
    /// The job has ended, in this state.
    Ended(JobState),
    /// The chat is over; the job is as it was last saved.
    Left(Exit),
}

impl Chat {
    /// A chat that has not begun.
    pub fn new(out: Out, with: Conversation, lines: Lines, heard: Option<broadcast::Receiver<Progress>>) -> Chat {
        Chat { out, with, lines, heard }
    }

    /// Talks until the end of input. Fails where the last thing said got no answer.
    pub async fn talk(mut self, signals: &mut Signals) -> Result<Exit> {
        let mut log = match &self.with.folder {
            Some(folder) => Some(EventLog::open(&self.with.queries, folder, &self.with.session).await),
            None => None,
        };
        if let Some(Err(error)) = &log {
            self.out.warn(format!("the session's events are not written to a file: {error:#}"));
        }
        let mut exit = Exit::Ok;
        let mut unfinished = self.unfinished().await?.into_iter();
        loop {
            let job = match unfinished.next() {
                Some(job) => job,
                None => match self.next_message(signals).await? {
                    Some(job) => job,
                    None => return Ok(exit),
                },
            };
            match self.turn(job, log.as_mut().and_then(|log| log.as_mut().ok()), signals).await? {
                Turn::Ended(JobState::Completed) => exit = Exit::Ok,
                Turn::Ended(_) => exit = Exit::Failed,
                Turn::Left(exit) => return Ok(exit),
            }
        }
    }

    /// Jobs of the session that were said and not answered when the last chat ended.
    async fn unfinished(&self) -> Result<Vec<JobId>> {
        let turns = self.with.queries.session_turns(self.with.session.id, None).await?;
        let open: Vec<_> = turns.into_iter().filter(|turn| !turn.state.is_final()).collect();
        for turn in &open {
            let said = one_line(&turn.goal, 80);
            self.remark(format!("going on with what was said last: {said} (Ctrl-C drops it)"));
        }
        let jobs: Vec<_> = open.into_iter().map(|turn| turn.job).collect();
        // Somebody is here now, so what waits for a provider is tried at once.
        let now = now();
        let at_once = Change::Edit(Edit { run_at: Some(now), ..Edit::default() });
        self.with.relations.change(jobs.clone(), at_once, now).await?;
        Ok(jobs)
    }

    /// The next thing said, as a job; nothing when there is nothing more to say.
    async fn next_message(&mut self, signals: &mut Signals) -> Result<Option<JobId>> {
        loop {
            self.lines.prompt("> ");
            let text = tokio::select! {
                line = self.lines.next() => match line? {
                    Line::Text(text) => text,
                    Line::End => return Ok(None),
                },
                _ = signals.heard() => return Ok(None),
            };
            if text.trim().is_empty() {
                continue;
            }
            let mut job = match accept(Ask { goal: text, ..self.with.ask.clone() }, &self.with.roles) {
                Ok(job) => job,
                Err(refused) => {
                    self.out.warn(refused.to_string());
                    continue;
                }
            };
            job.payload.session = Some(self.with.session.id);
            return Ok(Some(self.with.jobs.enqueue(vec![job], now()).await?[0].id));
        }
    }

    /// Waits for one job's end and shows what happens until then.
    async fn turn(&mut self, job: JobId, mut log: Option<&mut EventLog>, signals: &mut Signals) -> Result<Turn> {
        let mut follower = Follower::new(Arc::clone(&self.with.queries), job);
        let mut voice = Voice::new(std::io::stdout().is_terminal());
        let mut asking: Option<Question> = None;
        let mut look = true;
        loop {
            let news = if look { follower.poll().await? } else { Vec::new() };
            look = true;
            for happened in news {
                if let Some(Err(error)) = log.as_mut().map(|log| log.write(&happened)) {
                    // The next chat makes the file whole again.
                    self.out.warn(format!("the session's events are no longer written to a file: {error:#}"));
                    log = None;
                }
                if matches!(happened.event, Event::Answer { .. }) {
                    asking = None;
                }
                self.show(&mut voice, &happened)?;
            }
            if let Some(state) = follower.state().filter(|state| state.is_final()) {
                return Ok(Turn::Ended(state));
            }
            if matches!(follower.state(), Some(JobState::Scheduled | JobState::Retryable))
                && let Some(waiting) = self.helpless(job).await?
            {
                self.turn_aside(&mut voice)?;
                self.out.warn(models::waits_for_a_person(&waiting));
                return Ok(Turn::Left(Exit::Failed));
            }
            if asking.is_none() && follower.state() == Some(JobState::Suspended) {
                asking = self.next_question(job).await?;
                if let Some(question) = &asking {
                    self.turn_aside(&mut voice)?;
                    self.ask(question);
                }
            }
            tokio::select! {
                () = follower.changed() => {}
                heard = hear(&mut self.heard) => match heard {
                    Some(Progress::AskingModel { job: of }) if of == job => {
                        look = false;
                        voice.begin(follower.calling() == Some(ToolCalling::Structured));
                    }
                    Some(Progress::Delta { job: of, delta }) if of == job => {
                        look = false;
                        self.hear(delta, &mut voice)?;
                    }
                    // An entry, or a gap: the journal tells.
                    _ => {}
                },
                line = self.lines.next(), if asking.is_some() => match (line?, &asking) {
                    (Line::Text(text), Some(question)) => {
                        if self.answer(question, text).await? {
                            asking = None;
                        }
                    }
                    (_, question) => {
                        let id = question.as_ref().map(|question| question.id.to_string()).unwrap_or_default();
                        self.remark(format!("question {id} stays open: posse question answer {id} \"<answer>\""));
                        return Ok(Turn::Left(Exit::Failed));
                    }
                },
                signal = signals.heard() => match signal {
                    Heard::Interrupt if asked_to_stop(&*self.with.queries, job).await => return Ok(Turn::Left(Exit::Interrupted)),
                    Heard::Interrupt => {
                        self.turn_aside(&mut voice)?;
                        self.with.jobs.cancel(job, "interrupted by the person".into(), now()).await?;
                    }
                    Heard::Terminate => return Ok(Turn::Left(Exit::Interrupted)),
                },
            }
        }
    }

    fn hear(&self, delta: Delta, voice: &mut Voice) -> Result<()> {
        match delta {
            Delta::Text(text) if !self.out.json => self.out.raw(&voice.say(&text))?,
            Delta::Text(_) | Delta::Reasoning(_) => {}
            Delta::Restarted(failed) => {
                self.out.raw(&voice.restart())?;
                self.remark(format!("  ! starting over: {}", one_line(&failed.reason, 200)));
            }
        }
        Ok(())
    }

    fn show(&self, voice: &mut Voice, happened: &Happened) -> Result<()> {
        if self.out.json {
            return self.out.json_line(happened);
        }
        match &happened.event {
            Event::Message { role: Speaker::Agent, text, .. } => {
                self.turn_aside(voice)?;
                voice.hold(text);
            }
            Event::ToolStart { name, args, is_skill, depth, .. } => {
                self.turn_aside(voice)?;
                let mark = if *is_skill { "▾" } else { "→" };
                let indent = "  ".repeat(*depth);
                self.remark(format!("  {indent}{mark} {} {}", visible(name), one_line(&args.to_string(), 100)));
            }
            Event::ToolEnd { name, outcome, result, depth, .. } if *outcome != Outcome::Done => {
                let indent = "  ".repeat(*depth);
                self.remark(format!("  {indent}✗ {}: {}", visible(name), one_line(result, 160)));
            }
            Event::Note { text } | Event::Error { text } => {
                self.turn_aside(voice)?;
                self.remark(format!("  ! {}", one_line(text, 300)));
            }
            Event::Done { status, text, reason, .. } => {
                let answer = voice.answer(text);
                self.turn_aside(voice)?;
                self.out.raw(&answer)?;
                if status != "completed" {
                    let reason = visible(reason.as_deref().unwrap_or_default());
                    self.remark(format!("({})", because(&status.replace('_', " "), &reason)));
                }
            }
            Event::Compacted { .. } => {}
            Event::Message { .. } | Event::ToolEnd { .. } | Event::Question { .. } | Event::Answer { .. } => {}
        }
        Ok(())
    }

    /// What was said up to here was no answer.
    fn turn_aside(&self, voice: &mut Voice) -> Result<()> {
        self.out.raw(&voice.end_line())?;
        voice.aside().into_iter().for_each(|text| self.remark(text));
        Ok(())
    }

    /// The job as it is, if it waits for what a person has to mend.
    async fn helpless(&self, job: JobId) -> Result<Option<Job>> {
        let job = self.with.queries.job(job).await?;
        Ok(job.filter(|job| models::is_helpless(&self.with.models, job)))
    }

    async fn next_question(&self, job: JobId) -> Result<Option<Question>> {
        let filter = QuestionFilter { settled: false, job: Some(job), limit: 1 };
        Ok(self.with.queries.questions(filter).await?.pop())
    }

    fn ask(&self, question: &Question) {
        if !self.out.json {
            self.out.note(self.out.note_paint.yellow(format!("? {}", visible(&question.text))));
        }
        self.lines.prompt("? ");
    }

    /// Saves an answer; false if it cannot be one.
    async fn answer(&self, question: &Question, text: String) -> Result<bool> {
        if let Err(why) = check_answer(&text) {
            self.out.warn(format!("the answer {why}"));
            self.ask(question);
            return Ok(false);
        }
        let answered = self.with.jobs.answer(question.id, text, PERSON.into(), now()).await?;
        if let Some(Answered::Settled { .. }) = answered {
            self.remark("it was settled elsewhere in the meantime".into());
        }
        Ok(true)
    }

    fn remark(&self, text: String) {
        self.out.note(self.out.note_paint.dim(text));
    }
}

/// Whether the job's end was asked for already: whoever asks again wants to leave.
async fn asked_to_stop(queries: &dyn JobQueries, job: JobId) -> bool {
    matches!(queries.job(job).await, Ok(Some(job)) if job.cancel_requested)
}

/// The next thing heard; for ever nothing where nobody speaks. `None` after a gap.
async fn hear(heard: &mut Option<broadcast::Receiver<Progress>>) -> Option<Progress> {
    let Some(receiver) = heard else { return std::future::pending().await };
    match receiver.recv().await {
        Ok(progress) => Some(progress),
        Err(broadcast::error::RecvError::Lagged(_)) => None,
        Err(broadcast::error::RecvError::Closed) => {
            *heard = None;
            None
        }
    }
}
