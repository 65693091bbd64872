//! Any sequence of operations leaves behind what a simple model says: jobs where the core's transition
//! function puts them, and their attempts, journals, reasons and outputs.

use std::sync::Arc;

use super::*;
use posse_core::annotation::NewAnnotation;
use posse_core::job::deaths::{deadly, died_in_last_attempt};
use posse_core::job::transition::{Standing, transition};
use posse_core::job::{Attempt, DEFAULT_PRIORITY_STEP_MS, rank};
use posse_core::port::{AttemptEnd, Cancelled};
use proptest::prelude::*;

/// Something that is done to a repository. Numbers choose among what there is.
#[derive(Debug, Clone)]
pub enum Op {
    Enqueue { count: usize, priority: u8, delay: Millis, max_attempts: u32 },
    Claim { limit: u32, worker: usize },
    Append { lease: usize, notes: usize, gap: bool },
    Finish { ends: Vec<End> },
    Heartbeat { worker: usize },
    Rescue { dead: Option<usize> },
    Cancel { job: usize },
    Retry { job: usize },
    Annotate { job: usize },
    Pass { ms: Millis },
}

/// How one attempt is to end.
#[derive(Debug, Clone)]
pub struct End {
    lease: usize,
    event: Event,
    delay: Millis,
    why: Option<String>,
    output: Option<String>,
    /// Whether the run ends with it, by an entry of the journal.
    entry: bool,
    /// Whether that entry is offered for the wrong place.
    gap: bool,
}

/// Sequences of operations.
pub fn ops() -> impl Strategy<Value = Vec<Op>> {
    // Completing is what mostly happens.
    let endings = prop_oneof![Just(Event::Complete), prop::sample::select(&Event::ALL[..])];
    let words = || prop::option::of("[a-c]");
    let rarely = || prop::bool::weighted(0.05);
    let end = (any::<usize>(), endings, 1..60_000_i64, words(), words(), any::<bool>(), rarely()).prop_map(
        |(lease, event, delay, why, output, entry, gap)| End { lease, event, delay, why, output, entry, gap },
    );
    let op = prop_oneof![
        3 => (1..40_usize, 1..=9_u8, prop_oneof![Just(0), 0..60_000_i64], 1..4_u32)
            .prop_map(|(count, priority, delay, max_attempts)| Op::Enqueue {
                // Small batches mostly, so that there is something to contend for.
                count: if count > 36 { count } else { 1 + count / 16 }, priority, delay, max_attempts }),
        4 => (1..6_u32, 0..3_usize).prop_map(|(limit, worker)| Op::Claim { limit, worker }),
        3 => (any::<usize>(), 1..3_usize, rarely()).prop_map(|(lease, notes, gap)| Op::Append { lease, notes, gap }),
        6 => prop::collection::vec(end, 1..5).prop_map(|ends| Op::Finish { ends }),
        1 => (0..3_usize).prop_map(|worker| Op::Heartbeat { worker }),
        2 => prop::option::of(0..3_usize).prop_map(|dead| Op::Rescue { dead }),
        2 => any::<usize>().prop_map(|job| Op::Cancel { job }),
        2 => any::<usize>().prop_map(|job| Op::Retry { job }),
        1 => any::<usize>().prop_map(|job| Op::Annotate { job }),
        3 => (0..40_000_i64).prop_map(|ms| Op::Pass { ms }),
    ];
    prop::collection::vec(op, 1..80)
}

#[derive(Debug)]
struct Modelled {
    id: JobId,
    priority: u8,
    standing: Standing,
    token: i64,
    lease: Option<(String, Millis)>,
    attempts: Vec<Attempt>,
    /// The kinds of its entries.
    journal: Vec<&'static str>,
    reason: Option<String>,
    output: Option<String>,
    annotations: usize,
    /// Deaths in a row without progress, entries at the last one, and when that was; whether it is suspected.
    deaths: u32,
    entries: usize,
    died_at: Millis,
    is_suspect: bool,
    awaited_by: Option<String>,
}

impl Modelled {
    /// Its worker died: what happens.
    fn die(&mut self, now: Millis) -> Event {
        let is_further = self.journal.len() > self.entries.max(1);
        self.deaths = if is_further { 0 } else { self.deaths + 1 };
        (self.entries, self.died_at, self.awaited_by) = (self.journal.len(), now, None);
        let event = match self.deaths {
            0 => Event::LostOnTheWay,
            LIMIT.. => Event::Deadly,
            _ => Event::LeaseExpired,
        };
        self.is_suspect = (2..LIMIT).contains(&self.deaths);
        event
    }

