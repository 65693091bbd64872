//! Batches that remember how far they are, in the transaction that takes them there.

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::JobId;
use posse_core::port::{BatchMark, BatchStanding, Chunk, Enqueued, RepositoryError};

use super::fault::{Fault, Outcome};
use super::jobs::{self, Batch};
use super::schema::{batch_names, batches};
use super::writer::Transaction;

/// Stores a chunk whose jobs are in `jobs`, and how far its batch is then.
pub(super) fn enqueue(tx: &mut Transaction<'_>, chunk: &Chunk, new: &Batch, now: Millis) -> Outcome<Vec<Enqueued>> {
    if let Some(name) = &chunk.batch {
        let there = mark(&mut tx.db.0, name)?;
        if there != chunk.from {
            return Err(Fault::Refused(RepositoryError::Refused(format!(
                "batch '{name}' is at line {} and not at line {}: another process is enqueueing it; nothing was done \
                 twice, wait for that one or run this again",
                there.lines, chunk.from.lines
            ))));
        }
    }
    let enqueued = jobs::enqueue(tx, new, None)?;
    let Some(name) = &chunk.batch else { return Ok(enqueued) };
    let stored = enqueued.iter().filter(|enqueued| !enqueued.existed()).count();
    let (lines, jobs) = (chunk.to.lines.cast_signed(), stored as i64);
    diesel::insert_into(batches::table)
        .values((
            batches::name.eq(name),
            batches::lines.eq(lines),
            batches::digest.eq(&chunk.to.digest),
            batches::jobs.eq(jobs),
            batches::created_at.eq(now),
            batches::changed_at.eq(now),
        ))
        .on_conflict(batches::name)
        .do_update()
        .set((
            batches::lines.eq(lines),
            batches::digest.eq(&chunk.to.digest),
            batches::jobs.eq(batches::jobs + jobs),
            batches::changed_at.eq(now),
        ))
        .execute(&mut tx.db.0)?;
    for (word, place) in &chunk.names {
        diesel::insert_into(batch_names::table)
            .values((
                batch_names::batch.eq(name),
                batch_names::name.eq(word),
                batch_names::job_id.eq(enqueued.get(*place).map_or(0, |enqueued| enqueued.id.0)),
            ))
            .execute(&mut tx.db.0)?;
    }
    Ok(enqueued)
}

fn mark(connection: &mut SqliteConnection, name: &str) -> Outcome<BatchMark> {
    let row: Option<(i64, Vec<u8>)> =
        batches::table.find(name).select((batches::lines, batches::digest)).first(connection).optional()?;
    Ok(row.map_or_else(BatchMark::default, |(lines, digest)| BatchMark { lines: lines.unsigned_abs(), digest }))
}

/// How far a batch is.
pub(super) fn standing(connection: &mut SqliteConnection, name: &str) -> Outcome<BatchStanding> {
    connection.transaction(|connection| {
        let mark = mark(connection, name)?;
        let jobs: Option<i64> = batches::table.find(name).select(batches::jobs).first(connection).optional()?;
        let names: Vec<(String, i64)> = batch_names::table
            .filter(batch_names::batch.eq(name))
            .select((batch_names::name, batch_names::job_id))
            .load(connection)?;
        let names = names.into_iter().map(|(name, id)| (name, JobId(id))).collect();
        Ok(BatchStanding { mark, jobs: jobs.unwrap_or(0).unsigned_abs(), names })
    })
}
