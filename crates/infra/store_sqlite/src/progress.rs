//! How far running jobs are.

use diesel::prelude::*;
use posse_core::job::lease::Lease;
use posse_core::job::{Job, JobProgress, JobState};

use super::fault::Outcome;
use super::finish::guarded;
use super::literal::among;
use super::schema::{jobs, progress};
use super::sealed_text::Text;
use super::writer::Transaction;
use posse_core::store::seal::{Keys, Place, Sealed};

/// Keeps what the holder of a lease tells.
pub(super) fn report(tx: &mut Transaction<'_>, lease: Lease, told: &JobProgress) -> Outcome<()> {
    guarded(&mut tx.db.0, lease)?;
    diesel::replace_into(progress::table)
        .values((
            progress::job_id.eq(lease.job.0),
            progress::share.eq(told.share),
            progress::text.eq(Text(tx.keys.seal(Place::progress(lease.job.0), told.text.as_str()))),
            progress::at.eq(told.at),
        ))
        .execute(&mut tx.db.0)?;
    Ok(())
}

/// Adds to jobs that are running how far they are.
pub(super) fn fill_in(connection: &mut SqliteConnection, keys: &Keys, found: &mut [Job]) -> Outcome<()> {
    let running: Vec<i64> = found.iter().filter(|job| job.state == JobState::Running).map(|job| job.id.0).collect();
    if running.is_empty() {
        return Ok(());
    }
    let rows: Vec<(i64, f64, Sealed, i64)> = progress::table
        .inner_join(jobs::table)
        .filter(among(&running))
        .select((progress::job_id, progress::share, progress::text, progress::at))
        .load(connection)?;
    for (id, share, text, at) in rows {
        if let Some(job) = found.iter_mut().find(|job| job.id.0 == id) {
            job.progress = Some(JobProgress { share, text: keys.show(Place::progress(id), &text), at });
        }
    }
    Ok(())
}
