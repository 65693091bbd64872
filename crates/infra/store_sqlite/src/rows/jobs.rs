//! Rows of `jobs` and `attempts`.

use std::str::FromStr;

use diesel::dsl::exists;
use diesel::prelude::*;
use diesel::query_builder::{QueryFragment, QueryId};
use diesel::sql_types::{self, BigInt, Nullable};
use diesel::sqlite::Sqlite;
use posse_core::clock::Millis;
use posse_core::job::transition::Standing;
use posse_core::job::{JobId, JobState};
use posse_core::store::driver::{
    AttemptRow, DataRow, Edited, JobChange, JobInsert, JobRow, JobRows, JobsOf, Keeps, LeaseAfter, Moved, Number,
    ProgressRow, StoredJob, Taken, ViewRows as _, WorkedRow,
};
use posse_core::store::seal::Sealed;
use posse_core::store::{Done, Unreadable};

use super::Rows;
use crate::literal::{IsRunning, MayHoldKey, among, update};
use crate::schema::{attempts, blobs, job_data, job_tags, jobs, progress, session_jobs, steps};
use crate::sealed_text::{SealedText, Text};

#[derive(Queryable, Selectable)]
#[diesel(table_name = jobs, check_for_backend(diesel::sqlite::Sqlite))]
pub(crate) struct WorkedColumns {
    id: i64,
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

impl WorkedColumns {
    /// The row of a job in a state.
    pub fn read(self, state: JobState) -> WorkedRow {
        WorkedRow {
            id: JobId(self.id),
            role: self.role,
            standing: Standing {
                state,
                attempt: count(self.attempt),
                max_attempts: count(self.max_attempts),
                crashes: count(self.crashes),
                cancel_requested: self.cancel_requested,
                run_at: self.run_at,
            },
            lease_token: self.lease_token,
            awaited: self.awaited,
            output: self.output,
            reason: self.reason,
        }
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = jobs, check_for_backend(diesel::sqlite::Sqlite))]
struct JobColumns {
    #[diesel(embed)]
    worked: WorkedColumns,
    state: String,
    queue: String,
    priority: i32,
    lease_until: Option<i64>,
    leased_by: Option<String>,
    claimed_at: Option<i64>,
    created_at: i64,
    finalized_at: Option<i64>,
    concurrency_key: String,
    unique_key: Option<String>,
    unique_ms: Option<i64>,
}

impl JobColumns {
    fn read(self) -> Done<JobRow> {
        let worked = self.worked.read(state(&self.state)?);
        let WorkedRow { id, role, standing, lease_token, awaited, output, reason } = worked;
        Ok(JobRow {
            id,
            queue: self.queue,
            role,
            standing,
            priority: u8::try_from(self.priority).unwrap_or(u8::MAX),
            lease_token,
            lease_until: self.lease_until,
            leased_by: self.leased_by,
            claimed_at: self.claimed_at,
            created_at: self.created_at,
            finalized_at: self.finalized_at,
            awaited,
            concurrency_key: self.concurrency_key,
            unique_key: self.unique_key,
            unique_ms: self.unique_ms,
            output,
            reason,
        })
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = job_data, check_for_backend(diesel::sqlite::Sqlite))]
pub(crate) struct DataColumns {
    pub payload: Sealed,
    retry: Option<String>,
    parent_id: Option<i64>,
    root_id: Option<i64>,
    group_name: Option<String>,
    tags: Option<String>,
    meta: Option<String>,
}

impl From<DataColumns> for DataRow {
    fn from(row: DataColumns) -> DataRow {
        let DataColumns { payload, retry, parent_id, root_id, group_name, tags, meta } = row;
        let (parent, root) = (parent_id.map(JobId), root_id.map(JobId));
        DataRow { payload, retry, parent, root, group: group_name, tags, meta }
    }
}

pub(crate) fn state(name: &str) -> Done<JobState> {
    JobState::from_str(name).map_err(|unknown| Unreadable(unknown.to_string()).into())
}

/// A count as stored; the table keeps them from being negative.
pub(crate) fn count(stored: i32) -> u32 {
    u32::try_from(stored).unwrap_or(0)
}

/// A count as it is to be stored; the table refuses what comes of one that is too large.
pub(crate) fn stored(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(-1)
}

/// The first and the last of these jobs, if they stand in order with no other between them, as jobs mostly do that are
/// claimed and ended together. An UPDATE of a range needs no list of its rows.
fn range(ids: &[JobId]) -> Option<(i64, i64)> {
    let [first, .., last] = ids else { return None };
    ids.is_sorted_by(|one, next| one.0 + 1 == next.0).then_some((first.0, last.0))
}

impl Rows {
    /// Stores the same in the rows of these jobs.
    fn store<S>(&mut self, ids: &[JobId], set: S) -> Done<()>
    where
        S: AsChangeset<Target = jobs::table> + QueryId,
        S::Changeset: QueryFragment<Sqlite>,
    {
        match (ids, range(ids)) {
            ([], _) => Ok(()),
            ([id], _) => self.run(update(jobs::table, jobs::id.eq(id.0), set)),
            (_, Some((first, last))) => self.run(update(jobs::table, jobs::id.between(first, last), set)),
            (ids, None) => self.run(update(jobs::table, among(ids), set)),
        }
    }
}

impl JobRows for Rows {
    fn jobs(&mut self, of: JobsOf<'_>) -> Done<Vec<JobRow>> {
        let jobs = jobs::table.select(JobColumns::as_select());
        let rows: Vec<JobColumns> = match of {
            JobsOf::Ids([id]) => jobs.find(id.0).load(&mut self.0)?,
            JobsOf::Ids(ids) => jobs.filter(among(ids)).load(&mut self.0)?,
            JobsOf::Running => jobs.filter(IsRunning).load(&mut self.0)?,
            JobsOf::HeldBy(worker) => {
                // By the index of leases, whatever they say.
                let held = jobs.filter(IsRunning).filter(jobs::lease_until.gt(Millis::MIN));
                held.filter(jobs::leased_by.eq(worker)).load(&mut self.0)?
            }
            JobsOf::Overdue(now) => jobs.filter(IsRunning).filter(jobs::lease_until.le(now)).load(&mut self.0)?,
            JobsOf::MayHoldKey(key) => jobs.filter(jobs::unique_key.eq(key)).filter(MayHoldKey).load(&mut self.0)?,
            JobsOf::KeyHolders(before, most) => jobs
                .filter(jobs::unique_key.is_not_null())
                .filter(MayHoldKey)
                .filter(jobs::finalized_at.is_null())
                .filter(jobs::state.ne(JobState::Running.as_str()))
                .filter(jobs::created_at.lt(before))
                // In the order of an expression: in its own, SQLite would walk all jobs.
                .order(jobs::id + 0)
                .limit(i64::from(most))
                .load(&mut self.0)?,
            JobsOf::BusyExchanges(session) => session_jobs::table
                .inner_join(jobs::table)
                .filter(session_jobs::session_id.eq(session.0))
                .filter(jobs::finalized_at.is_null().or(jobs::awaited.eq(true)))
                .select(JobColumns::as_select())
                .load(&mut self.0)?,
        };
        let mut rows = rows.into_iter().map(JobColumns::read).collect::<Done<Vec<_>>>()?;
        rows.sort_unstable_by_key(|row| row.id);
        Ok(rows)
    }

