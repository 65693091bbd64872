//! Enqueueing: job rows are made.

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::dependency::{Beginning, beginning};
use posse_core::job::unique::{Became, first_due};
use posse_core::job::{IfHeld, JobId, JobState, NewJob};
use posse_core::port::Enqueued;

use super::fault::Outcome;
use super::repository::MANY_ROWS;
use super::rows::stored;
use super::schema::{job_data, job_tags, jobs, sqlite_sequence};
use super::sealed_text::Text;
use super::writer::{Answer, Transaction, Verb};
use super::{deaths, group_waits, relations, replace, sessions, unique};
use posse_core::store::seal::Place;

/// Jobs about to be stored, with what is JSON of them already written out.
#[derive(Debug)]
pub(super) struct Batch {
    jobs: Vec<Sheet>,
    now: Millis,
}

/// A job about to be stored.
#[derive(Debug)]
pub(super) struct Sheet {
    pub job: NewJob,
    pub payload: String,
    pub retry: Option<String>,
    pub tags: Option<String>,
    pub meta: Option<String>,
}

impl Batch {
    /// Prepares jobs, outside of the transaction.
    pub fn new(jobs: Vec<NewJob>, now: Millis) -> Result<Batch, serde_json::Error> {
        let sheet = |job: NewJob| {
            let payload = serde_json::to_string(&job.payload)?;
            let retry = job.retry.as_ref().map(serde_json::to_string).transpose()?;
            let tags = (!job.tags.is_empty()).then(|| serde_json::to_string(&job.tags)).transpose()?;
            let meta = (!job.meta.is_empty()).then(|| serde_json::to_string(&job.meta)).transpose()?;
            Ok(Sheet { job, payload, retry, tags, meta })
        };
        Ok(Batch { jobs: jobs.into_iter().map(sheet).collect::<Result<_, _>>()?, now })
    }

    /// Roughly what it will take.
    pub fn bytes(&self) -> usize {
        let of = |sheet: &Sheet| {
            // Each job of a group that is waited for is a row.
            let groups = sheet.job.after_groups.len() * MANY_ROWS;
            groups + sheet.payload.len() + sheet.meta.as_ref().map_or(0, String::len) + 200
        };
        self.jobs.iter().map(of).sum()
    }

    /// Whether there is nothing to store.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }
}

/// Above the jobs of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ancestors {
    /// Their parent.
    pub parent: i64,
    /// The topmost job above that, or itself.
    pub root: i64,
}

/// Storing jobs.
pub(super) enum Enqueue {}

impl Verb for Enqueue {
    type Ask = Batch;
    /// What became of each job, in their order.
    type Answer = Vec<Enqueued>;

    fn run(tx: &mut Transaction<'_>, batches: &[&Batch]) -> Outcome<Vec<Answer<Enqueue>>> {
        Ok(enqueue_all(tx, batches, None)?.into_iter().map(Ok).collect())
    }
}

/// Stores the jobs whose unique keys are free as part of another command, and says what became of each in
/// the same order.
pub(super) fn enqueue(tx: &mut Transaction<'_>, batch: &Batch, above: Option<Ancestors>) -> Outcome<Vec<Enqueued>> {
    Ok(enqueue_all(tx, &[batch], above)?.pop().unwrap_or_default())
}

fn enqueue_all(tx: &mut Transaction<'_>, batches: &[&Batch], above: Option<Ancestors>) -> Outcome<Vec<Vec<Enqueued>>> {
    // Given out here rather than read back row by row: the write lock is ours.
    let last: Option<i64> = sqlite_sequence::table
        .filter(sqlite_sequence::name.eq("jobs"))
        .select(sqlite_sequence::seq)
        .first(&mut tx.db.0)
        .optional()?;
    let mut next = last.unwrap_or(0) + 1;
    let mut taken = unique::Taken::default();
    let mut rows = Vec::new();
    let mut answers = Vec::with_capacity(batches.len());
    for batch in batches {
        let mut enqueued = Vec::with_capacity(batch.jobs.len());
        for sheet in &batch.jobs {
            let (job, id, now) = (&sheet.job, JobId(next), batch.now);
            let changes = job.unique.as_ref().is_some_and(|unique| unique.if_held != IfHeld::Keep);
            if changes || !job.after.is_empty() || !job.after_groups.is_empty() {
                // It may change one of those before it, or wait for it, so they have to be there.
                insert_all(tx, &rows)?;
                rows.clear();
            }
            if let Some((holder, meeting)) = taken.take(&mut tx.db.0, job, id, now)? {
                if let Some(due_at) = meeting.due_at {
                    let begins = replace::replace(tx, holder, sheet, due_at, &enqueued, now)?;
                    if begins.is_final() {
                        taken.look_again();
                    }
                }
                enqueued.push(Enqueued { id: holder, became: meeting.became });
                continue;
            }
            let run_at = first_due(job, now, now);
            let others = relations::others(&mut tx.db.0, job, &enqueued)?;
            let begins = beginning(run_at, now, &others, job.on_failed);
            if begins.state.is_final() {
                taken.give_back(job);
            }
            rows.push(NewRow { id: next, sheet, above, now, run_at, begins, others });
            enqueued.push(Enqueued { id, became: Became::Stored });
            next += 1;
            if rows.last().is_some_and(|row| row.begins.state.is_final() && job.group.is_some()) {
                // Its end may be that of those who wait for its group.
                insert_all(tx, &rows)?;
                rows.clear();
                taken.look_again();
            }
        }
        answers.push(enqueued);
    }
    insert_all(tx, &rows)?;
    tx.ring();
    Ok(answers)
}

