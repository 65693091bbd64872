//! What a run asked of its model, made again from its journal.

use posse_core::job::Attempt;
use posse_core::run::sent::{Reason, requests};
use serde_json::json;

use super::kit::{Harness, call, finish, opening};

fn attempt(number: u32, started_at: i64, ended_at: i64, outcome: &str) -> Attempt {
    Attempt {
        number,
        worker: "w".into(),
        started_at,
        ended_at: Some(ended_at),
        outcome: Some(outcome.into()),
        reason: None,
    }
}

#[test]
fn a_request_that_was_cut_short_is_told_and_not_claimed_to_have_been_sent() {
    let mut h = Harness::begin(opening());
    let first = h.run.request();
    h.calls(vec![call("look", json!({}))]).run_calls();
    let second = h.run.request();
    h.calls(vec![finish("42")]);
    let mut journal = h.journal.clone();
    assert_eq!(h.kinds()[..5], ["began", "turn", "call_started", "call_ended", "turn"]);
    for (n, recorded) in journal.iter_mut().enumerate() {
        recorded.at = 100 * (n as i64 + 1);
    }
    // One is lost before the first answer, two while a tool runs; one is stopped before the second answer.
    let attempts = [
        attempt(3, 310, 350, "worker_lost"),
        attempt(1, 90, 150, "worker_lost"),
        attempt(2, 160, 301, "worker_lost"),
        attempt(4, 360, 450, "interrupted"),
        attempt(5, 460, 900, "completed"),
    ];
    let made = requests(&journal, &attempts);
    let told: Vec<_> = made.iter().map(|made| (made.seq, made.answered_at, made.missing.as_deref())).collect();
    let lost = Some("whether it was sent at all: its worker was lost before there was an answer");
    let stopped = Some("whether it was sent at all: its worker was stopped before there was an answer");
    let asked = [(1, None, lost), (1, Some(200), None), (4, None, stopped), (4, Some(500), None)];
    assert_eq!(told, asked);
    assert!(made.iter().all(|made| made.reason == Reason::Turn));
    let asked: Vec<_> = made.iter().map(|made| format!("{:?}", made.request.as_ref().unwrap())).collect();
    let [first, second] = [first, second].map(|request| format!("{request:?}"));
    assert_eq!(asked, [first.clone(), first, second.clone(), second]);
}

#[test]
fn an_attempt_that_was_cut_short_last_is_told_last() {
    let h = Harness::begin(opening());
    let made = requests(&h.journal, &[attempt(1, 0, 700, "worker_lost"), attempt(2, 800, 900, "failed")]);
    assert_eq!(made.iter().map(|made| (made.seq, made.answered_at)).collect::<Vec<_>>(), [(1, None)]);
}