    fn running(&mut self, ids: &[JobId]) -> Done<Vec<WorkedRow>> {
        let running = jobs::table.filter(IsRunning).order(jobs::id).select(WorkedColumns::as_select());
        let read = |row: WorkedColumns| row.read(JobState::Running);
        match (ids, range(ids)) {
            ([id], _) => self.load(running.filter(jobs::id.eq(id.0)), read),
            (_, Some((first, last))) => self.load(running.filter(jobs::id.between(first, last)), read),
            (ids, None) => self.load(running.filter(among(ids)), read),
        }
    }

    fn whole_jobs(&mut self, ids: &[JobId]) -> Done<Vec<StoredJob>> {
        jobs::table
            .inner_join(job_data::table)
            .filter(among(ids))
            .order(jobs::id)
            .select((JobColumns::as_select(), DataColumns::as_select()))
            .load_iter(&mut self.0)?
            .map(|row: QueryResult<(JobColumns, DataColumns)>| {
                let (row, data) = row?;
                Ok((row.read()?, data.into()))
            })
            .collect()
    }

    fn death_limit(&mut self, id: JobId) -> Done<Option<u32>> {
        let limit: Option<Option<i32>> =
            job_data::table.find(id.0).select(job_data::max_crashes).first(&mut self.0).optional()?;
        Ok(limit.flatten().map(count))
    }

