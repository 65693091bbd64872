//! Time as the core sees it.

use std::sync::atomic::{AtomicI64, Ordering};

/// Milliseconds since 1970-01-01T00:00:00Z. Databases keep times in this form.
pub type Millis = i64;

/// Where the time comes from: the host's clocks in production, a test's hand in tests.
pub trait Clock: Send + Sync {
    /// The time of day and year, which somebody may set at any moment. For what is stored and shown.
    fn now(&self) -> Millis;

    /// Milliseconds that go on while the machine sleeps and that nobody can set: for how long something took.
    fn elapsed(&self) -> Millis;
}

/// The host's clocks are read by an adapter; tests use this one and move it themselves.
#[derive(Debug, Default)]
pub struct ManualClock {
    now: AtomicI64,
    elapsed: AtomicI64,
}

impl ManualClock {
    /// A clock standing at `now`.
    pub fn at(now: Millis) -> Self {
        ManualClock { now: now.into(), elapsed: 0.into() }
    }

    /// Lets `by` milliseconds pass.
    pub fn advance(&self, by: Millis) {
        self.elapsed.fetch_add(by, Ordering::SeqCst);
        self.set_by(by);
    }

    /// Sets the time by `by` milliseconds, forward or back, without any passing.
    pub fn set_by(&self, by: Millis) {
        self.now.fetch_add(by, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Millis {
        self.now.load(Ordering::SeqCst)
    }

    fn elapsed(&self) -> Millis {
        self.elapsed.load(Ordering::SeqCst)
    }
}

/// A difference between the clocks that is no mere correction, in milliseconds.
pub const JUMP_MS: Millis = 5_000;

/// Both clocks, read at the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// [`Clock::now`].
    pub now: Millis,
    /// [`Clock::elapsed`].
    pub elapsed: Millis,
}

impl Reading {
    /// Reads both clocks. A process that is stopped between the two reads them again.
    pub fn of(clock: &dyn Clock) -> Reading {
        loop {
            let (before, now, elapsed) = (clock.elapsed(), clock.now(), clock.elapsed());
            if elapsed - before <= JUMP_MS / 100 {
                return Reading { now, elapsed };
            }
        }
    }
}

/// Tells when the time was set, by comparing it with the time that passed.
#[derive(Debug)]
pub struct JumpWatch {
    /// Time minus elapsed, as it was last seen.
    offset: Millis,
}

impl JumpWatch {
    /// A watch that begins at `reading`.
    pub fn new(reading: Reading) -> JumpWatch {
        JumpWatch { offset: reading.now - reading.elapsed }
    }

    /// By how much the time was set since the last look; less than [`JUMP_MS`] at a time never adds up to a jump.
    pub fn look(&mut self, reading: Reading) -> Option<Millis> {
        let offset = reading.now - reading.elapsed;
        let by = offset - std::mem::replace(&mut self.offset, offset);
        (by.abs() >= JUMP_MS).then_some(by)
    }
}
