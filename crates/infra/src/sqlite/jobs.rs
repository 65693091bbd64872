//! Job rows: making them, reading them, and storing what a transition makes of one.

use std::borrow::Cow;
use std::str::FromStr;

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::dependency::{Beginning, beginning};
use posse_core::job::retry::RetryPolicy;
use posse_core::job::transition::{Standing, Transition};
use posse_core::job::unique::{Became, first_due};
use posse_core::job::{IfHeld, Job, JobId, JobState, Meta, NewJob, Output, Payload};
use posse_core::port::Enqueued;
use serde::de::DeserializeOwned;

use super::fault::{Fault, Outcome, not_ours, unusable};
use super::literal::update;
use super::repository::MANY_ROWS;
use super::schema::{job_data, job_tags, jobs, sqlite_sequence};
use super::seal::{Keys, Place, Sealed};
use super::writer::{Answer, Transaction, Verb};
use super::{deaths, group_waits, relations, replace, sessions, unique};

/// A row of `jobs`, with what a transition needs of it.
#[derive(Debug, Queryable, Selectable)]
#[diesel(table_name = jobs, check_for_backend(diesel::sqlite::Sqlite))]
pub(super) struct JobRow {
    pub id: i64,
    pub queue: String,
    pub role: String,
    pub state: String,
    pub priority: i32,
    pub run_at: i64,
    pub attempt: i32,
    pub max_attempts: i32,
    pub crashes: i32,
    pub lease_token: i64,
    pub lease_until: Option<i64>,
    pub leased_by: Option<String>,
    pub cancel_requested: bool,
    pub created_at: i64,
    pub finalized_at: Option<i64>,
    pub awaited: bool,
    pub concurrency_key: String,
    pub unique_key: Option<String>,
    pub output: Option<Sealed>,
    pub reason: Option<Sealed>,
}

impl JobRow {
    /// The part that transitions are about.
    pub fn standing(&self) -> Outcome<Standing> {
        Ok(Standing {
            state: state(&self.state)?,
            attempt: count(self.attempt),
            max_attempts: count(self.max_attempts),
            crashes: count(self.crashes),
            cancel_requested: self.cancel_requested,
            run_at: self.run_at,
        })
    }

    /// Whether `token` is the one of the lease that stands.
    pub fn is_leased_as(&self, token: i64) -> bool {
        self.lease_token == token && self.state == JobState::Running.as_str()
    }
}

/// A row of `job_data`.
#[derive(Debug, Queryable, Selectable)]
#[diesel(table_name = job_data, check_for_backend(diesel::sqlite::Sqlite))]
pub(super) struct DataRow {
    pub payload: Sealed,
    pub retry: Option<String>,
    pub parent_id: Option<i64>,
    pub root_id: Option<i64>,
    pub group_name: Option<String>,
    pub tags: Option<String>,
    pub meta: Option<String>,
}

/// Both rows of a job.
pub(super) type StoredJob = (JobRow, DataRow);

/// A stored job as the core sees it.
pub(super) fn to_job(keys: &Keys, (row, data): StoredJob) -> Outcome<Job> {
    let (Content { payload, output, retry, tags, meta }, damage) = readable(keys, row.id, &data, row.output.as_ref());
    let standing = row.standing()?;
    let is_running = standing.state == JobState::Running;
    Ok(Job {
        id: JobId(row.id),
        queue: row.queue,
        role: row.role,
        state: standing.state,
        priority: u8::try_from(row.priority).unwrap_or(u8::MAX),
        run_at: row.run_at,
        attempt: standing.attempt,
        max_attempts: standing.max_attempts,
        crashes: standing.crashes,
        retry,
        unique_key: row.unique_key,
        concurrency_key: Some(row.concurrency_key).filter(|key| !key.is_empty()),
        leased_by: row.leased_by.filter(|_| is_running),
        lease_until: row.lease_until,
        cancel_requested: row.cancel_requested,
        payload,
        output,
        reason: row.reason.map(|reason| keys.show(Place::reason(row.id), &reason)),
        created_at: row.created_at,
        finalized_at: row.finalized_at,
        parent: data.parent_id.map(JobId),
        root: data.root_id.map(JobId),
        group: data.group_name,
        tags,
        meta,
        progress: None,
        damage,
    })
}

/// What of a job is stored as JSON.
pub(super) struct Content {
    pub payload: Payload,
    pub output: Option<Output>,
    pub retry: Option<RetryPolicy>,
    pub tags: Vec<String>,
    pub meta: Meta,
}

/// Reads it; the error is in words.
pub(super) fn content(keys: &Keys, job: i64, data: &DataRow, output: Option<&Sealed>) -> Result<Content, String> {
    fn part<T: DeserializeOwned>(text: &str) -> Result<T, String> {
        serde_json::from_str(text).map_err(|error| not_ours(&error))
    }
    fn opened<T: DeserializeOwned>(keys: &Keys, place: Place<'_>, stored: &Sealed) -> Result<T, String> {
        part(&keys.open(place, stored).map_err(|closed| closed.to_string())?)
    }
    Ok(Content {
        payload: opened(keys, Place::payload(job), &data.payload)?,
        output: output.map(|output| opened(keys, Place::output(job), output)).transpose()?,
        retry: data.retry.as_deref().map(part).transpose()?,
        tags: data.tags.as_deref().map(part).transpose()?.unwrap_or_default(),
        meta: data.meta.as_deref().map(part).transpose()?.unwrap_or_default(),
    })
}

