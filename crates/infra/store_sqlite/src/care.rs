//! Keeping the database in order, and what there is to know about its state.

use diesel::dsl::{count_star, max, min};
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use posse_core::clock::Millis;
use posse_core::job::JobId;
use posse_core::job::lease::WorkerId;
use posse_core::port::{ClockJump, DueJobs, HeldJob};

use super::fault::Outcome;
use super::literal::{IsAvailable, IsRunning, IsWaiting, update};
use super::schema::{clock_jumps, duties, jobs, steps, workers};
use super::writer::Transaction;

/// How many times at which the clock was set are kept.
const JUMPS_KEPT: i64 = 20;

/// Gives `worker` a duty until `until`, unless another holds it.
pub(super) fn take_duty(
    tx: &mut Transaction<'_>,
    duty: &str,
    worker: &WorkerId,
    until: Millis,
    now: Millis,
) -> Outcome<bool> {
    let held: Option<(String, i64)> =
        duties::table.find(duty).select((duties::worker, duties::held_until)).first(&mut tx.db.0).optional()?;
    if held.is_some_and(|(holder, held_until)| holder != worker.0 && held_until > now && held_until <= until) {
        return Ok(false);
    }
    diesel::replace_into(duties::table)
        .values((duties::name.eq(duty), duties::worker.eq(&worker.0), duties::held_until.eq(until)))
        .execute(&mut tx.db.0)?;
    Ok(true)
}

/// Keeps a jump of the clock on record, and cuts leases that stand for longer than was asked for.
pub(super) fn clock_jumped(tx: &mut Transaction<'_>, jump: &ClockJump) -> Outcome<()> {
    diesel::insert_into(clock_jumps::table)
        .values((
            clock_jumps::worker.eq(&jump.worker),
            clock_jumps::noticed_at.eq(jump.noticed_at),
            clock_jumps::by_ms.eq(jump.by_ms),
        ))
        .execute(&mut tx.db.0)?;
    let last: Option<i64> = clock_jumps::table.select(max(clock_jumps::id)).first(&mut tx.db.0)?;
    let too_old = clock_jumps::id.le(last.unwrap_or(0) - JUMPS_KEPT);
    diesel::delete(clock_jumps::table.filter(too_old)).execute(&mut tx.db.0)?;
    let lease_ms: Vec<(String, i64)> = workers::table.select((workers::id, workers::lease_ms)).load(&mut tx.db.0)?;
    let of_workers: std::collections::HashMap<_, _> = lease_ms.into_iter().collect();
    let held: Vec<(i64, Option<i64>, Option<String>)> =
        jobs::table.filter(IsRunning).select((jobs::id, jobs::lease_until, jobs::leased_by)).load(&mut tx.db.0)?;
    for (id, until, worker) in held {
        // A worker that is not on the list renews nothing any more.
        let most = jump.noticed_at + worker.and_then(|worker| of_workers.get(&worker).copied()).unwrap_or(0);
        if until.is_some_and(|until| until > most) {
            update(jobs::table, jobs::id.eq(id).and(IsRunning), jobs::lease_until.eq(most)).execute(&mut tx.db.0)?;
        }
    }
    tx.ring();
    Ok(())
}

/// Asks a worker, or all on the list, to finish what is in hand and end.
pub(super) fn request_drain(tx: &mut Transaction<'_>, worker: Option<&WorkerId>, now: Millis) -> Outcome<Vec<String>> {
    let on_list: Vec<String> = workers::table.order(workers::id).select(workers::id).load(&mut tx.db.0)?;
    let asked: Vec<_> = on_list.into_iter().filter(|id| worker.is_none_or(|worker| worker.0 == *id)).collect();
    for id in &asked {
        let first = workers::id.eq(id).and(workers::drain_requested_at.is_null());
        update(workers::table, first, workers::drain_requested_at.eq(now)).execute(&mut tx.db.0)?;
    }
    tx.ring();
    Ok(asked)
}

/// Whether a worker was asked to end.
pub(super) fn drain_requested(connection: &mut SqliteConnection, worker: &WorkerId) -> Outcome<bool> {
    let since: Option<Option<i64>> =
        workers::table.find(&worker.0).select(workers::drain_requested_at).first(connection).optional()?;
    Ok(since.flatten().is_some())
}

