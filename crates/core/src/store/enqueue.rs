//! Enqueueing: jobs are made, or found by their unique keys.

use super::driver::{BatchName, BatchRow, DataRow, Driver, JobInsert};
use super::fault::refused;
use super::seal::Place;
use super::{Answer, MANY_ROWS, Outcome, Tx, Verb, groups, sessions, unique, waits};
use crate::clock::Millis;
use crate::job::deaths::DEFAULT_MAX_CRASHES;
use crate::job::dependency::{beginning, would_wait};
use crate::job::unique::{Became, first_due};
use crate::job::{IfHeld, JobId, JobState, NewJob};
use crate::port::{BatchMark, BatchStanding, Chunk, Enqueued};
use crate::store::seal::Keys;

/// Jobs about to be stored, with what is JSON of them already written out.
#[derive(Debug)]
pub struct Batch {
    jobs: Vec<Sheet>,
    now: Millis,
}

/// A job about to be stored.
#[derive(Debug)]
struct Sheet {
    job: NewJob,
    payload: String,
    retry: Option<String>,
    tags: Option<String>,
    meta: Option<String>,
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

impl Sheet {
    /// The row of the job that is due from `run_at` on and waits for `others`.
    fn row(
        &self,
        (keys, id, above): (&Keys, JobId, Option<Ancestors>),
        run_at: Millis,
        others: &[(JobId, JobState)],
        now: Millis,
    ) -> JobInsert<'_> {
        let job = &self.job;
        let begins = beginning(run_at, now, others, job.on_failed);
        JobInsert {
            id,
            new: job,
            state: begins.state,
            run_at,
            created_at: now,
            finalized_at: begins.state.is_final().then_some(now),
            reason: begins.reason.map(|reason| keys.seal(Place::reason(id.0), reason)),
            data: DataRow {
                payload: keys.seal(Place::payload(id.0), self.payload.as_str()),
                retry: self.retry.clone(),
                parent: above.map(|above| above.parent),
                root: above.map(|above| above.root),
                group: job.group.clone(),
                tags: self.tags.clone(),
                meta: self.meta.clone(),
            },
            max_crashes: (job.max_crashes != DEFAULT_MAX_CRASHES).then_some(job.max_crashes),
        }
    }
}

/// Above the jobs of a batch.
#[derive(Debug, Clone, Copy)]
pub struct Ancestors {
    /// Their parent.
    pub parent: JobId,
    /// The topmost job above that, or itself.
    pub root: JobId,
}

/// Storing jobs.
pub enum Enqueue {}

impl Verb for Enqueue {
    type Ask = Batch;
    /// What became of each job, in their order.
    type Answer = Vec<Enqueued>;

    fn run<D: Driver>(tx: &mut Tx<'_, D>, batches: &[&Batch]) -> Outcome<Vec<Answer<Enqueue>>> {
        Ok(enqueue_all(tx, batches, None)?.into_iter().map(Ok).collect())
    }
}

/// Stores the jobs whose unique keys are free as part of another command, and says what became of each in
/// the same order.
pub fn enqueue<D: Driver>(tx: &mut Tx<'_, D>, batch: &Batch, above: Option<Ancestors>) -> Outcome<Vec<Enqueued>> {
    Ok(enqueue_all(tx, &[batch], above)?.pop().unwrap_or_default())
}

fn enqueue_all<D: Driver>(
    tx: &mut Tx<'_, D>,
    batches: &[&Batch],
    above: Option<Ancestors>,
) -> Outcome<Vec<Vec<Enqueued>>> {
    // Given out here rather than read back row by row: nobody else's job gets one meanwhile.
    let JobId(mut next) = tx.db.next_id()?;
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
                insert_all(tx, &mut rows)?;
            }
            if let Some((holder, meeting)) = taken.take(tx.db, job, id, now)? {
                if let Some(due_at) = meeting.due_at {
                    let begins = replace(tx, holder, sheet, due_at, &enqueued, now)?;
                    if begins.is_final() {
                        taken.look_again();
                    }
                }
                enqueued.push(Enqueued { id: holder, became: meeting.became });
                continue;
            }
            let others = groups::awaited_by(tx.db, job, None, &enqueued)?;
            let row = sheet.row((tx.keys, id, above), first_due(job, now, now), &others, now);
            let ends = row.state.is_final();
            if ends {
                taken.give_back(job);
            }
            rows.push(New { row, others });
            enqueued.push(Enqueued { id, became: Became::Stored });
            next += 1;
            if ends && job.group.is_some() {
                // Its end may be that of those who wait for its group.
                insert_all(tx, &mut rows)?;
                taken.look_again();
            }
        }
        answers.push(enqueued);
    }
    insert_all(tx, &mut rows)?;
    tx.notify();
    Ok(answers)
}

