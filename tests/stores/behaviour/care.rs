//! Care: what was kept long enough goes, workers are asked to end, a clock that was set does no harm.

use std::sync::Arc;

use super::journals::began;
use super::*;
use posse_core::annotation::NewAnnotation;
use posse_core::job::dependency::{After, OnFailed};
use posse_core::metrics::JobsIn;
use posse_core::port::{Awaited, ClockJump, DueJobs, Pruned, Waiting, WorkerRecord};
use posse_core::queue::retention::{Kept, Retention};
use posse_core::queue::{Queue, QueueChange};
use posse_core::session::NewSession;

const DAY: Millis = 86_400_000;

fn worker(id: &str, lease_ms: Millis) -> WorkerRecord {
    WorkerRecord {
        id: id.into(),
        host: "h".into(),
        pid: u32::MAX,
        pid_started: u64::MAX,
        roles: vec!["r".into()],
        slots: 4,
        started_at: T0,
        heartbeat_at: T0,
        lease_ms,
        drain_requested_at: None,
    }
}

/// Has jobs be kept so long that those which ended before these times may go at `now`; all others for ever.
pub async fn keep(store: &dyn Store, cutoffs: &[(JobState, Millis)], now: Millis) {
    let cutoff = |wanted: JobState| cutoffs.iter().find(|(state, _)| *state == wanted).map(|(_, at)| now - at);
    let states = [
        (Kept::Completed, JobState::Completed),
        (Kept::Cancelled, JobState::Cancelled),
        (Kept::Discarded, JobState::Discarded),
    ];
    let said = states.map(|(kind, state)| (kind, cutoff(state)));
    store.set_retention(said.to_vec()).await.expect("is set");
}

/// Deletes all there is to delete, long after all that is told here.
async fn prune_all(store: &dyn Store, cutoffs: &[(JobState, Millis)]) -> Pruned {
    prune_all_at(store, cutoffs, Millis::MAX).await
}

async fn prune_all_at(store: &dyn Store, cutoffs: &[(JobState, Millis)], now: Millis) -> Pruned {
    keep(store, cutoffs, now).await;
    prune_kept(store, now).await
}

/// Deletes all there is to delete by what the database says.
pub async fn prune_kept(store: &dyn Store, now: Millis) -> Pruned {
    let mut all = Pruned::default();
    loop {
        let pruned = store.prune(now).await.expect("works");
        (all.jobs, all.contents) = (all.jobs + pruned.jobs, all.contents + pruned.contents);
        all.sessions += pruned.sessions;
        if !pruned.more {
            return all;
        }
    }
}

/// A job that ended at `at`, with a run that began with `system`.
async fn ended_at(store: &dyn Store, system: &str, at: Millis) -> JobId {
    let lease = running(store, "r", T0).await;
    store.append(lease, 0, vec![began(system)], T0).await.expect("is saved");
    store.annotate(lease.job, "person".into(), NewAnnotation { text: "t".into(), tags: vec![] }, T0).await.expect("is");
    finish(store, lease, Event::Complete, at).await;
    lease.job
}

pub async fn jobs_go_when_they_were_kept_long_enough(store: Arc<dyn Store>) {
    let old = ended_at(&*store, "old", T0 + DAY).await;
    let young = ended_at(&*store, "young", T0 + 3 * DAY).await;
    let cutoffs = [(JobState::Completed, T0 + 2 * DAY)];
    keep(&*store, &cutoffs, T0 + 9 * DAY).await;
    assert!(store.has_prunable(T0 + 9 * DAY).await.expect("can be read"));
    let gone = prune_all_at(&*store, &cutoffs, T0 + 9 * DAY).await;
    assert_eq!(gone, Pruned { jobs: 1, contents: 1, ..Pruned::default() });
    assert!(!store.has_prunable(T0 + 9 * DAY).await.expect("can be read"));
    assert_eq!(store.job(old).await.expect("can be read"), None);
    assert!(store.journal(old, 0).await.expect("can be read").is_empty());
    assert!(store.attempts(old).await.expect("can be read").is_empty());
    assert!(store.annotations(old).await.expect("can be read").is_empty());
    assert_eq!(store.journal(young, 0).await.expect("can be read").len(), 1, "with its content");
    let next = enqueue(&*store, "r", T0).await;
    assert!(next > young, "the number of a deleted job is not given out again");
}

