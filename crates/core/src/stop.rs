//! Why work in progress must end, and how it is told.

use tokio::sync::watch;

/// Why a step in progress is asked to end before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// Somebody cancelled the job.
    Cancelled,
    /// The lease is gone: another worker may own the job, so nothing more may be done for it.
    LeaseLost,
    /// The process is shutting down; the job is handed back.
    Shutdown,
}

/// The receiving side of a stop signal. Cheap to clone; checked at every boundary.
#[derive(Debug, Clone)]
pub struct Stop(watch::Receiver<Option<StopReason>>);

/// The sending side. The first reason wins, but for [`StopReason::LeaseLost`], which forbids even the polite ending.
#[derive(Debug, Clone)]
pub struct Stopper(watch::Sender<Option<StopReason>>);

/// A connected pair.
pub fn stop_pair() -> (Stopper, Stop) {
    let (tx, rx) = watch::channel(None);
    (Stopper(tx), Stop(rx))
}

impl Stopper {
    /// Asks for the end. Never blocks.
    pub fn stop(&self, reason: StopReason) {
        self.0.send_if_modified(|now| {
            let replace = now.is_none() || (reason == StopReason::LeaseLost && *now != Some(reason));
            if replace {
                *now = Some(reason);
            }
            replace
        });
    }
}

impl Stop {
    /// A signal that never comes, for callers that cannot be stopped.
    pub fn never() -> Self {
        stop_pair().1
    }

    /// The reason, once there is one.
    pub fn reason(&self) -> Option<StopReason> {
        *self.0.borrow()
    }

    /// Waits until a stop is asked for. Pends for ever when none can come any more.
    pub async fn stopped(&self) -> StopReason {
        let mut rx = self.0.clone();
        // The guard that `wait_for` gives must not be held across the wait below.
        let reason = rx.wait_for(Option::is_some).await.ok().and_then(|reason| *reason);
        match reason {
            Some(reason) => reason,
            None => std::future::pending().await,
        }
    }

    /// Waits until the work is over that it belongs to: a stop is asked for, or nobody is left to ask for one.
    pub async fn over(&self) {
        let _ = self.0.clone().wait_for(Option::is_some).await;
    }

    /// Whether both belong to the same work.
    pub fn is_same(&self, other: &Stop) -> bool {
        self.0.same_channel(&other.0)
    }
}
