//! Whether the ledger says what the journal says.

use super::{CallState, LedgerChange, LedgerRow, Recorded, effect_key, ledger_changes};
use crate::job::JobId;
use crate::text::{count, plural};

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
    if let Some((place, recorded)) = (0..).zip(journal).find(|(place, recorded)| recorded.seq != *place) {
        return Some(format!("its journal has no entry {place}; the next is {}", recorded.seq));
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
