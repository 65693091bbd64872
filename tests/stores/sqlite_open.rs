//! Opening a database: new, old, newer, damaged, read-only, by two at once, after a kill.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::expire::Expire as _;
use posse_core::job::lease::Lease;
use posse_core::job::transition::Event;
use posse_core::job::{JobId, NewJob};
use posse_core::port::{Ending, JobFilter, JobQueries, JobRepository, RepositoryError};
use posse_infra::sqlite::{Keys, Options, SqliteStore};
use sha2::{Digest, Sha256};

/// What `open` said instead of opening.
fn refusal(path: &Path) -> String {
    match SqliteStore::open(path, Options::default()) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error.to_string(),
    }
}

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, Options::default()).expect("opens")
}

fn hash(path: &Path) -> Vec<u8> {
    Sha256::digest(std::fs::read(path).expect("can be read")).to_vec()
}

fn some_jobs(store: &SqliteStore) {
    let job = NewJob { role: "r".into(), ..NewJob::default() };
    futures::executor::block_on(store.enqueue(vec![job; 10], 1)).expect("is stored");
}

fn jobs_in(store: &SqliteStore) -> usize {
    let filter = JobFilter { limit: 1000, ..JobFilter::default() };
    futures::executor::block_on(store.jobs(filter)).expect("can be read").len()
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a folder"))
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("jobs.db")
    }
}

#[test]
fn a_new_database_is_private_and_stays_when_opened_again() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let first = open(&folder.file());
    some_jobs(&first);
    for entry in std::fs::read_dir(folder.0.path()).expect("can be listed") {
        let entry = entry.expect("is there");
        let mode = entry.metadata().expect("is there").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", entry.path().display());
    }
    let installation = first.installation().to_owned();
    drop(first);
    let again = open(&folder.file());
    assert_eq!((jobs_in(&again), again.installation()), (10, installation.as_str()));
    assert_ne!(open(&Folder::new().file()).installation(), installation);
}

#[test]
fn any_name_will_do() {
    let folder = Folder::new();
    for name in ["with space.db", "a?mode=memory", "100%41#b.db", "ü\u{202E}.db", "-wal"] {
        let path = folder.0.path().join(name);
        some_jobs(&open(&path));
        assert!(path.is_file(), "{name}");
        assert_eq!(jobs_in(&SqliteStore::open_read_only(&path, Keys::default()).expect("opens")), 10, "{name}");
    }
}

#[test]
fn a_missing_folder_is_named_with_the_way_out() {
    let path = Folder::new().0.path().join("not/there/jobs.db");
    let said = refusal(&path);
    assert!(said.contains("there is no folder") && said.contains("mkdir -p") && said.contains("not/there"), "{said}");
    assert!(!said.contains('\n'));
}

#[test]
fn a_newer_schema_is_refused_and_the_file_not_touched() {
    let folder = Folder::new();
    some_jobs(&open(&folder.file()));
    let other = rusqlite::Connection::open(folder.file()).expect("opens");
    other.execute("INSERT INTO __diesel_schema_migrations (version) VALUES ('9999')", []).expect("works");
    drop(other);
    let before = hash(&folder.file());
    let said = refusal(&folder.file());
    assert!(said.contains("newer posse") && said.contains("9999"), "{said}");
    let read_only = SqliteStore::open_read_only(&folder.file(), Keys::default()).err().expect("is refused").to_string();
    assert_eq!(read_only, said);
    assert_eq!(hash(&folder.file()), before);
    assert!(!folder.0.path().join("jobs.db-wal").exists(), "and nothing was left beside it");
}

#[test]
fn reading_leaves_nothing_behind() {
    let folder = Folder::new();
    some_jobs(&open(&folder.file()));
    let beside = || std::fs::read_dir(folder.0.path()).expect("can be listed").count();
    let before = (hash(&folder.file()), beside());
    assert_eq!(jobs_in(&SqliteStore::open_read_only(&folder.file(), Keys::default()).expect("opens")), 10);
    assert_eq!((hash(&folder.file()), beside()), before);
    // A writer that was also read from takes its log in when it closes.
    assert_eq!(jobs_in(&open(&folder.file())), 10);
    assert_eq!(beside(), before.1);
}