pub async fn what_others_wait_for_stays(store: Arc<dyn Store>) {
    let first = enqueue(&*store, "r", T0).await;
    let waits = NewJob { after: vec![After::Job(first)], on_failed: OnFailed::Wait, ..job("r") };
    let waits = store.enqueue(vec![waits], T0).await.expect("is stored")[0].id;
    store.cancel(first, "enough".into(), T0).await.expect("is cancelled");
    assert_eq!(get(&*store, waits).await.state, JobState::Suspended);
    assert_eq!(prune_all(&*store, &[(JobState::Cancelled, Millis::MAX)]).await.jobs, 0, "a re-run would let it go on");
    store.cancel(waits, "enough".into(), T0).await.expect("is cancelled");
    prune_all(&*store, &[(JobState::Cancelled, Millis::MAX)]).await;
    for id in [waits, first] {
        assert_eq!(store.job(id).await.expect("can be read"), None, "nobody waits for job {id} any more");
    }
}

pub async fn a_key_outlives_the_time_its_job_is_kept_for(store: Arc<dyn Store>) {
    let keyed = |for_ms| store.enqueue(vec![unique::keyed("k", for_ms)], T0);
    let first = keyed(Some(3 * DAY)).await.expect("is stored")[0].id;
    let lease = claim(&*store, "r", 1, T0).await[0].lease;
    finish(&*store, lease, Event::Complete, T0).await;
    let cutoffs = [(JobState::Completed, T0 + DAY)];
    let has_any = |now| {
        let store = Arc::clone(&store);
        async move {
            keep(&*store, &cutoffs, now).await;
            store.has_prunable(now).await
        }
    };
    assert!(!has_any(T0 + 3 * DAY - 1).await.expect("can be read"));
    assert_eq!(prune_all_at(&*store, &cutoffs, T0 + 3 * DAY - 1).await.jobs, 0);
    let again = store.enqueue(vec![unique::keyed("k", None)], T0 + 3 * DAY - 1).await.expect("works")[0];
    assert!(again.existed() && again.id == first, "the key is held for as long as was asked");
    assert!(has_any(T0 + 3 * DAY).await.expect("can be read"));
    assert_eq!(prune_all_at(&*store, &cutoffs, T0 + 3 * DAY).await.jobs, 1);
    let next = keyed(Some(3 * DAY)).await.expect("works")[0];
    assert!(!next.existed());
    // One that was cancelled holds nothing.
    store.cancel(next.id, "enough".into(), T0).await.expect("is cancelled");
    assert_eq!(prune_all_at(&*store, &[(JobState::Cancelled, T0 + DAY)], T0 + DAY).await.jobs, 1);
}

pub async fn each_final_state_is_kept_for_its_own_time(store: Arc<dyn Store>) {
    let mut jobs = Vec::new();
    for state in JobState::ALL {
        jobs.push((state, in_state(&*store, state, state.as_str()).await));
    }
    let all = |at| [JobState::Completed, JobState::Cancelled, JobState::Discarded].map(|state| (state, at));
    assert_eq!(prune_all(&*store, &all(T0)).await.jobs, 0, "they ended at that very time");
    assert_eq!(prune_all(&*store, &[(JobState::Cancelled, T0 + 1)]).await.jobs, 1);
    assert_eq!(prune_all(&*store, &all(Millis::MAX)).await.jobs, 2);
    for (state, id) in jobs {
        let is_there = store.job(id).await.expect("can be read").is_some();
        assert_eq!(is_there, !state.is_final(), "{state}");
    }
}

