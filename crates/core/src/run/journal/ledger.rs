//! The ledger of tool calls: what each journal entry changes in it, and whether it says what the journal says.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Call, CallOutcome, Entry, Recorded};
use crate::clock::Millis;
use crate::job::JobId;
use crate::text::{count, named, plural};
use crate::tool::EffectClass;

/// Where a tool call is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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

named!(
    CallState: Proposed = "proposed", Started = "started", Done = "done", Failed = "failed", Refused = "refused",
        Unknown = "unknown"
);

/// A row of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
        /// The tool that is to run.
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
        Entry::Turn(turn) => turn.calls.iter().filter_map(proposal).collect(),
        Entry::CallMade { call, .. } => proposal(call).into_iter().collect(),
        Entry::FellBack { call_id, to, .. } => {
            let failed = LedgerChange::Move { call_id: call_id.clone(), to: CallState::Failed };
            [failed].into_iter().chain(proposal(to)).collect()
        }
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

fn proposal(call: &Call) -> Option<LedgerChange> {
    let effect = call.effect?;
    let tool = call.runs().name;
    Some(LedgerChange::Propose { call_id: call.request.id.clone(), tool, effect })
}

/// The entries with which a run begins again: calls that had not ended end, since nobody goes on with them.
pub fn restart(ledger: &[LedgerRow]) -> Vec<Entry> {
    let ended = |row: &LedgerRow| {
        let outcome = match row.state {
            CallState::Proposed => CallOutcome::Refused,
            CallState::Started => CallOutcome::Unknown,
            _ => return None,
        };
        let text = "The run was begun again before this call ended.".to_owned();
        Some(Entry::CallEnded { call_id: row.call_id.clone(), outcome, text, annotations: Vec::new(), ms: 0 })
    };
    ledger.iter().filter_map(ended).chain([Entry::Restarted]).collect()
}

/// The key that tells the outside world that two requests are the same one: 32 hex digits, the same
/// on every retry of a call, different for every other call of any job in any database.
pub fn effect_key(installation: &str, job: JobId, call_id: &str) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(format!("{installation}/{job}/{call_id}"));
    digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The ledger as it must be, from the journal alone.
pub fn ledger_of(installation: &str, job: JobId, journal: &[Recorded]) -> Vec<LedgerRow> {
    let mut rows: Vec<LedgerRow> = Vec::new();
    for Recorded { seq, at, entry } in journal {
        for change in ledger_changes(entry) {
            match change {
                LedgerChange::Propose { call_id, tool, effect } => {
                    let effect_key = effect_key(installation, job, &call_id);
                    let (seq, at, state) = (*seq, *at, CallState::Proposed);
                    rows.push(LedgerRow { call_id, seq, tool, effect, effect_key, state, at });
                }
                LedgerChange::Move { call_id, to } => {
                    if let Some(row) = rows.iter_mut().find(|row| row.call_id == call_id) {
                        (row.state, row.at) = (to, *at);
                    }
                }
            }
        }
    }
    rows
}

/// What does not fit together in a job's history, in words; none where all does.
pub fn disagreement(installation: &str, job: JobId, journal: &[Recorded], ledger: &[LedgerRow]) -> Option<String> {
    if let Some((position, recorded)) = (0..).zip(journal).find(|(position, recorded)| recorded.seq != *position) {
        return Some(format!("its journal has no entry {position}; the next is {}", recorded.seq));
    }
    let expected = ledger_of(installation, job, journal);
    if expected.len() != ledger.len() {
        let (told, kept) = (plural(expected.len() as u64, "tool call"), count(ledger.len() as u64));
        return Some(format!("its journal tells of {told}, its ledger of {kept}"));
    }
    let different = expected.iter().zip(ledger).find(|(expected, row)| expected != row)?;
    let (expected, row) = different;
    let states = format!("{} by its journal and {} by its ledger", expected.state.as_str(), row.state.as_str());
    Some(match expected.call_id == row.call_id && expected.state != row.state {
        true => format!("call {} is {states}", row.call_id),
        false => format!("call {} differs between its journal and its ledger", row.call_id),
    })
}
