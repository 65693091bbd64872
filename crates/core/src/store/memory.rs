//! Memory that outlives the conversation it comes from, and how far running jobs are.

use super::driver::{ArchivedRow, Driver, ProgressRow};
use super::finish::guarded;
use super::seal::{Keys, Place};
use super::{Outcome, Tx};
use crate::clock::Millis;
use crate::job::lease::Lease;
use crate::job::{JobId, JobProgress};

/// Keeps what leaves a run's conversation with its entry `seq`.
pub fn archive<D: Driver>(tx: &mut Tx<'_, D>, lease: Lease, seq: u64, content: &str, now: Millis) -> Outcome<()> {
    let role = guarded(tx.db, lease)?.role;
    let seq = i64::try_from(seq).unwrap_or(i64::MAX);
    let content = tx.keys.seal(Place::archived(now, seq), content);
    Ok(tx.db.keep(&ArchivedRow { job: lease.job, role, seq, content, created_at: now })?)
}

/// What was archived of a job's conversation, oldest first.
pub fn of<D: Driver>(db: &mut D, keys: &Keys, job: JobId) -> Outcome<Vec<(u64, String)>> {
    let archived = |ArchivedRow { seq, content, created_at, .. }| {
        Ok((seq.unsigned_abs(), keys.open(Place::archived(created_at, seq), &content)?.into_owned()))
    };
    db.kept(job)?.into_iter().map(archived).collect()
}

/// Keeps what the holder of a lease tells of how far its job is.
pub fn report<D: Driver>(tx: &mut Tx<'_, D>, lease: Lease, told: &JobProgress) -> Outcome<()> {
    guarded(tx.db, lease)?;
    let text = tx.keys.seal(Place::progress(lease.job.0), told.text.as_str());
    Ok(tx.db.keep(&ProgressRow { job: lease.job, share: told.share, text, at: told.at })?)
}
