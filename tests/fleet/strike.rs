//! Has blows happen, and counts them.

use std::path::Path;
use std::process::Child;
use std::time::Duration;

use posse_core::port::{CareRepository as _, ClockJump};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use super::files;
use super::host::{Host, LOST, program};
use super::oracle::Book;
use super::plan::{Blow, Mute, Rewind};
use super::worker::{LEASE, set_host_clock};
use crate::support::until;
use crate::support::wait::wait_async;

/// By how much the host's clock is set, in milliseconds.
pub const HOUR: i64 = 3_600_000;

/// What happened to the fleet; to see that it was under fire.
#[derive(Default, Debug)]
pub struct Tally {
    pub killed: u32,
    pub frozen: u32,
    pub drained: u32,
    pub locked: u32,
    pub locked_beyond_leases: u32,
    pub clock_set: u32,
    pub moved: u32,
    pub replaced: u32,
    pub deleted: u32,
    pub restored: u32,
    /// Jobs that had come further since the backup that was restored.
    pub undone: usize,
    pub muted: u32,
    pub starved: u32,
    pub crashes: u32,
    pub unknown: u32,
    pub discarded: u32,
}

impl Tally {
    /// The kinds of fire that there was none of.
    pub fn missing(&self) -> Vec<&'static str> {
        let kinds = [
            ("killed", self.killed),
            ("frozen", self.frozen),
            ("drained", self.drained),
            ("locked", self.locked),
            ("locked for longer than leases stand", self.locked_beyond_leases),
            ("clock set", self.clock_set),
            ("moved", self.moved),
            ("replaced", self.replaced),
            ("deleted", self.deleted),
            ("restored", self.restored),
            ("muted", self.muted),
            ("starved", self.starved),
        ];
        kinds.into_iter().filter(|(_, times)| *times == 0).map(|(kind, _)| kind).collect()
    }
}

/// Has it happen.
pub async fn strike(host: &mut Host, book: &mut Book, blow: Blow, tally: &mut Tally) {
    match blow {
        Blow::Kill { worker } => {
            host.replace(worker);
            tally.killed += 1;
        }
        Blow::Freeze { worker, beyond_ms } => {
            host.signal(worker, "-STOP");
            tokio::time::sleep(LEASE + Duration::from_millis(beyond_ms)).await;
            host.signal(worker, "-CONT");
            tally.frozen += 1;
        }
        Blow::End { worker, after_ms } => {
            host.signal(worker, "-TERM");
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            host.replace(worker);
            tally.drained += 1;
        }
        Blow::Lock { ms } => {
            let other = hold_write_lock(host.root()).await;
            tokio::time::sleep(Duration::from_millis(ms)).await;
            drop(other);
            tally.locked += 1;
            tally.locked_beyond_leases += u32::from(Duration::from_millis(ms) >= LEASE);
        }
        Blow::SetClock => {
            let before = newest_jump(host).await;
            // There and back again, so that due times stay near.
            let is_forward = tally.clock_set.is_multiple_of(2);
            set_host_clock(host.root(), HOUR * i64::from(is_forward));
            until_jump_is_noticed(host, before, is_forward).await;
            tally.clock_set += 1;
        }
        Blow::Lose { file, is_replaced } => {
            files::lose(host, file, is_replaced).await;
            *(if is_replaced { &mut tally.replaced } else { &mut tally.moved }) += 1;
        }
        Blow::Rewind { how, more, after_ms } => {
            tally.undone += files::rewind(host, book, how, more, Duration::from_millis(after_ms)).await;
            *(if matches!(how, Rewind::Deleted { .. }) { &mut tally.deleted } else { &mut tally.restored }) += 1;
        }
        Blow::Mute { worker, whom, ms } => {
            mute(host, worker, whom, Duration::from_millis(ms)).await;
            tally.muted += 1;
        }
        Blow::Starve { worker, files } => {
            host.kill(worker);
            host.restart_limited(worker, &format!("-n {files}"));
            tally.starved += 1;
        }
    }
}

/// Processes write nothing to any file for a while, as where a file system has become read-only under their hands: a
/// mount on which files are written cannot be made so by anybody else.
async fn mute(host: &mut Host, worker: usize, whom: Mute, time: Duration) {
    let mut muted: Vec<_> = if whom == Mute::All { (0..host.workers.len()).collect() } else { vec![worker] };
    // One that is only about to begin might be refused, and is no worker yet.
    host.until_at_work().await;
    let usual = getrlimit(Resource::Fsize);
    let limit = |host: &Host, worker: usize, current: Option<u64>| {
        let pid = Pid::from_raw(host.workers[worker].id().cast_signed());
        prlimit(pid, Resource::Fsize, Rlimit { current, ..usual }).expect("a process of ours");
    };
    muted.iter().for_each(|worker| limit(host, *worker, Some(0)));
    if whom == Mute::OneThatEnds {
        tokio::time::sleep(time / 2).await;
        host.signal(worker, "-TERM");
        // It gives back what it can, and is not kept from ending by what it cannot.
        assert_eq!(host.ended(worker).await, 0, "{}", host.log());
        host.restart(worker);
        return;
    }
    tokio::time::sleep(time / 2).await;
    if whom == Mute::All {
        // Nor does one begin that cannot write, and what is left of another one stays where it is.
        host.kill(worker);
        host.restart_limited(worker, "-f 0");
        assert_eq!(host.ended(worker).await, LOST, "{}", host.log());
        host.restart(worker);
        muted.retain(|other| *other != worker);
    }
    tokio::time::sleep(time / 2).await;
    muted.iter().for_each(|worker| limit(host, *worker, usual.current));
}

async fn newest_jump(host: &Host) -> Option<ClockJump> {
    host.store().clock_jumps().await.expect("readable").into_iter().next()
}

/// Waits for the first worker that notices. A clock that is set back before anybody looked was never set.
async fn until_jump_is_noticed(host: &Host, before: Option<ClockJump>, is_forward: bool) {
    let noticed = wait_async(Duration::from_secs(20), async || {
        let newest = newest_jump(host).await;
        newest.filter(|newest| Some(newest) != before.as_ref() && (newest.by_ms > 0) == is_forward).ok_or(())
    });
    assert!(noticed.await.is_ok(), "nobody noticed that the clock was set\n{}", host.log());
}

/// Another program that holds the write lock until it is dropped.
struct Lock(Child);

/// Returns once it holds it.
async fn hold_write_lock(root: &Path) -> Lock {
    let told = root.join("locked");
    let _ = std::fs::remove_file(&told);
    let lock = Lock(program("fleet::worker::holds_the_write_lock", "POSSE_FLEET_LOCK", root).spawn().expect("starts"));
    until("the write lock is had", || told.exists());
    lock
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
