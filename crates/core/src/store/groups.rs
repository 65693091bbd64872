//! Jobs that wait for whole groups.
//!
//! Such a job waits for each job of the group that has not ended, by rows like any other's, so nothing more has to be
//! done when one of them ends. Here is what jobs that join the group later need: who waits for it.
//! *Invariant: a wait for a group is open only while its job is suspended and has not begun.*

use std::collections::HashSet;

use super::driver::{Driver, GroupWaitsOf, StatesOf};
use super::fault::{refused, unusable};
use super::jobs::{existing, whole};
use super::{Done, Fault, Outcome, Tx, waits};
use crate::clock::Millis;
use crate::job::dependency::{After, GroupWait, MAX_GROUP_AWAITED, Meaning, meaning, too_large, would_wait_in_group};
use crate::job::{JobId, JobState, NewJob};
use crate::port::{Enqueued, RepositoryError, StateRow};

/// The jobs that `job` names to wait for, by their group too, each once, and where they are; but not `itself`, where it
/// is there. `earlier` are those before it in its batch.
pub fn awaited_by<D: Driver>(
    db: &mut D,
    job: &NewJob,
    itself: Option<JobId>,
    earlier: &[Enqueued],
) -> Outcome<Vec<(JobId, JobState)>> {
    let mut ids = Vec::with_capacity(job.after.len());
    for after in &job.after {
        ids.push(match *after {
            After::Job(id) => id,
            After::Earlier(place) => earlier.get(place).map(|earlier| earlier.id).ok_or_else(|| {
                unusable(format!(
                    "a job waits for the one at place {place}, which does not stand before it in its batch"
                ))
            })?,
        });
    }
    ids.sort();
    ids.dedup();
    let known = |id| Ok((id, existing(db, id)?.standing.state));
    let mut others = ids.into_iter().map(known).collect::<Outcome<Vec<_>>>()?;
    add_members(db, job, itself, &mut others)?;
    Ok(others)
}

/// Adds to `others` the jobs of the groups that `job` names, as far as they matter to it.
fn add_members<D: Driver>(
    db: &mut D,
    job: &NewJob,
    itself: Option<JobId>,
    others: &mut Vec<(JobId, JobState)>,
) -> Outcome<()> {
    if job.after_groups.is_empty() {
        return Ok(());
    }
    let mut known: HashSet<JobId> = others.iter().map(|(id, _)| *id).collect();
    for group in &job.after_groups {
        // A group of millions is not to keep everybody from writing while it is read.
        let mut members = db.states(StatesOf::Incomplete(group, MAX_GROUP_AWAITED as u32 + 2))?;
        let is_other = |member: &StateRow| Some(member.job) != itself;
        members.retain(is_other);
        if members.len() > MAX_GROUP_AWAITED {
            return Err(refused(too_large(group)));
        }
        if members.is_empty() && !db.states(StatesOf::Members(group, 2))?.iter().any(is_other) {
            return Err(Fault::Refused(RepositoryError::EmptyGroup(group.clone())));
        }
        for StateRow { job: id, state, .. } in members {
            if meaning(state, job.on_failed) != Meaning::Met && known.insert(id) {
                others.push((id, state));
            }
        }
    }
    Ok(())
}

/// Writes down that `job`, which begins in `began`, waits for the groups it names.
pub fn wait_for<D: Driver>(db: &mut D, job: JobId, new: &NewJob, began: JobState) -> Done<()> {
    let open = began == JobState::Suspended;
    new.after_groups.iter().try_for_each(|group| db.wait_for_group(job, group, new.on_failed, open))
}

/// Has those who wait for `group` wait for `job` too, which came to be in it and is `is`. Refused if it waits for
/// one of them.
pub fn join<D: Driver>(tx: &mut Tx<'_, D>, group: &str, job: JobId, is: JobState, now: Millis) -> Outcome<()> {
    let waiting = tx.db.group_waits(GroupWaitsOf::OpenOn(group))?;
    if waiting.is_empty() {
        return Ok(());
    }
    for (waiting, GroupWait { on_failed, .. }) in waiting {
        if waits::depends_on(tx.db, &[job], waiting)?.is_some() {
            return Err(refused(would_wait_in_group(group, waiting)));
        }
        waits::tie(tx.db, waiting, job, on_failed)?;
    }
    if is.is_final() {
        // It ends as it begins, which may decide those who wait.
        waits::tell(tx, job, is, now)?;
    }
    Ok(())
}

/// The same for a job that is there.
pub fn join_again<D: Driver>(tx: &mut Tx<'_, D>, job: JobId, is: JobState, now: Millis) -> Outcome<()> {
    let (_, data) = whole(tx.db, job)?;
    data.group.map_or(Ok(()), |group| join(tx, &group, job, is, now))
}
