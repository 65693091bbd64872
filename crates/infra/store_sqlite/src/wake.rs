//! Telling workers, in this process and others, that there may be something to do.
//!
//! Beside the database lies a small file. A process that commits something of interest writes its
//! mark into it; the others are told by inotify, within a millisecond and at no cost while nothing
//! happens. Whoever listens holds a lock on it, so that a process that is alone need not write, and
//! be told of it by inotify too. The same file, locked whole, makes starts of several processes wait
//! for each other.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::fs::{FlockOperation, inotify};
use tokio::sync::watch;

/// Rung when something of interest was committed.
pub(super) struct Bell {
    changes: watch::Sender<u64>,
    /// Rung by every commit of this store.
    commits: watch::Sender<u64>,
    /// Absent where the file cannot be written; then others find out by their slow poll.
    file: Option<File>,
    /// Tells this store's writes from those of others.
    mark: [u8; 8],
}

impl Bell {
    /// A bell whose file is at `path`.
    pub fn new(path: &Path) -> Bell {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        Bell { file: file.ok(), ..Bell::silent_without_file() }
    }

    /// A bell that is heard here only.
    pub fn silent(path: &Path) -> Bell {
        Bell { file: File::open(path).ok(), ..Bell::silent_without_file() }
    }

    fn silent_without_file() -> Bell {
        Bell { changes: watch::Sender::new(0), commits: watch::Sender::new(0), file: None, mark: rand::random() }
    }

    /// For whoever looks at what this store committed.
    pub fn committed(&self) {
        self.commits.send_modify(|commits| *commits = commits.wrapping_add(1));
    }

    /// Changes with every commit of this store, and with every ring that another process made.
    pub fn listen_to_commits(&self) -> watch::Receiver<u64> {
        self.commits.subscribe()
    }

    /// Keeps other processes from starting until it is dropped: they wait, and find the database
    /// made. It ends with the process, however that ends. Without the file nobody is kept.
    pub fn lock(&self) -> Option<Lock<'_>> {
        let file = self.file.as_ref()?;
        rustix::io::retry_on_intr(|| rustix::fs::flock(file, FlockOperation::LockExclusive)).ok()?;
        Some(Lock(file))
    }

    /// For everybody. Others first: then a listener here that takes the mark for our own and stays
    /// quiet can rely on being told by this very ring, after anything the mark has covered up.
    pub fn ring(&self) {
        // Who begins to listen after this looks for work after that, and finds what was committed.
        if let Some(file) = self.file.as_ref().filter(|file| ears::others(file))
            && let Err(error) = file.write_all_at(&self.mark, 0)
        {
            tracing::debug!(%error, "other processes could not be woken; they look by themselves once a second");
        }
        self.ring_here();
    }

    /// Whether anybody listens through another open file.
    pub fn has_listeners(&self) -> bool {
        self.file.as_ref().is_some_and(ears::others)
    }

    /// Lets others know from now on that somebody listens here.
    fn announce(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), ears::announce)
    }

    /// For this process.
    pub fn ring_here(&self) {
        self.changes.send_modify(|changes| *changes = changes.wrapping_add(1));
        self.committed();
    }

    /// Changes with every ring.
    pub fn listen(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Whether the last one who wrote the file was this store.
    fn is_own_echo(&self) -> bool {
        let mut mark = [0; 8];
        self.file.as_ref().is_some_and(|file| file.read_exact_at(&mut mark, 0).is_ok()) && mark == self.mark
    }
}

/// See [`Bell::lock`].
pub(super) struct Lock<'a>(&'a File);

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        // What cannot be unlocked is unlocked with the process.
        let _ = rustix::fs::flock(self.0, FlockOperation::Unlock);
    }
}

/// A thread that rings a [`Bell`] here when another process has rung it.
pub(super) struct Ear {
    inotify: Arc<rustix::fd::OwnedFd>,
    watch: i32,
    thread: Option<JoinHandle<()>>,
}

impl Ear {
    /// Listens to the bell's file at `path`.
    pub fn open(path: &Path, bell: Arc<Bell>) -> io::Result<Ear> {
        let inotify = Arc::new(inotify::init(inotify::CreateFlags::CLOEXEC)?);
        let watch = inotify::add_watch(&inotify, path, inotify::WatchFlags::MODIFY)?;
        bell.announce()?;
        let thread = std::thread::Builder::new().name("posse-wake".into()).spawn({
            let inotify = Arc::clone(&inotify);
            move || {
                let mut buffer = [MaybeUninit::uninit(); 1024];
                let mut events = inotify::Reader::new(&*inotify, &mut buffer);
                loop {
                    match events.next().map(|event| event.events()) {
                        // The watch has ended: the store closes, or somebody deleted the file.
                        Ok(seen) if seen.contains(inotify::ReadFlags::IGNORED) => return,
                        Ok(_) if !events.is_buffer_empty() || bell.is_own_echo() => {}
                        Ok(_) => bell.ring_here(),
                        Err(rustix::io::Errno::INTR) => {}
                        Err(error) => {
                            tracing::warn!(%error, "no longer woken by other processes; looking once a second");
                            return;
                        }
                    }
                }
            }
        })?;
        Ok(Ear { inotify, watch, thread: Some(thread) })
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        // Ending the watch is an event too, the thread's last. Where it fails the file was deleted,
        // and that was the thread's last.
        let _ = inotify::remove_watch(&self.inotify, self.watch);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Who listens, as locks on a byte of the bell's file behind the mark. They belong to the open file,
/// so they end with it, and one process may have several.
mod ears {
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd;

    /// Holds a lock that all who listen share.
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
