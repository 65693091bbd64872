//! Claiming: due jobs become available, available jobs become somebody's.

use std::collections::HashMap;

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::deaths::{Claimable, Suspect, claimable};
use posse_core::job::lease::Lease;
use posse_core::job::transition::{Event, Standing, transition};
use posse_core::job::{Job, JobId, JobState};
use posse_core::port::{ClaimRequest, Claimed, RepositoryError};

use super::deaths;
use super::fault::{Fault, Outcome};
use super::lines::{self, Choice};
use super::literal::{IsAvailable, IsWaiting, among, update};
use super::quarantine::Unreadable;
use super::rows::DataColumns;
use super::rows::{count, stored};
use super::schema::{job_data, jobs};
use super::writer::Transaction;
use posse_core::store::driver::DataRow;
use posse_core::store::seal::{Keys, Place, Sealed};
use posse_core::store::views::{Content, content};

/// Most jobs whose time has come that one claim makes available, so that a great many due at one
/// instant do not hold the write lock for seconds. The next claim goes on.
const PROMOTED_AT_ONCE: i64 = 5_000;

/// What a claim reads of a job's row: what it does not know already.
#[derive(Debug, Queryable, Selectable)]
#[diesel(table_name = jobs, check_for_backend(diesel::sqlite::Sqlite))]
struct Row {
    id: i64,
    queue: String,
    priority: i32,
    run_at: i64,
    attempt: i32,
    max_attempts: i32,
    crashes: i32,
    lease_token: i64,
    cancel_requested: bool,
    created_at: i64,
    concurrency_key: String,
    unique_key: Option<String>,
    output: Option<Sealed>,
    reason: Option<Sealed>,
}

/// Jobs that were taken, still as they are stored, so that reading them keeps nobody from writing.
pub(super) struct Taken(Vec<(Row, DataColumns, Standing)>);

/// Takes due jobs in the order of their rank, as far as the rules let them start.
pub(super) fn claim(tx: &mut Transaction<'_>, request: &ClaimRequest) -> Outcome<Taken> {
    promote(tx, request.now)?;
    let suspects = deaths::suspects(&mut tx.db.0)?;
    let rows = match suspects.is_empty() {
        true => select(&mut tx.db.0, request)?,
        false => select_beside(&mut tx.db.0, request, &suspects)?,
    };
    // Jobs that come to stand alike are taken by one statement; nearly always that is all of them.
    let mut alike: Vec<(Standing, Vec<i64>)> = Vec::new();
    let mut taken = Vec::with_capacity(rows.len());
    let mut closed = None;
    for (row, data) in rows {
        // Whoever has its key may work it; here it would be an attempt for nothing.
        let sealed = [Some(&data.payload), row.output.as_ref()].into_iter().flatten();
        if let Some(key) = sealed.filter_map(Sealed::key).find(|key| !tx.keys.has(key)) {
            closed = Some((row.id, key.to_owned()));
            continue;
        }
        let from = Standing {
            state: JobState::Available,
            attempt: count(row.attempt),
            max_attempts: count(row.max_attempts),
            crashes: count(row.crashes),
            cancel_requested: row.cancel_requested,
            run_at: row.run_at,
        };
        let to = transition(from, Event::Claim, request.now)?.to;
        match alike.iter_mut().find(|(other, _)| (other.state, other.attempt) == (to.state, to.attempt)) {
            Some((_, ids)) => ids.push(row.id),
            None => alike.push((to, vec![row.id])),
        }
        taken.push((row, data, to));
    }
    if let Some((job, key)) = closed.filter(|_| taken.is_empty()) {
        return Err(Fault::Refused(RepositoryError::Unavailable(format!(
            "job {job} is next and sealed with key {key}, which is not configured here: add it to POSSE_SEAL_KEYS or \
             [sealing] key_file"
        ))));
    }
    for (to, ids) in alike {
        let taken = (
            jobs::state.eq(to.state.as_str()),
            jobs::attempt.eq(stored(to.attempt)),
            jobs::lease_token.eq(jobs::lease_token + 1),
            jobs::lease_until.eq(request.lease_until),
            jobs::leased_by.eq(&request.worker.0),
            jobs::claimed_at.eq(request.now),
        );
        update(jobs::table, among(&ids), taken).execute(&mut tx.db.0)?;
    }
    Ok(Taken(taken))
}

