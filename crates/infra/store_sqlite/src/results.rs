//! What the jobs came to that a job waited for, by name or by group, and those it has made.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use posse_core::job::{Job, JobId, JobState};
use posse_core::run::results::ResultCounts;

use super::fault::Outcome;
use super::rows::{DataColumns, JobColumns, both, state};
use super::schema::{job_data, jobs};
use posse_core::store::seal::Keys;
use posse_core::store::views::to_job;

/// Their numbers. Members of a group that had completed before it was waited for have no row among the dependencies;
/// one that came to be in it later, when it was no longer waited for, counts once it has ended.
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

/// How they stand.
pub(super) fn counts(connection: &mut SqliteConnection, of: JobId) -> Outcome<ResultCounts> {
    #[derive(QueryableByName)]
    struct Count {
        #[diesel(sql_type = Nullable<Text>)]
        state: Option<String>,
        #[diesel(sql_type = BigInt)]
        jobs: i64,
    }
    let rows: Vec<Count> = diesel::sql_query(format!(
        "{THEIRS} SELECT j.state AS state, count(*) AS jobs FROM theirs t LEFT JOIN jobs j ON j.id = t.id GROUP BY j.state"
    ))
    .bind::<BigInt, _>(of.0)
    .load(connection)?;
    let mut counts = ResultCounts::default();
    for Count { state: name, jobs } in rows {
        match name {
            Some(name) => counts.states.push((state(&name)?, jobs.unsigned_abs())),
            None => counts.deleted = jobs.unsigned_abs(),
        }
    }
    counts.states.sort_by_key(|(state, _)| JobState::ALL.iter().position(|known| known == state));
    Ok(counts)
}

/// Those with higher numbers than `after`, by number.
pub(super) fn page(
    connection: &mut SqliteConnection,
    keys: &Keys,
    of: JobId,
    after: JobId,
    limit: u32,
) -> Outcome<Vec<Job>> {
    #[derive(QueryableByName)]
    struct Id {
        #[diesel(sql_type = BigInt)]
        id: i64,
    }
    let ids: Vec<Id> = diesel::sql_query(format!(
        "{THEIRS} SELECT j.id AS id FROM theirs t JOIN jobs j ON j.id = t.id WHERE t.id > ?2 ORDER BY t.id LIMIT ?3"
    ))
    .bind::<BigInt, _>(of.0)
    .bind::<BigInt, _>(after.0)
    .bind::<BigInt, _>(i64::from(limit))
    .load(connection)?;
    let rows: Vec<(JobColumns, DataColumns)> = jobs::table
        .inner_join(job_data::table)
        .filter(jobs::id.eq_any(ids.into_iter().map(|row| row.id)))
        .order(jobs::id)
        .select((JobColumns::as_select(), DataColumns::as_select()))
        .load(connection)?;
    rows.into_iter().map(|row| Ok(to_job(keys, both(row)?))).collect()
}
