//! Rows of `jobs` and `attempts`.

use std::str::FromStr;

use diesel::prelude::*;
use diesel::sql_types::{self, BigInt, Nullable};
use posse_core::clock::Millis;
use posse_core::job::transition::Standing;
use posse_core::job::{JobId, JobState};
use posse_core::store::driver::{
    AttemptRow, DataRow, HolderRow, JobInsert, JobRow, JobRows, Keeps, Leaving, ProgressRow, RunningRow, StoredJob,
};
use posse_core::store::seal::Sealed;
use posse_core::store::{Done, Unreadable};

use super::Rows;
use crate::literal::{IsRunning, MayHoldKey, among, update};
use crate::schema::{attempts, job_data, job_tags, jobs, progress, session_jobs, sqlite_sequence};
use crate::sealed_text::{SealedText, Text};

/// A [`JobRow`] as diesel reads it.
#[derive(Queryable, Selectable)]
#[diesel(table_name = jobs, check_for_backend(diesel::sqlite::Sqlite))]
pub(crate) struct JobColumns {
    id: i64,
    queue: String,
    role: String,
    state: String,
    priority: i32,
    run_at: i64,
    attempt: i32,
    max_attempts: i32,
    crashes: i32,
    lease_token: i64,
    lease_until: Option<i64>,
    leased_by: Option<String>,
    cancel_requested: bool,
    created_at: i64,
    finalized_at: Option<i64>,
    awaited: bool,
    concurrency_key: String,
    unique_key: Option<String>,
    output: Option<Sealed>,
    reason: Option<Sealed>,
}

impl JobColumns {
    pub fn read(self) -> Done<JobRow> {
        Ok(JobRow {
            id: JobId(self.id),
            queue: self.queue,
            role: self.role,
            standing: Standing {
                state: state(&self.state)?,
                attempt: count(self.attempt),
                max_attempts: count(self.max_attempts),
                crashes: count(self.crashes),
                cancel_requested: self.cancel_requested,
                run_at: self.run_at,
            },
            priority: u8::try_from(self.priority).unwrap_or(u8::MAX),
            lease_token: self.lease_token,
            lease_until: self.lease_until,
            leased_by: self.leased_by,
            created_at: self.created_at,
            finalized_at: self.finalized_at,
            awaited: self.awaited,
            concurrency_key: self.concurrency_key,
            unique_key: self.unique_key,
            output: self.output,
            reason: self.reason,
        })
    }
}

/// A [`DataRow`] as diesel reads it.
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

/// Both rows of a job.
pub(crate) fn both((row, data): (JobColumns, DataColumns)) -> Done<StoredJob> {
    Ok((row.read()?, data.into()))
}

/// A state's name as stored.
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

impl JobRows for Rows {
    fn job(&mut self, id: JobId) -> Done<Option<JobRow>> {
        let row: Option<JobColumns> =
            jobs::table.find(id.0).select(JobColumns::as_select()).first(&mut self.0).optional()?;
        row.map(JobColumns::read).transpose()
    }

    fn stand(&mut self, id: JobId, to: &Standing, finalized_at: Option<Millis>, frees_lease: bool) -> Done<()> {
        let standing = (
            jobs::state.eq(to.state.as_str()),
            jobs::attempt.eq(stored(to.attempt)),
            jobs::crashes.eq(stored(to.crashes)),
            jobs::cancel_requested.eq(to.cancel_requested),
            jobs::run_at.eq(to.run_at),
            jobs::finalized_at.eq(finalized_at),
        );
        let row = jobs::id.eq(id.0);
        if frees_lease {
            let no_lease = (jobs::lease_until.eq(None::<i64>), jobs::leased_by.eq(None::<String>));
            update(jobs::table, row, (standing, no_lease)).execute(&mut self.0)?;
        } else {
            update(jobs::table, row, standing).execute(&mut self.0)?;
        }
        Ok(())
    }

    fn set_reason(&mut self, id: JobId, reason: Option<Sealed>) -> Done<()> {
        update(jobs::table, jobs::id.eq(id.0), jobs::reason.eq(reason.map(Text))).execute(&mut self.0)?;
        Ok(())
    }

    fn set_awaited(&mut self, ids: &[JobId], awaited: bool) -> Done<()> {
        let awaited = jobs::awaited.eq(awaited);
        match ids {
            [] => 0,
            [id] => update(jobs::table, jobs::id.eq(id.0), awaited).execute(&mut self.0)?,
            ids => update(jobs::table, among(ids), awaited).execute(&mut self.0)?,
        };
        Ok(())
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
        diesel::insert_into(attempts::table)
            .values(ended)
            .into_columns((
                attempts::job_id,
                attempts::token,
                attempts::number,
                attempts::worker,
                attempts::started_at,
                attempts::ended_at,
                attempts::outcome,
                attempts::reason,
            ))
            .execute(&mut self.0)?;
        Ok(())
    }

