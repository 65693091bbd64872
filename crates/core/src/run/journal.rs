//! The journal: the append-only list of a run's entries.
//!
//! Everything else about a run (conversation, totals, timeline, ledger) is computed from it. The
//! ledger of tool calls is kept as a table too, so that it can be asked about; each row changes in
//! the transaction that appends the entry it comes from, by [`ledger_changes`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::annotation::NewAnnotation;
use crate::clock::Millis;
use crate::model::{CallRequest, FailedTry, Finish, Message, Reasoning, ToolCalling, Usage};
use crate::persona::PersonaTemplate;
use crate::run::compaction::{Cut, Shortening};
use crate::run::phase::{self, Content};
use crate::run::results::ToldResults;
use crate::run::structured;
use crate::text::{is_default, named};
use crate::tool::{EffectClass, ToolErrorCategory};

mod ledger;

pub use crate::skill::OfferedSkill;
pub use crate::tool::OfferedTool;
pub use ledger::{CallState, LedgerChange, LedgerRow, disagreement, effect_key, ledger_changes, ledger_of, restart};

/// What a run was begun with. Fixed for its life, so that the prompt's prefix is byte-identical in
/// every request of the run, whatever becomes of the files it came from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Opening {
    /// The persona as it was then.
    pub persona: PersonaTemplate,
    /// The configured model it asks.
    pub model: String,
    /// How that model is asked for tools.
    pub calling: ToolCalling,
    /// The tools offered, sorted by name.
    pub tools: Vec<OfferedTool>,
    /// Whether the task asks for an answer alone: then tools for writing stand in no step of structured calling, as long as
    /// the run gets on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_answers: bool,
    /// The system message.
    pub system: String,
    /// Worked tasks shown before the task, if any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Message>,
    /// The skills it may call, sorted by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<OfferedSkill>,
    /// What the second system message says of the skills, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills_list: Option<String>,
    /// What the next system message says of the core blocks, if there are any: as they were then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<String>,
    /// What the next system message says of earlier sessions, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// What was said before in the same session, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Message>,
    /// What it was told of its workspace, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// What the jobs that it waited for, and those it made, had come to, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<ToldResults>,
    /// What of all this others wrote, beside the workspace and the results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heard: Vec<String>,
    /// The model's window in tokens, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u32>,
    /// Whether the model's own tokenizer can be asked how many tokens a text has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_tokenizer: bool,
}

/// One model request and its reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Turn {
    /// The visible text; the JSON of the step when calling is structured.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Reasoning given beside the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Reasoning>,
    /// The calls it asked for, under our ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Call>,
    /// Calls of a reply that does not count: it was cut, filtered, refused, or no valid step. Kept to
    /// be looked at, never run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cut_calls: Vec<CallRequest>,
    /// Why the reply ended. JSON leaves out `tool_calls`, as most replies of a run end.
    #[serde(default = "Finish::usual", skip_serializing_if = "Finish::is_usual")]
    pub finish: Finish,
    /// Tokens of the request that succeeded.
    pub usage: Usage,
    /// The model that answered.
    pub model: String,
    /// Price in millionths of a US dollar, where prices are configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_microusd: Option<u64>,
    /// Tries that came to nothing before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_tries: Vec<FailedTry>,
    /// How long it took, retries included, in milliseconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ms: u64,
}

impl Turn {
    /// What it says in words: the step and its phase, where it has one; may be empty.
    pub fn said(&self) -> String {
        let of_phases = self.calls.iter().filter(|call| call.request.name == phase::AGENT_STEP);
        let steps: Vec<_> = of_phases
            .filter_map(|call| phase::parse(&call.request.arguments).ok())
            .map(|step| {
                let words = if step.summary.is_empty() { &step.thinking } else { &step.summary };
                let mut line = format!("{}: {words}", step.phase().as_str());
                if let Content::Plan(plan) = &step.content {
                    line.extend(plan.sub_tasks.iter().map(|task| format!("\n{}. {}", task.id, task.title)));
                }
                line
            })
            .collect();
        if !steps.is_empty() {
            return steps.join("\n");
        }
        match structured::parse(&self.text) {
            Ok(step) => step.thinking,
            Err(_) => self.text.clone(),
        }
    }
}

/// What is known of a window that was too small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Overflow {
    /// The window in tokens, where the provider named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// What the request was counted to have, in tokens.
    pub counted: u64,
}

