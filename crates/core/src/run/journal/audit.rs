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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::journal::Entry;

    fn journal() -> Vec<Recorded> {
        let entries = serde_json::json!([
            {"kind": "turn", "finish": "tool_calls", "usage": {"input": 1, "output": 1}, "model": "m", "ms": 1,
             "calls": [{"id": "a", "name": "t", "arguments": "{}", "effect": "once"}]},
            {"kind": "call_started", "call_id": "a"},
            {"kind": "call_ended", "call_id": "a", "outcome": "done", "text": "ok", "ms": 1},
        ]);
        let entries: Vec<Entry> = serde_json::from_value(entries).expect("entries");
        (0..).zip(entries).map(|(seq, entry)| Recorded { seq, at: 10 + seq as i64, entry }).collect()
    }

    #[test]
    fn every_kind_of_disagreement_is_named() {
        let (job, journal) = (JobId(7), journal());
        let ledger = ledger_of("i", job, &journal);
        assert_eq!((ledger.len(), ledger[0].state, ledger[0].at), (1, CallState::Done, 12));
        let said = |journal: &[Recorded], ledger: &[LedgerRow]| disagreement("i", job, journal, ledger);
        assert_eq!(said(&journal, &ledger), None);
        assert_eq!(
            said(&journal[..2], &ledger).as_deref(),
            Some("call a is started by its journal and done by its ledger")
        );
        assert!(said(&journal, &[]).is_some_and(|said| said.contains("of 1 tool call, its ledger of 0")));
        assert!(said(&journal[1..], &ledger).is_some_and(|said| said.contains("no entry 0; the next is 1")));
        let other = vec![LedgerRow { effect_key: "k".into(), ..ledger[0].clone() }];
        assert!(said(&journal, &other).is_some_and(|said| said.contains("call a differs")));
    }
}