pub async fn retention_is_the_databases(store: Arc<dyn Store>) {
    assert_eq!(store.retention().await.expect("can be read"), None, "nobody has said");
    let old = ended_at(&*store, "old", T0).await;
    assert_eq!(prune_kept(&*store, T0 + 30 * DAY).await.jobs, 0, "kept for as long as usual");
    let set = store.set_retention(vec![(Kept::Completed, None), (Kept::Sessions, Some(DAY))]).await.expect("is set");
    assert_eq!(set, Retention { completed: None, sessions: Some(DAY), ..Retention::default() });
    assert_eq!(store.retention().await.expect("can be read"), Some(set));
    assert_eq!(prune_kept(&*store, T0 + 900 * DAY).await.jobs, 0, "for ever");
    let set = store.set_retention(vec![(Kept::Completed, Some(2 * DAY))]).await.expect("is set");
    assert_eq!(set.sessions, Some(DAY), "what is not named stays as it is");
    assert_eq!(prune_kept(&*store, T0 + 2 * DAY).await.jobs, 0);
    assert_eq!(prune_kept(&*store, T0 + 2 * DAY + 1).await.jobs, 1);
    assert_eq!(store.job(old).await.expect("can be read"), None);
}

pub async fn a_queue_has_its_jobs_kept_for_times_of_its_own(store: Arc<dyn Store>) {
    let own = |name: &str, keep| {
        let (name, store) = (name.to_owned(), Arc::clone(&store));
        let change = QueueChange { keep, ..QueueChange::default() };
        async move { store.change_queue(name, change, T0).await.expect("is changed") }
    };
    own("short", vec![(Kept::Completed, Some(Some(DAY)))]).await;
    own("ever", vec![(Kept::Completed, Some(None)), (Kept::Cancelled, Some(Some(2 * DAY)))]).await;
    own("plain", vec![]).await;
    store.set_retention(vec![(Kept::Completed, Some(10 * DAY)), (Kept::Cancelled, None)]).await.expect("is set");
    let mut ids = Vec::new();
    for queue in ["short", "ever", "plain", "other"] {
        let [completed, cancelled] = [ruling::queued(queue, ""), ruling::queued(queue, "")];
        let enqueued = store.enqueue(vec![completed, cancelled], T0).await.expect("is stored");
        let lease = claim(&*store, "r", 1, T0).await[0].lease;
        finish(&*store, lease, Event::Complete, T0).await;
        store.cancel(enqueued[1].id, "enough".into(), T0).await.expect("is cancelled");
        ids.extend(enqueued.iter().map(|one| one.id));
    }
    // What a queue says lets nothing go that somebody waits for, nor a turn of a session.
    let awaited = store.enqueue(vec![ruling::queued("short", "")], T0).await.expect("is stored")[0].id;
    let waits = NewJob { after: vec![After::Job(awaited)], on_failed: OnFailed::Wait, ..job("r") };
    store.enqueue(vec![waits], T0).await.expect("is stored");
    store.cancel(awaited, "enough".into(), T0).await.expect("is cancelled");
    let session = store.begin_session(NewSession { name: None, role: "r".into() }, T0).await.expect("begins").0;
    let mut turn = ruling::queued("short", "");
    turn.payload.session = Some(session.id);
    store.enqueue(vec![turn], T0).await.expect("is stored");
    let lease = claim(&*store, "r", 1, T0).await[0].lease;
    finish(&*store, lease, Event::Complete, T0).await;
    ids.extend([awaited, lease.job]);
    own("short", vec![(Kept::Cancelled, Some(Some(0)))]).await;

    let left = |now| {
        let (store, ids) = (Arc::clone(&store), ids.clone());
        async move {
            let expected = store.has_prunable(now).await.expect("can be read");
            assert_eq!(prune_kept(&*store, now).await.jobs > 0, expected);
            let mut left = Vec::new();
            for (place, id) in ids.iter().enumerate() {
                left.extend(store.job(*id).await.expect("can be read").map(|_| place));
            }
            left
        }
    };
    assert_eq!(left(T0 + DAY).await, [0, 2, 3, 4, 5, 6, 7, 8, 9], "of short what was cancelled");
    assert_eq!(left(T0 + 2 * DAY + 1).await, [2, 4, 5, 6, 7, 8, 9], "of short the rest, of ever what was cancelled");
    assert_eq!(left(T0 + 11 * DAY).await, [2, 5, 7, 8, 9], "plain and other are kept as the database says");
    own("ever", vec![(Kept::Completed, None), (Kept::Cancelled, None)]).await;
    assert_eq!(store.queue("ever".into()).await.expect("can be read"), Queue::named("ever"));
    assert_eq!(left(T0 + 11 * DAY).await, [5, 7, 8, 9], "what is taken back is as the database says again");
}

