//! Rows for whoever asks about jobs.

use diesel::connection::DefaultLoadingMode;
use diesel::dsl::{count_star, max, min};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use diesel::sqlite::Sqlite;
use posse_core::clock::Millis;
use posse_core::job::{GroupUse, JobId, JobState};
use posse_core::port::{Awaited, JobFilter, StateRow, Waiting};
use posse_core::store::Done;
use posse_core::store::driver::{StoredJob, TextRow, ViewRows};
use posse_core::store::seal::Sealed;

use super::waits::rule;
use super::{DataColumns, JobColumns, Rows, both, state};
use crate::literal::{IsAvailable, IsOpen, IsOpenAsk, IsRunning, IsSuspended, IsWaiting, MayHoldKey, among};
use crate::schema::{asks, dependencies, job_data, job_tags, jobs, sqlite_sequence};

/// How many of the newest jobs are looked at one by one, before an index is asked.
const NEAR: i64 = 10_000;

/// Each part reads one partial index.
pub(crate) const COUNTS: &str = "
    SELECT role AS name, state, count(*) AS jobs FROM jobs WHERE finalized_at IS NOT NULL GROUP BY role, state
    UNION ALL
    SELECT role, 'available', count(*) FROM jobs WHERE state = 'available' GROUP BY role
    UNION ALL
    SELECT role, state, count(*) FROM jobs WHERE state IN ('scheduled', 'retryable') GROUP BY role, state
    UNION ALL
    SELECT role, 'running', count(*) FROM jobs WHERE state = 'running' GROUP BY role
    UNION ALL
    SELECT role, 'suspended', count(*) FROM jobs WHERE state = 'suspended' GROUP BY role";

/// Jobs that have not ended. Each part reads one partial index.
pub(crate) const LIVE: &str = "
    SELECT id, state, CAST(attempt AS INTEGER) AS attempt FROM jobs WHERE state = 'available'
    UNION ALL SELECT id, state, attempt FROM jobs WHERE state IN ('scheduled', 'retryable')
    UNION ALL SELECT id, state, attempt FROM jobs WHERE state = 'running'
    UNION ALL SELECT id, state, attempt FROM jobs WHERE state = 'suspended'";

/// Reads the index of groups and the state of each job in it.
const STANDINGS: &str = "
    SELECT group_name AS name, state, count(*) AS jobs FROM job_data JOIN jobs ON id = job_id
    WHERE group_name IS NOT NULL";

/// The jobs that one waited for, by number or by group, and those it has made. Members of a group that had completed
/// before it was waited for have no row among the dependencies; one that came to be in it later, when it was no longer
/// waited for, counts once it has ended.
const THEIRS: &str = "
    WITH theirs (id) AS (
        SELECT on_job_id FROM dependencies WHERE job_id = ?1
        UNION
        SELECT d.job_id FROM group_waits w JOIN job_data d ON d.group_name = w.group_name
        JOIN jobs j ON j.id = d.job_id AND j.finalized_at IS NOT NULL
        WHERE w.job_id = ?1 AND d.job_id <> ?1
        UNION
        SELECT job_id FROM job_data WHERE parent_id = ?1
    )";

/// How many jobs of something are in a state.
#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Text)]
    state: String,
    #[diesel(sql_type = BigInt)]
    jobs: i64,
}

fn counts(rows: Vec<Count>) -> Done<Vec<(String, JobState, u64)>> {
    rows.into_iter().map(|row| Ok((row.name, state(&row.state)?, row.jobs.unsigned_abs()))).collect()
}

#[derive(QueryableByName)]
struct Id {
    #[diesel(sql_type = BigInt)]
    id: i64,
}

fn ids(rows: Vec<Id>) -> Vec<JobId> {
    rows.into_iter().map(|row| JobId(row.id)).collect()
}

#[derive(QueryableByName)]
struct Stated {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Text)]
    state: String,
    #[diesel(sql_type = BigInt)]
    attempt: i64,
}

fn stated((id, name, attempt): (i64, String, i32)) -> Done<StateRow> {
    Ok(StateRow { job: JobId(id), state: state(&name)?, attempt: attempt.unsigned_abs() })
}

