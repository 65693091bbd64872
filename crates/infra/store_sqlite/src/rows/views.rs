//! Which jobs there are, and how many.

use diesel::connection::DefaultLoadingMode;
use diesel::dsl::{count_star, exists, max, min, not, sql};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer, Nullable, Text};
use diesel::sqlite::Sqlite;
use posse_core::clock::Millis;
use posse_core::job::{JobId, JobState};
use posse_core::port::{DueJobs, JobFilter, JobsIn, StateRow};
use posse_core::queue::rules::Running;
use posse_core::store::Done;
use posse_core::store::driver::{CountsOf, Ended, IdsOf, Number, Queues, StatesOf, ViewRows};
use posse_core::store::seal::Sealed;

use super::{Rows, count, state};
use crate::literal::{IsAvailable, IsOpenAsk, IsRunning, IsSuspended, IsToBeCancelled, IsWaiting, among};
use crate::schema::{asks, job_data, job_tags, jobs, session_jobs, sqlite_sequence};

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

/// Jobs that have not ended. Each part reads one partial index; none looks at a final job.
pub(crate) const JOBS: &str = "
    SELECT role, queue, 'available' AS state, count(*) AS jobs FROM jobs WHERE state = 'available' GROUP BY role, queue
    UNION ALL
    SELECT role, queue, state, count(*) FROM jobs WHERE state IN ('scheduled', 'retryable') GROUP BY role, queue, state
    UNION ALL
    SELECT role, queue, 'running', count(*) FROM jobs WHERE state = 'running' GROUP BY role, queue
    UNION ALL
    SELECT role, queue, 'suspended', count(*) FROM jobs WHERE state = 'suspended' GROUP BY role, queue
    ORDER BY 1, 2, 3";

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

#[derive(QueryableByName)]
struct Id {
    #[diesel(sql_type = BigInt)]
    id: i64,
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

    fn fitting(&mut self, filter: &JobFilter, state: Option<JobState>, most: u32) -> QueryResult<Vec<i64>> {
        match state {
            Some(state) if !state.is_final() && state != JobState::Suspended => self.unended(filter, state, most),
            _ => fitting_jobs(filter, state)
                .select(jobs::id)
                .order(jobs::id.desc())
                .limit(i64::from(most))
                .load(&mut self.0),
        }
    }

    /// Jobs are found in the order of their ids, which is the order in which they were enqueued. A job cannot have ended
    /// before it was enqueued; so the search ends at the first id that is too young, and no index by the time of the end
    /// is needed, which every end would have to write.
    fn ended(&mut self, how: Ended<'_>, now: Millis, most: u32) -> QueryResult<Vec<i64>> {
        let mut ended = jobs::table
            .filter(jobs::state.eq(how.state.as_str()))
            // Spells the condition of the index that has these in order.
            .filter(jobs::finalized_at.is_not_null())
            .filter(jobs::finalized_at.lt(how.before))
            // Others still wait for it, and would for ever.
            .filter(jobs::awaited.eq(false))
            // An exchange stays as long as its session does.
            .filter(not(exists(session_jobs::table.filter(session_jobs::job_id.eq(jobs::id)))))
            // Its row is what holds its unique key; see [`posse_core::job::holds_key`].
            .filter(
                jobs::state
                    .ne(JobState::Completed.as_str())
                    .or(jobs::unique_ms.is_null())
                    .or((jobs::finalized_at + jobs::unique_ms).le(now)),
            )
            .order(jobs::id)
            .limit(i64::from(most))
            .select(jobs::id)
            .into_boxed();
        ended = match how.among {
            Some(ids) => ended.filter(among(ids)),
            None => match first_younger(&mut self.0, how.before)? {
                Some(younger) => ended.filter(jobs::id.lt(younger)),
                None => return Ok(Vec::new()),
            },
        };
        ended = match how.queues {
            Queues::AllBut([]) => ended,
            Queues::AllBut(names) => ended.filter(jobs::queue.ne_all(names)),
            Queues::Only(name) => ended.filter(jobs::queue.eq(name)),
        };
        ended.load(&mut self.0)
    }

    fn live(&mut self, group: Option<&str>) -> QueryResult<Vec<(i64, String, i32)>> {
        let live = sql::<(BigInt, Text, Integer)>;
        let mut rows: Vec<(i64, String, i32)> = match group {
            None => live(LIVE).load(&mut self.0)?,
            Some(group) => {
                let of_group =
                    format!("SELECT live.* FROM ({LIVE}) AS live JOIN job_data ON job_id = id WHERE group_name = ");
                live(&of_group).bind::<Text, _>(group).load(&mut self.0)?
            }
        };
        // Asked for in this order, SQLite would walk all jobs in it once for each part.
        rows.sort_unstable_by_key(|(id, ..)| *id);
        Ok(rows)
    }
}

