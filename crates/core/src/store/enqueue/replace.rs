//! A job that has not begun becomes another one: what enqueueing its unique key again may ask for.

use super::{Sheet, belong};
use crate::clock::Millis;
use crate::job::dependency::would_wait;
use crate::job::{JobId, JobState};
use crate::port::Enqueued;
use crate::store::driver::Driver;
use crate::store::fault::refused;
use crate::store::{Outcome, Tx, groups, waits};

/// Makes `job`, which no worker ever claimed, what the job of `sheet` would have been, due from `due_at` on.
/// `earlier` are those before that one in its batch. Tells where it begins anew; refused if it would wait
/// for itself.
///
/// What it keeps is what others know it by: its number, its place below its parent, who waits for it.
pub(super) fn replace<D: Driver>(
    tx: &mut Tx<'_, D>,
    job: JobId,
    sheet: &Sheet,
    due_at: Millis,
    earlier: &[Enqueued],
    now: Millis,
) -> Outcome<JobState> {
    waits::forget(tx.db, job)?;
    // It leaves its group too, and may come to wait for it.
    let others = groups::awaited_by(tx.db, &sheet.job, Some(job), earlier)?;
    let ids: Vec<_> = others.iter().map(|(on, _)| *on).collect();
    if let Some(on) = waits::depends_on(tx.db, &ids, job)? {
        return Err(refused(would_wait(job, on)));
    }
    let row = sheet.row((tx.keys, job, None), due_at, &others, now);
    let begins = row.state;
    tx.db.replace_job(row)?;
    belong(tx, (job, begins), &sheet.job, &others, now)?;
    if begins.is_final() {
        // It ends as it begins, and others may have waited for it.
        waits::tell(tx, job, begins, now)?;
    }
    Ok(begins)
}