const WAITING: (jobs::id, jobs::unique_key, jobs::role, jobs::queue, jobs::concurrency_key, jobs::state, jobs::run_at) =
    (jobs::id, jobs::unique_key, jobs::role, jobs::queue, jobs::concurrency_key, jobs::state, jobs::run_at);

type WaitingColumns = (i64, Option<String>, String, String, String, String, i64);

fn waiting(rows: Vec<WaitingColumns>) -> Done<Vec<Waiting>> {
    let waiting = |(id, key, role, queue, concurrency_key, name, due_at): WaitingColumns| {
        let (job, state, waits_for) = (JobId(id), state(&name)?, Vec::new());
        Ok(Waiting { job, key, role, queue, concurrency_key, state, due_at, waits_for, asked_at: None })
    };
    rows.into_iter().map(waiting).collect()
}

/// The jobs that fit, of one state or of all.
fn fitting_jobs(filter: &JobFilter, state: Option<JobState>) -> jobs::BoxedQuery<'_, Sqlite> {
    let mut query = jobs::table.into_boxed();
    if let Some(state) = state {
        query = query.filter(jobs::state.eq(state.as_str()));
        // Spells the condition of the index that has these.
        query = match state {
            JobState::Available => query.filter(IsAvailable),
            JobState::Scheduled | JobState::Retryable => query.filter(IsWaiting),
            JobState::Running => query.filter(IsRunning),
            JobState::Suspended => query.filter(IsSuspended),
            JobState::Completed | JobState::Cancelled | JobState::Discarded => {
                query.filter(jobs::finalized_at.is_not_null())
            }
        };
    }
    if let Some(role) = &filter.role {
        query = query.filter(jobs::role.eq(role));
    }
    if let Some(queue) = &filter.queue {
        query = query.filter(jobs::queue.eq(queue));
    }
    if let Some(group) = &filter.group {
        let members = job_data::table.filter(job_data::group_name.eq(group)).select(job_data::job_id);
        query = query.filter(jobs::id.eq_any(members));
    }
    if let Some(tag) = &filter.tag {
        let tagged = job_tags::table.filter(job_tags::tag.eq(tag)).select(job_tags::job_id);
        query = query.filter(jobs::id.eq_any(tagged));
    }
    if let Some(from) = filter.created_from {
        query = query.filter(jobs::created_at.ge(from));
    }
    if let Some(before) = filter.created_before {
        query = query.filter(jobs::created_at.lt(before));
    }
    if let Some(from) = filter.ended_from {
        query = query.filter(jobs::finalized_at.ge(from));
    }
    if let Some(before) = filter.ended_before {
        query = query.filter(jobs::finalized_at.lt(before));
    }
    if let Some(before) = filter.before {
        query = query.filter(jobs::id.lt(before.0));
    }
    query
}

impl Rows {
    /// The newest jobs of a state whose index is not in their order. Where they are many, a page of them is among the
    /// newest jobs of all; where they are few, they are quickly sorted. A walk that stops at a full page alone would look
    /// at every job that has ended.
    fn unended(&mut self, filter: &JobFilter, state: JobState, most: u32) -> QueryResult<Vec<i64>> {
        let newest: Option<i64> = jobs::table.select(max(jobs::id)).first(&mut self.0)?;
        let below = filter.before.map_or(i64::MAX, |before| before.0).min(newest.unwrap_or(0).saturating_add(1));
        let near = fitting_jobs(filter, Some(state)).filter(jobs::id.ge(below.saturating_sub(NEAR)));
        let near = near.select(jobs::id).order(jobs::id.desc()).limit(i64::from(most));
        let found: Vec<i64> = near.load(&mut self.0)?;
        if found.len() == most as usize {
            return Ok(found);
        }
        // An expression has no index, so the one of the state is used.
        fitting_jobs(filter, Some(state))
            .select(jobs::id)
            .order((jobs::id + 0).desc())
            .limit(i64::from(most))
            .load(&mut self.0)
    }
}

