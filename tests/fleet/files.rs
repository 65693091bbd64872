//! What befalls the files of a database, and a backup in its place.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use posse_core::job::NewJob;
use posse_core::port::{Database as _, JobRepository as _, RepositoryError, Upkeep as _};
use posse_infra::sqlite::{Keys, SqliteDatabase};

use super::host::{Host, LOST};
use super::oracle::{Book, standings};
use super::plan::Rewind;
use super::worker::{ROLE, host_now};

/// What is said of a file that was deleted, moved or replaced.
const IN_USE: &str = "while it was in use";

/// The files of a database, itself first.
const SUFFIXES: [&str; 3] = ["", "-wal", "-shm"];

fn file(host: &Host, number: usize) -> PathBuf {
    let mut name = host.database().into_os_string();
    name.push(SUFFIXES[number]);
    name.into()
}

/// One of the files is moved away, or another one takes its name. Every worker ends by itself, and says so; when it is back
/// they go on.
pub async fn lose(host: &mut Host, number: usize, is_replaced: bool) {
    host.until_at_work().await;
    let (name, aside) = (file(host, number), host.root().join("aside"));
    if is_replaced {
        // A copy, by another program: to open it and close it here would take our own locks off.
        let copy = host.root().join("copy");
        run(Command::new("cp").arg(&name).arg(&copy));
        std::fs::hard_link(&name, &aside).expect("has a second name");
        std::fs::rename(&copy, &name).expect("takes its place");
    } else {
        std::fs::rename(&name, &aside).expect("is moved");
    }
    everybody_ends(host).await;
    host.close();
    if number == 0 && !is_replaced {
        nobody_begins_anew(host).await;
    }
    std::fs::rename(&aside, &name).expect("is put back");
    begin_again(host).await;
}

/// A backup is made, work goes on, and then the backup is all there is. Gives how many jobs had come further since.
pub async fn rewind(host: &mut Host, book: &mut Book, how: Rewind, more: usize, after: Duration) -> usize {
    host.until_at_work().await;
    let backup = host.root().join("backup.db");
    let _ = std::fs::remove_file(&backup);
    let before = standings(host);
    let database = SqliteDatabase { path: host.database(), keys: Keys::default() };
    host.store().backup(&backup).await.expect("a backup");
    let since = host.enqueue(more).await;
    book.ids.extend(&since);
    tokio::time::sleep(after).await;
    match how {
        Rewind::Deleted { files } => {
            (0..files).for_each(|number| std::fs::remove_file(file(host, number)).expect("is deleted"));
            everybody_ends(host).await;
            host.close();
        }
        Rewind::Killed | Rewind::Ended => {
            host.close();
            let refused = database.restore(&backup).expect_err("somebody works");
            assert!(
                matches!(&refused, RepositoryError::Refused(said) if said.contains("open; end it first")),
                "{refused}"
            );
            for worker in 0..host.workers.len() {
                if how == Rewind::Killed { host.kill(worker) } else { host.signal(worker, "-TERM") }
            }
            for worker in 0..host.workers.len() {
                let ended = host.ended(worker).await;
                assert!(how == Rewind::Killed || ended == 0, "it ended with {ended}\n{}", host.log());
            }
        }
    }
    database.restore(&backup).expect("is restored");
    host.open();
    let again = book.rewound(host, &before, &since);
    begin_again(host).await;
    again
}

/// Every worker ends by itself, and says why; and nobody else is told that anything was saved.
async fn everybody_ends(host: &mut Host) {
    let told = told(host);
    let job = NewJob { role: ROLE.into(), ..NewJob::default() };
    let refused = host.store().enqueue(vec![job], host_now(host.root())).await.expect_err("is not stored");
    assert!(matches!(&refused, RepositoryError::Gone(said) if said.contains(IN_USE)), "{refused}");
    for worker in 0..host.workers.len() {
        assert_eq!(host.ended(worker).await, LOST, "{}", host.log());
    }
    assert_eq!(self::told(host), told + host.workers.len(), "{}", host.log());
}

/// How many workers have ended with this.
fn told(host: &Host) -> usize {
    let is_it = |line: &&str| line.contains("ERROR") && line.contains(IN_USE);
    host.whole_log().lines().filter(is_it).count()
}

/// Whoever starts workers again when they end gets no new database in the place of one whose log lies there.
async fn nobody_begins_anew(host: &mut Host) {
    let id = |path: &Path| path.metadata().ok().map(|data| (data.ino(), data.len()));
    let log = file(host, 1);
    let before = id(&log);
    host.restart(0);
    assert_eq!(host.ended(0).await, LOST, "{}", host.log());
    assert!(!host.database().exists(), "a new one was made");
    assert_eq!(id(&log), before, "its log is as it was");
}

/// The database is whole, and is worked again.
async fn begin_again(host: &mut Host) {
    host.close();
    host.open();
    let wrong = host.store().check(true).await.expect("can be looked at");
    assert_eq!(wrong, [""; 0], "the database is damaged\n{}", host.log());
    for worker in 0..host.workers.len() {
        host.restart(worker);
    }
    host.until_at_work().await;
}

fn run(command: &mut Command) {
    assert!(command.status().expect("runs").success(), "{command:?}");
}
