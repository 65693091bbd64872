//! Claiming: due jobs become available, available jobs become somebody's.

use std::collections::HashMap;

use super::driver::{self, AvailableRow, ClaimableOf, DataRow, Driver, IdsOf, JobChange, JobRow, JobsOf, WorkedRow};
use super::fault::Fault;
use super::jobs::{Why, end_attempts, store};
use super::seal::{Keys, Sealed};
use super::views::{content, job};
use super::{Done, Outcome, Tx, cancel, deaths, waits};
use crate::clock::Millis;
use crate::job::deaths::{Claimable, Suspect, claimable};
use crate::job::lease::Lease;
use crate::job::transition::{Event, Standing, transition};
use crate::job::{JobId, JobState};
use crate::port::{ClaimRequest, Claimed, RepositoryError};

mod fairness;
mod lanes;
mod selection;

pub use lanes::Cursors;
use selection::{Choice, choose};

/// Most jobs whose time has come that one claim makes available, so that a great many due at one
/// instant do not hold the write lock for seconds. The next claim goes on.
const PROMOTED_AT_ONCE: u32 = 5_000;

/// Jobs that were taken, still as they are stored, so that reading them keeps nobody from writing.
#[derive(Debug)]
pub struct Taken(Vec<(AvailableRow, DataRow, Standing)>);

/// Takes due jobs in the order of their rank, as far as the rules let them start.
pub fn claim<D: Driver>(tx: &mut Tx<'_, D>, request: &ClaimRequest) -> Outcome<Taken> {
    let later;
    let request = match tx.late_ms {
        0 => request,
        late => {
            let (now, lease_until) = (request.now + late, request.lease_until + late);
            later = ClaimRequest { now, lease_until, ..request.clone() };
            &later
        }
    };
    promote(tx, request.now)?;
    let suspects = deaths::suspects(tx.db)?;
    let rows = match suspects.is_empty() {
        true => select(tx, request)?,
        false => select_beside(tx, request, &suspects)?,
    };
    // Jobs that come to stand alike are taken by one statement; nearly always that is all of them.
    let mut alike: Vec<(Standing, Vec<JobId>)> = Vec::new();
    let mut taken = Vec::with_capacity(rows.len());
    let mut closed = None;
    for (available, data) in rows {
        let row = &available.worked;
        // Whoever has its key may work it; here it would be an attempt for nothing.
        let sealed = [Some(&data.payload), row.output.as_ref()].into_iter().flatten();
        if let Some(key) = sealed.filter_map(Sealed::key).find(|key| !tx.keys.has(key)) {
            closed = Some((row.id, key.to_owned()));
            continue;
        }
        let to = transition(row.standing, Event::Claim, request.now)?.to;
        match alike.iter_mut().find(|(other, _)| (other.state, other.attempt) == (to.state, to.attempt)) {
            Some((_, ids)) => ids.push(row.id),
            None => alike.push((to, vec![row.id])),
        }
        taken.push((available, data, to));
    }
    if let Some((job, key)) = closed.filter(|_| taken.is_empty()) {
        return Err(Fault::Refused(RepositoryError::Unavailable(format!(
            "job {job} is next and sealed with key {key}, which is not configured here: add it to POSSE_SEAL_KEYS or \
             [sealing] key_file"
        ))));
    }
    for (Standing { state, attempt, .. }, ids) in alike {
        let (worker, at, until) = (request.worker.0.as_str(), request.now, request.lease_until);
        tx.db.change_jobs(&ids, JobChange::Taken(driver::Taken { state, attempt, worker, at, until }))?;
    }
    Ok(Taken(taken))
}

impl Taken {
    /// The jobs as the core sees them, with their leases; and those that cannot be read, which are to be
    /// given up.
    pub fn read(self, keys: &Keys, request: &ClaimRequest) -> (Vec<Claimed>, Vec<Unworkable>) {
        let (mut claimed, mut unworkable) = (Vec::with_capacity(self.0.len()), Vec::new());
        for (available, data, to) in self.0 {
            let AvailableRow { worked, queue, priority, created_at, concurrency_key, unique_key } = available;
            let WorkedRow { id, role, lease_token, awaited, output, reason, .. } = worked;
            let lease = Lease { job: id, token: lease_token + 1 };
            match content(keys, id.0, &data, output.as_ref()) {
                Ok(content) => {
                    let row = JobRow {
                        id,
                        queue,
                        role,
                        standing: to,
                        priority,
                        lease_token: lease.token,
                        lease_until: Some(request.lease_until),
                        leased_by: Some(request.worker.0.clone()),
                        claimed_at: Some(request.now),
                        created_at,
                        finalized_at: None,
                        awaited,
                        concurrency_key,
                        unique_key,
                        // Nobody asks for it of a job that is worked.
                        unique_ms: None,
                        output,
                        reason,
                    };
                    claimed.push(Claimed { job: job(keys, row, data, content), lease });
                }
                Err(why) => unworkable.push(Unworkable { lease, why }),
            }
        }
        (claimed, unworkable)
    }
}

