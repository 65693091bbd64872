//! What people change about jobs, one or many.

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::change::{Change, Changed, Edit};
use posse_core::job::transition::{Event, transition};
use posse_core::job::{JobId, Payload};
use posse_core::port::{Reach, RepositoryError};

use super::fault::{Fault, Outcome};
use super::literal::IsOpen;
use super::rows::stored;
use super::schema::{dependencies, job_data, jobs};
use super::sealed_text::Text;
use super::writer::Transaction;
use super::{journal, people, questions, relations, sessions};
use posse_core::store::driver::{JobRow, JobRows as _};
use posse_core::store::jobs::{existing, store};
use posse_core::store::seal::{Place, Sealed};

/// Changes each job whose state allows it, and tells of each that is there.
pub(super) fn change(
    tx: &mut Transaction<'_>,
    installation: &str,
    ids: &[JobId],
    change: &Change,
    now: Millis,
) -> Outcome<Vec<Changed>> {
    let mut told = Vec::with_capacity(ids.len());
    for &job in ids {
        let Some(row) = tx.db.job(job)? else { continue };
        let refused = match change.refusal(&row.standing) {
            Some(why) => Some(why),
            None => apply(tx, installation, job, &row, change, now)?,
        };
        told.push(Changed { job, refused });
    }
    Ok(told)
}

/// Changes one job whose state allows it; gives why not, where something else is in the way.
fn apply(
    tx: &mut Transaction<'_>,
    installation: &str,
    job: JobId,
    row: &JobRow,
    change: &Change,
    now: Millis,
) -> Outcome<Option<String>> {
    match change {
        Change::Cancel { reason } => {
            relations::cancel_within(tx, job, Reach::Beneath, reason, now)?;
        }
        Change::Retry => match people::retry(tx, job, now) {
            // Nothing was changed yet, and the others are not to suffer from it.
            Err(Fault::Refused(held @ RepositoryError::KeyHeld { .. })) => return Ok(Some(held.to_string())),
            outcome => outcome?,
        },
        Change::Delete => {
            if let Some(waiting) = somebody_waiting(&mut tx.db.0, row)? {
                return Ok(Some(format!("job {waiting} waits for it; cancel that first")));
            }
            sessions::forget_summaries_of(&mut tx.db.0, job)?;
            diesel::delete(jobs::table.find(job.0)).execute(&mut tx.db.0)?;
        }
        Change::Edit(edit) => return edit_one(tx, installation, job, row, edit, now),
    }
    Ok(None)
}

/// A job that would wait for ever if this one were not there any more.
fn somebody_waiting(connection: &mut SqliteConnection, row: &JobRow) -> Outcome<Option<i64>> {
    if !row.awaited {
        return Ok(None);
    }
    let open = dependencies::table.filter(dependencies::on_job_id.eq(row.id.0)).filter(IsOpen);
    Ok(open.select(dependencies::job_id).first(connection).optional()?)
}

fn edit_one(
    tx: &mut Transaction<'_>,
    installation: &str,
    job: JobId,
    row: &JobRow,
    edit: &Edit,
    now: Millis,
) -> Outcome<Option<String>> {
    let payload = match &edit.goal {
        Some(goal) => {
            let payload: Sealed = job_data::table.find(job.0).select(job_data::payload).first(&mut tx.db.0)?;
            match serde_json::from_str(&tx.keys.open(Place::payload(job.0), &payload)?) {
                Ok(payload) => Some(Payload { goal: goal.clone(), ..payload }),
                Err(error) => return Ok(Some(format!("its payload cannot be read ({error}); enqueue another job"))),
            }
        }
        None => None,
    };
    if edit.restarts() && journal::restart(tx, installation, job, &row.role, now)? {
        questions::drop_all(&mut tx.db.0, job, now)?;
        relations::decide_unless_waiting(tx, job, now)?;
    }
    if let Some(payload) = payload {
        diesel::update(job_data::table.find(job.0))
            .set(job_data::payload.eq(Text(tx.keys.seal(Place::payload(job.0), serde_json::to_string(&payload)?))))
            .execute(&mut tx.db.0)?;
    }
    if let Some(at) = edit.run_at {
        let standing = existing(tx.db, job)?.standing;
        store(tx.db, job, &transition(standing, Event::Postpone, at)?, now)?;
    }
    let whole = (
        jobs::role.eq(edit.role.as_deref().unwrap_or(&row.role)),
        jobs::queue.eq(edit.queue.as_deref().unwrap_or(&row.queue)),
        jobs::priority.eq(i32::from(edit.priority.unwrap_or(row.priority))),
        jobs::max_attempts.eq(stored(edit.max_attempts.unwrap_or(row.standing.max_attempts))),
    );
    diesel::update(jobs::table.find(job.0)).set(whole).execute(&mut tx.db.0)?;
    // Another role's or queue's workers may take it now.
    tx.ring();
    Ok(None)
}
