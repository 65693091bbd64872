//! Jobs that wait for others.
//!
//! *Invariant: a job has open waits only while it is suspended, and nothing but the end of the last of them
//! decides it.* A parent that waits for its children waits by the same rows.
//! *Invariant: a job that somebody has an open wait for is `awaited`.*

use std::collections::HashSet;

use super::driver::{Driver, JobRow};
use super::jobs::{existing, proceed, set_reason, store};
use super::{Done, Outcome, Tx};
use crate::clock::Millis;
use crate::job::dependency::{Meaning, OnFailed, cancelled_with, meaning, still_waits_for};
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
    db.set_awaited(&open, true)
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
        for (waiting, rule) in tx.db.waiting_for(on)? {
            match meaning(to, rule) {
                Meaning::Met => {
                    tx.db.close_wait(waiting, on)?;
                    if !tx.db.is_waiting(waiting)? {
                        decide(tx, waiting, now)?;
                    }
                }
                Meaning::Waits => {
                    is_awaited = true;
                    set_reason(tx, waiting, Some(&still_waits_for(on, to)))?;
                }
                Meaning::Cancels => {
                    let row = existing(tx.db, waiting)?;
                    wait_no_more(tx.db, waiting)?;
                    let change = transition(row.standing, Event::Cancel, now)?;
                    store(tx.db, waiting, &change, now)?;
                    set_reason(tx, waiting, Some(&cancelled_with(on, to)))?;
                    if row.awaited {
                        ended.push((waiting, change.to.state));
                    }
                }
            }
        }
        tx.db.set_awaited(&[on], is_awaited)?;
    }
    Ok(())
}

/// Has a suspended job, which is about to be cancelled, wait for nothing any more.
pub fn wait_no_more<D: Driver>(db: &mut D, job: JobId) -> Done<()> {
    db.close_group_waits(job)?;
    let others = db.waits_on(job)?;
    db.close_waits(job)?;
    // Whom nobody waits for any more may be deleted.
    for on in others {
        let is_awaited = !db.waiting_for(on)?.is_empty();
        db.set_awaited(&[on], is_awaited)?;
    }
    Ok(())
}

/// Has a job that has not begun wait for nothing, and forget what it waited for.
pub fn forget<D: Driver>(db: &mut D, job: JobId) -> Done<()> {
    wait_no_more(db, job)?;
    db.forget_waits(job)
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
                left.extend(db.waits_on(at)?);
            }
        }
    }
    Ok(None)
}

/// Has `job`, which is suspended, wait for `on` too.
pub fn tie<D: Driver>(db: &mut D, job: JobId, on: JobId, on_failed: OnFailed) -> Done<()> {
    db.wait_for(job, &[(on, true)], on_failed)?;
    db.set_awaited(&[on], true)
}

/// What a suspended job waited for is there.
pub fn decide<D: Driver>(tx: &mut Tx<'_, D>, job: JobId, now: Millis) -> Outcome<JobState> {
    tx.db.close_group_waits(job)?;
    let row = existing(tx.db, job)?;
    proceed(tx, &row, now)
}

/// Has a suspended job go on that waits for no other: what else it waited for is of no interest any
/// more.
pub fn decide_unless_waiting<D: Driver>(tx: &mut Tx<'_, D>, job: JobId, now: Millis) -> Outcome<()> {
    let row = existing(tx.db, job)?;
    if row.standing.state == JobState::Suspended && !tx.db.is_waiting(job)? {
        decide(tx, job, now)?;
    }
    Ok(())
}
