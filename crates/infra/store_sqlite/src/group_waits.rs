//! Jobs that wait for whole groups.
//!
//! Such a job depends on each job of the group that has not ended, by rows like any other's, so nothing more has to be
//! done when one of them ends. Here is what jobs that join the group later need: who waits for it.
//! *Invariant: a wait for a group is open only while its job is suspended and has not begun.*

use std::collections::HashSet;

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::dependency::{GroupWait, MAX_GROUP_AWAITED, Meaning, meaning, too_large, would_wait_in_group};
use posse_core::job::{JobId, JobState, NewJob};
use posse_core::port::RepositoryError;

use super::fault::{Fault, Outcome};
use super::literal::{IsGroupOpen, update};
use super::relations::{self, on_failed};
use super::rows::state;
use super::schema::{group_waits, job_data, jobs};
use super::writer::Transaction;

fn refused(why: String) -> Fault {
    Fault::Refused(RepositoryError::Refused(why))
}

/// Adds to `others` the jobs of the groups that `job` names, as far as they matter to it.
pub(super) fn add_members(
    connection: &mut SqliteConnection,
    job: &NewJob,
    others: &mut Vec<(JobId, JobState)>,
) -> Outcome<()> {
    if job.after_groups.is_empty() {
        return Ok(());
    }
    let mut known: HashSet<JobId> = others.iter().map(|(id, _)| *id).collect();
    for group in &job.after_groups {
        let of_group = job_data::table.inner_join(jobs::table).filter(job_data::group_name.eq(group));
        let members: Vec<(i64, String)> = of_group
            .filter(jobs::state.ne(JobState::Completed.as_str()))
            .order(job_data::job_id)
            // A group of millions is not to keep everybody from writing while it is read.
            .limit(MAX_GROUP_AWAITED as i64 + 1)
            .select((jobs::id, jobs::state))
            .load(connection)?;
        if members.len() > MAX_GROUP_AWAITED {
            return Err(refused(too_large(group)));
        }
        if members.is_empty() {
            let any: Option<i64> = of_group.select(jobs::id).first(connection).optional()?;
            any.ok_or_else(|| Fault::Refused(RepositoryError::EmptyGroup(group.clone())))?;
        }
        for (id, name) in members {
            let (id, is) = (JobId(id), state(&name)?);
            if meaning(is, job.on_failed) != Meaning::Met && known.insert(id) {
                others.push((id, is));
            }
        }
    }
    Ok(())
}

/// Writes down that `job`, which begins in `began`, waits for the groups it names.
pub(super) fn wait_for(
    connection: &mut SqliteConnection,
    job: JobId,
    new: &NewJob,
    began: JobState,
) -> QueryResult<()> {
    for group in &new.after_groups {
        diesel::insert_into(group_waits::table)
            .values((
                group_waits::job_id.eq(job.0),
                group_waits::group_name.eq(group),
                group_waits::on_failed.eq(new.on_failed.as_str()),
                group_waits::open.eq(began == JobState::Suspended),
            ))
            .execute(connection)?;
    }
    Ok(())
}

/// Has those who wait for `group` wait for `job` too, which came to be in it and is `is`. Refused if it waits for
/// one of them.
pub(super) fn join(tx: &mut Transaction<'_>, group: &str, job: JobId, is: JobState, now: Millis) -> Outcome<()> {
    let waiting: Vec<(i64, String)> = group_waits::table
        .filter(IsGroupOpen)
        .filter(group_waits::group_name.eq(group))
        .order(group_waits::job_id)
        .select((group_waits::job_id, group_waits::on_failed))
        .load(&mut tx.db.0)?;
    if waiting.is_empty() {
        return Ok(());
    }
    for (waiting, rule) in waiting {
        let waiting = JobId(waiting);
        if relations::depends_on(&mut tx.db.0, &[job], waiting)?.is_some() {
            return Err(refused(would_wait_in_group(group, waiting)));
        }
        relations::tie(&mut tx.db.0, waiting, job, on_failed(&rule)?)?;
    }
    if is.is_final() {
        // It ends as it begins, which may decide those who wait.
        relations::tell(tx, job, is, now)?;
    }
    Ok(())
}

/// The same for a job that is there.
pub(super) fn join_again(tx: &mut Transaction<'_>, job: JobId, is: JobState, now: Millis) -> Outcome<()> {
    let group: Option<String> = job_data::table.find(job.0).select(job_data::group_name).first(&mut tx.db.0)?;
    group.map_or(Ok(()), |group| join(tx, &group, job, is, now))
}

/// A job waits for no group any more.
pub(super) fn close(connection: &mut SqliteConnection, job: JobId) -> QueryResult<()> {
    let open = group_waits::job_id.eq(job.0).and(IsGroupOpen);
    update(group_waits::table, open, group_waits::open.eq(false)).execute(connection).map(drop)
}

/// A job that is made another one forgets which groups it waited for.
pub(super) fn forget(connection: &mut SqliteConnection, job: JobId) -> QueryResult<()> {
    diesel::delete(group_waits::table.filter(group_waits::job_id.eq(job.0))).execute(connection).map(drop)
}

/// The groups a job waits for or waited for, by name.
pub(super) fn of(connection: &mut SqliteConnection, job: JobId) -> Outcome<Vec<GroupWait>> {
    let rows: Vec<(String, bool, String)> = group_waits::table
        .filter(group_waits::job_id.eq(job.0))
        .order(group_waits::group_name)
        .select((group_waits::group_name, group_waits::open, group_waits::on_failed))
        .load(connection)?;
    let wait =
        |(group, open, rule): (String, bool, String)| Ok(GroupWait { group, open, on_failed: on_failed(&rule)? });
    rows.into_iter().map(wait).collect()
}