    fn attempts(&mut self, id: JobId) -> Done<(Vec<AttemptRow>, Option<AttemptRow>)> {
        type Row = (i32, String, i64, Option<i64>, Option<String>, Option<Sealed>);
        let attempt = |(number, worker, started_at, ended_at, outcome, reason): Row| AttemptRow {
            number: count(number),
            worker,
            started_at,
            ended_at,
            outcome,
            reason,
        };
        let in_own_rows = attempts::table.filter(attempts::job_id.eq(id.0)).order(attempts::token).select((
            attempts::number,
            attempts::worker,
            attempts::started_at,
            attempts::ended_at,
            attempts::outcome,
            attempts::reason,
        ));
        let in_the_jobs_row = jobs::table.filter(jobs::id.eq(id.0)).filter(jobs::leased_by.is_not_null()).select((
            jobs::attempt,
            jobs::leased_by.assume_not_null(),
            jobs::claimed_at.assume_not_null(),
            jobs::finalized_at,
        ));
        // One look at both: an attempt that ends in between would be seen twice, or not at all.
        self.0.transaction(|connection| {
            let rows: Vec<Row> = in_own_rows.load(connection)?;
            let last: Option<(i32, String, i64, Option<i64>)> = in_the_jobs_row.first(connection).optional()?;
            let last = last.map(|(number, worker, from, to)| attempt((number, worker, from, to, None, None)));
            Ok((rows.into_iter().map(attempt).collect(), last))
        })
    }