#[test]
fn what_is_not_our_database_is_refused_and_not_touched() {
    let folder = Folder::new();
    std::fs::write(folder.file(), "this is a text and no database at all, ".repeat(100)).expect("is written");
    let before = hash(&folder.file());
    let said = refusal(&folder.file());
    assert!(said.contains("not a database"), "{said}");
    assert_eq!(hash(&folder.file()), before);

    let other = folder.0.path().join("other.db");
    rusqlite::Connection::open(&other).expect("opens").execute_batch("CREATE TABLE t (a)").expect("works");
    let before = hash(&other);
    let said = refusal(&other);
    assert!(said.contains("another program"), "{said}");
    assert_eq!(hash(&other), before);

    let said = refusal(folder.0.path());
    assert!(said.contains("could not be opened"), "{said}");
}

#[test]
fn starts_at_once_migrate_once_and_wait_for_each_other() {
    if let Some(path) = task() {
        for _ in 0..20 {
            some_jobs(&open(&path));
        }
        return;
    }
    for _ in 0..3 {
        let folder = Folder::new();
        let mut starts = Vec::new();
        for _ in 0..4 {
            starts.push(start("starts_at_once_migrate_once_and_wait_for_each_other", &folder.file()));
        }
        // And two in one process.
        std::thread::scope(|scope| {
            scope.spawn(|| open(&folder.file()));
            scope.spawn(|| open(&folder.file()));
        });
        for mut start in starts {
            assert!(start.wait().expect("ends").success(), "every start opens it");
        }
        assert_eq!(jobs_in(&open(&folder.file())), 4 * 20 * 10);
    }
}

/// Starts one test of this program in a process of its own, with `path` as its task.
fn start(test: &str, path: &Path) -> std::process::Child {
    Command::new(std::env::current_exe().expect("has a path"))
        .args(["--exact", &format!("stores::sqlite_open::{test}"), "--nocapture", "--test-threads=1"])
        .env("POSSE_TEST_PATH", path)
        .spawn()
        .expect("runs")
}

/// The same, to its end.
fn in_another_process(test: &str, path: &Path) -> std::process::ExitStatus {
    start(test, path).wait().expect("ends")
}

fn task() -> Option<PathBuf> {
    std::env::var_os("POSSE_TEST_PATH").map(PathBuf::from)
}

#[test]
fn a_kill_in_the_middle_of_a_migration_does_no_harm() {
    if let Some(path) = task() {
        // What a migration does, up to a point at which the process vanishes.
        let connection = rusqlite::Connection::open(path).expect("opens");
        connection.pragma_update(None, "journal_mode", "WAL").expect("works");
        let sql =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../migrations/sqlite/0001_jobs/up.sql"));
        let sql = sql.expect("can be read");
        let half = &sql[..sql.find("CREATE TABLE blobs").expect("is in it")];
        connection.execute_batch("PRAGMA cache_size = 1; BEGIN IMMEDIATE").expect("works");
        connection.execute_batch(half).expect("works");
        std::process::abort();
    }
    let folder = Folder::new();
    let status = in_another_process("a_kill_in_the_middle_of_a_migration_does_no_harm", &folder.file());
    assert!(!status.success(), "it was killed");
    assert!(folder.0.path().join("jobs.db-wal").exists(), "it left its remains");
    some_jobs(&open(&folder.file()));
    assert_eq!(jobs_in(&open(&folder.file())), 10);
}

/// A database as the first release made it: its one schema step, and jobs in every state.
fn of_the_first_release(path: &Path, jobs_in_each_state: u32) {
    let first =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../migrations/sqlite/0001_jobs/up.sql"));
    let connection = rusqlite::Connection::open(path).expect("opens");
    connection.pragma_update(None, "journal_mode", "WAL").expect("works");
    connection.execute_batch(&first.expect("can be read")).expect("works");
    let states = posse_core::job::JobState::ALL;
    let steps = "CREATE TABLE __diesel_schema_migrations (version VARCHAR(50) PRIMARY KEY NOT NULL,
                 run_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP);
                 INSERT INTO __diesel_schema_migrations (version) VALUES ('0001')";
    connection.execute_batch(steps).expect("works");
    connection.execute_batch("BEGIN").expect("works");
    for number in 0..jobs_in_each_state * states.len() as u32 {
        let state = states[(number as usize) % states.len()];
        let running = (state == posse_core::job::JobState::Running).then_some(("w", 5));
        let job = "INSERT INTO jobs (queue, role, state, priority, run_at, attempt, max_attempts, crashes, lease_token,
                   lease_until, leased_by, cancel_requested, created_at, finalized_at)
                   VALUES ('default', 'r', ?, 5, 1, 1, 5, 0, 1, ?, ?, 0, 1, ?)";
        let ended = state.is_final().then_some(9);
        let (by, until) = running.unzip();
        connection.execute(job, rusqlite::params![state.as_str(), until, by, ended]).expect("works");
        let data = "INSERT INTO job_data (job_id, payload) VALUES (last_insert_rowid(), '{\"goal\": \"g\"}')";
        connection.execute(data, []).expect("works");
    }
    connection.execute_batch("COMMIT").expect("works");
}