impl ViewRows for Rows {
    fn ids(&mut self, of: IdsOf<'_>) -> Done<Vec<JobId>> {
        let exchanges = session_jobs::table.select(session_jobs::job_id);
        let ids: Vec<i64> = match of {
            IdsOf::Due(now, most) => jobs::table
                .filter(IsWaiting)
                .filter(jobs::run_at.le(now))
                .order(jobs::run_at)
                .limit(i64::from(most))
                .select(jobs::id)
                .load(&mut self.0)?,
            IdsOf::ToBeCancelled => {
                jobs::table.filter(IsToBeCancelled).order(jobs::id).select(jobs::id).load(&mut self.0)?
            }
            IdsOf::Children(parent) => job_data::table
                .filter(job_data::parent_id.eq(parent.0))
                .order(job_data::job_id)
                .select(job_data::job_id)
                .load(&mut self.0)?,
            IdsOf::Exchanges(session, before, most) => exchanges
                .filter(session_jobs::session_id.eq(session.0))
                .filter(session_jobs::job_id.lt(before.0))
                .order(session_jobs::job_id)
                .limit(i64::from(most))
                .load(&mut self.0)?,
            IdsOf::LastExchange(session) => exchanges
                .filter(session_jobs::session_id.eq(session.0))
                .order(session_jobs::job_id.desc())
                .limit(1)
                .load(&mut self.0)?,
            IdsOf::Fitting(filter, state, most) => self.fitting(filter, state, most)?,
            IdsOf::Results { of, after, most } => {
                let rows: Vec<Id> = diesel::sql_query(format!(
                    "{THEIRS} SELECT j.id AS id FROM theirs t JOIN jobs j ON j.id = t.id \
                     WHERE t.id > ?2 ORDER BY t.id LIMIT ?3"
                ))
                .bind::<BigInt, _>(of.0)
                .bind::<BigInt, _>(after.0)
                .bind::<BigInt, _>(i64::from(most))
                .load(&mut self.0)?;
                rows.into_iter().map(|row| row.id).collect()
            }
            IdsOf::Ended(how, now, most) => self.ended(how, now, most)?,
        };
        Ok(ids.into_iter().map(JobId).collect())
    }

    fn states(&mut self, of: StatesOf<'_>) -> Done<Vec<StateRow>> {
        let states = jobs::table.select((jobs::id, jobs::state, jobs::attempt));
        let of_group = job_data::table.inner_join(jobs::table).order(job_data::job_id).select((
            jobs::id,
            jobs::state,
            jobs::attempt,
        ));
        let rows: Vec<(i64, String, i32)> = match of {
            StatesOf::Ids(ids) => states.filter(among(ids)).order(jobs::id).load(&mut self.0)?,
            StatesOf::After(after, None, most) => {
                states.filter(jobs::id.gt(after.0)).order(jobs::id).limit(i64::from(most)).load(&mut self.0)?
            }
            StatesOf::After(after, Some(group), most) => of_group
                .filter(job_data::group_name.eq(group))
                .filter(job_data::job_id.gt(after.0))
                .limit(i64::from(most))
                .load(&mut self.0)?,
            StatesOf::Live(group) => self.live(group)?,
            StatesOf::Incomplete(group, most) => of_group
                .filter(job_data::group_name.eq(group))
                .filter(jobs::state.ne(JobState::Completed.as_str()))
                .limit(i64::from(most))
                .load(&mut self.0)?,
            StatesOf::Members(group, most) => {
                of_group.filter(job_data::group_name.eq(group)).limit(i64::from(most)).load(&mut self.0)?
            }
        };
        let row = |(id, name, attempt): (i64, String, i32)| {
            Ok(StateRow { job: JobId(id), state: state(&name)?, attempt: count(attempt) })
        };
        rows.into_iter().map(row).collect()
    }

