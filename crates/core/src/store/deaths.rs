//! The deaths of workers, and who is suspected of them.

use super::driver::Driver;
use super::{Done, Outcome};
use crate::clock::Millis;
use crate::job::deaths::{DEFAULT_MAX_CRASHES, Suspect};
use crate::job::transition::Event;
use crate::job::{JobId, JobState};

/// One more worker died that held the job: what happens to it, and how many deaths in a row it met without progress.
pub fn meet<D: Driver>(db: &mut D, job: JobId, now: Millis) -> Done<(Event, u32)> {
    let limit = db.death_limit(job)?.unwrap_or(DEFAULT_MAX_CRASHES);
    let before = db.deaths(job)?.unwrap_or_default();
    let (met, event) = before.meet(db.trail(job)?, limit);
    db.set_deaths(job, &met, now, event == Event::LeaseExpired && met.is_suspect(limit))?;
    Ok((event, met.in_a_row))
}

/// Suspects that could be worked or are at work.
pub fn suspects<D: Driver>(db: &mut D) -> Outcome<Vec<Suspect>> {
    let all = db.suspects()?;
    let mut found = Vec::with_capacity(all.len());
    for mut suspect in all {
        match suspect.state {
            JobState::Available | JobState::Running => {}
            // Ended while nobody held it.
            state if state.is_final() => {
                db.clear_suspect(suspect.job)?;
                continue;
            }
            _ => continue,
        }
        if let Some(by) = &suspect.awaited_by
            && !db.is_listed(by)?
        {
            suspect.awaited_by = None;
        }
        suspect.held_by = suspect.held_by.filter(|_| suspect.state == JobState::Running);
        found.push(suspect);
    }
    Ok(found)
}
