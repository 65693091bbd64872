//! A few threads that read, each with a connection of its own. In WAL mode a reader sees the last
//! commit before it began and never waits for a writer.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use diesel::SqliteConnection;
use posse_core::port::{RepositoryError, Result};
use posse_core::store::Fault;
use tokio::sync::oneshot;

use super::connection::{Access, open};
use super::fault::in_words;
use super::identity::Identity;

/// Reads at once; more of them would only compete for processors.
const THREADS: usize = 4;

/// How long a thread that can have no connection leaves the reads to the others.
const REST: Duration = Duration::from_secs(1);

/// A read, given the thread's connection or the reason why there is none.
type Read = Box<dyn FnOnce(Result<&mut SqliteConnection>) + Send>;

/// The threads. They end when this is dropped, after what was asked for.
pub(super) struct Readers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    path: PathBuf,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// There is something to read, or there will be nothing any more.
    changed: Condvar,
    closing: Condvar,
}

#[derive(Default)]
struct State {
    reads: VecDeque<Read>,
    /// How many threads have a connection.
    connected: usize,
    closed: bool,
}

impl Readers {
    /// Starts the threads; each opens its connection at its first read.
    pub fn start(path: PathBuf, access: Access, identity: Arc<Identity>) -> std::io::Result<Readers> {
        let mut readers = Readers { shared: Arc::default(), threads: Vec::new(), path };
        for number in 0..THREADS {
            let (shared, path, identity) = (Arc::clone(&readers.shared), readers.path.clone(), Arc::clone(&identity));
            let thread = std::thread::Builder::new().name(format!("posse-read-{number}"));
            readers.threads.push(thread.spawn(move || shared.serve(&path, access, &identity))?);
        }
        Ok(readers)
    }

    /// Runs `read` on one of the threads.
    pub async fn run<T, E, F>(&self, read: F) -> Result<T>
    where
        T: Send + 'static,
        E: Into<Fault>,
        F: FnOnce(&mut SqliteConnection) -> Result<T, E> + Send + 'static,
    {
        let stopped = || RepositoryError::Unavailable("the database was closed".into());
        let (answer, answered) = oneshot::channel();
        let path = self.path.clone();
        let read: Read = Box::new(move |connection| {
            let result = connection.and_then(|connection| read(connection).map_err(|fault| in_words(fault, &path)));
            // A caller that is gone wants no answer.
            let _ = answer.send(result);
        });
        self.shared.lock().reads.push_back(read);
        self.shared.changed.notify_one();
        answered.await.map_err(|_| stopped())?
    }
}

/// A thread's connection, counted for as long as the thread has it.
struct Connected<'a> {
    connection: SqliteConnection,
    shared: &'a Shared,
}

impl<'a> Connected<'a> {
    fn new(shared: &'a Shared, connection: SqliteConnection) -> Self {
        shared.lock().connected += 1;
        Connected { connection, shared }
    }
}

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.shared.lock().connected -= 1;
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        self.shared.closing.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, path: &Path, access: Access, identity: &Identity) {
        let mut connection = None;
        while let Some(read) = self.next() {
            let opened = match &mut connection {
                Some(connection) => Ok(connection),
                // Where the log was moved away SQLite would make another one.
                None => identity
                    .check()
                    .and_then(|()| open(path, access))
                    .map(|opened| connection.insert(Connected::new(self, opened))),
            };
            match opened {
                Ok(Connected { connection, .. }) => read(Ok(connection)),
                // As where this process may open no more files: fewer threads have to do.
                Err(_) if self.lock().connected > 0 => self.leave_to_others(read),
                Err(error) => read(Err(error)),
            }
        }
    }

    /// Waits for something to read; none when there will be nothing any more.
    fn next(&self) -> Option<Read> {
        let waiting = |state: &mut State| state.reads.is_empty() && !state.closed;
        let state = self.changed.wait_while(self.lock(), waiting);
        state.unwrap_or_else(PoisonError::into_inner).reads.pop_front()
    }

    /// Gives a read back, and comes for the next one after a while.
    fn leave_to_others(&self, read: Read) {
        let mut state = self.lock();
        state.reads.push_front(read);
        self.changed.notify_one();
        // Whoever is told may be at another read, and looks for the next one after that.
        drop(self.closing.wait_timeout_while(state, REST, |state| !state.closed));
    }
}
