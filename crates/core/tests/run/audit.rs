//! Whether the ledger says what the journal says.

use posse_core::job::JobId;
use posse_core::run::journal::{CallState, Entry, LedgerRow, Recorded, disagreement, ledger_of};

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