/// Jobs in workers' hands, by worker and job.
pub(super) fn held(connection: &mut SqliteConnection) -> Outcome<Vec<HeldJob>> {
    type Row = (i64, String, Option<String>, Option<i64>, Option<i64>);
    let rows: Vec<Row> = jobs::table
        .filter(IsRunning)
        .order((jobs::leased_by, jobs::id))
        .select((jobs::id, jobs::role, jobs::leased_by, jobs::lease_until, jobs::claimed_at))
        .load(connection)?;
    let held = |(id, role, worker, lease_until, since): Row| {
        let last: Option<(i64, String, i64)> = steps::table
            .filter(steps::job_id.eq(id))
            .order(steps::seq.desc())
            .select((steps::seq, steps::kind, steps::created_at))
            .first(connection)
            .optional()?;
        let (entries, last_entry, last_entry_at) = match last {
            Some((seq, kind, at)) => (seq.unsigned_abs() + 1, Some(kind), Some(at)),
            None => (0, None, None),
        };
        let (worker, lease_until) = (worker.unwrap_or_default(), lease_until.unwrap_or(0));
        let since = since.unwrap_or(0);
        Ok(HeldJob { job: JobId(id), role, worker, since, lease_until, entries, last_entry, last_entry_at })
    };
    rows.into_iter().map(held).collect()
}

/// Jobs that are due, by role: those that may be claimed, and those whose time has come.
pub(super) fn due(connection: &mut SqliteConnection, now: Millis) -> Outcome<Vec<DueJobs>> {
    type Row = (String, i64, Option<i64>);
    let summary = (jobs::role, count_star(), min(jobs::run_at));
    let available: Vec<Row> = jobs::table.filter(IsAvailable).group_by(jobs::role).select(summary).load(connection)?;
    let waiting: Vec<Row> = jobs::table
        .filter(IsWaiting)
        .filter(jobs::run_at.le(now))
        .group_by(jobs::role)
        .select(summary)
        .load(connection)?;
    let mut roles: std::collections::BTreeMap<String, (u64, Millis)> = Default::default();
    for (role, jobs, oldest) in available.into_iter().chain(waiting) {
        let entry = roles.entry(role).or_insert((0, Millis::MAX));
        *entry = (entry.0 + jobs.unsigned_abs(), entry.1.min(oldest.unwrap_or(now)));
    }
    Ok(roles.into_iter().map(|(role, (jobs, oldest_due_at))| DueJobs { role, jobs, oldest_due_at }).collect())
}

/// The latest times at which the clock was set, newest first.
pub(super) fn jumps(connection: &mut SqliteConnection) -> Outcome<Vec<ClockJump>> {
    let rows: Vec<(i64, String, i64, i64)> = clock_jumps::table.order(clock_jumps::id.desc()).load(connection)?;
    let jump = |(_, worker, noticed_at, by_ms)| ClockJump { worker, noticed_at, by_ms };
    Ok(rows.into_iter().map(jump).collect())
}

/// The database's size in pages, how many of them are free, and the size of a page.
pub(super) fn pages(connection: &mut SqliteConnection) -> Outcome<(u64, u64, u64)> {
    #[derive(QueryableByName)]
    struct Pages {
        #[diesel(sql_type = BigInt)]
        pages: i64,
        #[diesel(sql_type = BigInt)]
        free: i64,
        #[diesel(sql_type = BigInt)]
        size: i64,
    }
    let sql = "SELECT page_count AS pages, freelist_count AS free, page_size AS size
               FROM pragma_page_count, pragma_freelist_count, pragma_page_size";
    let Pages { pages, free, size } = diesel::sql_query(sql).get_result(connection)?;
    Ok((pages.unsigned_abs(), free.unsigned_abs(), size.unsigned_abs()))
}

/// Whether free pages can be given back to the disk: that is settled when a file is made or rewritten.
pub(super) fn gives_back(connection: &mut SqliteConnection) -> Outcome<bool> {
    #[derive(QueryableByName)]
    struct Mode {
        #[diesel(sql_type = BigInt)]
        mode: i64,
    }
    let Mode { mode } =
        diesel::sql_query("SELECT auto_vacuum AS mode FROM pragma_auto_vacuum").get_result(connection)?;
    Ok(mode == 2)
}