impl ViewRows for Rows {
    fn whole_job(&mut self, id: JobId) -> Done<Option<StoredJob>> {
        let row: Option<(JobColumns, DataColumns)> = jobs::table
            .inner_join(job_data::table)
            .filter(jobs::id.eq(id.0))
            .select((JobColumns::as_select(), DataColumns::as_select()))
            .first(&mut self.0)
            .optional()?;
        row.map(both).transpose()
    }

    fn whole_jobs(&mut self, ids: &[JobId]) -> Done<Vec<StoredJob>> {
        jobs::table
            .inner_join(job_data::table)
            .filter(among(ids))
            .order(jobs::id)
            .select((JobColumns::as_select(), DataColumns::as_select()))
            .load_iter(&mut self.0)?
            .map(|row| both(row?))
            .collect()
    }

    fn fitting(&mut self, filter: &JobFilter, state: Option<JobState>, most: u32) -> Done<Vec<JobId>> {
        let found: Vec<i64> = match state {
            Some(state) if !state.is_final() && state != JobState::Suspended => self.unended(filter, state, most)?,
            _ => fitting_jobs(filter, state)
                .select(jobs::id)
                .order(jobs::id.desc())
                .limit(i64::from(most))
                .load(&mut self.0)?,
        };
        Ok(found.into_iter().map(JobId).collect())
    }