    fn next_id(&mut self) -> Done<JobId> {
        Ok(JobId(self.number(Number::Enqueued)?.unwrap_or(0) + 1))
    }

    fn insert_jobs<'r, R: AsMut<JobInsert<'r>>>(&mut self, rows: &mut [R]) -> Done<()> {
        // In blocks, because a statement costs as much as several rows. Each size is a statement.
        let (blocks, rest) = rows.as_chunks_mut::<32>();
        blocks.iter_mut().try_for_each(|block| insert(&mut self.0, block))?;
        let (blocks, rest) = rest.as_chunks_mut::<4>();
        blocks.iter_mut().try_for_each(|block| insert(&mut self.0, block))?;
        rest.iter_mut().try_for_each(|row| insert(&mut self.0, std::array::from_mut(row)))?;
        for row in rows {
            let row = row.as_mut();
            insert_tags(&mut self.0, row.id, &row.new.tags)?;
        }
        Ok(())
    }

    fn replace_job(&mut self, row: JobInsert<'_>) -> Done<()> {
        let JobInsert { id, new, data, .. } = row;
        let standing = (
            jobs::queue.eq(&new.queue),
            jobs::role.eq(&new.role),
            jobs::state.eq(row.state.as_str()),
            jobs::priority.eq(i32::from(new.priority)),
            jobs::run_at.eq(row.run_at),
            jobs::max_attempts.eq(stored(new.max_attempts)),
            jobs::finalized_at.eq(row.finalized_at),
            jobs::reason.eq(row.reason.map(Text)),
            jobs::priority_step_ms.eq(new.priority_step_ms),
            jobs::concurrency_key.eq(new.concurrency_key.as_deref().unwrap_or_default()),
            jobs::unique_ms.eq(new.unique.as_ref().and_then(|unique| unique.for_ms)),
        );
        self.store(&[id], standing)?;
        let data = (
            job_data::payload.eq(Text(data.payload)),
            job_data::retry.eq(data.retry),
            job_data::group_name.eq(data.group),
            job_data::tags.eq(data.tags),
            job_data::meta.eq(data.meta),
            job_data::max_crashes.eq(row.max_crashes.map(stored)),
        );
        self.run(update(job_data::table, job_data::job_id.eq(id.0), data))?;
        self.run(diesel::delete(job_tags::table.filter(job_tags::job_id.eq(id.0))))?;
        insert_tags(&mut self.0, id, &new.tags)?;
        self.run(diesel::delete(session_jobs::table.filter(session_jobs::job_id.eq(id.0))))
    }

