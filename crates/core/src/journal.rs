//! The journal: the append-only list of a run's entries.
//!
//! Everything else about a run (conversation, totals, timeline, ledger) is computed from it. The
//! ledger of tool calls is kept as a table too, so that it can be asked about; each row changes in
//! the transaction that appends the entry it comes from, by [`ledger_change`].

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::annotation::NewAnnotation;
use crate::clock::Millis;
use crate::job::JobId;
use crate::model::{CallRequest, FailedTry, Finish, Message, ToolCalling, Usage};
use crate::persona::PersonaTemplate;
use crate::tool::{EffectClass, ToolErrorCategory, ToolSpec};

/// What a run was begun with. Fixed for its life, so that the prompt's prefix is byte-identical in
/// every request of the run, whatever becomes of the files it came from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Opening {
    /// The persona as it was then.
    pub persona: PersonaTemplate,
    /// The configured model it asks.
    pub model: String,
    /// How that model is asked for tools.
    pub calling: ToolCalling,
    /// The tools offered, sorted by name.
    pub tools: Vec<OfferedTool>,
    /// The system message.
    pub system: String,
    /// Worked tasks shown before the task, if any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Message>,
}

/// A tool as it was offered to the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OfferedTool {
    /// What the model is told.
    pub spec: ToolSpec,
    /// What happens if it runs twice.
    pub effect: EffectClass,
}

/// One model request and its reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// The visible text; the JSON of the step when calling is structured.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Reasoning given beside the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// The calls it asked for, under our ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Call>,
    /// Calls that the token limit cut off; kept to be looked at, never run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cut_calls: Vec<CallRequest>,
    /// Why the reply ended.
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
    pub ms: u64,
}

/// A call that a turn asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Our id, name, arguments, the provider's private data.
    #[serde(flatten)]
    pub request: CallRequest,
    /// The tool's effect class; absent where no tool will run (unknown name, bad arguments, the
    /// final answer).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<EffectClass>,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndStatus {
    /// It has its answer.
    Completed,
    /// A limit of turns, tokens or working time was reached.
    LimitReached,
    /// The model refused, or the provider filtered its answer.
    Refused,
    /// It cannot go on, for the reason given.
    Failed,
}

impl EndStatus {
    /// The name shown to people.
    pub fn as_str(self) -> &'static str {
        match self {
            EndStatus::Completed => "completed",
            EndStatus::LimitReached => "limit_reached",
            EndStatus::Refused => "refused",
            EndStatus::Failed => "failed",
        }
    }
}

/// One entry of a run's journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Entry {
    /// The run begins. Always the first entry, and only that.
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
        /// How long it ran, in milliseconds.
        ms: u64,
    },
    /// Posse tells the model something it must correct.
    Note {
        /// In words.
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
}

impl Entry {
    /// The kind as kept in the database.
    pub fn kind(&self) -> &'static str {
        match self {
            Entry::Began { .. } => "began",
            Entry::Turn(_) => "turn",
            Entry::TurnFailed { .. } => "turn_failed",
            Entry::CallStarted { .. } => "call_started",
            Entry::CallEnded { .. } => "call_ended",
            Entry::Note { .. } => "note",
            Entry::Ended { .. } => "ended",
            Entry::Reopened => "reopened",
        }
    }
}

/// An entry with its place and time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// Its place in the run, from 0, without gaps.
    pub seq: u64,
    /// When it was committed.
    pub at: Millis,
    /// What happened.
    #[serde(flatten)]
    pub entry: Entry,
}

/// Where a tool call is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// The model asked for it and it is going to run.
    Proposed,
    /// About to run, or running.
    Started,
    /// Ran, and did what was asked.
    Done,
    /// Ran, and reported a failure.
    Failed,
    /// Never ran.
    Refused,
    /// In flight when its worker died.
    Unknown,
}

impl CallState {
    /// Every state.
    pub const ALL: [CallState; 6] = [
        CallState::Proposed,
        CallState::Started,
        CallState::Done,
        CallState::Failed,
        CallState::Refused,
        CallState::Unknown,
    ];

    /// The name kept in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            CallState::Proposed => "proposed",
            CallState::Started => "started",
            CallState::Done => "done",
            CallState::Failed => "failed",
            CallState::Refused => "refused",
            CallState::Unknown => "unknown",
        }
    }
}

/// A row of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerRow {
    /// The call's id, unique within the job.
    pub call_id: String,
    /// The entry that asked for it; its arguments are there.
    pub seq: u64,
    /// The tool.
    pub tool: String,
    /// What happens if it runs twice.
    pub effect: EffectClass,
    /// The key handed to the outside world.
    pub effect_key: String,
    /// Where it is in its life.
    pub state: CallState,
    /// When it last changed.
    pub at: Millis,
}

/// What an entry changes in the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerChange {
    /// A new row, in state `proposed`.
    Propose {
        /// The call's id.
        call_id: String,
        /// The tool.
        tool: String,
        /// What happens if it runs twice.
        effect: EffectClass,
    },
    /// The row's new state. A call that never had a row (no tool was going to run) has none to
    /// change.
    Move {
        /// The call's id.
        call_id: String,
        /// Its new state.
        to: CallState,
    },
}

/// What `entry` changes in the ledger.
pub fn ledger_changes(entry: &Entry) -> Vec<LedgerChange> {
    match entry {
        Entry::Turn(turn) => turn
            .calls
            .iter()
            .filter_map(|call| {
                let effect = call.effect?;
                let CallRequest { id, name, .. } = &call.request;
                Some(LedgerChange::Propose { call_id: id.clone(), tool: name.clone(), effect })
            })
            .collect(),
        Entry::CallStarted { call_id } => {
            vec![LedgerChange::Move { call_id: call_id.clone(), to: CallState::Started }]
        }
        Entry::CallEnded { call_id, outcome, .. } => {
            let to = match outcome {
                CallOutcome::Done => CallState::Done,
                CallOutcome::Failed { .. } => CallState::Failed,
                CallOutcome::Refused => CallState::Refused,
                CallOutcome::Unknown => CallState::Unknown,
            };
            vec![LedgerChange::Move { call_id: call_id.clone(), to }]
        }
        _ => Vec::new(),
    }
}

/// The key that tells the outside world that two requests are the same one: 32 hex digits, the same
/// on every retry of a call, different for every other call of any job in any database.
pub fn effect_key(installation: &str, job: JobId, call_id: &str) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(format!("{installation}/{job}/{call_id}"));
    digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}
