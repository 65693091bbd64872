//! The deaths of workers, and who is suspected of them.

use super::driver::{DeathRow, DeathsOf, Driver};
use super::{Done, Outcome};
use crate::clock::Millis;
use crate::job::deaths::{DEFAULT_MAX_CRASHES, Suspect};
use crate::job::transition::Event;
use crate::job::{JobId, JobState};
use crate::port::WorkerRecord;

/// One more worker died that held the job: what happens to it, and how many deaths in a row it met without progress.
pub fn meet<D: Driver>(db: &mut D, job: JobId, now: Millis) -> Done<(Event, u32)> {
    let limit = db.death_limit(job)?.unwrap_or(DEFAULT_MAX_CRASHES);
    let before: Option<DeathRow> = db.kept(DeathsOf::Job(job))?.pop();
    let (met, event) = before.map(|row| row.met).unwrap_or_default().meet(db.trail(job)?, limit);
    let suspect = event == Event::LeaseExpired && met.is_suspect(limit);
    db.keep(&DeathRow { job, met, died_at: now, suspect, awaited_by: None })?;
    Ok((event, met.in_a_row))
}

/// Suspects that could be worked or are at work.
pub fn suspects<D: Driver>(db: &mut D) -> Outcome<Vec<Suspect>> {
    let mut found = Vec::new();
    let rows: Vec<DeathRow> = db.kept(DeathsOf::Suspects)?;
    for row in rows {
        let Some(job) = db.job(row.job)? else { continue };
        let state = job.standing.state;
        match state {
            JobState::Available | JobState::Running => {}
            // Ended while nobody held it.
            state if state.is_final() => {
                clear(db, row.job)?;
                continue;
            }
            _ => continue,
        }
        let mut awaited_by = row.awaited_by;
        if awaited_by.is_some() && Vec::<WorkerRecord>::is_empty(&db.kept(awaited_by.as_deref())?) {
            awaited_by = None;
        }
        let held_by = job.leased_by.filter(|_| state == JobState::Running);
        let (role, queue) = (job.role, job.queue);
        found.push(Suspect { job: job.id, role, queue, state, held_by, since: row.died_at, awaited_by });
    }
    Ok(found)
}

/// Suspects a job no more.
pub fn clear<D: Driver>(db: &mut D, job: JobId) -> Done<()> {
    change(db, job, |row| {
        row.suspect = false;
        row.met.in_a_row = 0;
    })
}

/// Has a worker keep its hands empty for a suspect.
pub fn await_empty_hands<D: Driver>(db: &mut D, job: JobId, worker: &str) -> Done<()> {
    change(db, job, |row| row.awaited_by = Some(worker.to_owned()))
}

fn change<D: Driver>(db: &mut D, job: JobId, change: impl FnOnce(&mut DeathRow)) -> Done<()> {
    let Some(mut row) = db.kept(DeathsOf::Job(job))?.pop() else { return Ok(()) };
    change(&mut row);
    db.keep(&row)
}
