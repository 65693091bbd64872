//! Unique keys that will not come free by themselves: the job that holds one cannot end.

use posse_core::clock::Millis;
use posse_core::doctor::keys::STUCK_MS;
use posse_core::doctor::{Facts, Verdict};
use posse_core::job::dependency::OnFailed;
use posse_core::job::{JobId, JobState};
use posse_core::port::{Awaited, Waiting};
use posse_core::queue::rules::{Limits, Rule, Scope};

const NOW: Millis = 1_800_000_000_000;
const LONG_AGO: Millis = NOW - 2 * STUCK_MS;

fn waiting(job: i64, state: JobState) -> Waiting {
    Waiting {
        job: JobId(job),
        key: Some(format!("k{job}")),
        role: "r".into(),
        queue: "q".into(),
        concurrency_key: String::new(),
        state,
        due_at: LONG_AGO,
        waits_for: Vec::new(),
        asked_at: None,
    }
}

fn on(job: i64, state: Option<JobState>, on_failed: OnFailed) -> Awaited {
    Awaited { job: JobId(job), state, on_failed, ended_at: state.filter(|s| s.is_final()).map(|_| LONG_AGO) }
}

fn paused(scope: Scope, at: Millis) -> Rule {
    Rule { scope, paused_at: Some(at), limits: Limits::default(), full_at_us: 0 }
}

fn limited(limits: Limits) -> Rule {
    Rule { scope: Scope::Queue("q".into()), paused_at: None, limits, full_at_us: 0 }
}

fn found(waiting: Vec<Waiting>, rules: Vec<Rule>) -> Vec<(Verdict, String, Option<String>)> {
    let facts = Facts { now: NOW, waiting, rules, ..Facts::default() };
    let keys = facts.findings().into_iter().filter(|found| found.check == "unique keys");
    keys.map(|found| (found.verdict, found.message, found.way_out)).collect()
}

fn one(waiting: Vec<Waiting>, rules: Vec<Rule>) -> (Verdict, String, String) {
    let [(verdict, message, way_out)] = &found(waiting, rules)[..] else { panic!("one finding") };
    (*verdict, message.clone(), way_out.clone().unwrap_or_default())
}

#[test]
fn a_holder_that_can_end_is_no_finding() {
    let zero = Limits { running: Some(0), ..Limits::default() };
    let later = Waiting { due_at: NOW + 1, ..waiting(1, JobState::Scheduled) };
    let asks = Waiting { asked_at: Some(NOW - 60_000), ..waiting(2, JobState::Suspended) };
    let mut waits = waiting(3, JobState::Suspended);
    // It is at work, so it is not among those that wait.
    waits.waits_for = vec![on(9, Some(JobState::Running), OnFailed::Wait)];
    let cases = [
        (vec![waiting(4, JobState::Available)], vec![]),
        (vec![waiting(4, JobState::Available)], vec![paused(Scope::All, NOW - 60_000)]),
        (vec![waiting(4, JobState::Available)], vec![paused(Scope::Role("other".into()), LONG_AGO)]),
        (vec![waiting(4, JobState::Available)], vec![limited(Limits { running: Some(1), ..zero })]),
        (vec![later], vec![limited(zero)]),
        (vec![asks, waits], vec![]),
        (vec![Waiting { key: None, ..waiting(4, JobState::Suspended) }], vec![]),
    ];
    for (waiting, rules) in cases {
        let (verdict, message, _) = one(waiting, rules);
        assert_eq!(verdict, Verdict::Ok, "{message}");
    }
}

#[test]
fn a_holder_that_cannot_end_is_named_with_the_way_out() {
    let (verdict, message, way_out) =
        one(vec![waiting(7, JobState::Available)], vec![paused(Scope::Queue("q".into()), LONG_AGO)]);
    assert_eq!(verdict, Verdict::Warning);
    assert_eq!(message, "held for 2 h by what cannot end: 'k7' by job 7; it cannot start: queue q is paused");
    assert_eq!(way_out, "posse resume --queue 'q', or posse job cancel 7");
    let zero = Limits { running: Some(0), ..Limits::default() };
    let (_, message, way_out) = one(vec![waiting(7, JobState::Retryable)], vec![limited(zero)]);
    assert!(message.contains("queue q has a limit of 0 at once"), "{message}");
    assert_eq!(way_out, "posse limit remove --queue 'q', or posse job cancel 7");
    let asks = Waiting { asked_at: Some(LONG_AGO), ..waiting(7, JobState::Suspended) };
    assert!(one(vec![asks], vec![]).1.ends_with("it waits for a person's answer"));
    let (verdict, message, _) = one(vec![waiting(7, JobState::Suspended)], vec![]);
    assert_eq!(verdict, Verdict::Wrong, "nobody meant that");
    assert!(message.contains("no job and no question is left"), "{message}");
}

#[test]
fn what_a_holder_waits_for_is_followed_to_the_reason() {
    let waits = |job, other, state, rule| Waiting {
        waits_for: vec![on(other, state, rule)],
        ..waiting(job, JobState::Suspended)
    };
    let (verdict, message, way_out) = one(vec![waits(7, 3, Some(JobState::Cancelled), OnFailed::Wait)], vec![]);
    assert_eq!(verdict, Verdict::Warning);
    assert!(message.ends_with("it waits for job 3, which is cancelled"), "{message}");
    assert_eq!(way_out, "posse job retry 3, or posse job cancel 7");
    let deleted = one(vec![waits(7, 3, None, OnFailed::Run)], vec![]);
    assert_eq!((deleted.0, deleted.2.as_str()), (Verdict::Wrong, "posse job cancel 7"));
    // Through one that holds no key itself.
    let middle = Waiting { key: None, ..waiting(3, JobState::Available) };
    let behind = waits(7, 3, Some(JobState::Available), OnFailed::Cancel);
    let (_, message, _) = one(vec![behind, middle], vec![paused(Scope::All, LONG_AGO)]);
    assert!(message.ends_with("it waits for job 3, which cannot start: everything is paused"), "{message}");
}

#[test]
fn many_holders_with_one_reason_are_one_finding() {
    let many = (1..=40).map(|job| waiting(job, JobState::Available)).collect();
    let (_, message, _) = one(many, vec![paused(Scope::All, LONG_AGO)]);
    assert!(message.contains("'k1' by job 1, 'k2' by job 2, 'k3' by job 3 and 37 more;"), "{message}");
}
