//! What the holder of a lease writes: entries while it works, and how its attempt ends.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::driver::{Driver, JobChange, LeaseAfter, Moved, ProgressRow, WorkedRow};
use super::enqueue::{Ancestors, Batch, enqueue};
use super::guard::guarded;
use super::jobs::{end_attempts, set_reason, whole};
use super::journal::{self, Sheet};
use super::seal::{Keys, Place, Sealed};
use super::{Answer, Done, Outcome, ROW, Tx, Verb, cancel, deaths, limits, questions, waits};
use crate::clock::Millis;
use crate::job::dependency::{OnFailed, waits_for, would_wait_for_itself};
use crate::job::lease::Lease;
use crate::job::transition::{Event, Standing, transition};
use crate::job::{JobId, JobProgress, JobState};
use crate::port::{Appended, AttemptEnd, Reach, RepositoryError, Result};

/// Appends entries from place `seq` on; starts no call for a job that is to be cancelled.
pub fn append<D: Driver>(
    tx: &mut Tx<'_, D>,
    lease: Lease,
    seq: u64,
    sheets: &[Sheet],
    now: Millis,
) -> Outcome<Appended> {
    let row = guarded(tx.db, lease)?;
    let (begun, appended) = match sheets.iter().position(Sheet::starts_call) {
        Some(start) if row.standing.cancel_requested => (&sheets[..start], Appended::UpToCancellation),
        _ => (sheets, Appended::Whole),
    };
    journal::append(tx, lease.job, &row.role, seq, begun, now)?;
    Ok(appended)
}

/// Keeps what the holder of a lease tells of how far its job is.
pub fn report<D: Driver>(tx: &mut Tx<'_, D>, lease: Lease, told: &JobProgress) -> Outcome<()> {
    guarded(tx.db, lease)?;
    let text = tx.keys.seal(Place::progress(lease.job.0), told.text.as_str());
    Ok(tx.db.keep(&ProgressRow { job: lease.job, share: told.share, text, at: told.at })?)
}

/// The end of an attempt, with its values written out. Made outside of the transaction.
pub struct End {
    lease: Lease,
    event: Event,
    due_at: Millis,
    reason: Option<String>,
    output: Option<String>,
    sheets: Vec<Sheet>,
    seq: u64,
    /// The jobs that are made beneath it, for which it then waits.
    children: Batch,
    /// Those for which it waits as well.
    waits_for: Vec<JobId>,
    now: Millis,
}

impl End {
    /// Writes the values of an ending out.
    pub fn new(end: &AttemptEnd, now: Millis) -> Result<End, serde_json::Error> {
        let AttemptEnd { lease, ending } = end;
        Ok(End {
            lease: *lease,
            event: ending.event,
            due_at: ending.due_at,
            reason: ending.reason.clone(),
            output: ending.output.as_ref().map(serde_json::to_string).transpose()?,
            sheets: Sheet::all(&ending.entries)?,
            seq: ending.seq,
            children: Batch::new(ending.children.clone(), now)?,
            waits_for: ending.waits_for.clone(),
            now,
        })
    }

    /// Roughly what it will take.
    pub fn bytes(&self) -> usize {
        let written = self.output.as_ref().map_or(0, String::len) + self.sheets.iter().map(Sheet::bytes).sum::<usize>();
        300 + written + self.children.bytes() + self.waits_for.len() * ROW
    }

    /// Whether its job waits for others then.
    fn waits_for_jobs(&self) -> bool {
        !self.children.is_empty() || !self.waits_for.is_empty()
    }
}

/// Ending attempts.
pub enum Finish {}

impl Verb for Finish {
    type Ask = End;
    /// Where the job is then.
    type Answer = JobState;

