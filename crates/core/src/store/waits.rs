//! Jobs that wait for others.
//!
//! *Invariant: a job has open waits only while it is suspended, and nothing but the end of the last of them
//! decides it.* A parent that waits for its children waits by the same rows.
//! *Invariant: a job that somebody has an open wait for is `awaited`.*

use std::collections::{HashMap, HashSet};

use super::driver::{Closing, Driver, JobChange, JobRow, StatesOf, WaitRow, WaitsOf};
use super::jobs::{Why, existing, set_reason, store};
use super::{Done, Outcome, Tx};
use crate::clock::Millis;
use crate::job::dependency::{Dependency, Meaning, OnFailed, cancelled_with, meaning, still_waits_for};
use crate::job::transition::{Event, transition};
use crate::job::{JobId, JobState};

/// Writes down that `job`, which began in `began`, waits for `others`, which are there.
pub fn wait_for<D: Driver>(
    db: &mut D,
    job: JobId,
    others: &[(JobId, JobState)],
    began: JobState,
    on_failed: OnFailed,
) -> Done<()> {
    let waits = |is| began == JobState::Suspended && meaning(is, on_failed) == Meaning::Waits;
    let others: Vec<_> = others.iter().map(|&(on, is)| (on, waits(is))).collect();
    db.wait_for(job, &others, on_failed)?;
    let open: Vec<_> = others.into_iter().filter(|(_, open)| *open).map(|(on, _)| on).collect();
    db.change_jobs(&open, JobChange::Awaited(true))
}

/// Tells those who wait for a job where its last transition put it, if that is its end.
pub fn ended<D: Driver>(tx: &mut Tx<'_, D>, row: &JobRow, to: JobState, now: Millis) -> Outcome<()> {
    if row.awaited && to.is_final() {
        tell(tx, row.id, to, now)?;
    }
    Ok(())
}

/// Tells those who wait for a job how it ended.
pub fn tell<D: Driver>(tx: &mut Tx<'_, D>, job: JobId, to: JobState, now: Millis) -> Outcome<()> {
    // A list rather than recursion: a chain of jobs may be long.
    let mut ended = vec![(job, to)];
    while let Some((on, to)) = ended.pop() {
        let mut is_awaited = false;
        for WaitRow { job: waiting, on_failed, .. } in tx.db.waits(WaitsOf::OpenOn(on, u32::MAX))? {
            match meaning(to, on_failed) {
                Meaning::Met => {
                    tx.db.close_waits(waiting, Closing::On(on))?;
                    if !is_waiting(tx.db, waiting)? {
                        go_on(tx, waiting, now)?;
                    }
                }
                Meaning::Waits => {
                    is_awaited = true;
                    set_reason(tx, waiting, &still_waits_for(on, to))?;
                }
                Meaning::Cancels => {
                    let row = existing(tx.db, waiting)?;
                    wait_no_more(tx.db, waiting)?;
                    let change = transition(row.standing, Event::Cancel, now)?;
                    store(tx, &row, &change, Why::Said(&cancelled_with(on, to)), now)?;
                    if row.awaited {
                        ended.push((waiting, change.to.state));
                    }
                }
            }
        }
        tx.db.change_jobs(&[on], JobChange::Awaited(is_awaited))?;
    }
    Ok(())
}

/// Has a suspended job, which is about to be cancelled, wait for nothing any more.
pub fn wait_no_more<D: Driver>(db: &mut D, job: JobId) -> Done<()> {
    let waits = db.waits(WaitsOf::OpenOf(job, u32::MAX))?;
    db.close_waits(job, Closing::All)?;
    // Whom nobody waits for any more may be deleted.
    for WaitRow { on, .. } in waits {
        let is_awaited = !db.waits(WaitsOf::OpenOn(on, 1))?.is_empty();
        db.change_jobs(&[on], JobChange::Awaited(is_awaited))?;
    }
    Ok(())
}

/// Has a job that has not begun wait for nothing, and forget what it waited for.
pub fn forget<D: Driver>(db: &mut D, job: JobId) -> Done<()> {
    wait_no_more(db, job)?;
    db.close_waits(job, Closing::Forgotten)
}

/// Whether a job has any open wait for another.
pub fn is_waiting<D: Driver>(db: &mut D, job: JobId) -> Done<bool> {
    Ok(!db.waits(WaitsOf::OpenOf(job, 1))?.is_empty())
}

/// One of `jobs` that is `on`, or waits for it, directly or not.
pub fn depends_on<D: Driver>(db: &mut D, jobs: &[JobId], on: JobId) -> Done<Option<JobId>> {
    let mut seen = HashSet::new();
    for &job in jobs {
        let mut left = vec![job];
        while let Some(at) = left.pop() {
            if at == on {
                return Ok(Some(job));
            }
            if seen.insert(at) {
                left.extend(db.waits(WaitsOf::OpenOf(at, u32::MAX))?.iter().map(|wait| wait.on));
            }
        }
    }
    Ok(None)
}

/// Has `job`, which is suspended, wait for `on` too.
pub fn tie<D: Driver>(db: &mut D, job: JobId, on: JobId, on_failed: OnFailed) -> Done<()> {
    db.wait_for(job, &[(on, true)], on_failed)?;
    db.change_jobs(&[on], JobChange::Awaited(true))
}

/// Has a job go on that waits for others or for people: what it waited for is there. One that is not suspended is left
/// as it is. Tells where it is then.
pub fn go_on<D: Driver>(tx: &mut Tx<'_, D>, job: JobId, now: Millis) -> Outcome<JobState> {
    let row = existing(tx.db, job)?;
    if row.standing.state != JobState::Suspended {
        return Ok(row.standing.state);
    }
    tx.db.close_waits(job, Closing::Groups)?;
    let change = transition(row.standing, Event::Decide, now)?;
    store(tx, &row, &change, Why::Nothing, now)?;
    // A timer must be set anew where it is due later.
    tx.notify();
    Ok(change.to.state)
}

/// The jobs that a job waits for or waited for, in order.
pub fn dependencies<D: Driver>(db: &mut D, job: JobId) -> Done<Vec<Dependency>> {
    let waits = db.waits(WaitsOf::Job(job))?;
    let ids: Vec<_> = waits.iter().map(|wait| wait.on).collect();
    let states: HashMap<_, _> = db.states(StatesOf::Ids(&ids))?.into_iter().map(|row| (row.job, row.state)).collect();
    let dependency =
        |WaitRow { on, open, on_failed, .. }| Dependency { on, state: states.get(&on).copied(), open, on_failed };
    Ok(waits.into_iter().map(dependency).collect())
}
