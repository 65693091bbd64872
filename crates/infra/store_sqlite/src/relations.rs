//! Jobs that wait for others, and jobs beneath others.
//!
//! *Invariant: a job has open dependencies only while it is suspended, and nothing but the end of
//! the last of them decides it.* A parent that waits for its children waits by the same rows.
//! *Invariant: a job that somebody has an open dependency on is `awaited`.*

use std::collections::HashSet;
use std::str::FromStr;

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::dependency::{
    After, Dependency, Meaning, OnFailed, cancelled_with, meaning, still_waits_for, waits_for, would_wait_for_itself,
};
use posse_core::job::transition::{Event, transition};
use posse_core::job::{Job, JobId, JobState, NewJob};
use posse_core::port::{Cancelled, Enqueued, Reach};

use super::fault::{Outcome, unusable};
use super::jobs::{self, Ancestors, Batch};
use super::literal::{IsOpen, among, update};
use super::rows::{DataColumns, JobColumns, Rows, both, state};
use super::schema::{dependencies, job_data, jobs as jobs_table};
use super::writer::Transaction;
use super::{group_waits, people};
use posse_core::store::driver::{JobRow, JobRows as _};
use posse_core::store::fault::no_such;
use posse_core::store::jobs::{existing, set_reason, store};
use posse_core::store::seal::Keys;
use posse_core::store::views::to_job;

/// The jobs that `job` names to wait for, by their group too, each once, and where they are. `earlier` are those before
/// it in its batch.
pub(super) fn others(
    connection: &mut SqliteConnection,
    job: &NewJob,
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
    let known = |id: JobId| {
        let row = existing(Rows::of(connection), id)?;
        Ok((id, row.standing.state))
    };
    let mut others = ids.into_iter().map(known).collect::<Outcome<Vec<_>>>()?;
    group_waits::add_members(connection, job, &mut others)?;
    Ok(others)
}

/// Writes down that `job`, which began in `began`, waits for `others`.
pub(super) fn wait_for(
    connection: &mut SqliteConnection,
    job: JobId,
    others: &[(JobId, JobState)],
    began: JobState,
    on_failed: OnFailed,
) -> Outcome<()> {
    let waits = |is| began == JobState::Suspended && meaning(is, on_failed) == Meaning::Waits;
    // In blocks: a group may have a great many jobs.
    let (blocks, rest) = others.as_chunks::<32>();
    for block in blocks {
        write_down(connection, job, &block.map(|(on, is)| (on, waits(is))), on_failed)?;
    }
    for &(on, is) in rest {
        write_down(connection, job, &[(on, waits(is))], on_failed)?;
    }
    let open: Vec<_> = others.iter().filter(|(_, is)| waits(*is)).map(|(on, _)| on.0).collect();
    if !open.is_empty() {
        update(jobs_table::table, among(&open), jobs_table::awaited.eq(true)).execute(connection)?;
    }
    Ok(())
}

/// Stores on which jobs one depends, and whether it waits for them.
fn write_down<const N: usize>(
    connection: &mut SqliteConnection,
    job: JobId,
    others: &[(JobId, bool); N],
    on_failed: OnFailed,
) -> QueryResult<()> {
    let rows = others.map(|(on, open)| {
        (
            dependencies::job_id.eq(job.0),
            dependencies::on_job_id.eq(on.0),
            dependencies::on_failed.eq(on_failed.as_str()),
            dependencies::open.eq(open),
        )
    });
    // It may come to wait for the same job again: a parent by a unique key, others by their group.
    diesel::replace_into(dependencies::table).values(rows).execute(connection).map(drop)
}

/// Makes the jobs beneath `parent`, which is suspended, and has it wait for them. Tells where it is
/// then.
pub(super) fn wait_for_children(
    tx: &mut Transaction<'_>,
    parent: JobId,
    children: &Batch,
    now: Millis,
) -> Outcome<JobState> {
    let root: Option<i64> = job_data::table.find(parent.0).select(job_data::root_id).first(&mut tx.db.0)?;
    let above = Ancestors { parent: parent.0, root: root.unwrap_or(parent.0) };
    let made = jobs::enqueue(tx, children, Some(above))?;
    let mut ids: Vec<_> = made.into_iter().map(|made| made.id).collect();
    // Two with one unique key are one.
    ids.sort();
    ids.dedup();
    if let Some(child) = depends_on(&mut tx.db.0, &ids, parent)? {
        cancel_within(tx, parent, Reach::Beneath, &would_wait_for_itself(child, parent), now)?;
        return Ok(JobState::Cancelled);
    }
    let mut states = Vec::with_capacity(ids.len());
    for id in ids {
        let row = existing(tx.db, id)?;
        states.push((id, row.standing.state));
    }
    // However they end, the parent wants to know.
    wait_for(&mut tx.db.0, parent, &states, JobState::Suspended, OnFailed::Run)?;
    let open: Vec<_> = states.iter().filter(|(_, state)| !state.is_final()).map(|(id, _)| *id).collect();
    if open.is_empty() {
        return decide(tx, parent, now);
    }
    set_reason(tx, parent, Some(&waits_for(&open)))?;
    Ok(JobState::Suspended)
}