    fn with_content(&mut self, page: &[JobId], text: Option<&str>, meta: Option<(&str, &str)>) -> Done<Vec<JobId>> {
        let escaped = |text: &str| text.replace('\\', r"\\").replace('%', r"\%").replace('_', r"\_");
        let pattern = text.map(|text| format!("%{}%", escaped(text)));
        let (key, value) = meta.unzip();
        // What is no JSON has no text, and hides nobody else's.
        let rows = diesel::sql_query(
            r"SELECT job_id AS id FROM job_data JOIN jobs ON id = job_id WHERE job_id IN (SELECT value FROM json_each(?1))
                AND (?2 IS NULL OR reason LIKE ?2 ESCAPE '\'
                     OR CASE WHEN json_valid(payload) THEN payload ->> '$.goal' LIKE ?2 ESCAPE '\' END
                     OR CASE WHEN json_valid(output) THEN output ->> '$.text' LIKE ?2 ESCAPE '\' END)
                AND (?3 IS NULL OR CASE WHEN json_valid(meta) THEN EXISTS (
                     SELECT 1 FROM json_each(meta) AS own
                     WHERE own.key = ?3 AND CASE own.type WHEN 'true' THEN 'true' WHEN 'false' THEN 'false'
                                                          WHEN 'null' THEN 'null' ELSE own.value || '' END = ?4) END)
                ORDER BY job_id DESC",
        )
        .bind::<Text, _>(serde_json::json!(page).to_string())
        .bind::<Nullable<Text>, _>(&pattern)
        .bind::<Nullable<Text>, _>(key)
        .bind::<Nullable<Text>, _>(value)
        .load(&mut self.0)?;
        Ok(ids(rows))
    }

    fn texts(&mut self, ids: &[JobId]) -> Done<Vec<TextRow>> {
        type Columns = (i64, Sealed, Option<Sealed>, Option<Sealed>);
        let rows: Vec<Columns> = jobs::table
            .inner_join(job_data::table)
            .filter(among(ids))
            .order(jobs::id.desc())
            .select((jobs::id, job_data::payload, jobs::output, jobs::reason))
            .load(&mut self.0)?;
        let text = |(id, payload, output, reason): Columns| TextRow { id: JobId(id), payload, output, reason };
        Ok(rows.into_iter().map(text).collect())
    }

    fn states(&mut self, ids: &[JobId]) -> Done<Vec<StateRow>> {
        let rows: Vec<(i64, String, i32)> = jobs::table
            .filter(among(ids))
            .order(jobs::id)
            .select((jobs::id, jobs::state, jobs::attempt))
            .load(&mut self.0)?;
        rows.into_iter().map(stated).collect()
    }

    fn states_after(&mut self, after: JobId, group: Option<&str>, most: u32) -> Done<Vec<StateRow>> {
        let mut query = jobs::table
            .filter(jobs::id.gt(after.0))
            .order(jobs::id)
            .limit(i64::from(most))
            .select((jobs::id, jobs::state, jobs::attempt))
            .into_boxed();
        if let Some(group) = group {
            let members = job_data::table
                .filter(job_data::group_name.eq(group))
                .filter(job_data::job_id.gt(after.0))
                .select(job_data::job_id);
            query = query.filter(jobs::id.eq_any(members));
        }
        query.load(&mut self.0)?.into_iter().map(stated).collect()
    }

    fn live(&mut self, group: Option<&str>) -> Done<(JobId, Vec<StateRow>)> {
        let (newest, mut rows) = self.0.transaction(|connection| {
            let newest: Option<i64> = jobs::table.select(max(jobs::id)).first(connection)?;
            let rows: Vec<Stated> = match group {
                None => diesel::sql_query(LIVE).load(connection)?,
                Some(group) => diesel::sql_query(format!(
                    "SELECT live.* FROM ({LIVE}) AS live JOIN job_data ON job_id = id WHERE group_name = ?"
                ))
                .bind::<Text, _>(group)
                .load(connection)?,
            };
            QueryResult::Ok((newest, rows))
        })?;
        // Asked for in this order, SQLite would walk all jobs in it once for each part.
        rows.sort_unstable_by_key(|row| row.id);
        let row = |row: Stated| {
            let attempt = u32::try_from(row.attempt).unwrap_or(0);
            Ok(StateRow { job: JobId(row.id), state: state(&row.state)?, attempt })
        };
        Ok((JobId(newest.unwrap_or(0)), rows.into_iter().map(row).collect::<Done<_>>()?))
    }

    fn counts(&mut self) -> Done<Vec<(String, JobState, u64)>> {
        counts(diesel::sql_query(COUNTS).load(&mut self.0)?)
    }

    fn group_counts(&mut self, group: Option<&str>) -> Done<Vec<(String, JobState, u64)>> {
        counts(match group {
            None => diesel::sql_query(format!("{STANDINGS} GROUP BY group_name, state")).load(&mut self.0)?,
            Some(group) => diesel::sql_query(format!("{STANDINGS} AND group_name = ? GROUP BY group_name, state"))
                .bind::<Text, _>(group)
                .load(&mut self.0)?,
        })
    }

    fn group_use(&mut self, group: &str) -> Done<GroupUse> {
        #[derive(QueryableByName)]
        struct Used {
            #[diesel(sql_type = BigInt)]
            turns: i64,
            #[diesel(sql_type = BigInt)]
            input: i64,
            #[diesel(sql_type = BigInt)]
            output: i64,
            #[diesel(sql_type = BigInt)]
            cost: i64,
        }
        let used: Used = diesel::sql_query(
            "SELECT CAST(total(output ->> '$.turns') AS INTEGER) AS turns,
                    CAST(total(output ->> '$.usage.input') AS INTEGER) AS input,
                    CAST(total(output ->> '$.usage.output') AS INTEGER) AS output,
                    CAST(total(output ->> '$.cost_microusd') AS INTEGER) AS cost
             FROM job_data JOIN jobs ON id = job_id WHERE group_name = ? AND json_valid(output)",
        )
        .bind::<Text, _>(group)
        .get_result(&mut self.0)?;
        Ok(GroupUse {
            turns: used.turns.unsigned_abs(),
            input_tokens: used.input.unsigned_abs(),
            output_tokens: used.output.unsigned_abs(),
            cost_microusd: used.cost.unsigned_abs(),
        })
    }

    fn each_output(&mut self, group: &str, mut each: impl FnMut(JobId, Sealed)) -> Done<()> {
        let outputs = job_data::table
            .inner_join(jobs::table)
            .filter(job_data::group_name.eq(group))
            .filter(jobs::output.is_not_null())
            .select((jobs::id, jobs::output.assume_not_null()))
            .load_iter::<(i64, Sealed), DefaultLoadingMode>(&mut self.0)?;
        for row in outputs {
            let (id, output) = row?;
            each(JobId(id), output);
        }
        Ok(())
    }

    fn result_counts(&mut self, of: JobId) -> Done<Vec<(Option<JobState>, u64)>> {
        #[derive(QueryableByName)]
        struct Results {
            #[diesel(sql_type = Nullable<Text>)]
            state: Option<String>,
            #[diesel(sql_type = BigInt)]
            jobs: i64,
        }
        let rows: Vec<Results> = diesel::sql_query(format!(
            "{THEIRS} SELECT j.state AS state, count(*) AS jobs FROM theirs t LEFT JOIN jobs j ON j.id = t.id \
             GROUP BY j.state"
        ))
        .bind::<BigInt, _>(of.0)
        .load(&mut self.0)?;
        let results = |row: Results| Ok((row.state.as_deref().map(state).transpose()?, row.jobs.unsigned_abs()));
        rows.into_iter().map(results).collect()
    }

    fn results(&mut self, of: JobId, after: JobId, most: u32) -> Done<Vec<JobId>> {
        let rows = diesel::sql_query(format!(
            "{THEIRS} SELECT j.id AS id FROM theirs t JOIN jobs j ON j.id = t.id WHERE t.id > ?2 ORDER BY t.id LIMIT ?3"
        ))
        .bind::<BigInt, _>(of.0)
        .bind::<BigInt, _>(after.0)
        .bind::<BigInt, _>(i64::from(most))
        .load(&mut self.0)?;
        Ok(ids(rows))
    }

    fn key_holders(&mut self, before: Millis, most: u32) -> Done<Vec<Waiting>> {
        waiting(
            jobs::table
                .filter(jobs::unique_key.is_not_null())
                .filter(MayHoldKey)
                .filter(jobs::finalized_at.is_null())
                .filter(jobs::state.ne(JobState::Running.as_str()))
                .filter(jobs::created_at.lt(before))
                // In the order of an expression: in its own, SQLite would walk all jobs.
                .order(jobs::id + 0)
                .limit(i64::from(most))
                .select(WAITING)
                .load(&mut self.0)?,
        )
    }

    fn not_running(&mut self, ids: &[JobId]) -> Done<Vec<Waiting>> {
        waiting(
            jobs::table
                .filter(among(ids))
                .filter(jobs::state.ne(JobState::Running.as_str()))
                .order(jobs::id)
                .select(WAITING)
                .load(&mut self.0)?,
        )
    }

    fn awaited(&mut self, id: JobId) -> Done<Vec<Awaited>> {
        type On = (i64, String, Option<String>, Option<i64>);
        let rows: Vec<On> = dependencies::table
            .left_join(jobs::table.on(jobs::id.eq(dependencies::on_job_id)))
            .filter(dependencies::job_id.eq(id.0))
            .filter(IsOpen)
            .order(dependencies::on_job_id)
            .select((
                dependencies::on_job_id,
                dependencies::on_failed,
                jobs::state.nullable(),
                jobs::finalized_at.nullable(),
            ))
            .load(&mut self.0)?;
        let awaited = |(on, name, is, ended_at): On| {
            let (is, on_failed) = (is.as_deref().map(state).transpose()?, rule(&name)?);
            Ok(Awaited { job: JobId(on), state: is, on_failed, ended_at })
        };
        rows.into_iter().map(awaited).collect()
    }

    fn asked_since(&mut self, id: JobId) -> Done<Option<Millis>> {
        let open = asks::table.filter(asks::job_id.eq(id.0)).filter(IsOpenAsk);
        Ok(open.select(min(asks::created_at)).first(&mut self.0)?)
    }

    fn next_due(&mut self) -> Done<Option<Millis>> {
        Ok(jobs::table.filter(IsWaiting).select(min(jobs::run_at)).first(&mut self.0)?)
    }

    fn enqueued(&mut self) -> Done<u64> {
        // Ids are given out in order and never again, so the highest that was tells how many there were. There is no row
        // before the first job.
        let last = sqlite_sequence::table.find("jobs").select(sqlite_sequence::seq);
        let last: Option<i64> = last.first(&mut self.0).optional()?;
        Ok(last.unwrap_or(0).unsigned_abs())
    }

    fn count_open_asks(&mut self) -> Done<u64> {
        let open: i64 = asks::table.filter(IsOpenAsk).select(count_star()).first(&mut self.0)?;
        Ok(open.unsigned_abs())
    }
}
