//! Time as the core sees it.

/// Milliseconds since 1970-01-01T00:00:00Z. Databases keep times in this form.
pub type Millis = i64;

/// Where the time comes from: the host's clock in production, a test's hand in tests.
pub trait Clock: Send + Sync {
    /// The current time.
    fn now(&self) -> Millis;
}

/// The host's wall clock is read by an adapter; tests use this one and move it themselves.
#[derive(Debug, Default)]
pub struct ManualClock(std::sync::atomic::AtomicI64);

impl ManualClock {
    /// A clock standing at `now`.
    pub fn at(now: Millis) -> Self {
        Self(now.into())
    }

    /// Moves the clock by `by` milliseconds, which may be negative.
    pub fn advance(&self, by: Millis) {
        self.0.fetch_add(by, std::sync::atomic::Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Millis {
        self.0.load(std::sync::atomic::Ordering::SeqCst)
    }
}