/// What the model's tokenizer counted of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Count {
    /// The message's position in the conversation at work.
    pub at: usize,
    /// Bytes of its texts; a message that has others is another one, and not what was counted.
    pub bytes: usize,
    /// Tokens of its texts, each by itself.
    pub tokens: u64,
}

/// A call that a turn asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Call {
    /// Our id, name, arguments, the provider's private data.
    #[serde(flatten)]
    pub request: CallRequest,
    /// The tool's effect class; absent where no tool will run (unknown name, bad arguments, the
    /// final answer).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<EffectClass>,
}

impl Call {
    /// What runs for it: the call itself, or the action inside a step of phase `act`.
    pub fn runs(&self) -> CallRequest {
        phase::action(&self.request).unwrap_or_else(|| self.request.clone())
    }
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum CallOutcome {
    /// The tool did what was asked.
    Done,
    /// The tool ran and reports a failure.
    Failed {
        /// What kind.
        category: ToolErrorCategory,
    },
    /// It was never run: unknown tool, bad arguments, or the run ended first.
    Refused,
    /// It was in flight when its worker died; whether it took effect is not known.
    Unknown,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndStatus {
    /// It has its answer.
    Completed,
    /// It has a part of its answer, and says which.
    Partial,
    /// It says that it cannot get any further.
    Stuck,
    /// The limit of turns was reached.
    MaxTurns,
    /// The limit of tokens was reached.
    MaxTokens,
    /// The limit of working time was reached.
    MaxSeconds,
    /// The limit of rounds of tools was reached.
    MaxToolRounds,
    /// A limit was reached, in a journal from before each had a name of its own.
    LimitReached,
    /// The model refused, or the provider filtered its answer.
    Refused,
    /// It cannot go on, for the reason given.
    Failed,
}

named!(
    EndStatus: Completed = "completed", Partial = "partial", Stuck = "stuck", MaxTurns = "max_turns",
        MaxTokens = "max_tokens", MaxSeconds = "max_seconds", MaxToolRounds = "max_tool_rounds",
        LimitReached = "limit_reached", Refused = "refused", Failed = "failed"
);

impl EndStatus {
    /// Whether the agent itself ended the run, whatever it found.
    pub fn is_by_itself(self) -> bool {
        matches!(self, EndStatus::Completed | EndStatus::Partial | EndStatus::Stuck)
    }
}

/// One entry of a run's journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Entry {
    /// The run begins. Only what it took to begin stands before it: what its session had said, summed up, and requests
    /// that failed.
    Began {
        /// What is asked for.
        goal: String,
        /// What it works with.
        opening: Arc<Opening>,
    },
    /// The model replied.
    Turn(Turn),
    /// The model could not be brought to reply; recorded for the tokens it cost and for the reader.
    TurnFailed {
        /// What went wrong.
        reason: String,
        /// Every try.
        #[serde(default)]
        failed_tries: Vec<FailedTry>,
        /// Present when the request did not fit the model's window.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        overflow: Option<Overflow>,
        /// How long it took, in milliseconds.
        ms: u64,
    },
    /// A tool is about to run. Committed before it does.
    CallStarted {
        /// The call's id.
        call_id: String,
    },
    /// A call ended.
    CallEnded {
        /// The call's id.
        call_id: String,
        /// How.
        #[serde(flatten)]
        outcome: CallOutcome,
        /// What the model is told.
        text: String,
        /// Remarks saved with it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        annotations: Vec<NewAnnotation>,
        /// How long it ran, in milliseconds; of a program, without its calls.
        #[serde(default, skip_serializing_if = "is_default")]
        ms: u64,
    },
    /// A skill begins: what follows belongs to its own conversation, until its call ends.
    SkillBegan {
        /// The call that asks for it.
        call_id: String,
    },
    /// The program of a call begins. What it calls stands below, until that call ends.
    ProgramBegan {
        /// The call that runs it.
        call_id: String,
        /// What its clock says, whenever it is run.
        at: Millis,
    },
    /// A program called a tool.
    CallMade {
        /// The call that runs the program.
        by: String,
        /// Which of the program's calls it is, from 0.
        number: u32,
        /// The call.
        call: Call,
    },
    // Or its worker could not begin it, and the same tool is called again.
    /// A tool failed and another takes its place under a call of its own.
    FellBack {
        /// The call that failed.
        call_id: String,
        /// What kind of failure.
        category: ToolErrorCategory,
        /// What the tool said.
        text: String,
        /// The call that takes its place; its result answers the first one.
        to: Call,
    },
    /// The run asks people and waits. Each question becomes a row that can be answered.
    Asked {
        /// The call whose result the answers are.
        call_id: String,
        /// The questions, in order.
        questions: Vec<String>,
        /// How long they stay open, in milliseconds; for ever when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        open_ms: Option<u64>,
    },
    /// A question is settled.
    Answered {
        /// Its position among those asked last.
        question: u32,
        /// What was answered; absent when nobody did in time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answer: Option<String>,
    },
    /// The run begins anew with what the failed try taught; its conversation is cleared.
    Replanned {
        /// Why, in the model's words.
        reason: String,
        /// What was tried and why it failed.
        summary: String,
    },
    /// Old conversation was replaced by a summary.
    Compacted {
        /// The messages replaced.
        cut: Cut,
        /// What stands in their place.
        summary: String,
    },
    /// Messages were shortened because the conversation could not be made to fit otherwise.
    Shortened {
        /// Which, and to what.
        shortenings: Vec<Shortening>,
    },
    /// The model's tokenizer counted what had only been estimated.
    Counted {
        /// Tokens of what the model is told of tools and skills, counted once in a run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tools: Option<u64>,
        /// Tokens of messages.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        messages: Vec<Count>,
    },
    /// The model answered a request for a summary, or for a part of one: what that cost. Before the beginning of a
    /// run it is of what its session had said.
    Summarised {
        /// Which of the summary's requests it was, from 0. Absent for all of them together, as they were once
        /// written.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        part: Option<u32>,
        /// Tokens used.
        usage: Usage,
        /// The model that wrote it.
        model: String,
        /// Price in millionths of a US dollar, where prices are configured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_microusd: Option<u64>,
        /// Why it came to nothing, if it did; a mechanical summary takes its place.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<String>,
        /// How long it took, in milliseconds.
        ms: u64,
    },
    /// Posse tells the model something it must correct.
    Note {
        /// In words.
        text: String,
    },
    /// The run's answer is held back, once: its tools do not bear it out, and the model is told.
    Doubted {
        /// The call that gave it; absent where it was given in words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call_id: Option<String>,
        /// The answer.
        answer: String,
        /// What is wrong with it, for people.
        why: String,
        /// The same for the model, with what to do.
        text: String,
    },
    /// The run ends. Always the last entry until the job is re-run by hand.
    Ended {
        /// How.
        status: EndStatus,
        /// The answer, or the last words there were.
        text: String,
        /// Why, when it is not plainly the answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A person re-ran an ended run: it goes on from where it was, with fresh limits.
    Reopened,
    /// A person changed what is asked for: the run begins again after it, with fresh limits. What
    /// came before stays to be read, and counts in totals.
    Restarted,
}

impl Entry {
    /// The call that it is about, where it is about what a tool does.
    pub(super) fn call_id(&self) -> Option<&str> {
        match self {
            Entry::CallStarted { call_id } | Entry::CallEnded { call_id, .. } | Entry::FellBack { call_id, .. } => {
                Some(call_id)
            }
            _ => None,
        }
    }

    /// The kind as kept in the database.
    pub fn kind(&self) -> &'static str {
        match self {
            Entry::Began { .. } => "began",
            Entry::Turn(_) => "turn",
            Entry::TurnFailed { .. } => "turn_failed",
            Entry::CallStarted { .. } => "call_started",
            Entry::CallEnded { .. } => "call_ended",
            Entry::SkillBegan { .. } => "skill_began",
            Entry::ProgramBegan { .. } => "program_began",
            Entry::CallMade { .. } => "call_made",
            Entry::FellBack { .. } => "fell_back",
            Entry::Asked { .. } => "asked",
            Entry::Answered { .. } => "answered",
            Entry::Replanned { .. } => "replanned",
            Entry::Compacted { .. } => "compacted",
            Entry::Shortened { .. } => "shortened",
            Entry::Counted { .. } => "counted",
            Entry::Summarised { .. } => "summarised",
            Entry::Note { .. } => "note",
            Entry::Doubted { .. } => "doubted",
            Entry::Ended { .. } => "ended",
            Entry::Reopened => "reopened",
            Entry::Restarted => "restarted",
        }
    }
}

/// An entry with its position and time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Recorded {
    /// Its position in the run, from 0, without gaps.
    pub seq: u64,
    /// When it was committed.
    pub at: Millis,
    /// What happened.
    #[serde(flatten)]
    pub entry: Entry,
}
