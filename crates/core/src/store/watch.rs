//! What is asked of a database to watch a fleet by.

use super::driver::{Driver, Number};
use super::seal::Keys;
use super::{Done, care, endpoints};
use crate::clock::Millis;
use crate::port::{Standing, WorkerRecord};

/// What there is at `now`, but for what is on disk. To be asked in one look, so that all of it is of one moment.
pub fn standing<D: Driver>(db: &mut D, keys: &Keys, now: Millis) -> Done<Standing> {
    let workers: Vec<WorkerRecord> = db.kept(None)?;
    // Each role has as many slots as the process says; one whose roles cannot be read has one.
    let slots = |worker: &WorkerRecord| u64::from(worker.slots).saturating_mul(worker.roles.len().max(1) as u64);
    Ok(Standing {
        at: now,
        jobs: db.jobs_in()?,
        due: care::due(db, now)?,
        enqueued: db.number(Number::Enqueued)?.unwrap_or(0).unsigned_abs(),
        workers: workers.len() as u64,
        slots: workers.iter().map(slots).sum(),
        open_questions: db.number(Number::OpenAsks)?.unwrap_or(0).unsigned_abs(),
        failing_endpoints: endpoints::failing(db, keys)?,
        ..Standing::default()
    })
}
