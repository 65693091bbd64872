//! The files of a database and those beside it, while a store has it open: what is moved or replaced is noticed, and what
//! cannot be written to is told of in another way.

use std::path::{Path, PathBuf};

use posse_core::job::lease::WorkerId;
use posse_core::job::{JobId, NewJob};
use posse_core::port::{Database as _, JobQueries, JobRepository, RepositoryError};
use posse_core::store::engine::Engine as _;
use posse_infra::sqlite::{Keys, Options, SqliteDatabase, SqliteStore};

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, Options::default()).expect("opens")
}

async fn write(store: &SqliteStore) -> Result<(), RepositoryError> {
    store.enqueue(vec![NewJob { role: "r".into(), ..NewJob::default() }], 1).await.map(drop)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    format!("{}{suffix}", path.display()).into()
}

#[tokio::test]
async fn each_of_the_files_is_missed_and_stays_lost() {
    for suffix in ["", "-wal", "-shm"] {
        for (replaced, writes) in [(false, false), (true, false), (false, true), (true, true)] {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("posse.db");
            let store = open(&path);
            write(&store).await.expect("what is in the files may change");
            store.still_there().expect("nothing is missing");
            let aside = folder.path().join("aside");
            std::fs::rename(beside(&path, suffix), &aside).expect("is moved");
            if replaced {
                std::fs::write(beside(&path, suffix), "x").expect("is written");
            }
            let asked = async || if writes { write(&store).await } else { store.still_there() };
            let said = asked().await.expect_err("is lost").to_string();
            assert!(said.contains(if replaced { "was replaced" } else { "was deleted or moved" }), "{said}");
            std::fs::rename(&aside, beside(&path, suffix)).expect("is moved back");
            asked().await.expect_err("what was answered meanwhile is not there");
        }
    }
}

#[tokio::test]
async fn who_can_open_nothing_leaves_reads_to_those_who_could() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("posse.db");
    drop(open(&path));
    let (one, none) =
        (SqliteStore::open_read_only(&path, Keys::default()), SqliteStore::open_read_only(&path, Keys::default()));
    let (one, none) = (one.expect("opens"), none.expect("opens"));
    one.job(JobId(1)).await.expect("one thread has a connection");
    std::fs::rename(&path, folder.path().join("away")).expect("is moved");
    for _ in 0..200 {
        one.job(JobId(1)).await.expect("is read by that one");
    }
    none.job(JobId(1)).await.expect_err("where no thread has one it is told why");
}

#[test]
fn what_a_worker_leaves_is_found_by_others_also_when_the_folder_was_away() {
    let around = tempfile::tempdir().expect("a folder");
    let (here, away) = (around.path().join("here"), around.path().join("away"));
    std::fs::create_dir(&here).expect("is made");
    let mine = open(&here.join("posse.db"));
    let workers = ["host-4711-5ce88a", "a/b %c", "é"].map(|name| WorkerId(name.into()));
    std::fs::rename(&here, &away).expect("is moved");
    for worker in &workers {
        assert!(!mine.ended_by_itself(worker));
        mine.say_word(worker);
        mine.say_word(worker);
    }
    let too_long = WorkerId("x".repeat(300));
    mine.say_word(&too_long);
    assert!(!mine.ended_by_itself(&too_long));
    std::fs::rename(&away, &here).expect("is moved back");
    let theirs = open(&here.join("posse.db"));
    let other = open(&here.join("other.db"));
    assert!(workers.iter().all(|worker| theirs.ended_by_itself(worker) && !other.ended_by_itself(worker)));
    theirs.forget_word(&workers[0]);
    assert_eq!(workers.each_ref().map(|worker| mine.ended_by_itself(worker)), [false, true, true]);

    // With a restore all of them go, and nothing else does.
    drop((mine, theirs, other));
    let database = SqliteDatabase { path: here.join("posse.db"), keys: Keys::default() };
    database.restore(&here.join("other.db")).expect("is restored");
    let mine = open(&here.join("posse.db"));
    assert!(workers.iter().all(|worker| !mine.ended_by_itself(worker)) && here.join("other.db").exists());
}