    fn change_jobs(&mut self, ids: &[JobId], to: JobChange<'_>) -> Done<()> {
        let no_lease = jobs::lease_until.eq(None::<i64>);
        match to {
            JobChange::State(state) => self.store(ids, jobs::state.eq(state.as_str())),
            JobChange::Awaited(awaited) => self.store(ids, jobs::awaited.eq(awaited)),
            JobChange::Reason(reason) => self.store(ids, jobs::reason.eq(Text(reason))),
            JobChange::LeaseUntil(until) => self.store(ids, jobs::lease_until.eq(until)),
            JobChange::KeyFreed => self.store(ids, jobs::unique_ms.eq(None::<i64>)),
            JobChange::Taken(Taken { state, attempt, worker, at, until }) => {
                let taken = (
                    jobs::state.eq(state.as_str()),
                    jobs::attempt.eq(stored(attempt)),
                    jobs::lease_token.eq(jobs::lease_token + 1),
                    jobs::lease_until.eq(until),
                    jobs::leased_by.eq(worker),
                    jobs::claimed_at.eq(at),
                );
                self.store(ids, taken)
            }
            JobChange::Moved(Moved { to, finalized_at, output, reason, lease }) => {
                let moved = (
                    jobs::state.eq(to.state.as_str()),
                    jobs::attempt.eq(stored(to.attempt)),
                    jobs::crashes.eq(stored(to.crashes)),
                    jobs::cancel_requested.eq(to.cancel_requested),
                    jobs::run_at.eq(to.run_at),
                    jobs::finalized_at.eq(finalized_at),
                    jobs::output.eq(output.map(Text)),
                    jobs::reason.eq(reason.map(Text)),
                );
                match lease {
                    LeaseAfter::Stands => self.store(ids, moved),
                    LeaseAfter::Ends => self.store(ids, (moved, no_lease, jobs::leased_by.eq(None::<String>))),
                    LeaseAfter::EndsAndTells => self.store(ids, (moved, no_lease)),
                }
            }
        }
    }

    fn edit_job(&mut self, id: JobId, to: Edited<'_>) -> Done<()> {
        if let Some(payload) = to.payload {
            let payload = job_data::payload.eq(Text(payload));
            self.run(update(job_data::table, job_data::job_id.eq(id.0), payload))?;
        }
        let edited = (
            jobs::role.eq(to.role),
            jobs::queue.eq(to.queue),
            jobs::priority.eq(i32::from(to.priority)),
            jobs::max_attempts.eq(stored(to.max_attempts)),
        );
        self.store(&[id], edited)
    }

    fn delete_job(&mut self, id: JobId) -> Done<u64> {
        let contents: Vec<Option<Vec<u8>>> = steps::table
            .filter(steps::job_id.eq(id.0))
            .filter(steps::blob_hash.is_not_null())
            .select(steps::blob_hash)
            .load(&mut self.0)?;
        diesel::delete(jobs::table.find(id.0)).execute(&mut self.0)?;
        let mut deleted = 0;
        for hash in contents.into_iter().flatten() {
            let referred_to = exists(steps::table.filter(steps::blob_hash.eq(&hash)));
            if !diesel::select(referred_to).get_result::<bool>(&mut self.0)? {
                deleted += diesel::delete(blobs::table.find(&hash)).execute(&mut self.0)? as u64;
            }
        }
        Ok(deleted)
    }

    fn end_attempts(&mut self, ids: &[JobId], outcome: &str, reason: Option<&Sealed>, at: Millis) -> Done<()> {
        let ended = jobs::table.filter(among(ids)).filter(jobs::leased_by.is_not_null()).select((
            jobs::id,
            jobs::lease_token,
            jobs::attempt,
            jobs::leased_by.assume_not_null(),
            jobs::claimed_at.assume_not_null(),
            at.into_sql::<Nullable<BigInt>>(),
            outcome.into_sql::<Nullable<sql_types::Text>>(),
            reason.map(Text).into_sql::<Nullable<SealedText>>(),
        ));
        self.run(diesel::insert_into(attempts::table).values(ended).into_columns(attempts::all_columns))
    }

