//! Leases: proof that a worker owns a job until a time.

use crate::clock::Millis;
use crate::job::JobId;

/// One worker process; unique over all processes that ever worked on a database.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId(pub String);

/// Proof of ownership. Every write about a job carries one; a repository changes nothing when its
/// token is no longer the job's.
///
/// The token rises with every claim and never repeats, which an attempt number does not promise:
/// that goes down when an attempt is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The job owned.
    pub job: JobId,
    /// The token of this claim.
    pub token: i64,
}

/// How long a lease stands without a heartbeat, unless configured, in milliseconds.
pub const DEFAULT_LEASE_MS: Millis = 30_000;
