//! Worker processes, and the leases that they lose.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clock::Millis;
use crate::job::lease::{Lease, WorkerId};
use crate::job::{JobId, JobState};

/// One worker process, as others see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerRecord {
    /// Its id.
    pub id: String,
    /// The machine and boot it runs on; equal only for processes whose ids can be compared.
    pub host: String,
    /// Its process id.
    pub pid: u32,
    /// When that process started, in the kernel's own ticks; tells a process from a later one with
    /// the same id.
    pub pid_started: u64,
    /// The roles it serves.
    pub roles: Vec<String>,
    /// Jobs it works at once.
    pub slots: u32,
    /// When it started.
    pub started_at: Millis,
    /// Its last sign of life.
    pub heartbeat_at: Millis,
    /// How long its leases stand without a heartbeat.
    #[serde(default)]
    pub lease_ms: Millis,
    /// Since when it is asked to finish what is in hand and end, if it is.
    #[serde(default)]
    pub drain_requested_at: Option<Millis>,
}

/// What a heartbeat learned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Heartbeat {
    /// Leases that are no longer ours.
    pub lost: Vec<JobId>,
    /// Jobs whose end was asked for.
    pub cancelled: Vec<JobId>,
}

/// A job taken back from a vanished worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rescued {
    /// The job that was taken back.
    pub job: JobId,
    /// The worker that vanished.
    pub worker: String,
    /// What became of it.
    pub state: JobState,
}

/// A lease that ended without being renewed, as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overdue {
    /// What was not renewed.
    pub lease: Lease,
    /// Who holds it.
    pub worker: WorkerId,
    /// Until when it stood.
    pub until: Millis,
}

/// An overdue lease that is to be taken from its worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forfeit {
    /// The lease as it was seen; one that was renewed since then stays where it is.
    pub overdue: Overdue,
    /// Whether its worker lives: then the job meets no death, and has its attempt back.
    pub is_alive: bool,
}

/// Tells which of the listed worker processes are certainly gone.
pub trait ProcessProbe: Send + Sync {
    /// Those of `workers` that ran on this host and boot and exist no more.
    fn dead(&self, workers: &[WorkerRecord]) -> Vec<WorkerId>;

    /// Those of `workers` that run on this host and boot.
    fn alive(&self, workers: &[WorkerRecord]) -> Vec<WorkerId>;
}