    fn counts(&mut self, of: CountsOf<'_>) -> Done<Vec<(String, JobState, u64)>> {
        let counts = sql::<(Text, Text, BigInt)>;
        let rows: Vec<(String, String, i64)> = match of {
            CountsOf::Roles => counts(COUNTS).load(&mut self.0)?,
            CountsOf::Groups(None) => counts(&format!("{STANDINGS} GROUP BY group_name, state")).load(&mut self.0)?,
            CountsOf::Groups(Some(group)) => {
                let of_group = counts(&format!("{STANDINGS} AND group_name = ")).bind::<Text, _>(group);
                of_group.sql(" GROUP BY group_name, state").load(&mut self.0)?
            }
        };
        rows.into_iter().map(|(name, is, jobs)| Ok((name, state(&is)?, jobs.unsigned_abs()))).collect()
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

    fn started(&mut self) -> Done<Vec<Running>> {
        let running: Vec<(String, String, String)> =
            jobs::table.filter(IsRunning).select((jobs::role, jobs::queue, jobs::concurrency_key)).load(&mut self.0)?;
        Ok(running.into_iter().map(|(role, queue, key)| Running { role, queue, key }).collect())
    }

    fn jobs_in(&mut self) -> Done<Vec<JobsIn>> {
        let rows: Vec<(String, String, String, i64)> = sql::<(Text, Text, Text, BigInt)>(JOBS).load(&mut self.0)?;
        let of = |(role, queue, is, jobs): (String, String, String, i64)| {
            Ok(JobsIn { role, queue, state: state(&is)?, jobs: jobs.unsigned_abs() })
        };
        rows.into_iter().map(of).collect()
    }

    fn due_by_role(&mut self, now: Millis) -> Done<Vec<DueJobs>> {
        type Row = (String, i64, Option<i64>);
        let summary = (jobs::role, count_star(), min(jobs::run_at));
        let available: Vec<Row> =
            jobs::table.filter(IsAvailable).group_by(jobs::role).select(summary).load(&mut self.0)?;
        let waiting: Vec<Row> = jobs::table
            .filter(IsWaiting)
            .filter(jobs::run_at.le(now))
            .group_by(jobs::role)
            .select(summary)
            .load(&mut self.0)?;
        let due = |(role, jobs, oldest): Row| DueJobs {
            role,
            jobs: jobs.unsigned_abs(),
            oldest_due_at: oldest.unwrap_or(now),
        };
        Ok(available.into_iter().chain(waiting).map(due).collect())
    }

    fn number(&mut self, of: Number) -> Done<Option<i64>> {
        Ok(match of {
            Number::NextDue => jobs::table.filter(IsWaiting).select(min(jobs::run_at)).first(&mut self.0)?,
            Number::NextLeaseEnd => jobs::table.filter(IsRunning).select(min(jobs::lease_until)).first(&mut self.0)?,
            Number::NextExpiry => {
                let open = asks::table.filter(IsOpenAsk).filter(asks::expires_at.is_not_null());
                open.select(min(asks::expires_at)).first(&mut self.0)?
            }
            Number::Newest => jobs::table.select(max(jobs::id)).first(&mut self.0)?,
            // Ids are given out in order and never again, so the highest that was tells how many there were. There is no
            // row before the first job.
            Number::Enqueued => {
                let last = sqlite_sequence::table.filter(sqlite_sequence::name.eq("jobs"));
                last.select(sqlite_sequence::seq).first(&mut self.0).optional()?
            }
            Number::OpenAsks => asks::table.filter(IsOpenAsk).select(count_star()).first(&mut self.0).map(Some)?,
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
}

/// The end of the ids of jobs that were enqueued before `cutoff`, found by halving; none if the very
/// first is younger. A clock that was set back makes it an earlier end, never a wrong deletion.
fn first_younger(connection: &mut SqliteConnection, cutoff: Millis) -> QueryResult<Option<i64>> {
    let (first, last): (Option<i64>, Option<i64>) =
        (jobs::table.select(min(jobs::id)).first(connection)?, jobs::table.select(max(jobs::id)).first(connection)?);
    let (Some(mut older), Some(last)) = (first, last) else { return Ok(None) };
    let mut is_older = |id: i64| -> QueryResult<Option<(i64, bool)>> {
        // Ids of deleted jobs are gaps.
        let next: Option<(i64, i64)> = jobs::table
            .filter(jobs::id.ge(id))
            .order(jobs::id)
            .select((jobs::id, jobs::created_at))
            .first(connection)
            .optional()?;
        Ok(next.map(|(id, created_at)| (id, created_at < cutoff)))
    };
    if !is_older(older)?.is_some_and(|(_, older)| older) {
        return Ok(None);
    }
    let mut younger = last + 1;
    while younger - older > 1 {
        let middle = older + (younger - older) / 2;
        match is_older(middle)? {
            Some((id, true)) => older = id.max(middle),
            _ => younger = middle,
        }
    }
    Ok(Some(younger))
}