    fn stands_suspected(&self) -> bool {
        self.is_suspect && matches!(self.standing.state, JobState::Available | JobState::Running)
    }

    fn end_attempt(&mut self, event: Event, reason: Option<String>, now: Millis) {
        let attempt = self.attempts.last_mut().expect("has begun");
        (attempt.ended_at, attempt.outcome, attempt.reason) = (Some(now), Some(event.as_str().into()), reason);
    }
}

/// Deaths without progress that a job may meet.
const LIMIT: u32 = 4;

/// Moves a job by the rules; whether it could.
fn step(job: &mut Modelled, event: Event, at: Millis) -> bool {
    let Ok(change) = transition(job.standing, event, at) else { return false };
    job.standing = change.to;
    if change.frees_lease {
        job.lease = None;
    }
    true
}

/// Does `ops` to the store and to the model, and compares them after each.
pub async fn agrees(store: Arc<dyn Store>, ops: Vec<Op>) {
    let mut jobs: Vec<Modelled> = Vec::new();
    let mut leases: Vec<Lease> = Vec::new();
    let mut now = T0;
    for op in ops {
        apply(&*store, &mut jobs, &mut leases, &mut now, &op).await;
        for job in &jobs {
            let stored = get(&*store, job.id).await;
            let standing = Standing {
                state: stored.state,
                attempt: stored.attempt,
                max_attempts: stored.max_attempts,
                crashes: stored.crashes,
                cancel_requested: stored.cancel_requested,
                run_at: stored.run_at,
            };
            assert_eq!(standing, job.standing, "job {} after {op:?}", job.id);
            assert_eq!(stored.leased_by.zip(stored.lease_until), job.lease, "job {} after {op:?}", job.id);
            assert_eq!(stored.finalized_at.is_some(), job.standing.state.is_final(), "job {} after {op:?}", job.id);
            assert_eq!(stored.reason, job.reason, "job {} after {op:?}", job.id);
            assert_eq!(stored.output.map(|output| output.text), job.output, "job {} after {op:?}", job.id);
            assert_eq!(store.attempts(job.id).await.expect("reads"), job.attempts, "job {} after {op:?}", job.id);
            let journal = store.journal(job.id, 0).await.expect("reads");
            let kinds: Vec<_> = journal.iter().map(|recorded| recorded.entry.kind()).collect();
            assert_eq!(kinds, job.journal, "job {} after {op:?}", job.id);
            let annotations = store.annotations(job.id).await.expect("reads");
            assert_eq!(annotations.len(), job.annotations, "job {} after {op:?}", job.id);
        }
    }
}

