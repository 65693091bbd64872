//! Notifying workers, in this process and others, that there may be something to do.
//!
//! Beside the database lies a small file. A process that commits something of interest writes its
//! mark into it; the others are told by inotify, within a millisecond and at no cost while nothing
//! happens. Every process that listens holds a shared lock on one byte of the file, so that a process
//! can see that nobody else listens, and then writes nothing: inotify would tell it of its own
//! writes too. The same file, locked whole, makes starts of several processes wait for each other.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::fs::{FlockOperation, inotify};
use tokio::sync::watch;

use super::paths::beside;

/// Notifies this process and, through the file, others.
pub(super) struct Notifier {
    /// Changes with every notification.
    changes: watch::Sender<u64>,
    /// Changes with every commit of this store, and with every notification.
    commits: watch::Sender<u64>,
    /// Absent where the file cannot be opened; then others find out by their slow poll.
    file: Option<File>,
    /// Tells this store's writes from those of others.
    mark: [u8; 8],
}

fn file_of(database: &Path) -> PathBuf {
    beside(database, ".wake")
}

impl Notifier {
    /// Makes the file if it is not there.
    pub fn new(database: &Path) -> Notifier {
        let mut how = OpenOptions::new();
        how.read(true).write(true).create(true).truncate(false).mode(0o600);
        Notifier::with_file(how.open(file_of(database)).ok())
    }

    /// One that reaches this process alone, and can tell whether others listen.
    pub fn read_only(database: &Path) -> Notifier {
        Notifier::with_file(File::open(file_of(database)).ok())
    }

    fn with_file(file: Option<File>) -> Notifier {
        Notifier { changes: watch::Sender::new(0), commits: watch::Sender::new(0), file, mark: rand::random() }
    }

    pub fn listen(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub fn listen_to_commits(&self) -> watch::Receiver<u64> {
        self.commits.subscribe()
    }

    /// Notifies those who follow the commits of this store.
    pub fn committed(&self) {
        self.commits.send_modify(|commits| *commits = commits.wrapping_add(1));
    }

    /// Notifies this process alone.
    pub fn notify_here(&self) {
        self.changes.send_modify(|changes| *changes = changes.wrapping_add(1));
        self.committed();
    }

    /// Notifies all processes. The file is written first: a listener here that takes the mark for our own, and
    /// so passes over what another process wrote before it, is told by the second step.
    pub fn notify(&self) {
        // A process that begins to listen after this looks for work after that, and finds what was committed.
        if let Some(file) = self.file.as_ref().filter(|file| listeners::others(file))
            && let Err(error) = file.write_all_at(&self.mark, 0)
        {
            tracing::debug!(%error, "other processes could not be woken; they look by themselves once a second");
        }
        self.notify_here();
    }

    /// Whether anybody listens through another open file.
    pub fn has_listeners(&self) -> bool {
        self.file.as_ref().is_some_and(listeners::others)
    }

    /// Keeps other processes from starting until it is dropped or this process ends: they wait, and find the
    /// database made. Without the file nobody is kept.
    pub fn lock(&self) -> Option<Lock<'_>> {
        let file = self.file.as_ref()?;
        rustix::io::retry_on_intr(|| rustix::fs::flock(file, FlockOperation::LockExclusive)).ok()?;
        Some(Lock(file))
    }

    /// Whether this store was the last to write to the file.
    fn wrote_last(&self) -> bool {
        let mut mark = [0; 8];
        self.file.as_ref().is_some_and(|file| file.read_exact_at(&mut mark, 0).is_ok()) && mark == self.mark
    }
}

pub(super) struct Lock<'a>(&'a File);

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        // What cannot be unlocked is unlocked with the process.
        let _ = rustix::fs::flock(self.0, FlockOperation::Unlock);
    }
}

/// A thread that passes notifications of other processes on to a [`Notifier`] here.
pub(super) struct Listener {
    inotify: Arc<rustix::fd::OwnedFd>,
    watch: i32,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    pub fn start(database: &Path, notifier: Arc<Notifier>) -> io::Result<Listener> {
        let inotify = Arc::new(inotify::init(inotify::CreateFlags::CLOEXEC)?);
        let watch = inotify::add_watch(&inotify, file_of(database), inotify::WatchFlags::MODIFY)?;
        notifier.file.as_ref().map_or(Ok(()), listeners::announce)?;
        let thread = std::thread::Builder::new().name("posse-wake".into()).spawn({
            let inotify = Arc::clone(&inotify);
            move || {
                let mut buffer = [MaybeUninit::uninit(); 1024];
                let mut events = inotify::Reader::new(&*inotify, &mut buffer);
                loop {
                    match events.next().map(|event| event.events()) {
                        // The watch has ended: the store closes, or somebody deleted the file.
                        Ok(seen) if seen.contains(inotify::ReadFlags::IGNORED) => return,
                        Ok(_) if !events.is_buffer_empty() || notifier.wrote_last() => {}
                        Ok(_) => notifier.notify_here(),
                        Err(rustix::io::Errno::INTR) => {}
                        Err(error) => {
                            tracing::warn!(%error, "no longer woken by other processes; looking once a second");
                            return;
                        }
                    }
                }
            }
        })?;
        Ok(Listener { inotify, watch, thread: Some(thread) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Ending the watch is an event too, the thread's last. Where it fails the file was deleted,
        // and that was the thread's last.
        let _ = inotify::remove_watch(&self.inotify, self.watch);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The locks of those who listen, on the byte behind the mark. A lock belongs to the open file, so it ends with
/// it, and one process may have several.
mod listeners {
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd;

    /// Takes a lock that all who listen share.
    pub fn announce(file: &File) -> io::Result<()> {
        call(file, libc::F_OFD_SETLK, libc::F_RDLCK).map(drop)
    }

    /// Whether anybody listens through another open file. Where that cannot be known, somebody may.
    pub fn others(file: &File) -> bool {
        !matches!(call(file, libc::F_OFD_GETLK, libc::F_WRLCK), Ok(libc::F_UNLCK))
    }

    /// The kind of lock that the system answers with.
    fn call(file: &File, command: libc::c_int, kind: libc::c_int) -> io::Result<libc::c_int> {
        // SAFETY: a structure of numbers, for which zero is a value.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
        (lock.l_start, lock.l_len) = (8, 1);
        // SAFETY: the file is open, and these commands read and write this structure.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(libc::c_int::from(lock.l_type)),
        }
    }
}
