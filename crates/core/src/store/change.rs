//! What people change about jobs, one or many.

use super::driver::{DeathRow, Driver, Edited, Forgets, JobRow, WaitsOf};
use super::fault::Fault;
use super::jobs::{Why, end_attempts, existing, store, whole};
use super::seal::Place;
use super::{Outcome, Tx, cancel, groups, journal, questions, sessions, unique, waits};
use crate::clock::Millis;
use crate::job::change::{Change, Changed, Edit};
use crate::job::transition::{Event, transition};
use crate::job::{JobId, Payload};
use crate::port::{Reach, RepositoryError};

/// Changes each job whose state allows it, and tells of each that is there.
pub fn change<D: Driver>(
    tx: &mut Tx<'_, D>,
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
            None => apply(tx, installation, &row, change, now)?,
        };
        told.push(Changed { job, refused });
    }
    Ok(told)
}

/// Changes one job whose state allows it; gives why not, where something else is in the way.
fn apply<D: Driver>(
    tx: &mut Tx<'_, D>,
    installation: &str,
    row: &JobRow,
    change: &Change,
    now: Millis,
) -> Outcome<Option<String>> {
    let job = row.id;
    match change {
        Change::Cancel { reason } => {
            cancel::cancel_within(tx, job, Reach::Beneath, reason, now)?;
        }
        Change::Retry => match retry(tx, job, now) {
            // Nothing was changed yet, and the others are not to suffer from it.
            Err(Fault::Refused(held @ RepositoryError::KeyHeld { .. })) => return Ok(Some(held.to_string())),
            outcome => outcome?,
        },
        Change::Delete => {
            // It would wait for ever if this one were not there any more.
            let waiting = if row.awaited { tx.db.waits(WaitsOf::OpenOn(job, 1))?.pop() } else { None };
            if let Some(wait) = waiting {
                return Ok(Some(format!("job {} waits for it; cancel that first", wait.job)));
            }
            sessions::leave(tx, job)?;
            tx.db.delete_job(job)?;
        }
        Change::Edit(edit) => return edit_one(tx, installation, row, edit, now),
    }
    Ok(None)
}

fn edit_one<D: Driver>(
    tx: &mut Tx<'_, D>,
    installation: &str,
    row: &JobRow,
    edit: &Edit,
    now: Millis,
) -> Outcome<Option<String>> {
    let job = row.id;
    let payload = match &edit.goal {
        Some(goal) => {
            match serde_json::from_str(&tx.keys.open(Place::payload(job.0), &whole(tx.db, job)?.1.payload)?) {
                Ok(payload) => Some(serde_json::to_string(&Payload { goal: goal.clone(), ..payload })?),
                Err(error) => return Ok(Some(format!("its payload cannot be read ({error}); enqueue another job"))),
            }
        }
        None => None,
    };
    if edit.restarts() && journal::restart(tx, installation, job, &row.role, now)? {
        questions::drop_all(tx.db, job, now)?;
        if !waits::is_waiting(tx.db, job)? {
            // What else it waited for is of no interest any more.
            waits::go_on(tx, job, now)?;
        }
    }
    if let Some(at) = edit.run_at {
        let row = existing(tx.db, job)?;
        store(tx, &row, &transition(row.standing, Event::Postpone, at)?, Why::AsBefore, now)?;
    }
    tx.db.edit_job(
        job,
        Edited {
            role: edit.role.as_deref().unwrap_or(&row.role),
            queue: edit.queue.as_deref().unwrap_or(&row.queue),
            priority: edit.priority.unwrap_or(row.priority),
            max_attempts: edit.max_attempts.unwrap_or(row.standing.max_attempts),
            payload: payload.map(|payload| tx.keys.seal(Place::payload(job.0), payload)),
        },
    )?;
    // Another role's or queue's workers may take it now.
    tx.notify();
    Ok(None)
}

/// Makes a final job available again.
pub fn retry<D: Driver>(tx: &mut Tx<'_, D>, job: JobId, now: Millis) -> Outcome<()> {
    let row = existing(tx.db, job)?;
    let change = transition(row.standing, Event::Retry, now)?;
    unique::check(tx.db, &row, now)?;
    // A completed job's row tells of the attempt that completed it.
    end_attempts(tx, &[job], Event::Complete, None, row.finalized_at.unwrap_or(now))?;
    store(tx, &row, &change, Why::Nothing, now)?;
    journal::reopen(tx, job, now)?;
    Forgets::<DeathRow>::forget(tx.db, job)?;
    groups::join_again(tx, job, change.to.state, now)?;
    tx.notify();
    Ok(())
}