/// Makes waiting jobs whose time has come available: those of every role, since a job that is due
/// and still waiting would keep every timer firing.
fn promote<D: Driver>(tx: &mut Tx<'_, D>, now: Millis) -> Done<()> {
    let due = tx.db.ids(IdsOf::Due(now, PROMOTED_AT_ONCE))?;
    if !due.is_empty() {
        // `Event::Due` changes nothing but the state, and is legal for exactly these.
        tx.db.change_jobs(&due, JobChange::State(JobState::Available))?;
        // Whoever serves their roles is waiting for a time that nobody will tell them of again.
        tx.notify();
    }
    Ok(())
}

/// The same while there are suspects, which are worked with nothing beside them.
fn select_beside<D: Driver>(
    tx: &mut Tx<'_, D>,
    request: &ClaimRequest,
    suspects: &[Suspect],
) -> Done<Vec<driver::Claimable>> {
    let worker = &request.worker.0;
    let has_jobs = !tx.db.jobs(JobsOf::HeldBy(worker))?.is_empty();
    match claimable(suspects, worker, has_jobs, &request.role, &request.queues) {
        Claimable::All => return select(tx, request),
        Claimable::One => return select(tx, &ClaimRequest { limit: 1, ..request.clone() }),
        Claimable::Nothing => return Ok(Vec::new()),
        Claimable::Others => {}
    }
    let more = u32::try_from(suspects.len()).unwrap_or(u32::MAX);
    let mut rows = select(tx, &ClaimRequest { limit: request.limit.saturating_add(more), ..request.clone() })?;
    // Among those that the rules let start.
    let suspect = |row: &AvailableRow| suspects.iter().find(|suspect| suspect.job == row.worked.id);
    let next = rows.iter().filter_map(|(row, _)| suspect(row)).find(|s| s.is_worth_waiting(worker, request.now));
    if let Some(next) = next {
        deaths::await_empty_hands(tx.db, next.job, worker)?;
        return Ok(Vec::new());
    }
    rows.retain(|(row, _)| suspect(row).is_none());
    rows.truncate(request.limit as usize);
    Ok(rows)
}

fn select<D: Driver>(tx: &mut Tx<'_, D>, request: &ClaimRequest) -> Done<Vec<driver::Claimable>> {
    match choose(tx, request)? {
        Choice::Lane(queue, key) => {
            tx.db.claimable(ClaimableOf::First { role: &request.role, queue: &queue, key: &key, most: request.limit })
        }
        Choice::Jobs(ids) => {
            let mut found = tx.db.claimable(ClaimableOf::Ids(&ids))?;
            let order: HashMap<JobId, usize> = ids.into_iter().zip(0..).collect();
            found.sort_by_key(|(row, _)| order.get(&row.worked.id).copied());
            Ok(found)
        }
    }
}

/// A job that was claimed and cannot be worked, since what is stored of it cannot be read. Found after the claim's commit: if
/// the process dies before it is given up, its lease runs out, and the next claim finds it again.
#[derive(Debug)]
pub struct Unworkable {
    /// The claim's.
    pub lease: Lease,
    /// What is wrong with it, in words.
    pub why: String,
}

/// Gives those up with a reason whose leases still stand, so that they do not stand in the way of those behind them.
pub fn give_up<D: Driver>(tx: &mut Tx<'_, D>, unworkable: &[Unworkable], now: Millis) -> Outcome<()> {
    for Unworkable { lease, why } in unworkable {
        let job = lease.job;
        let Some(row) = tx.db.job(job)?.filter(|row| row.is_leased_as(lease.token)) else { continue };
        let reason = format!("it cannot be worked: {why}");
        let change = transition(row.standing, Event::GiveUp, now)?;
        end_attempts(tx, &[job], Event::GiveUp, Some(&reason), now)?;
        store(tx, &row, &change, Why::Said(&reason), now)?;
        cancel::tasks_of(tx, job, change.to.state, now)?;
        waits::ended(tx, &row, change.to.state, now)?;
        tracing::warn!(job.id = job.0, "job {job} is discarded: {reason}");
    }
    // Whoever claims got fewer jobs than there may be.
    tx.notify();
    Ok(())
}
