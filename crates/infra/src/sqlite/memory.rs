//! Memory that outlives the conversation it comes from.

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::JobId;
use posse_core::lease::Lease;

use super::fault::Outcome;
use super::finish::guarded;
use super::schema::memory_items;
use super::writer::Transaction;

/// Keeps what leaves a run's conversation with its entry `seq`.
pub(super) fn archive(tx: &mut Transaction<'_>, lease: Lease, seq: u64, content: &str, now: Millis) -> Outcome<()> {
    let row = guarded(tx.connection, lease)?;
    diesel::insert_or_ignore_into(memory_items::table)
        .values((
            memory_items::scope.eq(&row.role),
            memory_items::tier.eq("archival"),
            memory_items::content.eq(content),
            memory_items::job_id.eq(lease.job.0),
            memory_items::seq.eq(i64::try_from(seq).unwrap_or(i64::MAX)),
            memory_items::created_at.eq(now),
        ))
        .execute(tx.connection)?;
    Ok(())
}

/// What was archived of a job's conversation, oldest first.
pub(super) fn of(connection: &mut SqliteConnection, job: JobId) -> Outcome<Vec<(u64, String)>> {
    let rows: Vec<(Option<i64>, String)> = memory_items::table
        .filter(memory_items::job_id.eq(job.0))
        .order(memory_items::seq)
        .select((memory_items::seq, memory_items::content))
        .load(connection)?;
    Ok(rows.into_iter().map(|(seq, content)| (seq.unwrap_or_default().unsigned_abs(), content)).collect())
}
