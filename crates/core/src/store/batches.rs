//! Batches that remember how far they are, in the transaction that takes them there.

use super::driver::{BatchName, BatchRow, Driver};
use super::enqueue::{self, Batch};
use super::fault::refused;
use super::{Outcome, Tx};
use crate::clock::Millis;
use crate::job::JobId;
use crate::port::{BatchMark, BatchStanding, Chunk, Enqueued};

/// Stores a chunk whose jobs are in `jobs`, and how far its batch is then.
pub fn enqueue<D: Driver>(tx: &mut Tx<'_, D>, chunk: &Chunk, jobs: &Batch, now: Millis) -> Outcome<Vec<Enqueued>> {
    let Some(name) = &chunk.batch else { return enqueue::enqueue(tx, jobs, None) };
    let known: Option<BatchRow> = tx.db.kept(name.as_str())?.pop();
    let new = || BatchRow { name: name.clone(), mark: BatchMark::default(), jobs: 0, created_at: now, changed_at: now };
    let mut batch = known.unwrap_or_else(new);
    if batch.mark != chunk.from {
        return Err(refused(format!(
            "batch '{name}' is at line {} and not at line {}: another process is enqueueing it; nothing was done \
             twice, wait for that one or run this again",
            batch.mark.lines, chunk.from.lines
        )));
    }
    let enqueued = enqueue::enqueue(tx, jobs, None)?;
    (batch.mark, batch.changed_at) = (chunk.to.clone(), now);
    batch.jobs += enqueued.iter().filter(|enqueued| !enqueued.existed()).count() as u64;
    tx.db.keep(&batch)?;
    for (word, place) in &chunk.names {
        let job = enqueued.get(*place).map_or(JobId(0), |enqueued| enqueued.id);
        tx.db.keep(&BatchName { batch: name.clone(), name: word.clone(), job })?;
    }
    Ok(enqueued)
}

/// How far a batch is. To be asked in one look, so that all of it is of one moment.
pub fn standing<D: Driver>(db: &mut D, name: &str) -> Outcome<BatchStanding> {
    let known: Option<BatchRow> = db.kept(name)?.pop();
    let (mark, jobs) = known.map(|batch| (batch.mark, batch.jobs)).unwrap_or_default();
    let names: Vec<BatchName> = db.kept(name)?;
    Ok(BatchStanding { mark, jobs, names: names.into_iter().map(|named| (named.name, named.job)).collect() })
}
