//! A job that has not begun becomes another one: what enqueueing its unique key again may ask for.

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::dependency::{beginning, would_wait};
use posse_core::job::{JobId, JobState};
use posse_core::port::{Enqueued, RepositoryError};

use super::fault::{Fault, Outcome};
use super::jobs::{Sheet, insert_tags};
use super::literal::update;
use super::rows::stored;
use super::schema::{job_data, job_tags, jobs, session_jobs};
use super::sealed_text::Text;
use super::writer::Transaction;
use super::{deaths, group_waits, relations, sessions};
use posse_core::store::seal::Place;

/// Makes `job`, which no worker ever claimed, what the job of `sheet` would have been, due from `due_at` on.
/// `earlier` are those before that one in its batch. Tells where it begins anew; refused if it would wait
/// for itself.
///
/// What it keeps is what others know it by: its number, its place below its parent, who waits for it.
pub(super) fn replace(
    tx: &mut Transaction<'_>,
    job: JobId,
    sheet: &Sheet,
    due_at: Millis,
    earlier: &[Enqueued],
    now: Millis,
) -> Outcome<JobState> {
    let new = &sheet.job;
    relations::forget(&mut tx.db.0, job)?;
    // It leaves its group too, and may come to wait for it.
    update(job_data::table, job_data::job_id.eq(job.0), job_data::group_name.eq(None::<String>))
        .execute(&mut tx.db.0)?;
    let others = relations::others(&mut tx.db.0, new, earlier)?;
    let ids: Vec<_> = others.iter().map(|(on, _)| *on).collect();
    if let Some(on) = relations::depends_on(&mut tx.db.0, &ids, job)? {
        return Err(Fault::Refused(RepositoryError::Refused(would_wait(job, on))));
    }
    let begins = beginning(due_at, now, &others, new.on_failed);
    let standing = (
        jobs::queue.eq(&new.queue),
        jobs::role.eq(&new.role),
        jobs::state.eq(begins.state.as_str()),
        jobs::priority.eq(i32::from(new.priority)),
        jobs::run_at.eq(due_at),
        jobs::max_attempts.eq(stored(new.max_attempts)),
        jobs::finalized_at.eq(begins.state.is_final().then_some(now)),
        jobs::reason.eq(begins.reason.as_deref().map(|reason| Text(tx.keys.seal(Place::reason(job.0), reason)))),
        jobs::priority_step_ms.eq(new.priority_step_ms),
        jobs::concurrency_key.eq(new.concurrency_key.as_deref().unwrap_or_default()),
        jobs::unique_ms.eq(new.unique.as_ref().and_then(|unique| unique.for_ms)),
    );
    update(jobs::table, jobs::id.eq(job.0), standing).execute(&mut tx.db.0)?;
    let data = (
        job_data::payload.eq(Text(tx.keys.seal(Place::payload(job.0), sheet.payload.as_str()))),
        job_data::retry.eq(sheet.retry.as_deref()),
        job_data::group_name.eq(new.group.as_deref()),
        job_data::tags.eq(sheet.tags.as_deref()),
        job_data::meta.eq(sheet.meta.as_deref()),
        job_data::max_crashes.eq(deaths::limit_stored(new.max_crashes)),
    );
    update(job_data::table, job_data::job_id.eq(job.0), data).execute(&mut tx.db.0)?;
    diesel::delete(job_tags::table.filter(job_tags::job_id.eq(job.0))).execute(&mut tx.db.0)?;
    insert_tags(&mut tx.db.0, job.0, &new.tags)?;
    diesel::delete(session_jobs::table.filter(session_jobs::job_id.eq(job.0))).execute(&mut tx.db.0)?;
    if let Some(session) = new.payload.session {
        sessions::join(tx, session, job.0, &new.role, now)?;
    }
    relations::wait_for(&mut tx.db.0, job, &others, begins.state, new.on_failed)?;
    group_waits::wait_for(&mut tx.db.0, job, new, begins.state)?;
    if let Some(group) = &new.group {
        group_waits::join(tx, group, job, begins.state, now)?;
    }
    if begins.state.is_final() {
        // It ends as it begins, and others may have waited for it.
        relations::tell(tx, job, begins.state, now)?;
    }
    Ok(begins.state)
}
