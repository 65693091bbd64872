//! Whether whoever writes still has the job that it writes for.

use super::driver::{Driver, WorkedRow};
use super::{Fault, Outcome, Tx};
use crate::job::lease::Lease;
use crate::port::RepositoryError;

/// The job's row, if the lease still stands.
pub fn guarded<D: Driver>(db: &mut D, lease: Lease) -> Outcome<WorkedRow> {
    db.running(&[lease.job])?
        .pop()
        .filter(|row| row.lease_token == lease.token)
        .ok_or(Fault::Refused(RepositoryError::LeaseLost(lease.job)))
}

/// Refuses whoever has lost the job; a person has none.
pub fn guard<D: Driver>(tx: &mut Tx<'_, D>, by: Option<Lease>) -> Outcome<()> {
    by.map_or(Ok(()), |lease| guarded(tx.db, lease).map(drop))
}