async fn apply(store: &dyn Store, jobs: &mut Vec<Modelled>, leases: &mut Vec<Lease>, now: &mut Millis, op: &Op) {
    let now = match op {
        Op::Pass { ms } => {
            *now += ms;
            return;
        }
        _ => *now,
    };
    match op {
        Op::Pass { .. } => {}
        &Op::Enqueue { count, priority, delay, max_attempts } => {
            let run_at = now + delay;
            let new = NewJob { priority, run_at: Some(run_at), max_attempts, max_crashes: LIMIT, ..job("r") };
            let ids = enqueue_all(store, vec![new; count], now).await;
            assert_eq!(ids.len(), count);
            let state = if delay > 0 { JobState::Scheduled } else { JobState::Available };
            let standing = Standing { state, attempt: 0, max_attempts, crashes: 0, cancel_requested: false, run_at };
            jobs.extend(ids.into_iter().map(|id| Modelled {
                id,
                priority,
                standing,
                token: 0,
                lease: None,
                attempts: Vec::new(),
                journal: Vec::new(),
                reason: None,
                output: None,
                annotations: 0,
                deaths: 0,
                entries: 0,
                died_at: 0,
                is_suspect: false,
                awaited_by: None,
            }));
        }
        &Op::Claim { limit, worker } => {
            let worker = format!("w{worker}");
            let ask = ClaimRequest { worker: WorkerId(worker.clone()), ..request("r", limit, now) };
            let got = store.claim(ask).await.expect("a claim works");
            for job in jobs.iter_mut().filter(|job| job.standing.run_at <= now) {
                step(job, Event::Due, now);
            }
            let holds = |job: &Modelled| job.lease.as_ref().is_some_and(|(by, _)| *by == worker);
            let suspects = jobs.iter().filter(|job| job.stands_suspected()).count();
            let has_suspect = jobs.iter().any(|job| holds(job) && job.stands_suspected());
            let has_jobs = jobs.iter().any(holds);
            let mut due: Vec<_> = jobs.iter_mut().filter(|job| job.standing.state == JobState::Available).collect();
            due.sort_by_key(|job| (rank(job.standing.run_at, job.priority, DEFAULT_PRIORITY_STEP_MS), job.id));
            if has_suspect {
                due.clear();
            } else if suspects > 0 && !has_jobs {
                due.truncate(1);
            } else if suspects > 0 {
                // As many more are looked at as there are suspects; one that waits for long is waited for.
                due.truncate(limit as usize + suspects);
                let is_worth = |job: &&mut &mut Modelled| {
                    job.is_suspect
                        && job.awaited_by.as_ref().is_none_or(|by| *by == worker)
                        && now - job.died_at >= 60_000
                };
                if let Some(awaited) = due.iter_mut().find(is_worth) {
                    // Nobody is on the list of workers here, so that nobody waits for long.
                    awaited.awaited_by = None;
                    due.clear();
                }
                due.retain(|job| !job.is_suspect);
            }
            due.truncate(limit as usize);
            let want: Vec<_> = due.iter().map(|job| job.id).collect();
            assert_eq!(got.iter().map(|claimed| claimed.job.id).collect::<Vec<_>>(), want);
            for (job, claimed) in due.into_iter().zip(got) {
                assert!(step(job, Event::Claim, now));
                assert!(claimed.lease.token > job.token, "tokens rise");
                job.token = claimed.lease.token;
                job.lease = Some((worker.clone(), now + LEASE));
                let (number, worker) = (job.standing.attempt, worker.clone());
                let begun = Attempt { number, worker, started_at: now, ended_at: None, outcome: None, reason: None };
                job.attempts.push(begun);
                assert_eq!(claimed.job, get(store, job.id).await, "what is claimed is what is stored");
                leases.push(claimed.lease);
            }
        }
        &Op::Append { lease, notes, gap } => {
            let Some(lease) = leases.get(lease % leases.len().max(1)).copied() else { return };
            let job = jobs.iter_mut().find(|job| job.id == lease.job).expect("is modelled");
            let seq = job.journal.len() as u64 + u64::from(gap);
            let got = store.append(lease, seq, vec![note("n"); notes], now).await;
            if job.lease.is_none() || job.token != lease.token {
                assert!(is_lost(got, job.id));
            } else if gap {
                assert!(matches!(got, Err(RepositoryError::Misused(_))), "{got:?}");
            } else {
                got.expect("is saved");
                job.journal.extend(vec!["note"; notes]);
            }
        }
        Op::Finish { ends } => finish_all(store, jobs, leases, now, ends).await,
        &Op::Heartbeat { worker } => {
            let name = format!("w{worker}");
            let heard = store.heartbeat(WorkerId(name), leases.clone(), now + LEASE, now).await.expect("works");
            let mut lost = Vec::new();
            for lease in leases.iter() {
                let job = jobs.iter_mut().find(|job| job.id == lease.job).expect("is modelled");
                match &mut job.lease {
                    Some((_, until)) if job.token == lease.token => *until = now + LEASE,
                    _ => lost.push(job.id),
                }
            }
            assert_eq!(heard.lost, lost);
        }
        &Op::Rescue { dead } => {
            let dead = dead.map(|worker| format!("w{worker}"));
            let gone = dead.iter().map(|worker| WorkerId(worker.clone())).collect();
            let mut got: Vec<_> = store.rescue(gone, now).await.expect("works").into_iter().map(|r| r.job).collect();
            let mut want = Vec::new();
            for job in jobs.iter_mut() {
                let Some((worker, until)) = job.lease.clone() else { continue };
                if until > now && Some(&worker) != dead.as_ref() {
                    continue;
                }
                let event = job.die(now);
                assert!(step(job, event, now));
                want.push(job.id);
                let lost = format!("worker {worker} was lost while working on it");
                job.end_attempt(event, Some(lost.clone()), now);
                let Standing { state, max_attempts, .. } = job.standing;
                match state {
                    JobState::Cancelled => {}
                    JobState::Discarded if event == Event::Deadly => job.reason = Some(deadly(job.id, job.deaths)),
                    JobState::Discarded => job.reason = Some(died_in_last_attempt(job.id, max_attempts)),
                    _ => job.reason = Some(lost),
                }
            }
            got.sort();
            assert_eq!(got, want);
        }
        &Op::Cancel { job } => {
            let count = jobs.len();
            let Some(job) = jobs.get_mut(job % count.max(1)) else { return };
            let got = store.cancel(job.id, "enough".into(), now).await.expect("works");
            let asked_before = job.standing.cancel_requested;
            let want = match job.standing.state {
                JobState::Cancelled => Cancelled::Already,
                state if state.is_final() => Cancelled::TooLate(state),
                JobState::Running => {
                    job.standing.cancel_requested = true;
                    Cancelled::Requested
                }
                _ => {
                    assert!(step(job, Event::Cancel, now));
                    Cancelled::Now
                }
            };
            assert_eq!(got, want);
            if matches!(want, Cancelled::Now) || (want == Cancelled::Requested && !asked_before) {
                job.reason = Some("enough".into());
            }
        }
        &Op::Retry { job } => {
            let count = jobs.len();
            let Some(job) = jobs.get_mut(job % count.max(1)) else { return };
            let could = step(job, Event::Retry, now);
            assert_eq!(store.retry(job.id, now).await.is_ok(), could);
            if could {
                (job.deaths, job.entries, job.is_suspect) = (0, 0, false);
                job.reason = None;
                if job.journal.last() == Some(&"ended") {
                    job.journal.push("reopened");
                }
            }
        }
        &Op::Annotate { job } => {
            let count = jobs.len();
            let Some(job) = jobs.get_mut(job % count.max(1)) else { return };
            let remark = NewAnnotation { text: "t".into(), tags: Vec::new() };
            store.annotate(job.id, "somebody".into(), remark, now).await.expect("is saved");
            job.annotations += 1;
        }
    }
}

