//! Batches that remember how far they are, in the transaction that takes them there.

use super::driver::Driver;
use super::enqueue::{self, Batch};
use super::fault::refused;
use super::{Outcome, Tx};
use crate::clock::Millis;
use crate::job::JobId;
use crate::port::{BatchStanding, Chunk, Enqueued};

/// Stores a chunk whose jobs are in `jobs`, and how far its batch is then.
pub fn enqueue<D: Driver>(tx: &mut Tx<'_, D>, chunk: &Chunk, jobs: &Batch, now: Millis) -> Outcome<Vec<Enqueued>> {
    if let Some(name) = &chunk.batch {
        let there = tx.db.batch(name)?.unwrap_or_default().0;
        if there != chunk.from {
            return Err(refused(format!(
                "batch '{name}' is at line {} and not at line {}: another process is enqueueing it; nothing was done \
                 twice, wait for that one or run this again",
                there.lines, chunk.from.lines
            )));
        }
    }
    let enqueued = enqueue::enqueue(tx, jobs, None)?;
    let Some(name) = &chunk.batch else { return Ok(enqueued) };
    let stored = enqueued.iter().filter(|enqueued| !enqueued.existed()).count();
    tx.db.set_batch(name, &chunk.to, stored as u64, now)?;
    for (word, place) in &chunk.names {
        tx.db.name_in_batch(name, word, enqueued.get(*place).map_or(JobId(0), |enqueued| enqueued.id))?;
    }
    Ok(enqueued)
}

/// How far a batch is. To be asked in one look, so that all of it is of one moment.
pub fn standing<D: Driver>(db: &mut D, name: &str) -> Outcome<BatchStanding> {
    let (mark, jobs) = db.batch(name)?.unwrap_or_default();
    Ok(BatchStanding { mark, jobs, names: db.batch_names(name)? })
}
