//! What the holder of a lease writes: entries while it works, and how its attempt ends.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::lease::Lease;
use posse_core::job::transition::{Event, Standing, transition};
use posse_core::job::{JobId, JobState};
use posse_core::port::{Appended, AttemptEnd, RepositoryError};
use posse_core::store::attempts;

use super::fault::{Fault, Outcome};
use super::jobs::Batch;
use super::journal::{self, Sheet};
use super::literal::{IsRunning, among, update};
use super::rows::{Rows, count, stored};
use super::schema::jobs;
use super::sealed_text::Text;
use super::writer::{Answer, Transaction, Verb};
use super::{deaths, questions, relations, rules};
use posse_core::store::driver::{JobRow, JobRows as _};
use posse_core::store::seal::{Keys, Place, Sealed};

/// The job's row, if the lease still stands.
pub(super) fn guarded(connection: &mut SqliteConnection, lease: Lease) -> Outcome<JobRow> {
    Rows::of(connection)
        .job(lease.job)?
        .filter(|row| row.is_leased_as(lease.token))
        .ok_or(Fault::Refused(RepositoryError::LeaseLost(lease.job)))
}

/// Appends entries from place `seq` on; starts no call for a job that is to be cancelled.
pub(super) fn append(
    tx: &mut Transaction<'_>,
    lease: Lease,
    seq: u64,
    sheets: &[Sheet],
    now: Millis,
) -> Outcome<Appended> {
    let row = guarded(&mut tx.db.0, lease)?;
    let (begun, appended) = match sheets.iter().position(Sheet::starts_call) {
        Some(start) if row.standing.cancel_requested => (&sheets[..start], Appended::UpToCancellation),
        _ => (sheets, Appended::Whole),
    };
    journal::append(tx, lease.job, &row.role, seq, begun, now)?;
    Ok(appended)
}

/// The end of an attempt, with its values written out. Made outside of the transaction.
pub(super) struct End {
    lease: Lease,
    event: Event,
    due_at: Millis,
    reason: Option<String>,
    output: Option<String>,
    sheets: Vec<Sheet>,
    seq: u64,
    /// The jobs for which it then waits.
    children: Batch,
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
            now,
        })
    }

    /// Roughly what it will take.
    pub fn bytes(&self) -> usize {
        let written = self.output.as_ref().map_or(0, String::len) + self.sheets.iter().map(Sheet::bytes).sum::<usize>();
        300 + written + self.children.bytes()
    }
}

/// Ending attempts.
pub(super) enum Finish {}

impl Verb for Finish {
    type Ask = End;
    /// Where the job is then.
    type Answer = JobState;

    fn run(tx: &mut Transaction<'_>, ends: &[&End]) -> Outcome<Vec<Answer<Finish>>> {
        let ids: Vec<_> = ends.iter().map(|end| end.lease.job.0).collect();
        let mut rows: HashMap<i64, Running> = jobs::table
            .filter(IsRunning)
            .filter(among(&ids))
            .select((jobs::id, Running::as_select()))
            .load(&mut tx.db.0)?
            .into_iter()
            .collect();
        // Jobs that come to stand alike are stored by one statement.
        let mut alike: Vec<(Left, Vec<JobId>)> = Vec::new();
        // What others have to do with the ends follows when those are stored.
        let (mut awaited, mut parents, mut asking) = (Vec::new(), Vec::new(), Vec::new());
        let mut answers = Vec::with_capacity(ends.len());
        for end in ends {
            let job = end.lease.job;
            let left = match rows.entry(job.0) {
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
                questions::reopen(&mut tx.db.0, job)?;
                match end.children.is_empty() {
                    true => asking.push((job, end.now)),
                    false => parents.push((answers.len(), end)),
                }
            }
            if !end.sheets.is_empty() {
                journal::append(tx, job, &left.role, end.seq, &end.sheets, end.now)?;
            }
            if end.event == Event::Suspend && left.to.state != JobState::Suspended {
                // Its end was asked for while it was asking.
                questions::close(&mut tx.db.0, job, end.now)?;
            }
            answers.push(Ok(left.to.state));
            match alike.iter_mut().rev().find(|(other, _)| *other == left) {
                Some((_, ids)) => ids.push(job),
                None => alike.push((left, vec![job])),
            }
        }
        if !alike.is_empty() && rules::any_counts_running(&mut tx.db.0)? {
            tx.ring();
        }
        if !alike.is_empty() {
            clear_suspects(tx, &alike)?;
        }
        for (left, ids) in alike {
            left.store(tx, &ids)?;
        }
        for (job, now) in asking {
            questions::tell_again(tx, job, now)?;
        }
        for (job, to, now) in awaited {
            relations::tell(tx, job, to, now)?;
        }
        // Last: a child may be a job that is there already, by its unique key, and that ended just now.
        for (place, end) in parents {
            answers[place] = Ok(relations::wait_for_children(tx, end.lease.job, &end.children, end.now)?);
        }
        Ok(answers)
    }
}