    fn run<D: Driver>(tx: &mut Tx<'_, D>, ends: &[&End]) -> Outcome<Vec<Answer<Finish>>> {
        let mut ids: Vec<_> = ends.iter().map(|end| end.lease.job).collect();
        // In order, which drivers need to see that they are a range, and to lock rows in the same order as others.
        ids.sort_unstable();
        let mut rows: HashMap<_, _> = tx.db.running(&ids)?.into_iter().map(|row| (row.id, row)).collect();
        // Jobs that come to stand alike are stored by one statement.
        let mut alike: Vec<(Left, Vec<JobId>)> = Vec::new();
        // What others have to do with the ends follows when those are stored.
        let (mut awaited, mut parents, mut asking, mut failed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut answers = Vec::with_capacity(ends.len());
        for end in ends {
            let job = end.lease.job;
            let left = match rows.entry(job) {
                Entry::Occupied(row) if row.get().lease_token == end.lease.token => match change(row.get(), end) {
                    Ok(to) => {
                        // The row is used up: a second end of one attempt finds the lease gone.
                        let row = row.remove();
                        if row.awaited && to.state.is_final() {
                            awaited.push((job, to.state, end.now));
                        }
                        left(tx.keys, row, to, end)
                    }
                    Err(refused) => {
                        answers.push(Err(refused));
                        continue;
                    }
                },
                _ => {
                    answers.push(Err(RepositoryError::LeaseLost(job)));
                    continue;
                }
            };
            if left.to.state == JobState::Suspended {
                questions::reopen(tx.db, job)?;
                match end.waits_for_jobs() {
                    false => asking.push((job, end.now)),
                    true => parents.push((answers.len(), end)),
                }
            }
            if !end.sheets.is_empty() {
                journal::append(tx, job, &left.role, end.seq, &end.sheets, end.now)?;
            }
            if end.event == Event::Suspend && left.to.state != JobState::Suspended {
                // Its end was asked for while it was asking.
                questions::close(tx.db, job, end.now)?;
            }
            if matches!(left.to.state, JobState::Discarded | JobState::Cancelled) {
                failed.push((job, left.to.state, end.now));
            }
            answers.push(Ok(left.to.state));
            match alike.iter_mut().rev().find(|(other, _)| *other == left) {
                Some((_, ids)) => ids.push(job),
                None => alike.push((left, vec![job])),
            }
        }
        if !alike.is_empty() && limits::any_counts_running(tx.db)? {
            tx.notify();
        }
        if !alike.is_empty() {
            clear_suspects(tx, &alike)?;
        }
        for (left, mut ids) in alike {
            ids.sort_unstable();
            left.store(tx, &ids)?;
        }
        for (job, now) in asking {
            questions::tell_again(tx, job, now)?;
        }
        for (job, to, now) in failed {
            cancel::tasks_of(tx, job, to, now)?;
        }
        for (job, to, now) in awaited {
            waits::tell(tx, job, to, now)?;
        }
        // Last: a child may be a job that is there already, by its unique key, and that ended just now.
        for (place, end) in parents {
            answers[place] = Ok(wait_for_others(tx, end)?);
        }
        Ok(answers)
    }
}

/// Whoever waits for empty hands, or for a suspect to end, is told; and of those that ended with their worker alive
/// nothing is suspected any more.
fn clear_suspects<D: Driver>(tx: &mut Tx<'_, D>, ended: &[(Left<'_>, Vec<JobId>)]) -> Outcome<()> {
    let suspects = deaths::suspects(tx.db)?;
    if suspects.is_empty() {
        return Ok(());
    }
    tx.notify();
    for (left, ids) in ended {
        // These say nothing: the work had perhaps not begun.
        let is_proof = left.to.state.is_final() || !matches!(left.event, Event::Interrupt | Event::Snooze);
        for suspect in suspects.iter().filter(|suspect| is_proof && ids.contains(&suspect.job)) {
            deaths::clear(tx.db, suspect.job)?;
        }
    }
    Ok(())
}

/// What an attempt leaves behind.
#[derive(PartialEq)]
struct Left<'a> {
    event: Event,
    to: Standing,
    /// Why the attempt ended.
    why: Option<&'a str>,
    /// Why the job is where it is.
    reason: Option<Sealed>,
    output: Option<Sealed>,
    role: String,
    now: Millis,
}