/// A job to be stored.
struct NewRow<'a> {
    id: i64,
    sheet: &'a Sheet,
    above: Option<Ancestors>,
    now: Millis,
    run_at: Millis,
    begins: Beginning,
    /// The jobs it names to wait for, and where they are.
    others: Vec<(JobId, JobState)>,
}

/// Stores rows and what belongs to them.
fn insert_all(tx: &mut Transaction<'_>, rows: &[NewRow<'_>]) -> Outcome<()> {
    // In blocks, because a statement costs as much as several rows. Each size is a statement.
    let (blocks, rest) = rows.as_chunks::<32>();
    blocks.iter().try_for_each(|block| insert(tx, block))?;
    let (blocks, rest) = rest.as_chunks::<4>();
    blocks.iter().try_for_each(|block| insert(tx, block))?;
    rest.iter().try_for_each(|row| insert(tx, std::array::from_ref(row)))?;
    for NewRow { id, sheet: Sheet { job, .. }, now, begins, others, .. } in rows {
        if let Some(session) = job.payload.session {
            sessions::join(tx, session, *id, &job.role, *now)?;
        }
        relations::wait_for(&mut tx.db.0, JobId(*id), others, begins.state, job.on_failed)?;
        group_waits::wait_for(&mut tx.db.0, JobId(*id), job, begins.state)?;
        if let Some(group) = &job.group {
            group_waits::join(tx, group, JobId(*id), begins.state, *now)?;
        }
        insert_tags(&mut tx.db.0, *id, &job.tags)?;
    }
    Ok(())
}

/// Has a job be found by `tags` too.
pub(super) fn insert_tags(connection: &mut SqliteConnection, job: i64, tags: &[String]) -> QueryResult<()> {
    for tag in tags {
        diesel::insert_into(job_tags::table)
            .values((job_tags::tag.eq(tag), job_tags::job_id.eq(job)))
            .execute(connection)?;
    }
    Ok(())
}

/// Stores rows by one statement per table, which diesel keeps prepared only if its values are owned.
fn insert<const N: usize>(tx: &mut Transaction<'_>, rows: &[NewRow<'_>; N]) -> QueryResult<()> {
    let keys = tx.keys;
    let new = rows.each_ref().map(|NewRow { id, sheet: Sheet { job, .. }, now, run_at, begins, .. }| {
        (
            jobs::id.eq(*id),
            jobs::queue.eq(job.queue.clone()),
            jobs::role.eq(job.role.clone()),
            jobs::state.eq(begins.state.as_str()),
            jobs::priority.eq(i32::from(job.priority)),
            jobs::run_at.eq(*run_at),
            jobs::attempt.eq(0),
            jobs::max_attempts.eq(stored(job.max_attempts)),
            jobs::crashes.eq(0),
            jobs::lease_token.eq(0),
            jobs::cancel_requested.eq(false),
            jobs::created_at.eq(*now),
            jobs::finalized_at.eq(begins.state.is_final().then_some(*now)),
            jobs::reason.eq(begins.reason.clone().map(|reason| Text(keys.seal(Place::reason(*id), reason)))),
            jobs::priority_step_ms.eq(job.priority_step_ms),
            jobs::concurrency_key.eq(job.concurrency_key.clone().unwrap_or_default()),
            jobs::unique_key.eq(job.unique.as_ref().map(|unique| unique.key.clone())),
            jobs::unique_ms.eq(job.unique.as_ref().and_then(|unique| unique.for_ms)),
        )
    });
    diesel::insert_into(jobs::table).values(new).execute(&mut tx.db.0)?;
    let data = rows.each_ref().map(|NewRow { id, sheet, above, .. }| {
        (
            job_data::job_id.eq(*id),
            job_data::payload.eq(Text(keys.seal(Place::payload(*id), sheet.payload.clone()))),
            job_data::retry.eq(sheet.retry.clone()),
            job_data::parent_id.eq(above.map(|above| above.parent)),
            job_data::root_id.eq(above.map(|above| above.root)),
            job_data::group_name.eq(sheet.job.group.clone()),
            job_data::tags.eq(sheet.tags.clone()),
            job_data::meta.eq(sheet.meta.clone()),
            job_data::max_crashes.eq(deaths::limit_stored(sheet.job.max_crashes)),
        )
    });
    diesel::insert_into(job_data::table).values(data).execute(&mut tx.db.0)?;
    Ok(())
}
