//! A command that goes on, and is spoken with while it does.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::net::unix::pipe::Sender;
use tokio::process::{Child, ChildStderr, ChildStdout};

use super::kept::Kept;
use super::spec::{End, Report};

/// What it is spoken with. Its standard input ends with `input`.
pub(crate) struct Streams {
    pub input: Sender,
    pub output: ChildStdout,
}

/// It may go on until this is dropped; then all its processes end soon.
pub(crate) struct Serving {
    child: Child,
    socket: UnixStream,
    streams: Option<Streams>,
    /// What it said on standard error, which is always read.
    complaints: Arc<Mutex<Kept>>,
}

impl Serving {
    pub(super) fn of(mut child: Child, socket: UnixStream, input: Sender) -> Serving {
        let complaints = Arc::default();
        let streams = child.stdout.take().map(|output| Streams { input, output });
        if let Some(from) = child.stderr.take() {
            tokio::spawn(drain(from, Arc::clone(&complaints)));
        }
        Serving { child, socket, streams, complaints }
    }

    /// The streams; given once.
    pub fn streams(&mut self) -> Option<Streams> {
        self.streams.take()
    }

    /// What it said on standard error until now, its beginning and its end.
    pub fn complaints(&self) -> Arc<Mutex<Kept>> {
        Arc::clone(&self.complaints)
    }

    /// Waits so long for its own end, and gives it; then it is ended.
    pub async fn end(mut self, patience: Duration) -> Option<End> {
        let mut said = Vec::new();
        let mut hearing = (&mut self.socket).take(64 * 1024);
        let _ = tokio::time::timeout(patience, hearing.read_to_end(&mut said)).await;
        let end = serde_json::from_slice::<Report>(&said).ok().map(|report| report.end);
        // The launcher hears this, and ends all that is left before it ends itself.
        drop(self.socket);
        let _ = tokio::time::timeout(super::OVERDUE, self.child.wait()).await;
        end
    }
}

/// Reads to the end, whatever comes.
async fn drain(mut from: ChildStderr, into: Arc<Mutex<Kept>>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        into.lock().unwrap_or_else(PoisonError::into_inner).take(&buffer[..read]);
    }
}
