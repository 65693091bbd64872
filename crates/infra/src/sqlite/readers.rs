//! A few threads that read, each with a connection of its own. In WAL mode a reader sees the last
//! commit before it began and never waits for a writer.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use diesel::SqliteConnection;
use posse_core::port::RepositoryError;
use tokio::sync::oneshot;

use super::connection::{Access, open};
use super::fault::{Fault, Outcome, describe};

/// Reads at once; more of them would only compete for processors.
const THREADS: usize = 4;

/// A read, given the thread's connection or the reason why there is none.
type Read = Box<dyn FnOnce(Result<&mut SqliteConnection, RepositoryError>) + Send>;

/// The threads. They end when this is dropped, after what they are at.
pub(super) struct Readers {
    reads: Option<mpsc::Sender<Read>>,
    threads: Vec<JoinHandle<()>>,
    path: PathBuf,
}

impl Readers {
    /// Starts the threads; each opens its connection at its first read.
    pub fn start(path: PathBuf, access: Access) -> std::io::Result<Readers> {
        let (reads, queue) = mpsc::channel::<Read>();
        let queue = Arc::new(Mutex::new(queue));
        let mut threads = Vec::new();
        for number in 0..THREADS {
            let (queue, path) = (Arc::clone(&queue), path.clone());
            let thread = std::thread::Builder::new().name(format!("posse-read-{number}")).spawn(move || {
                let mut connection = None;
                loop {
                    // The guard is held while waiting: one thread waits for the next read, the
                    // others wait for their turn to wait.
                    let read = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(read) = read else { return };
                    match &mut connection {
                        Some(connection) => read(Ok(connection)),
                        None => match open(&path, access) {
                            Ok(opened) => read(Ok(connection.insert(opened))),
                            Err(error) => read(Err(error)),
                        },
                    }
                }
            })?;
            threads.push(thread);
        }
        Ok(Readers { reads: Some(reads), threads, path })
    }

    /// Runs `read` on one of the threads.
    pub async fn run<T, F>(&self, read: F) -> Result<T, RepositoryError>
    where
        T: Send + 'static,
        F: FnOnce(&mut SqliteConnection) -> Outcome<T> + Send + 'static,
    {
        let stopped = || RepositoryError::Unavailable("the database was closed".into());
        let (answer, answered) = oneshot::channel();
        let path = self.path.clone();
        let read: Read = Box::new(move |connection| {
            let result = connection.and_then(|connection| {
                read(connection).map_err(|fault| match fault {
                    Fault::Refused(error) => error,
                    Fault::Db(error) => describe(&error, &path),
                })
            });
            // A caller that is gone wants no answer.
            let _ = answer.send(result);
        });
        self.reads.as_ref().and_then(|reads| reads.send(read).ok()).ok_or_else(stopped)?;
        answered.await.map_err(|_| stopped())?
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.reads = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