pub async fn a_content_goes_with_the_last_who_refers_to_it(store: Arc<dyn Store>) {
    ended_at(&*store, "shared", T0 + 1).await;
    let second = ended_at(&*store, "shared", T0 + 5).await;
    assert_eq!(prune_all(&*store, &[(JobState::Completed, T0 + 3)]).await, Pruned { jobs: 1, ..Pruned::default() });
    assert_eq!(store.journal(second, 0).await.expect("can be read").len(), 1);
    assert_eq!(prune_all(&*store, &[(JobState::Completed, T0 + 9)]).await.contents, 1);
}

pub async fn gaps_and_long_lives_do_not_hide_old_jobs(store: Arc<dyn Store>) {
    // Every third is old, every third ends late, every third goes on; with gaps where jobs were deleted.
    for n in 0..60 {
        let lease = running(&*store, "r", T0 + n).await;
        match n % 3 {
            0 => drop(finish(&*store, lease, Event::Complete, T0 + 100).await),
            1 => drop(finish(&*store, lease, Event::Complete, T0 + DAY).await),
            _ => {}
        }
    }
    store.enqueue(vec![job("r"); 10], T0 + DAY).await.expect("is stored");
    assert_eq!(prune_all(&*store, &[(JobState::Completed, T0 + 101)]).await.jobs, 20);
    assert_eq!(prune_all(&*store, &[(JobState::Completed, T0 + 101)]).await.jobs, 0);
    assert_eq!(prune_all(&*store, &[(JobState::Completed, T0 + DAY + 1)]).await.jobs, 20);
}

pub async fn a_duty_is_one_workers_at_a_time(store: Arc<dyn Store>) {
    let take = |worker: &str, until, now| store.take_duty("prune", WorkerId(worker.into()), until, now);
    assert!(take("w1", T0 + 100, T0).await.expect("works"));
    assert!(!take("w2", T0 + 150, T0 + 50).await.expect("works"));
    assert!(take("w1", T0 + 180, T0 + 80).await.expect("works"), "whoever has it may keep it");
    assert!(!take("w2", T0 + 250, T0 + 150).await.expect("works"));
    assert!(take("w2", T0 + 280, T0 + 180).await.expect("works"), "it ran out");
    assert!(take("w1", T0 - 900, T0 - 1000).await.expect("works"), "the clock was set back");
}

pub async fn a_clock_set_back_leaves_no_lease_for_hours(store: Arc<dyn Store>) {
    store.register_worker(worker("w1", LEASE)).await.expect("works");
    let listed = running(&*store, "r", T0).await;
    enqueue(&*store, "r", T0).await;
    let unlisted = ClaimRequest { worker: WorkerId("w9".into()), ..request("r", 1, T0) };
    let unlisted = store.claim(unlisted).await.expect("works")[0].lease;
    let back = T0 - 3_600_000;
    let jump = ClockJump { worker: "w1".into(), noticed_at: back, by_ms: -3_600_000 };
    store.clock_jumped(jump.clone()).await.expect("works");
    assert_eq!(get(&*store, listed.job).await.lease_until, Some(back + LEASE));
    assert_eq!(get(&*store, unlisted.job).await.lease_until, Some(back), "who is not on the list renews no more");
    let rescued = store.rescue(Vec::new(), back + LEASE).await.expect("works");
    assert_eq!(rescued.len(), 2);
    assert_eq!(store.clock_jumps().await.expect("can be read"), std::slice::from_ref(&jump));
    // A lease that does not stand too long stays as it is.
    let lease = running(&*store, "r", back).await;
    let before = get(&*store, lease.job).await.lease_until;
    store.clock_jumped(ClockJump { noticed_at: back + 10, ..jump.clone() }).await.expect("works");
    assert_eq!(get(&*store, lease.job).await.lease_until, before);
    for n in 0..50 {
        store.clock_jumped(ClockJump { by_ms: n, ..jump.clone() }).await.expect("works");
    }
    let kept = store.clock_jumps().await.expect("can be read");
    assert_eq!((kept.len(), kept[0].by_ms), (20, 49), "the latest are kept, newest first");
}

