//! Memory that outlives the conversation it comes from.

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::JobId;
use posse_core::job::lease::Lease;

use super::fault::Outcome;
use super::finish::guarded;
use super::schema::memory_items;
use super::sealed_text::Text;
use super::writer::Transaction;
use posse_core::store::seal::{Keys, Place, Sealed};

/// Keeps what leaves a run's conversation with its entry `seq`.
pub(super) fn archive(tx: &mut Transaction<'_>, lease: Lease, seq: u64, content: &str, now: Millis) -> Outcome<()> {
    let row = guarded(&mut tx.db.0, lease)?;
    let seq = i64::try_from(seq).unwrap_or(i64::MAX);
    diesel::insert_or_ignore_into(memory_items::table)
        .values((
            memory_items::scope.eq(&row.role),
            memory_items::tier.eq("archival"),
            memory_items::content.eq(Text(tx.keys.seal(Place::archived(now, seq), content))),
            memory_items::job_id.eq(lease.job.0),
            memory_items::seq.eq(seq),
            memory_items::created_at.eq(now),
        ))
        .execute(&mut tx.db.0)?;
    Ok(())
}

/// What was archived of a job's conversation, oldest first.
pub(super) fn of(connection: &mut SqliteConnection, keys: &Keys, job: JobId) -> Outcome<Vec<(u64, String)>> {
    let rows: Vec<(Option<i64>, Sealed, i64)> = memory_items::table
        .filter(memory_items::job_id.eq(job.0))
        .order(memory_items::seq)
        .select((memory_items::seq, memory_items::content, memory_items::created_at))
        .load(connection)?;
    let archived = |(seq, content, created_at): (Option<i64>, Sealed, i64)| {
        let seq = seq.unwrap_or_default();
        let content = keys.open(Place::archived(created_at, seq), &content)?.into_owned();
        Ok((seq.unsigned_abs(), content))
    };
    rows.into_iter().map(archived).collect()
}