impl Taken {
    /// The jobs as the core sees them, with their leases; and those that cannot be read, which are to be
    /// given up.
    pub fn read(self, keys: &Keys, request: &ClaimRequest) -> (Vec<Claimed>, Vec<Unreadable>) {
        let (mut claimed, mut unreadable) = (Vec::with_capacity(self.0.len()), Vec::new());
        for (row, data, to) in self.0 {
            let lease = Lease { job: JobId(row.id), token: row.lease_token + 1 };
            let data = DataRow::from(data);
            let Content { payload, output, retry, tags, meta } = match content(keys, row.id, &data, row.output.as_ref())
            {
                Ok(content) => content,
                Err(why) => {
                    unreadable.push(Unreadable { lease, why });
                    continue;
                }
            };
            let job = Job {
                id: lease.job,
                queue: row.queue,
                role: request.role.clone(),
                state: to.state,
                priority: u8::try_from(row.priority).unwrap_or(u8::MAX),
                run_at: to.run_at,
                attempt: to.attempt,
                max_attempts: to.max_attempts,
                crashes: to.crashes,
                retry,
                unique_key: row.unique_key,
                concurrency_key: Some(row.concurrency_key).filter(|key| !key.is_empty()),
                leased_by: Some(request.worker.0.clone()),
                lease_until: Some(request.lease_until),
                cancel_requested: to.cancel_requested,
                payload,
                output,
                reason: row.reason.map(|reason| keys.show(Place::reason(lease.job.0), &reason)),
                created_at: row.created_at,
                finalized_at: None,
                parent: data.parent,
                root: data.root,
                group: data.group,
                tags,
                meta,
                progress: None,
                damage: None,
            };
            claimed.push(Claimed { job, lease });
        }
        (claimed, unreadable)
    }
}

/// Makes waiting jobs whose time has come available: those of every role, since a job that is due
/// and still waiting would keep every timer firing.
fn promote(tx: &mut Transaction<'_>, now: Millis) -> Outcome<()> {
    let due: Vec<i64> = jobs::table
        .filter(IsWaiting)
        .filter(jobs::run_at.le(now))
        .order(jobs::run_at)
        .limit(PROMOTED_AT_ONCE)
        .select(jobs::id)
        .load(&mut tx.db.0)?;
    if !due.is_empty() {
        // `Event::Due` changes nothing but the state, and is legal for exactly the rows of this index.
        let available = jobs::state.eq(JobState::Available.as_str());
        update(jobs::table, among(&due), available).execute(&mut tx.db.0)?;
        // Whoever serves their roles is waiting for a time that nobody will tell them of again.
        tx.ring();
    }
    Ok(())
}

/// The same while there are suspects, which are worked with nothing beside them.
fn select_beside(
    connection: &mut SqliteConnection,
    request: &ClaimRequest,
    suspects: &[Suspect],
) -> Outcome<Vec<(Row, DataColumns)>> {
    let worker = &request.worker.0;
    let has_jobs = deaths::has_jobs(connection, worker)?;
    match claimable(suspects, worker, has_jobs, &request.role, &request.queues) {
        Claimable::All => return select(connection, request),
        Claimable::One => return select(connection, &ClaimRequest { limit: 1, ..request.clone() }),
        Claimable::Nothing => return Ok(Vec::new()),
        Claimable::Others => {}
    }
    let more = u32::try_from(suspects.len()).unwrap_or(u32::MAX);
    let mut rows = select(connection, &ClaimRequest { limit: request.limit.saturating_add(more), ..request.clone() })?;
    // Among those that the rules let start.
    let suspect = |row: &Row| suspects.iter().find(|suspect| suspect.job.0 == row.id);
    let next = rows.iter().filter_map(|(row, _)| suspect(row)).find(|s| s.is_worth_waiting(worker, request.now));
    if let Some(next) = next {
        deaths::await_empty_hands(connection, next.job, worker)?;
        return Ok(Vec::new());
    }
    rows.retain(|(row, _)| suspect(row).is_none());
    rows.truncate(request.limit as usize);
    Ok(rows)
}

fn select(connection: &mut SqliteConnection, request: &ClaimRequest) -> Outcome<Vec<(Row, DataColumns)>> {
    let rows = jobs::table.inner_join(job_data::table).select((Row::as_select(), DataColumns::as_select()));
    match lines::choose(connection, request)? {
        Choice::Line(queue, key) => Ok(rows
            .filter(IsAvailable)
            .filter(jobs::role.eq(&request.role))
            .filter(jobs::queue.eq(queue))
            .filter(jobs::concurrency_key.eq(key))
            .order((jobs::rank, jobs::id))
            .limit(i64::from(request.limit))
            .load(connection)?),
        Choice::Jobs(ids) => {
            let mut found: Vec<(Row, DataColumns)> = rows.filter(among(&ids)).load(connection)?;
            let places: HashMap<i64, usize> = ids.into_iter().zip(0..).collect();
            found.sort_by_key(|(row, ..)| places.get(&row.id).copied());
            Ok(found)
        }
    }
}