/// Whoever waits for empty hands, or for a suspect to end, is told; and of those that ended with their worker alive
/// nothing is suspected any more.
fn clear_suspects(tx: &mut Transaction<'_>, ended: &[(Left<'_>, Vec<JobId>)]) -> Outcome<()> {
    let suspects = deaths::suspects(&mut tx.db.0)?;
    if suspects.is_empty() {
        return Ok(());
    }
    tx.ring();
    for (left, ids) in ended {
        // These say nothing: the work had perhaps not begun.
        let is_proof = left.to.state.is_final() || !matches!(left.event, Event::Interrupt | Event::Snooze);
        for suspect in suspects.iter().filter(|suspect| is_proof && ids.contains(&suspect.job)) {
            deaths::clear(&mut tx.db.0, suspect.job)?;
        }
    }
    Ok(())
}

/// What an ending needs of a running job's row.
#[derive(Queryable, Selectable)]
#[diesel(table_name = jobs, check_for_backend(diesel::sqlite::Sqlite))]
struct Running {
    role: String,
    run_at: i64,
    attempt: i32,
    max_attempts: i32,
    crashes: i32,
    lease_token: i64,
    cancel_requested: bool,
    awaited: bool,
    output: Option<Sealed>,
    reason: Option<Sealed>,
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
fn change(row: &Running, end: &End) -> Result<Standing, RepositoryError> {
    if !end.children.is_empty() && end.event != Event::Suspend {
        let said = "an ending brings children but does not suspend the job; nothing was saved";
        return Err(RepositoryError::Unusable(said.into()));
    }
    let from = Standing {
        state: JobState::Running,
        attempt: count(row.attempt),
        max_attempts: count(row.max_attempts),
        crashes: count(row.crashes),
        cancel_requested: row.cancel_requested,
        run_at: row.run_at,
    };
    let at = match end.event {
        Event::Fail | Event::Snooze => end.due_at,
        _ => end.now,
    };
    let mut change = transition(from, end.event, at)?;
    if !change.frees_lease {
        // The first cancel of a running job only asks its worker, and here the worker is answering.
        change = transition(change.to, end.event, at)?;
    }
    Ok(change.to)
}

fn left<'a>(keys: &Keys, row: Running, to: Standing, end: &'a End) -> Left<'a> {
    let (why, job) = (end.reason.as_deref(), end.lease.job.0);
    // A job that ends because somebody asked for it keeps what they said as its reason.
    let is_asked_for = to.state == JobState::Cancelled && row.cancel_requested;
    let reason = if is_asked_for { row.reason } else { why.map(|why| keys.seal(Place::reason(job), why)) };
    let output = end.output.as_deref().map(|output| keys.seal(Place::output(job), output)).or(row.output);
    Left { event: end.event, to, why, reason, output, role: row.role, now: end.now }
}

impl Left<'_> {
    /// Stores it for running jobs that all leave it.
    fn store(&self, tx: &mut Transaction<'_>, ids: &[JobId]) -> Outcome<()> {
        let to = &self.to;
        let left = (
            jobs::state.eq(to.state.as_str()),
            jobs::attempt.eq(stored(to.attempt)),
            jobs::crashes.eq(stored(to.crashes)),
            jobs::cancel_requested.eq(to.cancel_requested),
            jobs::run_at.eq(to.run_at),
            jobs::finalized_at.eq(to.state.is_final().then_some(self.now)),
            jobs::lease_until.eq(None::<i64>),
            jobs::output.eq(self.output.as_ref().map(Text)),
            jobs::reason.eq(self.reason.as_ref().map(Text)),
        );
        if to.state == JobState::Completed && self.why.is_none() {
            // The job's row goes on to tell of the attempt.
            update(jobs::table, among(ids), left).execute(&mut tx.db.0)?;
        } else {
            attempts::end(tx, ids, self.event, self.why, self.now)?;
            update(jobs::table, among(ids), (left, jobs::leased_by.eq(None::<String>))).execute(&mut tx.db.0)?;
        }
        if matches!(to.state, JobState::Available | JobState::Retryable | JobState::Scheduled) {
            tx.ring();
        }
        Ok(())
    }
}