/// Tells those who wait for a job where its last transition put it, if that is its end.
pub(super) fn ended(tx: &mut Transaction<'_>, row: &JobRow, to: JobState, now: Millis) -> Outcome<()> {
    if row.awaited && to.is_final() {
        tell(tx, row.id, to, now)?;
    }
    Ok(())
}

/// Tells those who wait for a job how it ended.
pub(super) fn tell(tx: &mut Transaction<'_>, job: JobId, to: JobState, now: Millis) -> Outcome<()> {
    // A list rather than recursion: a chain of jobs may be long.
    let mut ended = vec![(job, to)];
    while let Some((on, to)) = ended.pop() {
        let mut is_awaited = false;
        for (waiting, rule) in waiting_for(&mut tx.db.0, on)? {
            let rule = on_failed(&rule)?;
            match meaning(to, rule) {
                Meaning::Met => {
                    close(&mut tx.db.0, waiting, on)?;
                    if !waits(&mut tx.db.0, waiting)? {
                        decide(tx, waiting, now)?;
                    }
                }
                Meaning::Waits => {
                    is_awaited = true;
                    set_reason(tx, waiting, Some(&still_waits_for(on, to)))?;
                }
                Meaning::Cancels => {
                    let row = existing(tx.db, waiting)?;
                    wait_no_more(&mut tx.db.0, waiting)?;
                    let change = transition(row.standing, Event::Cancel, now)?;
                    store(tx.db, waiting, &change, now)?;
                    set_reason(tx, waiting, Some(&cancelled_with(on, to)))?;
                    if row.awaited {
                        ended.push((waiting, change.to.state));
                    }
                }
            }
        }
        set_awaited(&mut tx.db.0, on, is_awaited)?;
    }
    Ok(())
}

/// The suspended jobs that wait for `on`, each with its rule.
fn waiting_for(connection: &mut SqliteConnection, on: JobId) -> QueryResult<Vec<(JobId, String)>> {
    let rows: Vec<(i64, String)> = dependencies::table
        .filter(IsOpen)
        .filter(dependencies::on_job_id.eq(on.0))
        .order(dependencies::job_id)
        .select((dependencies::job_id, dependencies::on_failed))
        .load(connection)?;
    Ok(rows.into_iter().map(|(job, rule)| (JobId(job), rule)).collect())
}

/// Has a suspended job, which is about to be cancelled, wait for nothing any more.
pub(super) fn wait_no_more(connection: &mut SqliteConnection, job: JobId) -> Outcome<()> {
    group_waits::close(connection, job)?;
    let others = waits_on(connection, job)?;
    let open = dependencies::job_id.eq(job.0).and(IsOpen);
    update(dependencies::table, open, dependencies::open.eq(false)).execute(connection)?;
    // Whom nobody waits for any more may be deleted.
    for on in others {
        let is_awaited = !waiting_for(connection, on)?.is_empty();
        set_awaited(connection, on, is_awaited)?;
    }
    Ok(())
}

/// Has a job that has not begun wait for nothing, and forget what it waited for.
pub(super) fn forget(connection: &mut SqliteConnection, job: JobId) -> Outcome<()> {
    wait_no_more(connection, job)?;
    group_waits::forget(connection, job)?;
    diesel::delete(dependencies::table.filter(dependencies::job_id.eq(job.0))).execute(connection)?;
    Ok(())
}

/// The jobs that a job still waits for.
fn waits_on(connection: &mut SqliteConnection, job: JobId) -> QueryResult<Vec<JobId>> {
    let open = dependencies::table.filter(dependencies::job_id.eq(job.0)).filter(IsOpen);
    let ids: Vec<i64> = open.select(dependencies::on_job_id).load(connection)?;
    Ok(ids.into_iter().map(JobId).collect())
}

/// One of `jobs` that is `on`, or waits for it, directly or not.
pub(super) fn depends_on(connection: &mut SqliteConnection, jobs: &[JobId], on: JobId) -> QueryResult<Option<JobId>> {
    let mut seen = HashSet::new();
    for &job in jobs {
        let mut left = vec![job];
        while let Some(at) = left.pop() {
            if at == on {
                return Ok(Some(job));
            }
            if seen.insert(at) {
                left.extend(waits_on(connection, at)?);
            }
        }
    }
    Ok(None)
}

/// Has `job`, which is suspended, wait for `on` too.
pub(super) fn tie(connection: &mut SqliteConnection, job: JobId, on: JobId, on_failed: OnFailed) -> QueryResult<()> {
    write_down(connection, job, &[(on, true)], on_failed)?;
    set_awaited(connection, on, true)
}

fn close(connection: &mut SqliteConnection, job: JobId, on: JobId) -> QueryResult<()> {
    let row = dependencies::job_id.eq(job.0).and(dependencies::on_job_id.eq(on.0));
    update(dependencies::table, row, dependencies::open.eq(false)).execute(connection).map(drop)
}

