//! Standard error, and standard output where what goes there is only told and nobody waits for it: written
//! by a thread of its own, so that a reader who has stopped reading stops nobody's work.
//!
//! Where the stream takes what is written, a caller waits until it is: then what goes to both streams of
//! a terminal comes in its order. Where it takes nothing, nobody waits: a bounded number of bytes is kept,
//! what comes after that is dropped and counted, and the count is told as soon as there is room.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

const MOST: usize = 1 << 20;

/// How long a caller waits for what the stream is ready to take.
const PATIENCE: Duration = Duration::from_millis(200);

/// How long the end of the process waits for a reader who takes nothing.
const LAST_PATIENCE: Duration = Duration::from_millis(300);

/// How long it waits for one who reads slowly.
const LONGEST_END: Duration = Duration::from_secs(5);

pub struct Stream {
    shared: Arc<Shared>,
}

struct Shared {
    fd: BorrowedFd<'static>,
    told: fn(u64) -> String,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<String>,
    bytes: usize,
    /// Whether the thread has taken a piece that is not written yet.
    writing: bool,
    dropped: u64,
    /// Whether nobody can read it any more.
    gone: bool,
    started: bool,
    above: Option<Above>,
}

/// Takes whole lines, and shows them where they do no harm.
type Above = Arc<dyn Fn(&str) + Send + Sync>;

pub fn stderr() -> &'static Stream {
    static STREAM: OnceLock<Stream> = OnceLock::new();
    STREAM.get_or_init(|| {
        Stream::new(rustix::stdio::stderr(), |lines| format!("… {}, which nobody read in time\n", left_out(lines)))
    })
}

/// Standard output, for lines of JSON that tell what happens.
pub fn stdout() -> &'static Stream {
    static STREAM: OnceLock<Stream> = OnceLock::new();
    STREAM.get_or_init(|| {
        Stream::new(rustix::stdio::stdout(), |lines| {
            format!("{}\n", serde_json::json!({"event": "lines_dropped", "lines": lines}))
        })
    })
}

fn left_out(lines: u64) -> String {
    let were = if lines == 1 { "was" } else { "were" };
    format!("{} {were} left out", super::text::plural(lines, "line"))
}

/// Has what is still to be written written, as far as somebody reads it.
pub fn finish() {
    stdout().finish();
    stderr().finish();
}

impl Stream {
    fn new(fd: BorrowedFd<'static>, told: fn(u64) -> String) -> Stream {
        Stream { shared: Arc::new(Shared { fd, told, state: Mutex::default(), changed: Condvar::new() }) }
    }

    /// Has what comes shown by `above` instead, while a person edits a line there; or no longer.
    pub fn above(&self, above: Option<Above>) {
        self.shared.lock().above = above;
    }

    /// Writes `text`, which ends its last line itself, or drops it; false where nobody reads the stream any more.
    pub fn send(&self, text: impl Into<String>) -> bool {
        let text = text.into();
        let mut state = self.shared.lock();
        if state.gone {
            return false;
        }
        if let Some(above) = state.above.clone() {
            drop(state);
            above(&text);
            return true;
        }
        let is_idle = state.queue.is_empty() && !state.writing;
        // Once a line is dropped so are the next, until it is told how many: no gap is left untold.
        if state.dropped > 0 || (!is_idle && state.bytes + text.len() > MOST) {
            state.dropped += text.matches('\n').count().max(1) as u64;
            return true;
        }
        state.bytes += text.len();
        state.queue.push_back(text);
        if !std::mem::replace(&mut state.started, true) {
            let shared = Arc::clone(&self.shared);
            // Without threads the process would not be here.
            std::thread::spawn(move || shared.write_on());
        }
        self.shared.changed.notify_all();
        if is_idle && self.shared.is_ready() {
            let waiting = |state: &mut State| !state.queue.is_empty() || state.writing;
            let waited = self.shared.changed.wait_timeout_while(state, PATIENCE, waiting);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        !state.gone
    }

    /// The same for what is of no use later: nothing at all where something else waits already.
    pub fn send_now(&self, text: impl Into<String>) {
        let is_idle = {
            let state = self.shared.lock();
            state.queue.is_empty() && !state.writing
        };
        if is_idle && self.shared.is_ready() {
            self.send(text);
        }
    }

    fn finish(&self) {
        let (began, mut since) = (Instant::now(), Instant::now());
        let mut state = self.shared.lock();
        let mut left = state.bytes;
        while (!state.queue.is_empty() || state.writing || state.dropped > 0) && !state.gone && state.started {
            let tick = Duration::from_millis(20);
            state = self.shared.changed.wait_timeout(state, tick).unwrap_or_else(PoisonError::into_inner).0;
            if state.bytes != left || self.shared.is_ready() {
                (left, since) = (state.bytes, Instant::now());
            }
            if since.elapsed() > LAST_PATIENCE || began.elapsed() > LONGEST_END {
                return;
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_ready(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.fd, PollFlags::OUT)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    fn write_on(&self) {
        let mut file = match rustix::io::fcntl_dupfd_cloexec(self.fd, 3) {
            Ok(fd) => File::from(fd),
            Err(_) => {
                self.lock().gone = true;
                return;
            }
        };
        let mut state = self.lock();
        loop {
            let piece = match state.queue.pop_front() {
                Some(piece) => piece,
                None if state.dropped > 0 => (self.told)(std::mem::take(&mut state.dropped)),
                None => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
            };
            state.writing = true;
            drop(state);
            let written = file.write_all(piece.as_bytes());
            state = self.lock();
            state.writing = false;
            state.bytes = state.queue.iter().map(String::len).sum();
            match written {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    *state = State { gone: true, started: true, ..State::default() };
                    self.changed.notify_all();
                    return;
                }
                // A full disk has room again some time; until then there is nowhere to tell it.
                Err(_) => {}
            }
            self.changed.notify_all();
        }
    }
}