pub async fn workers_are_asked_to_end(store: Arc<dyn Store>) {
    for id in ["w1", "w2", "w3"] {
        store.register_worker(worker(id, LEASE)).await.expect("works");
    }
    let drains = |id: &str| store.drain_requested(WorkerId(id.into()));
    assert!(!drains("w1").await.expect("can be read"));
    let asked = store.request_drain(Some(WorkerId("w2".into())), T0 + 5).await.expect("works");
    assert_eq!(asked, ["w2"]);
    assert!(drains("w2").await.expect("can be read") && !drains("w1").await.expect("can be read"));
    assert_eq!(store.request_drain(Some(WorkerId("gone".into())), T0).await.expect("works"), [""; 0]);
    assert_eq!(store.request_drain(None, T0 + 9).await.expect("works"), ["w1", "w2", "w3"]);
    let since: Vec<_> = store.workers().await.expect("can be read").iter().map(|w| w.drain_requested_at).collect();
    assert_eq!(since, [Some(T0 + 9), Some(T0 + 5), Some(T0 + 9)], "asking again changes nothing");
}

pub async fn what_is_in_hand_and_what_is_due_can_be_asked(store: Arc<dyn Store>) {
    let lease = running(&*store, "r", T0).await;
    store.append(lease, 0, vec![note("a"), note("b")], T0 + 7).await.expect("is saved");
    let held = store.held_jobs().await.expect("can be read");
    let [held] = &held[..] else { panic!("one job: {held:?}") };
    assert_eq!((held.job, held.worker.as_str(), held.since, held.entries), (lease.job, "w1", T0, 2));
    assert_eq!((held.last_entry.as_deref(), held.last_entry_at), (Some("note"), Some(T0 + 7)));
    store.enqueue(vec![NewJob { run_at: Some(T0 + 50), ..job("a") }, job("a"), job("b")], T0).await.expect("is stored");
    let due = |now| store.due_jobs(now);
    let of = |role: &str, jobs| DueJobs { role: role.into(), jobs, oldest_due_at: T0 };
    assert_eq!(due(T0 + 49).await.expect("can be read"), [of("a", 1), of("b", 1)]);
    assert_eq!(due(T0 + 50).await.expect("can be read"), [of("a", 2), of("b", 1)]);
}

pub async fn the_numbers_to_watch_leave_out_what_has_ended(store: Arc<dyn Store>) {
    let none = store.standing(T0).await.expect("can be read");
    assert_eq!((none.jobs.len(), none.enqueued, none.workers, none.open_questions), (0, 0, 0, 0));
    for state in JobState::ALL {
        in_state(&*store, state, "r").await;
    }
    store.enqueue(vec![NewJob { queue: "mail".into(), ..job("r") }; 2], T0).await.expect("is stored");
    for id in ["w1", "w2"] {
        let roles = vec!["r".to_owned(), "s".to_owned()];
        let worker = WorkerRecord { roles, slots: 3, ..worker(id, LEASE) };
        store.register_worker(worker).await.expect("is on the list");
    }
    let now = store.standing(T0 + 7_000).await.expect("can be read");
    let of = |queue: &str, state, jobs| JobsIn { role: "r".into(), queue: queue.into(), state, jobs };
    let queue = job("r").queue;
    let mut right: Vec<_> = JobState::ALL
        .into_iter()
        .filter(|state| !state.is_final())
        .map(|state| of(&queue, state, 1))
        .chain([of("mail", JobState::Available, 2)])
        .collect();
    right.sort_by_key(|jobs| (jobs.queue.clone(), jobs.state.as_str()));
    assert_eq!(now.jobs, right);
    assert_eq!((now.leases(), now.enqueued, now.workers, now.slots), (1, 10, 2, 12));
    assert_eq!(now.due, [DueJobs { role: "r".into(), jobs: 3, oldest_due_at: T0 }]);
    assert!(now.storage.bytes > 0 && store.written().commands >= store.written().commits);
}

