//! Care that only this database needs: copies, damage, the log, space, rows that cannot be read.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use super::behaviour::journals::began;
use crate::support::expire::Expire as _;
use crate::support::until;
use posse_core::job::change::{Change, Edit};
use posse_core::job::dependency::After;
use posse_core::job::lease::WorkerId;
use posse_core::job::{JobState, NewJob, Payload};
use posse_core::port::{
    CareRepository, ClaimRequest, Database as _, Firing, JobFilter, JobQueries, JobRelations, JobRepository, JobSearch,
    RepositoryError, Upkeep as _,
};
use posse_core::queue::retention::Kept;
use posse_core::schedule::Schedule;
use posse_infra::sqlite::{Keys, Options, SqliteDatabase, SqliteStore, Synchronous};

fn database(path: &Path) -> SqliteDatabase {
    SqliteDatabase { path: path.to_owned(), keys: Keys::default() }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn open(path: &Path) -> Arc<SqliteStore> {
    let options = Options { synchronous: Synchronous::Normal, ..Options::default() };
    Arc::new(SqliteStore::open(path, options).expect("opens"))
}

fn job(goal: &str) -> NewJob {
    NewJob { role: "r".into(), payload: Payload { goal: goal.into(), ..Payload::default() }, ..NewJob::default() }
}

fn request(limit: u32, now: i64) -> ClaimRequest {
    ClaimRequest { worker: WorkerId("w".into()), role: "r".into(), queues: vec![], limit, now, lease_until: now + 9000 }
}

async fn count(store: &SqliteStore) -> usize {
    store.jobs(JobFilter { limit: 100_000, ..JobFilter::default() }).await.expect("can be read").len()
}

#[tokio::test]
async fn a_job_that_is_deleted_by_hand_leaves_no_content_behind() {
    let folder = folder();
    let path = folder.path().join("jobs.db");
    let store = open(&path);
    store.enqueue(vec![job("a")], 1).await.expect("is stored");
    let lease = store.claim(request(1, 2)).await.expect("is claimed")[0].lease;
    store.append(lease, 0, vec![began("a long text for the system")], 3).await.expect("is saved");
    store.cancel(lease.job, "enough".into(), 4).await.expect("is asked for");
    store.rescue_from(vec![WorkerId("w".into())], 5).await.expect("is cancelled");
    let contents = || -> i64 {
        let other = rusqlite::Connection::open(&path).expect("opens");
        other.query_row("SELECT count(*) FROM blobs", [], |row| row.get(0)).expect("can be read")
    };
    assert_eq!(contents(), 1);
    let changed = store.change(vec![lease.job], Change::Delete, 6).await.expect("is deleted");
    assert_eq!((changed[0].refused.clone(), contents()), (None, 0));
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_given_up_and_stands_in_nobodys_way() {
    let folder = folder();
    let path = folder.path().join("jobs.db");
    let store = open(&path);
    let enqueued = store.enqueue(vec![job("a"), job("b"), job("c")], 1).await.expect("is stored");
    let ids: Vec<_> = enqueued.iter().map(|enqueued| enqueued.id).collect();
    let waiting = NewJob { after: vec![After::Job(ids[0])], ..job("d") };
    let waiting = store.enqueue(vec![waiting], 1).await.expect("is stored")[0].id;
    let other = rusqlite::Connection::open(&path).expect("opens");
    other.execute("UPDATE job_data SET payload = '{\"goal\": 7}' WHERE job_id = ?", [ids[0].0]).expect("works");
    let mut wakes = store.wakes();
    wakes.borrow_and_update();
    let claimed = store.claim(request(2, 2)).await.expect("the others can be claimed");
    assert_eq!(claimed.len(), 1);
    assert!(wakes.has_changed().expect("is open"), "there may be more to claim");
    let claimed: Vec<_> = claimed.into_iter().chain(store.claim(request(2, 2)).await.expect("works")).collect();
    assert_eq!(claimed.iter().map(|c| c.job.id).collect::<Vec<_>>(), ids[1..]);
    let (state, reason): (String, String) = other
        .query_row("SELECT state, reason FROM jobs JOIN job_data ON job_id = id WHERE id = ?", [ids[0].0], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .expect("is there");
    assert_eq!(state, "discarded");
    assert!(reason.contains("cannot be worked") && reason.contains("invalid type"), "{reason}");
    let attempts = store.attempts(ids[0]).await.expect("can be read");
    assert_eq!((attempts.len(), attempts[0].outcome.as_deref()), (1, Some("gave_up")));
    let waiting = store.job(waiting).await.expect("can be read").expect("is there");
    assert_eq!(waiting.state, JobState::Cancelled, "who waited for it is told");
}

#[tokio::test]
async fn a_row_that_cannot_be_read_hides_no_other() {
    let folder = folder();
    let path = folder.path().join("jobs.db");
    let store = open(&path);
    let grouped = |goal: &str| NewJob { group: Some("g".into()), tags: vec!["t".into()], ..job(goal) };
    let ids: Vec<_> =
        store.enqueue(vec![grouped("good one"), grouped("bad"), grouped("good two")], 1).await.expect("is stored");
    let bad = ids[1].id;
    let schedule =
        |name: &str| Schedule::new(name, ("* * * * *", "UTC"), job("s"), Default::default(), 0).expect("one");
    for name in ["bad", "good"] {
        assert!(store.add_schedule(schedule(name)).await.expect("is added"));
    }
    let other = rusqlite::Connection::open(&path).expect("opens");
    let damage = |sql: &str| other.execute_batch(sql).expect("works");
    damage(&format!("UPDATE job_data SET payload = 'no json', tags = '[7]', retry = '{{' WHERE job_id = {bad}"));
    damage(&format!("UPDATE jobs SET output = 'nor this' WHERE id = {bad}"));
    damage("UPDATE schedules SET job = '[7]' WHERE name = 'bad'");
    damage(
        "INSERT INTO workers (id, host, pid, pid_started, roles, slots, started_at, heartbeat_at, lease_ms)
            VALUES ('w', 'h', 1, 1, 'all', 1, 1, 1, 1)",
    );

    // The others are there, and it is named, with what of it can be read.
    let all = |filter: JobFilter| store.jobs(JobFilter { limit: 10, ..filter });
    let jobs = all(JobFilter::default()).await.expect("the others can be read");
    assert_eq!(jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [ids[2].id, bad, ids[0].id]);
    let why = jobs[1].damage.clone().expect("it is named");
    for part in
        ["its payload cannot be read: expected", "its output cannot", "its retry policy cannot", "its tags cannot"]
    {
        assert!(why.contains(part), "{why}");
    }
    assert_eq!((jobs[1].role.as_str(), jobs[1].payload.goal.as_str(), jobs[1].state), ("r", "", JobState::Available));
    assert!(jobs[0].damage.is_none() && jobs[2].damage.is_none());
    assert_eq!(store.job(bad).await.expect("can be read").expect("is there"), jobs[1]);
    let found = all(JobFilter { text: Some("good".into()), ..JobFilter::default() }).await.expect("can be searched");
    assert_eq!(found.len(), 2);
    let (group, used) = store.group("g".into()).await.expect("can be read").expect("is there");
    assert_eq!((group.jobs(), used.turns), (3, 0));

    // Many are changed; it is refused by itself.
    let edit = Change::Edit(Edit { goal: Some("new".into()), ..Edit::default() });
    let changed = store.change(ids.iter().map(|one| one.id).collect(), edit, 2).await.expect("works");
    let refused: Vec<_> = changed.iter().map(|changed| changed.refused.is_some()).collect();
    assert_eq!(refused, [false, true, false]);
    assert_eq!(store.job(ids[2].id).await.expect("can be read").expect("is there").payload.goal, "new");
    assert!(store.change(vec![bad], Change::Delete, 2).await.expect("works")[0].refused.is_some(), "it is not final");

    // What makes jobs and what looks for the dead goes on.
    let due = store.due_schedules(60_000).await.expect("can be read");
    let made: Vec<_> = due.iter().map(|schedule| (schedule.name.as_str(), schedule.fall_due(60_000).is_ok())).collect();
    assert_eq!(made, [("bad", false), ("good", true)]);
    let workers = store.workers().await.expect("can be read");
    assert_eq!((workers[0].id.as_str(), workers[0].roles.len()), ("w", 0));
}

#[tokio::test]
async fn a_file_that_keeps_its_space_is_rewritten_and_gives_it_back_from_then_on() {
    let folder = folder();
    let path = folder.path().join("jobs.db");
    let store = open(&path);
    let kept = store.enqueue(vec![job("kept")], 1).await.expect("is stored")[0].id;
    store.enqueue(vec![job(&"x".repeat(50_000)); 200], 1).await.expect("is stored");
    drop(store);
    // As early versions made it.
    let other = rusqlite::Connection::open(&path).expect("opens");
    other
        .execute_batch("PRAGMA auto_vacuum = NONE; VACUUM; PRAGMA foreign_keys = 1; DELETE FROM jobs WHERE id > 1")
        .expect("works");
    drop(other);
    let storage = |store: &Arc<SqliteStore>| futures::executor::block_on(store.storage()).expect("can be read");
    let store = open(&path);
    let before = storage(&store);
    assert!(!before.gives_back && before.free_bytes > 9_000_000, "{before:?}");
    drop(store);
    let compacted = database(&path).compact().expect("works");
    assert_eq!(compacted.before, before.bytes);
    let store = open(&path);
    let after = storage(&store);
    assert!(after.gives_back && after.free_bytes < 100_000 && after.bytes == compacted.after, "{after:?}");
    assert!(compacted.after < compacted.before / 10, "{compacted:?}");
    assert_eq!(store.job(kept).await.expect("can be read").expect("is there").payload.goal, "kept");
    assert!(store.check(true).await.expect("works").is_empty());
    let refused = database(&folder.path().join("none.db")).compact();
    assert!(refused.is_err() && !folder.path().join("none.db").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_a_database_in_use_is_whole_and_private() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    let store = open(&folder.path().join("jobs.db"));
    store.enqueue(vec![job(&"x".repeat(500)); 3000], 1).await.expect("is stored");
    // Somebody goes on writing all the time.
    let (done, writer) = (Arc::new(std::sync::atomic::AtomicBool::new(false)), Arc::clone(&store));
    let stop = Arc::clone(&done);
    let writing = tokio::spawn(async move {
        let mut written = 0;
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            writer.enqueue(vec![job("y"); 10], 1).await.expect("is stored");
            written += 10;
        }
        written
    });
    let to = folder.path().join("copy.db");
    let backup = store.backup(&to).await.expect("is made");
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    let written = writing.await.expect("ends");
    assert_eq!(backup.path, to);
    assert_eq!(backup.bytes, std::fs::metadata(&to).expect("is there").len());
    assert_eq!(std::fs::metadata(&to).expect("is there").permissions().mode() & 0o777, 0o600);
    let copy = open(&to);
    let there = count(&copy).await;
    assert!(there >= 3000 && there <= 3000 + written && there % 10 == 0, "batches are whole: {there}");
    assert_eq!(copy.installation(), store.installation(), "effect keys stay what they were");
    assert!(copy.check(true).await.expect("works").is_empty());
    copy.claim(request(1, 2)).await.expect("it can be worked on");

    let before = std::fs::read(&to).expect("can be read");
    let refused = store.backup(&to).await.expect_err("is not written over").to_string();
    assert!(refused.contains("is there already") && refused.contains("copy.db"), "{refused}");
    assert_eq!(std::fs::read(&to).expect("can be read"), before);
    let nowhere = store.backup(&folder.path().join("no/copy.db")).await.expect_err("no folder").to_string();
    assert!(nowhere.contains("no/copy.db cannot be made"), "{nowhere}");
    let names: Vec<_> =
        std::fs::read_dir(folder.path()).expect("can be listed").flatten().map(|e| e.file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().contains(".part")), "{names:?}");
}

#[tokio::test]
async fn damage_is_found() {
    let folder = folder();
    let path = folder.path().join("jobs.db");
    let store = open(&path);
    store.enqueue(vec![job(&"x".repeat(3000)); 200], 1).await.expect("is stored");
    for full in [false, true] {
        assert_eq!(store.check(full).await.expect("works"), [""; 0]);
    }
    let other = rusqlite::Connection::open(&path).expect("opens");
    other.execute_batch("PRAGMA foreign_keys = 0; DELETE FROM jobs WHERE id = 7").expect("works");
    let said = store.check(false).await.expect("works");
    assert_eq!(said, ["row 7 of job_data belongs to a row of jobs that is not there"]);
    other.execute_batch("DELETE FROM job_data WHERE job_id = 7; PRAGMA wal_checkpoint(TRUNCATE)").expect("works");
    drop((other, store));
    // A page in the middle is written over.
    let mut bytes = std::fs::read(&path).expect("can be read");
    let middle = bytes.len() / 4096 / 2 * 4096;
    bytes[middle..middle + 4096].fill(0xa5);
    std::fs::write(&path, bytes).expect("is written");
    let store = SqliteStore::open_read_only(&path, Keys::default()).expect("opens");
    match store.check(true).await {
        Ok(said) => assert!(!said.is_empty()),
        Err(error) => assert!(matches!(error, RepositoryError::Unusable(_)), "{error}"),
    }
}

#[tokio::test]
async fn the_schema_can_be_asked_for_without_a_trace() {
    let folder = folder();
    let path = folder.path().join("jobs.db");
    drop(open(&path));
    let before = std::fs::read(&path).expect("can be read");
    let schema = database(&path).schema().expect("can be read");
    assert!(schema.is_current && schema.last.is_some(), "{schema:?}");
    assert_eq!(std::fs::read(&path).expect("can be read"), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn space_is_given_back_when_much_of_it_is_free() {
    let folder = folder();
    let path = folder.path().join("jobs.db");
    let store = open(&path);
    for _ in 0..20 {
        store.enqueue(vec![job(&"x".repeat(50_000)); 50], 1).await.expect("is stored");
    }
    let full = store.storage().await.expect("can be read");
    assert!(full.bytes > 50_000_000 && full.free_bytes < full.bytes / 10, "{full:?}");
    assert!(!store.shrink().await.expect("works"), "nothing is free");
    while let claimed @ [_, ..] = &store.claim(request(200, 2)).await.expect("works")[..] {
        for one in claimed {
            store.cancel(one.job.id, "enough".into(), 2).await.expect("works");
        }
    }
    let rescued = store.rescue(Vec::new(), 100_000).await.expect("works");
    assert!(rescued.iter().all(|rescued| rescued.state == JobState::Cancelled));
    store.set_retention(vec![(Kept::Cancelled, Some(0))]).await.expect("is set");
    let mut slowest = Duration::ZERO;
    let mut jobs = 0;
    loop {
        let begun = Instant::now();
        let pruned = store.prune(1_000_000).await.expect("works");
        slowest = slowest.max(begun.elapsed());
        jobs += pruned.jobs;
        if !pruned.more {
            break;
        }
    }
    assert_eq!(jobs, 1000);
    while store.shrink().await.expect("works") {}
    let after = store.storage().await.expect("can be read");
    assert!(after.bytes < full.bytes / 3, "{full:?} became {after:?}");
    eprintln!("the slowest of the deletions took {slowest:?}");
}

/// How long it takes to enqueue a job and to claim one, the slowest in a hundred of each; and how many
/// there were while it was to go on.
async fn p99(store: &SqliteStore, goes_on: impl Fn(usize) -> bool) -> (Duration, Duration, usize) {
    let other = || NewJob { role: "other".into(), ..job("g") };
    let slowest = |took: &mut Vec<Duration>| {
        took.sort();
        took[took.len() * 99 / 100]
    };
    let (mut enqueues, mut claims) = (Vec::new(), Vec::new());
    while goes_on(claims.len()) {
        let begun = Instant::now();
        store.enqueue(vec![other()], 1).await.expect("is stored");
        enqueues.push(begun.elapsed());
        let one = ClaimRequest { role: "other".into(), ..request(1, 2) };
        let begun = Instant::now();
        assert_eq!(store.claim(one).await.expect("works").len(), 1);
        claims.push(begun.elapsed());
    }
    (slowest(&mut enqueues), slowest(&mut claims), claims.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_keeps_nobody_waiting() {
    let folder = folder();
    let store = open(&folder.path().join("jobs.db"));
    let long = serde_json::json!({"kind": "note", "text": "x".repeat(1000)});
    let note: posse_core::run::journal::Entry = serde_json::from_value(long).expect("an entry");
    store.enqueue(vec![job("old"); 3000], 1).await.expect("is stored");
    while let claimed @ [_, ..] = &store.claim(request(200, 2)).await.expect("works")[..] {
        for one in claimed {
            store.append(one.lease, 0, vec![note.clone(); 20], 2).await.expect("is saved");
            store.cancel(one.job.id, "enough".into(), 2).await.expect("works");
        }
    }
    store.rescue(Vec::new(), 100_000).await.expect("works");
    let alone = p99(&store, |done| done < 300).await;
    store.set_retention(vec![(Kept::Cancelled, Some(0))]).await.expect("is set");
    let pruner = Arc::clone(&store);
    let pruning = tokio::spawn(async move {
        let (mut jobs, mut commits) = (0, 0);
        loop {
            let pruned = pruner.prune(1_000_000).await.expect("works");
            (jobs, commits) = (jobs + pruned.jobs, commits + 1);
            if !pruned.more {
                return (jobs, commits);
            }
        }
    });
    let beside = p99(&store, |_| !pruning.is_finished()).await;
    let (jobs, commits) = pruning.await.expect("ends");
    assert_eq!(jobs, 3000);
    // Each commit deletes a little, and between them others get through. How long that takes is the machine's.
    assert!(commits >= 15 && beside.2 * 10 >= commits, "{} beside {commits} commits", beside.2);
    eprintln!("an enqueue and a claim take {alone:?} alone, {beside:?} beside deletions without a pause (p99)");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_is_kept_small_and_shrinks_after_a_long_reader() {
    let folder = folder();
    let path = folder.path().join("jobs.db");
    let store = open(&path);
    let log = || std::fs::metadata(folder.path().join("jobs.db-wal")).map_or(0, |data| data.len());
    let reader = rusqlite::Connection::open(&path).expect("opens");
    reader.execute_batch("BEGIN; SELECT count(*) FROM jobs").expect("holds on to a moment");
    while log() < 80 << 20 {
        store.enqueue(vec![job(&"x".repeat(100_000)); 50], 1).await.expect("is stored");
    }
    reader.execute_batch("COMMIT").expect("lets go");
    // The writer looks at least every two seconds.
    until("the log is small again", || log() <= 64 << 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_is_kept_small_while_several_write_and_read() {
    let folder = folder();
    let path = folder.path().join("jobs.db");
    drop(open(&path));
    // Somebody reads at every moment, and nobody for long: each lets go when the other has begun. So the
    // log never begins again by itself.
    let over = Arc::new(AtomicBool::new(false));
    let (first, second) = (mpsc::channel::<()>(), mpsc::channel::<()>());
    first.0.send(()).expect("is open");
    for (other_began, i_began) in [(first.1, second.0), (second.1, first.0)] {
        let (reader, over) = (rusqlite::Connection::open(&path).expect("opens"), Arc::clone(&over));
        std::thread::spawn(move || {
            let read = "BEGIN; SELECT count(*) FROM job_data";
            while !over.load(Ordering::Relaxed) && other_began.recv().is_ok() {
                // What was held until now.
                let _ = reader.execute_batch("COMMIT");
                reader.execute_batch(read).expect("holds on to a moment");
                if i_began.send(()).is_err() {
                    break;
                }
            }
        });
    }
    // Each store has a writer and readers of its own, as each process has.
    let writers = (0..4).map(|_| open(&path)).map(|store| {
        let log = folder.path().join("jobs.db-wal");
        tokio::spawn(async move {
            let mut largest = 0;
            for _ in 0..20 {
                let enqueued = store.enqueue(vec![job(&"x".repeat(100_000)); 50], 1).await.expect("is stored");
                store.job(enqueued[0].id).await.expect("can be read");
                largest = largest.max(std::fs::metadata(&log).map_or(0, |data| data.len()));
            }
            largest
        })
    });
    let largest = futures::future::join_all(writers).await.into_iter().map(|writer| writer.expect("ends")).max();
    over.store(true, Ordering::Relaxed);
    // Of the 400 MB that go through it.
    assert!(largest < Some(128 << 20), "it grew to {largest:?} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_processes_one_makes_the_job() {
    let folder = folder();
    let path = folder.path().join("jobs.db");
    // Each store has a writer and readers of its own, as each process has.
    let stores: Vec<_> = (0..4).map(|_| open(&path)).collect();
    let schedule = Schedule::new("s", ("* * * * *", "UTC"), job("g"), Default::default(), 0).expect("a schedule");
    stores[0].add_schedule(schedule).await.expect("works");
    let minutes = 50;
    for minute in 1..=minutes {
        let now = minute * 60_000;
        let racers = stores.iter().map(|store| async move {
            for schedule in store.due_schedules(now).await.expect("can be read") {
                let due = schedule.fall_due(now).expect("a rule");
                let jobs = due.runs.iter().map(|run| (*run, schedule.job.clone())).collect();
                let expected = schedule.next_at;
                let firing = Firing { schedule: schedule.name, expected, next_at: due.next_at, jobs };
                store.fire(firing, now).await.expect("works");
            }
        });
        futures::future::join_all(racers).await;
    }
    assert_eq!(count(&stores[0]).await, minutes as usize);
}