/// Reads what of it can be read, and tells what cannot. One damaged row must not hide the others of a list.
fn readable(keys: &Keys, job: i64, data: &DataRow, output: Option<&Sealed>) -> (Content, Option<String>) {
    fn part<T: Default + DeserializeOwned>(name: &str, text: Option<&str>, damage: &mut Vec<String>) -> T {
        let read = text.map(serde_json::from_str).transpose();
        read.inspect_err(|error| damage.push(format!("its {name} cannot be read: {error}")))
            .ok()
            .flatten()
            .unwrap_or_default()
    }
    let damage = &mut Vec::new();
    let mut opened = |name: &str, place, stored: &'_ Sealed| {
        let text = keys.open(place, stored).map(Cow::into_owned);
        text.inspect_err(|closed| damage.push(format!("its {name} is {closed}")))
    };
    let payload = opened("payload", Place::payload(job), &data.payload);
    let output = output.and_then(|output| opened("output", Place::output(job), output).ok());
    let payload = match &payload {
        Ok(text) => part("payload", Some(text), damage),
        Err(closed) => Payload { goal: format!("({closed})"), ..Payload::default() },
    };
    let content = Content {
        payload,
        output: part("output", output.as_deref(), damage),
        retry: part("retry policy", data.retry.as_deref(), damage),
        tags: part("tags", data.tags.as_deref(), damage),
        meta: part("metadata", data.meta.as_deref(), damage),
    };
    (content, (!damage.is_empty()).then(|| damage.join("; ")))
}

/// A state's name as stored.
pub(super) fn state(name: &str) -> Outcome<JobState> {
    JobState::from_str(name).map_err(|error| unusable(error.to_string()))
}

/// A count as stored; the table keeps them from being negative.
pub(super) fn count(stored: i32) -> u32 {
    u32::try_from(stored).unwrap_or(0)
}

/// A count as it is to be stored; the table refuses what comes of one that is too large.
pub(super) fn stored(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(-1)
}

/// The job's row, if there is such a job.
pub(super) fn find(connection: &mut SqliteConnection, job: JobId) -> Outcome<Option<JobRow>> {
    Ok(jobs::table.find(job.0).select(JobRow::as_select()).first(connection).optional()?)
}

/// Stores what a transition made of a job, and when it became final, if it is. A lease that ends
/// is taken off; a new one is a claim's business.
pub(super) fn store(
    connection: &mut SqliteConnection,
    job: JobId,
    transition: &Transition,
    now: Millis,
) -> QueryResult<()> {
    let to = &transition.to;
    let standing = (
        jobs::state.eq(to.state.as_str()),
        jobs::attempt.eq(stored(to.attempt)),
        jobs::crashes.eq(stored(to.crashes)),
        jobs::cancel_requested.eq(to.cancel_requested),
        jobs::run_at.eq(to.run_at),
        jobs::finalized_at.eq(to.state.is_final().then_some(now)),
    );
    let row = jobs::id.eq(job.0);
    if transition.frees_lease {
        let no_lease = (jobs::lease_until.eq(None::<i64>), jobs::leased_by.eq(None::<String>));
        update(jobs::table, row, (standing, no_lease)).execute(connection)?;
    } else {
        update(jobs::table, row, standing).execute(connection)?;
    }
    Ok(())
}

/// Says why a job is where it is; nothing clears what was said before.
pub(super) fn set_reason(tx: &mut Transaction<'_>, job: JobId, reason: Option<&str>) -> QueryResult<()> {
    let reason = reason.map(|reason| tx.keys.seal(Place::reason(job.0), reason));
    update(jobs::table, jobs::id.eq(job.0), jobs::reason.eq(reason)).execute(tx.connection).map(drop)
}

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
        .first(tx.connection)
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
            if let Some((holder, meeting)) = taken.take(tx.connection, job, id, now)? {
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
            let others = relations::others(tx.connection, job, &enqueued)?;
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
        relations::wait_for(tx.connection, JobId(*id), others, begins.state, job.on_failed)?;
        group_waits::wait_for(tx.connection, JobId(*id), job, begins.state)?;
        if let Some(group) = &job.group {
            group_waits::join(tx, group, JobId(*id), begins.state, *now)?;
        }
        insert_tags(tx.connection, *id, &job.tags)?;
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
            jobs::reason.eq(begins.reason.clone().map(|reason| keys.seal(Place::reason(*id), reason))),
            jobs::priority_step_ms.eq(job.priority_step_ms),
            jobs::concurrency_key.eq(job.concurrency_key.clone().unwrap_or_default()),
            jobs::unique_key.eq(job.unique.as_ref().map(|unique| unique.key.clone())),
            jobs::unique_ms.eq(job.unique.as_ref().and_then(|unique| unique.for_ms)),
        )
    });
    diesel::insert_into(jobs::table).values(new).execute(tx.connection)?;
    let data = rows.each_ref().map(|NewRow { id, sheet, above, .. }| {
        (
            job_data::job_id.eq(*id),
            job_data::payload.eq(keys.seal(Place::payload(*id), sheet.payload.clone())),
            job_data::retry.eq(sheet.retry.clone()),
            job_data::parent_id.eq(above.map(|above| above.parent)),
            job_data::root_id.eq(above.map(|above| above.root)),
            job_data::group_name.eq(sheet.job.group.clone()),
            job_data::tags.eq(sheet.tags.clone()),
            job_data::meta.eq(sheet.meta.clone()),
            job_data::max_crashes.eq(deaths::limit_stored(sheet.job.max_crashes)),
        )
    });
    diesel::insert_into(job_data::table).values(data).execute(tx.connection)?;
    Ok(())
}

/// The error for a job that is not there.
pub(super) fn no_such(job: JobId) -> Fault {
    Fault::Refused(posse_core::port::RepositoryError::NoSuchJob(job))
}