/// A job to be stored.
struct New<'a> {
    row: JobInsert<'a>,
    /// The jobs it names to wait for, and where they are.
    others: Vec<(JobId, JobState)>,
}

impl<'a> AsMut<JobInsert<'a>> for New<'a> {
    fn as_mut(&mut self) -> &mut JobInsert<'a> {
        &mut self.row
    }
}

/// Stores rows and what belongs to them; then there are none left.
fn insert_all<D: Driver>(tx: &mut Tx<'_, D>, rows: &mut Vec<New<'_>>) -> Outcome<()> {
    tx.db.insert_jobs(rows)?;
    for New { row, others } in rows.drain(..) {
        belong(tx, (row.id, row.state), row.new, &others, row.created_at)?;
    }
    Ok(())
}

/// Has a job that was just stored belong to whom it says, and wait for whom it says.
fn belong<D: Driver>(
    tx: &mut Tx<'_, D>,
    (id, began): (JobId, JobState),
    job: &NewJob,
    others: &[(JobId, JobState)],
    now: Millis,
) -> Outcome<()> {
    if let Some(session) = job.payload.session {
        sessions::join(tx, session, (id, began), &job.role, now)?;
    }
    waits::wait_for(tx.db, id, others, began, job.on_failed)?;
    groups::wait_for(tx.db, id, job, began)?;
    if let Some(group) = &job.group {
        groups::join(tx, group, id, began, now)?;
    }
    Ok(())
}

/// Makes `job`, which no worker ever claimed, what the job of `sheet` would have been, due from `due_at` on.
/// `earlier` are those before that one in its batch. Tells where it begins anew; refused if it would wait
/// for itself.
///
/// What it keeps is what others know it by: its number, its place below its parent, who waits for it.
fn replace<D: Driver>(
    tx: &mut Tx<'_, D>,
    job: JobId,
    sheet: &Sheet,
    due_at: Millis,
    earlier: &[Enqueued],
    now: Millis,
) -> Outcome<JobState> {
    waits::forget(tx.db, job)?;
    // It leaves its group too, and may come to wait for it.
    let others = groups::awaited_by(tx.db, &sheet.job, Some(job), earlier)?;
    let ids: Vec<_> = others.iter().map(|(on, _)| *on).collect();
    if let Some(on) = waits::depends_on(tx.db, &ids, job)? {
        return Err(refused(would_wait(job, on)));
    }
    let row = sheet.row((tx.keys, job, None), due_at, &others, now);
    let begins = row.state;
    tx.db.replace_job(row)?;
    belong(tx, (job, begins), &sheet.job, &others, now)?;
    if begins.is_final() {
        // It ends as it begins, and others may have waited for it.
        waits::tell(tx, job, begins, now)?;
    }
    Ok(begins)
}

/// Stores a chunk whose jobs are in `jobs`, and how far its batch is then.
pub fn enqueue_chunk<D: Driver>(
    tx: &mut Tx<'_, D>,
    chunk: &Chunk,
    jobs: &Batch,
    now: Millis,
) -> Outcome<Vec<Enqueued>> {
    let Some(name) = &chunk.batch else { return enqueue(tx, jobs, None) };
    let known: Option<BatchRow> = tx.db.kept(name.as_str())?.pop();
    let new = || BatchRow { name: name.clone(), mark: BatchMark::default(), jobs: 0, created_at: now, changed_at: now };
    let mut batch = known.unwrap_or_else(new);
    if batch.mark != chunk.from {
        return Err(refused(format!(
            "batch '{name}' is at line {} and not at line {}: another process is enqueueing it; nothing was done \
             twice, wait for that one or run this again",
            batch.mark.lines, chunk.from.lines
        )));
    }
    let enqueued = enqueue(tx, jobs, None)?;
    (batch.mark, batch.changed_at) = (chunk.to.clone(), now);
    batch.jobs += enqueued.iter().filter(|enqueued| !enqueued.existed()).count() as u64;
    tx.db.keep(&batch)?;
    for (word, place) in &chunk.names {
        let job = enqueued.get(*place).map_or(JobId(0), |enqueued| enqueued.id);
        tx.db.keep(&BatchName { batch: name.clone(), name: word.clone(), job })?;
    }
    Ok(enqueued)
}

/// How far a batch is. To be asked in one look, so that all of it is of one moment.
pub fn batch_standing<D: Driver>(db: &mut D, name: &str) -> Outcome<BatchStanding> {
    let known: Option<BatchRow> = db.kept(name)?.pop();
    let (mark, jobs) = known.map(|batch| (batch.mark, batch.jobs)).unwrap_or_default();
    let names: Vec<BatchName> = db.kept(name)?;
    Ok(BatchStanding { mark, jobs, names: names.into_iter().map(|named| (named.name, named.job)).collect() })
}
