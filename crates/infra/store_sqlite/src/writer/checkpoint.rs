//! Taking the log into the database beside the writing, which goes on meanwhile: it waits for the disk twice, and a
//! claim that waited for it was picked up 7 ms late. A thread and a connection of its own, both made when they are first
//! needed, for most commands never write that much.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use diesel::SqliteConnection;
use diesel::connection::SimpleConnection;
use posse_core::port::Result;

use crate::Synchronous;
use crate::connection::{self, Access};

pub(super) struct Checkpointer {
    path: PathBuf,
    running: Option<(SyncSender<()>, JoinHandle<()>)>,
}

impl Checkpointer {
    pub fn new(path: PathBuf) -> Checkpointer {
        Checkpointer { path, running: None }
    }

    /// Has the log taken into the database, and does not wait for it. Asked for again while that is under way, it is done
    /// once more after it.
    pub fn begin(&mut self) {
        let (wanted, _) = match &self.running {
            Some(running) => running,
            None => {
                let (wanted, received) = sync_channel(1);
                let path = self.path.clone();
                let thread = std::thread::Builder::new().name("posse-checkpoint".into());
                match thread.spawn(move || checkpoint_when_asked(&path, &received)) {
                    Ok(thread) => self.running.insert((wanted, thread)),
                    Err(error) => return tracing::debug!(%error, "the log is taken into the database later"),
                }
            }
        };
        let _ = wanted.try_send(());
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        if let Some((wanted, thread)) = self.running.take() {
            drop(wanted);
            let _ = thread.join();
        }
    }
}

fn checkpoint_when_asked(path: &Path, wanted: &Receiver<()>) {
    let mut connection = None;
    while wanted.recv().is_ok() {
        // What fails is made up for at the next try, and at 24 MB by the writer itself.
        if let Err(error) = checkpoint(path, &mut connection) {
            tracing::debug!(%error, "the log is taken into the database later");
        }
    }
}

fn checkpoint(path: &Path, connection: &mut Option<SqliteConnection>) -> Result<()> {
    let connection = match connection {
        Some(connection) => connection,
        None => connection.insert(connection::open(path, Access::Write(Synchronous::Normal))?),
    };
    let done = connection.batch_execute("PRAGMA wal_checkpoint(PASSIVE)");
    done.map_err(|error| crate::fault::describe(&error, path))
}