/// Whether a job still waits for another.
fn waits(connection: &mut SqliteConnection, job: JobId) -> QueryResult<bool> {
    let open: Option<i64> = dependencies::table
        .filter(dependencies::job_id.eq(job.0))
        .filter(IsOpen)
        .select(dependencies::on_job_id)
        .first(connection)
        .optional()?;
    Ok(open.is_some())
}

/// What a suspended job waited for is there.
fn decide(tx: &mut Transaction<'_>, job: JobId, now: Millis) -> Outcome<JobState> {
    group_waits::close(&mut tx.db.0, job)?;
    let row = existing(tx.db, job)?;
    let change = transition(row.standing, Event::Decide, now)?;
    store(tx.db, job, &change, now)?;
    set_reason(tx, job, None)?;
    // A timer must be set anew where it is due later.
    tx.ring();
    Ok(change.to.state)
}

/// Has a suspended job go on that waits for no other: what else it waited for is of no interest any
/// more.
pub(super) fn decide_unless_waiting(tx: &mut Transaction<'_>, job: JobId, now: Millis) -> Outcome<()> {
    let row = existing(tx.db, job)?;
    if row.standing.state == JobState::Suspended && !waits(&mut tx.db.0, job)? {
        decide(tx, job, now)?;
    }
    Ok(())
}

fn set_awaited(connection: &mut SqliteConnection, job: JobId, awaited: bool) -> QueryResult<()> {
    update(jobs_table::table, jobs_table::id.eq(job.0), jobs_table::awaited.eq(awaited)).execute(connection).map(drop)
}

pub(super) fn on_failed(rule: &str) -> Outcome<OnFailed> {
    OnFailed::from_str(rule).map_err(unusable)
}

/// Asks for the end of a job and of those within `reach`; see [`people::cancel`]. The job named
/// comes first.
pub(super) fn cancel_within(
    tx: &mut Transaction<'_>,
    job: JobId,
    reach: Reach,
    reason: &str,
    now: Millis,
) -> Outcome<Vec<(JobId, Cancelled)>> {
    let top = match reach {
        Reach::Alone | Reach::Beneath => job,
        Reach::Tree => root(&mut tx.db.0, job)?,
    };
    let mut told = vec![(job, people::cancel(tx, job, reason, now)?)];
    if reach == Reach::Alone {
        return Ok(told);
    }
    // From the top down, so that a parent is not decided by the end of its last child. One that
    // was deleted has nothing to be asked, but those beneath it may be there.
    let mut level = vec![top];
    while let Some(at) = level.pop() {
        if at != job && tx.db.job(at)?.is_some() {
            let reason = format!("cancelled with job {job}: {reason}");
            told.push((at, people::cancel(tx, at, &reason, now)?));
        }
        level.extend(children_ids(&mut tx.db.0, at)?);
    }
    Ok(told)
}

/// The topmost job above `job`, or itself.
fn root(connection: &mut SqliteConnection, job: JobId) -> Outcome<JobId> {
    let root: Option<Option<i64>> =
        job_data::table.find(job.0).select(job_data::root_id).first(connection).optional()?;
    Ok(root.ok_or_else(|| no_such(job))?.map_or(job, JobId))
}

fn children_ids(connection: &mut SqliteConnection, parent: JobId) -> QueryResult<Vec<JobId>> {
    let ids: Vec<i64> = job_data::table
        .filter(job_data::parent_id.eq(parent.0))
        .order(job_data::job_id)
        .select(job_data::job_id)
        .load(connection)?;
    Ok(ids.into_iter().map(JobId).collect())
}

/// The jobs a job has made, oldest first.
pub(super) fn children(connection: &mut SqliteConnection, keys: &Keys, parent: JobId) -> Outcome<Vec<Job>> {
    jobs_table::table
        .inner_join(job_data::table)
        .filter(job_data::parent_id.eq(parent.0))
        .order(job_data::job_id)
        .select((JobColumns::as_select(), DataColumns::as_select()))
        .load(connection)?
        .into_iter()
        .map(|row| Ok(to_job(keys, both(row)?)))
        .collect()
}

/// The jobs a job waits for or waited for, in order.
pub(super) fn of(connection: &mut SqliteConnection, job: JobId) -> Outcome<Vec<Dependency>> {
    type Row = (i64, String, bool, Option<String>);
    let rows: Vec<Row> = dependencies::table
        .left_join(jobs_table::table.on(jobs_table::id.eq(dependencies::on_job_id)))
        .filter(dependencies::job_id.eq(job.0))
        .order(dependencies::on_job_id)
        .select((dependencies::on_job_id, dependencies::on_failed, dependencies::open, jobs_table::state.nullable()))
        .load(connection)?;
    let dependency = |(on, rule, open, is): Row| {
        let state = is.as_deref().map(state).transpose()?;
        Ok(Dependency { on: JobId(on), state, open, on_failed: on_failed(&rule)? })
    };
    rows.into_iter().map(dependency).collect()
}
