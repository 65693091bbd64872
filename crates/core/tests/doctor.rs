//! What is wrong with a fleet and its database, from what can be seen of them. One function a check.

mod keys;

use posse_core::clock::Millis;
use posse_core::doctor::*;
use posse_core::job::lease::WorkerId;
use posse_core::job::{JobId, NewJob};
use posse_core::model::breaker;
use posse_core::port::{ClockJump, DueJobs, HeldJob, Storage, WorkerRecord};
use posse_core::queue::rate::EndpointState;
use posse_core::schedule::Schedule;

const NOW: Millis = 1_800_000_000_000;

fn worker(id: &str) -> WorkerRecord {
    WorkerRecord {
        id: id.into(),
        host: "h".into(),
        pid: 7,
        pid_started: 1,
        roles: vec!["r".into()],
        slots: 1,
        started_at: NOW - 1000,
        heartbeat_at: NOW - 1000,
        lease_ms: 30_000,
        drain_requested_at: None,
    }
}

fn held(worker: &str, lease_until: Millis) -> HeldJob {
    HeldJob {
        job: JobId(3),
        role: "r".into(),
        worker: worker.into(),
        since: NOW,
        lease_until,
        entries: 0,
        last_entry: None,
        last_entry_at: None,
    }
}

/// The worst verdict of a check, and what it says.
fn worst(facts: &Facts, check: &str) -> (Verdict, String) {
    let findings = facts.findings();
    let of_check = findings.iter().filter(|finding| finding.check == check);
    let worst = of_check.max_by_key(|finding| finding.verdict).expect("is checked");
    assert_eq!(worst.verdict == Verdict::Ok, worst.way_out.is_none(), "{worst:?}");
    (worst.verdict, worst.message.clone())
}

fn facts(change: impl FnOnce(&mut Facts)) -> Facts {
    let mut facts = Facts { now: NOW, workers: vec![worker("w")], roles: vec!["r".into()], ..Facts::default() };
    change(&mut facts);
    facts
}

#[test]
fn a_fleet_that_is_well_has_nothing_to_say() {
    let all = facts(|_| ()).findings();
    assert!(all.iter().all(|finding| finding.verdict == Verdict::Ok), "{all:?}");
}

#[test]
fn jobs_that_nobody_serves_are_wrong() {
    let due = |role: &str, ms: Millis| DueJobs { role: role.into(), jobs: 2, oldest_due_at: NOW - ms };
    let judged = |due: DueJobs, change: fn(&mut WorkerRecord)| {
        let facts = facts(|facts| {
            facts.due = vec![due];
            change(&mut facts.workers[0]);
        });
        worst(&facts, "due jobs").0
    };
    assert_eq!(judged(due("r", 90_000), |_| ()), Verdict::Ok);
    assert_eq!(judged(due("r", 9_000_000), |_| ()), Verdict::Warning);
    assert_eq!(judged(due("s", 90_000), |_| ()), Verdict::Wrong);
    assert_eq!(judged(due("s", 9_000), |_| ()), Verdict::Ok);
    assert_eq!(judged(due("r", 90_000), |worker| worker.heartbeat_at = NOW - 90_000), Verdict::Wrong);
    assert_eq!(judged(due("r", 90_000), |worker| worker.drain_requested_at = Some(NOW)), Verdict::Wrong);
}

#[test]
fn what_dead_workers_hold_is_wrong() {
    let judged = |held: HeldJob, gone: &str| {
        worst(&facts(|facts| (facts.held, facts.gone) = (vec![held], vec![WorkerId(gone.into())])), "leases").0
    };
    assert_eq!(judged(held("w", NOW + 1), "v"), Verdict::Ok);
    assert_eq!(judged(held("w", NOW + 1), "w"), Verdict::Wrong);
    assert_eq!(judged(held("w", NOW - 60_000), "v"), Verdict::Wrong);
    let gone = facts(|facts| facts.gone = vec![WorkerId("w".into())]);
    assert_eq!(worst(&gone, "workers").0, Verdict::Warning);
}

#[test]
fn endpoints_that_fail_are_named() {
    let judged = |failures: u32, last_ago: Millis| {
        let mut breaker = breaker::Breaker::default();
        (0..failures).for_each(|_| _ = breaker.fail(NOW - last_ago, false));
        let state = EndpointState { endpoint: "http://e/v1".into(), breaker, reason: Some("503".into()) };
        worst(&facts(|facts| facts.endpoints = vec![state]), "endpoints")
    };
    let (verdict, message) = judged(breaker::FAILURES, 1000);
    assert_eq!(verdict, Verdict::Wrong);
    assert_eq!(message, "http://e/v1 is out after 5 failures in a row, the last 1 s ago: 503");
    assert_eq!(judged(breaker::FAILURES, 2 * 24 * 3_600_000).0, Verdict::Warning, "nobody knows any more");
    assert_eq!(judged(1, 1000).0, Verdict::Warning);
    assert_eq!(judged(1, breaker::WINDOW_MS + 1).0, Verdict::Ok);
}

#[test]
fn schedules_clocks_and_disks_are_looked_at() {
    let job = NewJob { role: "r".into(), ..NewJob::default() };
    let schedule = Schedule::new("s", ("0 * * * *", "UTC"), job, Default::default(), NOW).expect("a schedule");
    let judged = |change: fn(&mut Schedule)| {
        let mut schedule = schedule.clone();
        change(&mut schedule);
        worst(&facts(|facts| facts.schedules = vec![schedule]), "schedules").0
    };
    assert_eq!(judged(|_| ()), Verdict::Ok);
    assert_eq!(judged(|schedule| schedule.cron = "never".into()), Verdict::Wrong);
    assert_eq!(judged(|schedule| schedule.job.role = "x".into()), Verdict::Wrong);
    assert_eq!(judged(|schedule| schedule.next_at = NOW - 120_000), Verdict::Wrong);
    assert_eq!(judged(|schedule| schedule.next_at += 7_200_000), Verdict::Warning);
    let jump = ClockJump { worker: "w".into(), noticed_at: NOW - 5, by_ms: -3_600_000 };
    let jumped = facts(|facts| facts.jumps = vec![jump]);
    assert_eq!(worst(&jumped, "clock"), (Verdict::Warning, "it was set back by 1 h, as w noticed".into()));
    let inside = |gives_back, free_bytes| {
        let storage = Storage { bytes: 300 << 20, free_bytes, gives_back, log_bytes: 0 };
        let all = facts(|facts| facts.storage = storage).findings();
        all.iter().any(|finding| finding.check == "space inside")
    };
    assert!(inside(false, 200 << 20) && !inside(true, 200 << 20) && !inside(false, 70 << 20));
    let long = facts(|facts| facts.storage.log_bytes = 200 << 20);
    assert_eq!(worst(&long, "log").0, Verdict::Warning);
    let verdicts = [1 << 20, 100 << 20, 9 << 30].map(|free| space("the database", "/x", free).verdict);
    assert_eq!(verdicts, [Verdict::Wrong, Verdict::Warning, Verdict::Ok]);
}