pub async fn who_holds_a_key_and_what_it_waits_for_can_be_asked(store: Arc<dyn Store>) {
    let holders = |before, limit| store.key_holders(before, limit);
    // One at work, one that is done and holds its key for a time, one without a key: none is of interest.
    store.enqueue(vec![unique::keyed("at work", None), unique::keyed("done", Some(DAY))], T0).await.expect("is stored");
    let claimed = claim(&*store, "r", 2, T0).await;
    finish(&*store, claimed[1].lease, Event::Complete, T0).await;
    let plain = enqueue(&*store, "q", T0).await;
    assert_eq!(holders(T0 + 1, 9).await.expect("can be read"), []);

    let failed = in_state(&*store, JobState::Discarded, "s").await;
    let waits = |on: JobId, rule| vec![After::Job(on)].into_iter().map(move |after| (after, rule));
    let of = |key: Option<&str>, (after, on_failed)| NewJob {
        after: vec![after],
        on_failed,
        queue: "mail".into(),
        concurrency_key: Some("ann".into()),
        ..key.map_or_else(|| job("r"), |key| unique::keyed(key, None))
    };
    let on_failed = waits(failed, OnFailed::Wait).map(|on| of(Some("a"), on)).collect();
    let first = store.enqueue(on_failed, T0).await.expect("is stored")[0].id;
    let middle = waits(plain, OnFailed::Run).map(|on| of(None, on)).collect();
    let middle = store.enqueue(middle, T0).await.expect("is stored")[0].id;
    let last = waits(middle, OnFailed::Cancel).map(|on| of(Some("b"), on)).collect();
    let last = store.enqueue(last, T0 + 5).await.expect("is stored")[0].id;

    let found = holders(T0 + 6, 9).await.expect("can be read");
    assert_eq!(found.iter().map(|waiting| waiting.job).collect::<Vec<_>>(), [first, last, middle, plain]);
    let awaited = |job, state: JobState, on_failed| Awaited {
        job,
        state: Some(state),
        on_failed,
        ended_at: state.is_final().then_some(T0),
    };
    assert_eq!(found[0].waits_for, [awaited(failed, JobState::Discarded, OnFailed::Wait)]);
    assert_eq!(found[1].waits_for, [awaited(middle, JobState::Suspended, OnFailed::Cancel)]);
    assert_eq!(found[2].waits_for, [awaited(plain, JobState::Available, OnFailed::Run)]);
    let Waiting { key, role, queue, concurrency_key, state, due_at, asked_at, .. } = &found[1];
    assert_eq!((key.as_deref(), role.as_str(), queue.as_str()), (Some("b"), "r", "mail"));
    assert_eq!((concurrency_key.as_str(), *state, *due_at, *asked_at), ("ann", JobState::Suspended, T0 + 5, None));
    assert_eq!((found[3].key.as_deref(), found[3].state), (None, JobState::Available));
    assert_eq!(holders(T0 + 5, 9).await.expect("can be read").len(), 1, "the other is too young");
    assert_eq!(holders(T0 + 6, 1).await.expect("can be read").len(), 1);
}

pub async fn a_dead_workers_jobs_are_taken_back_whatever_the_time(store: Arc<dyn Store>) {
    let [dead, alive] = [running(&*store, "r", T0).await, {
        enqueue(&*store, "r", T0).await;
        let other = ClaimRequest { worker: WorkerId("w2".into()), ..request("r", 1, T0) };
        store.claim(other).await.expect("works")[0].lease
    }];
    // The clock was set forward: every lease looks as if it had run out.
    let rescued = store.rescue_from(vec![WorkerId("w1".into())], T0 + DAY).await.expect("works");
    assert_eq!(rescued.iter().map(|rescued| rescued.job).collect::<Vec<_>>(), [dead.job]);
    assert_eq!(get(&*store, alive.job).await.state, JobState::Running);
    assert_eq!(store.rescue(Vec::new(), T0 + DAY).await.expect("works").len(), 1);
}
