//! Rows of `jobs` and `attempts`.

use std::str::FromStr;

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use posse_core::clock::Millis;
use posse_core::job::transition::Standing;
use posse_core::job::{JobId, JobState};
use posse_core::store::driver::{AttemptRow, DataRow, JobRow, JobRows, StoredJob};
use posse_core::store::seal::Sealed;
use posse_core::store::{Done, Unreadable};

use super::Rows;
use crate::literal::{among, update};
use crate::schema::{attempts, job_data, jobs};
use crate::sealed_text::{SealedText, Text as Sealing};

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
        update(jobs::table, jobs::id.eq(id.0), jobs::reason.eq(reason.map(Sealing))).execute(&mut self.0)?;
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
            outcome.into_sql::<Nullable<Text>>(),
            reason.map(Sealing).into_sql::<Nullable<SealedText>>(),
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
}