/// What becomes of the running job of this row by `end`.
fn change(row: &WorkedRow, end: &End) -> Result<Standing> {
    if end.waits_for_jobs() && end.event != Event::Suspend {
        let said = "an ending brings jobs to wait for but does not suspend the job; nothing was saved";
        return Err(RepositoryError::Unusable(said.into()));
    }
    let at = match end.event {
        Event::Fail | Event::Snooze => end.due_at,
        _ => end.now,
    };
    let mut change = transition(row.standing, end.event, at)?;
    if !change.frees_lease {
        // The first cancel of a running job only asks its worker, and here the worker is answering.
        change = transition(change.to, end.event, at)?;
    }
    Ok(change.to)
}

fn left<'a>(keys: &Keys, row: WorkedRow, to: Standing, end: &'a End) -> Left<'a> {
    let (why, job) = (end.reason.as_deref(), end.lease.job.0);
    // A job that ends because somebody asked for it keeps what they said as its reason.
    let is_asked_for = to.state == JobState::Cancelled && row.standing.cancel_requested;
    let reason = if is_asked_for { row.reason } else { why.map(|why| keys.seal(Place::reason(job), why)) };
    let output = end.output.as_deref().map(|output| keys.seal(Place::output(job), output)).or(row.output);
    Left { event: end.event, to, why, reason, output, role: row.role, now: end.now }
}

impl Left<'_> {
    /// Stores it for running jobs that all leave it.
    fn store<D: Driver>(&self, tx: &mut Tx<'_, D>, ids: &[JobId]) -> Done<()> {
        // Then the job's row goes on to tell of the attempt.
        let is_plain = self.to.state == JobState::Completed && self.why.is_none();
        if !is_plain {
            end_attempts(tx, ids, self.event, self.why, self.now)?;
        }
        let moved = Moved {
            to: &self.to,
            finalized_at: self.to.state.is_final().then_some(self.now),
            output: self.output.as_ref(),
            reason: self.reason.as_ref(),
            lease: if is_plain { LeaseAfter::EndsAndTells } else { LeaseAfter::Ends },
        };
        tx.db.change_jobs(ids, JobChange::Moved(moved))?;
        if matches!(self.to.state, JobState::Available | JobState::Retryable | JobState::Scheduled) {
            tx.notify();
        }
        Ok(())
    }
}

/// Makes the jobs that an ending brings beneath its own, which is suspended, and has that wait for them and for others. Tells
/// where it is then.
fn wait_for_others<D: Driver>(tx: &mut Tx<'_, D>, end: &End) -> Outcome<JobState> {
    let (parent, now) = (end.lease.job, end.now);
    let mut ids = end.waits_for.clone();
    if !end.children.is_empty() {
        let root = whole(tx.db, parent)?.1.root;
        let above = Ancestors { parent, root: root.unwrap_or(parent) };
        ids.extend(enqueue(tx, &end.children, Some(above))?.into_iter().map(|made| made.id));
    }
    // Two with one unique key are one.
    ids.sort();
    ids.dedup();
    if let Some(child) = waits::depends_on(tx.db, &ids, parent)? {
        cancel::cancel_within(tx, parent, Reach::Beneath, &would_wait_for_itself(child, parent), now)?;
        return Ok(JobState::Cancelled);
    }
    let rows = ids.into_iter().map(|id| tx.db.job(id)).collect::<Done<Vec<_>>>()?;
    let states: Vec<_> = rows.into_iter().flatten().map(|row| (row.id, row.standing.state)).collect();
    // However they end, the parent wants to know.
    waits::wait_for(tx.db, parent, &states, JobState::Suspended, OnFailed::Run)?;
    let open: Vec<_> = states.iter().filter(|(_, state)| !state.is_final()).map(|(id, _)| *id).collect();
    if open.is_empty() {
        return waits::go_on(tx, parent, now);
    }
    set_reason(tx, parent, &waits_for(&open))?;
    Ok(JobState::Suspended)
}