/// Ends attempts by one call. Any lease there ever was may be among them: most are lost.
async fn finish_all(store: &dyn Store, jobs: &mut [Modelled], leases: &[Lease], now: Millis, ends: &[End]) {
    if leases.is_empty() {
        return;
    }
    let lease_of = |end: &End| leases[end.lease % leases.len()];
    let asked: Vec<_> = ends
        .iter()
        .map(|end| {
            let lease = lease_of(end);
            let job = jobs.iter().find(|job| job.id == lease.job).expect("is modelled");
            let ending = Ending {
                reason: end.why.clone(),
                output: end.output.as_deref().map(output),
                entries: if end.entry { vec![ended()] } else { Vec::new() },
                seq: job.journal.len() as u64 + u64::from(end.gap),
                ..ending(end.event, now + end.delay)
            };
            AttemptEnd { lease, ending }
        })
        .collect();
    let got = store.finish_all(&asked, now).await.expect("can be asked");
    assert_eq!(got.len(), ends.len());
    for (end, got) in ends.iter().zip(got) {
        let lease = lease_of(end);
        let job = jobs.iter_mut().find(|job| job.id == lease.job).expect("is modelled");
        if job.lease.is_none() || job.token != lease.token {
            assert!(is_lost(got, job.id));
            continue;
        }
        let at = if matches!(end.event, Event::Fail | Event::Snooze) { now + end.delay } else { now };
        let before = (job.standing, job.lease.clone());
        if !step(job, end.event, at) {
            assert!(matches!(got, Err(RepositoryError::Illegal(_))), "{got:?}");
            continue;
        }
        if end.entry && end.gap {
            (job.standing, job.lease) = before;
            assert!(matches!(got, Err(RepositoryError::Misused(_))), "{got:?}");
            continue;
        }
        if job.standing.state == JobState::Running {
            step(job, end.event, at);
        }
        assert_eq!(got.expect("is legal"), job.standing.state);
        if job.is_suspect && (job.standing.state.is_final() || !matches!(end.event, Event::Interrupt | Event::Snooze)) {
            (job.is_suspect, job.deaths) = (false, 0);
        }
        job.end_attempt(end.event, end.why.clone(), now);
        if end.entry {
            job.journal.push("ended");
        }
        if job.standing.state != JobState::Cancelled || !before.0.cancel_requested {
            job.reason = end.why.clone();
        }
        if end.output.is_some() {
            job.output = end.output.clone();
        }
    }
}

/// The entry that ends a run.
fn ended() -> Entry {
    let entry = serde_json::json!({"kind": "ended", "status": "completed", "text": "t"});
    serde_json::from_value(entry).expect("is an entry")
}