#[test]
fn a_database_of_the_first_release_is_brought_up_once_and_keeps_its_jobs() {
    use posse_core::job::JobState;
    let folder = Folder::new();
    of_the_first_release(&folder.file(), 1000);
    let before = hash(&folder.file());
    let said = SqliteStore::open_read_only(&folder.file(), Keys::default())
        .err()
        .expect("is not migrated by looking")
        .to_string();
    assert!(said.contains("older posse"), "{said}");
    assert_eq!(hash(&folder.file()), before);
    let stores: Vec<_> = std::thread::scope(|scope| {
        let starts = [(); 2].map(|()| scope.spawn(|| open(&folder.file())));
        starts.into_iter().map(|start| start.join().expect("opens")).collect()
    });
    let counts = futures::executor::block_on(stores[0].counts()).expect("can be read");
    let counts: Vec<_> = counts.into_iter().map(|(_, state, jobs)| (state, jobs)).collect();
    assert_eq!(counts, JobState::ALL.map(|state| (state, 1000)));
    let rescued = futures::executor::block_on(stores[1].rescue(Vec::new(), 1_000)).expect("works");
    assert_eq!(rescued.len(), 1000, "those that ran then go on");
}

#[test]
fn what_was_answered_is_there_after_a_kill() {
    if let Some(path) = task() {
        some_jobs(&open(&path));
        std::mem::forget(open(&path));
        std::process::abort();
    }
    let folder = Folder::new();
    for round in 1..=3 {
        in_another_process("what_was_answered_is_there_after_a_kill", &folder.file());
        assert_eq!(jobs_in(&open(&folder.file())), 10 * round);
    }
}

#[test]
fn a_read_only_database_can_be_read_and_says_why_not_written() {
    use std::os::unix::fs::PermissionsExt;
    if let Some(path) = task() {
        // As a user who owns nothing here; root may write anywhere.
        let nobody = 65534;
        // SAFETY: changes who this process is; nothing else runs in it.
        assert_eq!(unsafe { libc::setgid(nobody) } + unsafe { libc::setuid(nobody) }, 0);
        let said = refusal(&path);
        let names_all = ["jobs.db", "uid 65534", "give that user the right"].iter().all(|part| said.contains(part));
        assert!(names_all && !said.contains('\n'), "{said}");
        let store = SqliteStore::open_read_only(&path, Keys::default()).expect("opens to be read");
        assert_eq!(jobs_in(&store), 10);
        let error = futures::executor::block_on(store.retry(posse_core::job::JobId(1), 1)).expect_err("is refused");
        assert!(matches!(&error, RepositoryError::Unavailable(text) if text.contains("read only")), "{error}");
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let folder = Folder::new();
    some_jobs(&open(&folder.file()));
    let rights = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("may");
    rights(&folder.file(), 0o444);
    rights(folder.0.path(), 0o555);
    let before = hash(&folder.file());
    let test = "a_read_only_database_can_be_read_and_says_why_not_written";
    assert!(in_another_process(test, &folder.file()).success(), "while it is closed");
    assert_eq!(hash(&folder.file()), before);
    // And while somebody else has it open.
    let owner = open(&folder.file());
    for suffix in ["-wal", "-shm"] {
        rights(&folder.0.path().join(format!("jobs.db{suffix}")), 0o444);
    }
    assert!(in_another_process(test, &folder.file()).success(), "while it is open");
    drop(owner);
}

#[tokio::test]
async fn jobs_of_the_first_schema_keep_their_attempts_outputs_and_reasons() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("jobs.db");
    let old = rusqlite::Connection::open(&path).expect("opens");
    old.execute_batch(include_str!("../../migrations/sqlite/0001_jobs/up.sql")).expect("makes the first schema");
    old.execute_batch(
        "CREATE TABLE __diesel_schema_migrations (
             version VARCHAR(50) PRIMARY KEY NOT NULL, run_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP);
         INSERT INTO __diesel_schema_migrations (version) VALUES ('0001');
         INSERT INTO jobs VALUES
             (1, 'q', 'r', 'running', 5, 1, 2, 3, 0, 2, 90, 'w2', 0, 1, NULL),
             (2, 'q', 'r', 'completed', 5, 1, 1, 3, 0, 1, NULL, NULL, 0, 1, 9);
         INSERT INTO job_data VALUES
             (1, '{\"goal\":\"a\"}', NULL, 'it failed'),
             (2, '{\"goal\":\"b\"}', '{\"text\":\"t\",\"status\":\"completed\",\"tools_used\":[],\"turns\":1,
                  \"usage\":{\"input\":1,\"output\":1},\"cost_microusd\":null}', NULL);
         INSERT INTO attempts VALUES
             (1, 1, 1, 'w1', 2, 3, 'failed', 'it failed'),
             (1, 2, 2, 'w2', 4, NULL, NULL, NULL),
             (2, 1, 1, 'w1', 5, 9, 'completed', NULL);",
    )
    .expect("fills it");
    drop(old);

    let store = SqliteStore::open(&path, Options::default()).expect("is brought up");
    let running = store.job(JobId(1)).await.expect("reads").expect("is there");
    assert_eq!((running.leased_by.as_deref(), running.reason.as_deref()), (Some("w2"), Some("it failed")));
    let attempts = store.attempts(JobId(1)).await.expect("reads");
    let seen: Vec<_> = attempts.iter().map(|a| (a.number, a.worker.as_str(), a.started_at, a.ended_at)).collect();
    assert_eq!(seen, [(1, "w1", 2, Some(3)), (2, "w2", 4, None)]);
    let completed = store.job(JobId(2)).await.expect("reads").expect("is there");
    assert_eq!(completed.output.map(|output| output.text).as_deref(), Some("t"));
    assert_eq!(store.attempts(JobId(2)).await.expect("reads").len(), 1);

    let lease = Lease { job: JobId(1), token: 2 };
    let ending = Ending {
        event: Event::Complete,
        due_at: 7,
        reason: None,
        output: None,
        entries: vec![],
        seq: 0,
        children: vec![],
        waits_for: vec![],
    };
    store.finish(lease, ending, 7).await.expect("the lease stands");
    let last = store.attempts(JobId(1)).await.expect("reads").pop().expect("is there");
    assert_eq!((last.number, last.ended_at, last.outcome.as_deref()), (2, Some(7), Some("completed")));
}