    fn next_id(&mut self) -> Done<JobId> {
        let last: Option<i64> = sqlite_sequence::table
            .filter(sqlite_sequence::name.eq("jobs"))
            .select(sqlite_sequence::seq)
            .first(&mut self.0)
            .optional()?;
        Ok(JobId(last.unwrap_or(0) + 1))
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
            insert_tags(&mut self.0, row.id, row.tags)?;
        }
        Ok(())
    }

    fn replace_job(&mut self, row: JobInsert<'_>) -> Done<()> {
        let id = row.id;
        let standing = (
            jobs::queue.eq(row.queue),
            jobs::role.eq(row.role),
            jobs::state.eq(row.state.as_str()),
            jobs::priority.eq(i32::from(row.priority)),
            jobs::run_at.eq(row.run_at),
            jobs::max_attempts.eq(stored(row.max_attempts)),
            jobs::finalized_at.eq(row.finalized_at),
            jobs::reason.eq(row.reason.map(Text)),
            jobs::priority_step_ms.eq(row.priority_step_ms),
            jobs::concurrency_key.eq(row.concurrency_key),
            jobs::unique_ms.eq(row.unique_ms),
        );
        update(jobs::table, jobs::id.eq(id.0), standing).execute(&mut self.0)?;
        let data = (
            job_data::payload.eq(Text(row.payload)),
            job_data::retry.eq(row.retry),
            job_data::group_name.eq(row.group),
            job_data::tags.eq(row.tags_json),
            job_data::meta.eq(row.meta),
            job_data::max_crashes.eq(row.max_crashes.map(stored)),
        );
        update(job_data::table, job_data::job_id.eq(id.0), data).execute(&mut self.0)?;
        diesel::delete(job_tags::table.filter(job_tags::job_id.eq(id.0))).execute(&mut self.0)?;
        insert_tags(&mut self.0, id, row.tags)?;
        diesel::delete(session_jobs::table.filter(session_jobs::job_id.eq(id.0))).execute(&mut self.0)?;
        Ok(())
    }

    fn leave_group(&mut self, id: JobId) -> Done<()> {
        let none = job_data::group_name.eq(None::<String>);
        update(job_data::table, job_data::job_id.eq(id.0), none).execute(&mut self.0)?;
        Ok(())
    }

    fn key_holder(&mut self, key: &str) -> Done<Option<HolderRow>> {
        type Row = (i64, String, Option<i64>, Option<i64>, i64, i64, i64);
        let found: Option<Row> = jobs::table
            .filter(jobs::unique_key.eq(key))
            .filter(MayHoldKey)
            .select((
                jobs::id,
                jobs::state,
                jobs::finalized_at,
                jobs::unique_ms,
                jobs::lease_token,
                jobs::created_at,
                jobs::run_at,
            ))
            .first(&mut self.0)
            .optional()?;
        let holder = |(id, name, finalized_at, for_ms, lease_token, created_at, run_at): Row| {
            let (id, state) = (JobId(id), state(&name)?);
            Ok(HolderRow { id, state, finalized_at, for_ms, lease_token, created_at, run_at })
        };
        found.map(holder).transpose()
    }

    fn free_key(&mut self, id: JobId) -> Done<()> {
        update(jobs::table, jobs::id.eq(id.0), jobs::unique_ms.eq(None::<i64>)).execute(&mut self.0)?;
        Ok(())
    }

    fn running(&mut self, ids: &[JobId]) -> Done<Vec<RunningRow>> {
        jobs::table
            .filter(IsRunning)
            .filter(among(ids))
            .select(RunningColumns::as_select())
            .load_iter(&mut self.0)?
            .map(|row| Ok(row?.into()))
            .collect()
    }

    fn leave(&mut self, ids: &[JobId], left: &Leaving<'_>, keeps_holder: bool) -> Done<()> {
        let to = left.to;
        let left = (
            jobs::state.eq(to.state.as_str()),
            jobs::attempt.eq(stored(to.attempt)),
            jobs::crashes.eq(stored(to.crashes)),
            jobs::cancel_requested.eq(to.cancel_requested),
            jobs::run_at.eq(to.run_at),
            jobs::finalized_at.eq(left.finalized_at),
            jobs::lease_until.eq(None::<i64>),
            jobs::output.eq(left.output.map(Text)),
            jobs::reason.eq(left.reason.map(Text)),
        );
        if keeps_holder {
            update(jobs::table, among(ids), left).execute(&mut self.0)?;
        } else {
            update(jobs::table, among(ids), (left, jobs::leased_by.eq(None::<String>))).execute(&mut self.0)?;
        }
        Ok(())
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

/// A [`RunningRow`] as diesel reads it.
#[derive(Queryable, Selectable)]
#[diesel(table_name = jobs, check_for_backend(diesel::sqlite::Sqlite))]
struct RunningColumns {
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

impl From<RunningColumns> for RunningRow {
    fn from(row: RunningColumns) -> RunningRow {
        RunningRow {
            id: JobId(row.id),
            role: row.role,
            standing: Standing {
                state: JobState::Running,
                attempt: count(row.attempt),
                max_attempts: count(row.max_attempts),
                crashes: count(row.crashes),
                cancel_requested: row.cancel_requested,
                run_at: row.run_at,
            },
            lease_token: row.lease_token,
            awaited: row.awaited,
            output: row.output,
            reason: row.reason,
        }
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
        (
            jobs::id.eq(row.id.0),
            jobs::queue.eq(row.queue.to_owned()),
            jobs::role.eq(row.role.to_owned()),
            jobs::state.eq(row.state.as_str()),
            jobs::priority.eq(i32::from(row.priority)),
            jobs::run_at.eq(row.run_at),
            jobs::attempt.eq(0),
            jobs::max_attempts.eq(stored(row.max_attempts)),
            jobs::crashes.eq(0),
            jobs::lease_token.eq(0),
            jobs::cancel_requested.eq(false),
            jobs::created_at.eq(row.created_at),
            jobs::finalized_at.eq(row.finalized_at),
            jobs::reason.eq(row.reason.take().map(Text)),
            jobs::priority_step_ms.eq(row.priority_step_ms),
            jobs::concurrency_key.eq(row.concurrency_key.to_owned()),
            jobs::unique_key.eq(row.unique_key.map(str::to_owned)),
            jobs::unique_ms.eq(row.unique_ms),
        )
    });
    diesel::insert_into(jobs::table).values(new).execute(connection)?;
    let data = rows.each_mut().map(|row| {
        let row = row.as_mut();
        (
            job_data::job_id.eq(row.id.0),
            job_data::payload.eq(Text(std::mem::take(&mut row.payload))),
            job_data::retry.eq(row.retry.map(str::to_owned)),
            job_data::parent_id.eq(row.parent.map(|job| job.0)),
            job_data::root_id.eq(row.root.map(|job| job.0)),
            job_data::group_name.eq(row.group.map(str::to_owned)),
            job_data::tags.eq(row.tags_json.map(str::to_owned)),
            job_data::meta.eq(row.meta.map(str::to_owned)),
            job_data::max_crashes.eq(row.max_crashes.map(stored)),
        )
    });
    diesel::insert_into(job_data::table).values(data).execute(connection).map(drop)
}