    fn attempts(&mut self, id: JobId) -> Done<Vec<AttemptRow>> {
        type Row = (i64, i64, i32, String, i64, Option<i64>, Option<String>, Option<Sealed>);
        let attempt = |(_, _, number, worker, started_at, ended_at, outcome, reason): Row| AttemptRow {
            number: count(number),
            worker,
            started_at,
            ended_at,
            outcome,
            reason,
        };
        self.load(attempts::table.filter(attempts::job_id.eq(id.0)).order(attempts::token), attempt)
    }
}

impl Keeps<ProgressRow> for Rows {
    fn kept(&mut self, of: &[JobId]) -> Done<Vec<ProgressRow>> {
        let rows = progress::table.inner_join(jobs::table).filter(among(of)).select(progress::all_columns);
        let row = |(job, share, text, at): (i64, f64, Sealed, i64)| ProgressRow { job: JobId(job), share, text, at };
        self.load(rows, row)
    }

    fn keep(&mut self, row: &ProgressRow) -> Done<()> {
        let row = (
            progress::job_id.eq(row.job.0),
            progress::share.eq(row.share),
            progress::text.eq(Text(&row.text)),
            progress::at.eq(row.at),
        );
        self.run(diesel::replace_into(progress::table).values(row))
    }
}

/// Has a job be found by `tags` too.
fn insert_tags(connection: &mut SqliteConnection, job: JobId, tags: &[String]) -> QueryResult<()> {
    for tag in tags {
        diesel::insert_into(job_tags::table)
            .values((job_tags::tag.eq(tag), job_tags::job_id.eq(job.0)))
            .execute(connection)?;
    }
    Ok(())
}

/// Stores rows by one statement per table, which diesel keeps prepared only if its values are owned.
fn insert<'r, R: AsMut<JobInsert<'r>>, const N: usize>(
    connection: &mut SqliteConnection,
    rows: &mut [R; N],
) -> QueryResult<()> {
    let new = rows.each_mut().map(|row| {
        let row = row.as_mut();
        let new = row.new;
        (
            jobs::id.eq(row.id.0),
            jobs::queue.eq(new.queue.clone()),
            jobs::role.eq(new.role.clone()),
            jobs::state.eq(row.state.as_str()),
            jobs::priority.eq(i32::from(new.priority)),
            jobs::run_at.eq(row.run_at),
            jobs::attempt.eq(0),
            jobs::max_attempts.eq(stored(new.max_attempts)),
            jobs::crashes.eq(0),
            jobs::lease_token.eq(0),
            jobs::cancel_requested.eq(false),
            jobs::created_at.eq(row.created_at),
            jobs::finalized_at.eq(row.finalized_at),
            jobs::reason.eq(row.reason.take().map(Text)),
            jobs::priority_step_ms.eq(new.priority_step_ms),
            jobs::concurrency_key.eq(new.concurrency_key.clone().unwrap_or_default()),
            jobs::unique_key.eq(new.unique.as_ref().map(|unique| unique.key.clone())),
            jobs::unique_ms.eq(new.unique.as_ref().and_then(|unique| unique.for_ms)),
        )
    });
    diesel::insert_into(jobs::table).values(new).execute(connection)?;
    let data = rows.each_mut().map(|row| {
        let row = row.as_mut();
        let data = std::mem::take(&mut row.data);
        (
            job_data::job_id.eq(row.id.0),
            job_data::payload.eq(Text(data.payload)),
            job_data::retry.eq(data.retry),
            job_data::parent_id.eq(data.parent.map(|job| job.0)),
            job_data::root_id.eq(data.root.map(|job| job.0)),
            job_data::group_name.eq(data.group),
            job_data::tags.eq(data.tags),
            job_data::meta.eq(data.meta),
            job_data::max_crashes.eq(row.max_crashes.map(stored)),
        )
    });
    diesel::insert_into(job_data::table).values(data).execute(connection).map(drop)
}