/// What left conversations before schema 0014 is found by its words; what a worker of that version still archives is not,
/// which the doctor tells.
#[tokio::test]
async fn what_was_archived_before_is_found() {
    use posse_core::memory::MemorySearch;
    use posse_core::port::{MemoryQueries as _, MemoryRepository as _};
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("jobs.db");
    some_jobs(&open(&path));
    let old = rusqlite::Connection::open(&path).expect("opens");
    for down in [
        include_str!("../../migrations/sqlite/0017_meaning/down.sql"),
        include_str!("../../migrations/sqlite/0016_tiers/down.sql"),
        include_str!("../../migrations/sqlite/0014_memory/down.sql"),
    ] {
        old.execute_batch(down).expect("goes back");
    }
    let archive = "INSERT INTO memory_items (scope, tier, content, job_id, seq, created_at)
        VALUES ('r', 'archival', ?1, 1, ?2, 5)";
    for (seq, said) in [(3, "the ladder is behind the shed"), (7, "so bring it")] {
        old.execute(archive, rusqlite::params![said, seq]).expect("is archived");
    }
    old.execute("DELETE FROM __diesel_schema_migrations WHERE version IN ('0014', '0016', '0017')", [])
        .expect("is of the version before");
    drop(old);
    let store = open(&path);
    let search = async || {
        let what = MemorySearch { text: "Where is the ladder?".into(), limit: 9, ..MemorySearch::default() };
        let found = store.search_memory(what).await.expect("is no error");
        found.items.into_iter().map(|hit| hit.item.text).collect::<Vec<_>>()
    };
    assert_eq!(search().await, ["the ladder is behind the shed", "so bring it"]);
    let archived = store.archived(JobId(1)).await.expect("can be read");
    assert_eq!(archived.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [3, 7]);

    let old = rusqlite::Connection::open(&path).expect("opens");
    old.execute(archive, rusqlite::params!["a second ladder", 9]).expect("as the version before does it");
    assert_eq!(store.memory_standing().await.expect("can be read").without_words, 1);
    store.reindex_memory().await.expect("works");
    assert!(search().await.contains(&"a second ladder".to_owned()));
}
