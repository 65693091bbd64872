//! Finding jobs by filter, and counting them.

use std::borrow::Cow;

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use diesel::sqlite::Sqlite;
use posse_core::job::{Job, JobId, JobState, Output, Payload};
use posse_core::port::{JobFilter, SEARCHED_AT_MOST, StateRow};

use super::fault::Outcome;
use super::literal::{IsAvailable, IsRunning, IsSuspended, IsWaiting, among};
use super::progress;
use super::rows::{DataColumns, JobColumns, both, state};
use super::schema::{job_data, job_tags, jobs};
use posse_core::store::seal::{Keys, Place, Sealed};
use posse_core::store::views::to_job;

/// Texts looked at in one query.
const TEXTS_AT_ONCE: usize = 500;

/// How many of the newest jobs are looked at one by one, before an index is asked.
const NEAR: i64 = 10_000;

/// Jobs by filter, newest first.
pub(super) fn list(connection: &mut SqliteConnection, keys: &Keys, filter: &JobFilter) -> Outcome<Vec<Job>> {
    let ids = numbers(connection, keys, filter)?;
    let rows: Vec<(JobColumns, DataColumns)> = jobs::table
        .inner_join(job_data::table)
        .filter(among(&ids))
        .order(jobs::id.desc())
        .select((JobColumns::as_select(), DataColumns::as_select()))
        .load(connection)?;
    let mut found = rows.into_iter().map(|row| Ok(to_job(keys, both(row)?))).collect::<Outcome<Vec<_>>>()?;
    progress::fill_in(connection, keys, &mut found)?;
    Ok(found)
}

/// The numbers of jobs by filter, newest first.
pub(super) fn numbers(connection: &mut SqliteConnection, keys: &Keys, filter: &JobFilter) -> Outcome<Vec<i64>> {
    match (&filter.text, &filter.meta) {
        (None, None) => ids(connection, filter, filter.limit),
        _ => with_content(connection, keys, filter),
    }
}

/// One walk for each state asked for: a state that is rare among a million others is found without
/// looking at them.
fn parts(filter: &JobFilter) -> Vec<Option<JobState>> {
    match filter.states.is_empty() {
        true => vec![None],
        false => JobState::ALL.into_iter().filter(|state| filter.states.contains(state)).map(Some).collect(),
    }
}

/// The newest jobs that fit, whatever their texts.
fn ids(connection: &mut SqliteConnection, filter: &JobFilter, limit: u32) -> Outcome<Vec<i64>> {
    let mut found: Vec<i64> = Vec::new();
    for state in parts(filter) {
        found.extend(match state {
            Some(state) if !state.is_final() && state != JobState::Suspended => {
                unended(connection, filter, state, limit)?
            }
            _ => fitting(filter, state)
                .select(jobs::id)
                .order(jobs::id.desc())
                .limit(i64::from(limit))
                .load(connection)?,
        });
    }
    found.sort_by_key(|id| std::cmp::Reverse(*id));
    found.truncate(limit as usize);
    Ok(found)
}

/// The newest jobs of a state whose index is not in their order. Where they are many, a page of them is among the
/// newest jobs of all; where they are few, they are quickly sorted. A walk that stops at a full page alone would look
/// at every job that has ended.
fn unended(connection: &mut SqliteConnection, filter: &JobFilter, state: JobState, limit: u32) -> Outcome<Vec<i64>> {
    let newest: Option<i64> = jobs::table.select(diesel::dsl::max(jobs::id)).first(connection)?;
    let below = filter.before.map_or(i64::MAX, |before| before.0).min(newest.unwrap_or(0).saturating_add(1));
    let near = fitting(filter, Some(state)).filter(jobs::id.ge(below.saturating_sub(NEAR)));
    let found: Vec<i64> = near.select(jobs::id).order(jobs::id.desc()).limit(i64::from(limit)).load(connection)?;
    if found.len() == limit as usize {
        return Ok(found);
    }
    // An expression has no index, so the one of the state is used.
    Ok(fitting(filter, Some(state))
        .select(jobs::id)
        .order((jobs::id + 0).desc())
        .limit(i64::from(limit))
        .load(connection)?)
}

/// The jobs that fit, whatever their texts, of one state or of all.
fn fitting(filter: &JobFilter, state: Option<JobState>) -> jobs::BoxedQuery<'_, Sqlite> {
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

/// The newest jobs that fit and have what is asked for in goal, reason, answer or metadata.
fn with_content(connection: &mut SqliteConnection, keys: &Keys, filter: &JobFilter) -> Outcome<Vec<i64>> {
    #[derive(QueryableByName)]
    struct Found {
        #[diesel(sql_type = BigInt)]
        job_id: i64,
    }
    let escaped = |text: &String| text.replace('\\', r"\\").replace('%', r"\%").replace('_', r"\_");
    // Where texts are sealed, SQLite sees none: then it finds those whose metadata fit.
    let sealed = filter.text.as_deref().filter(|_| keys.seals());
    let pattern = filter.text.as_ref().filter(|_| sealed.is_none()).map(|text| format!("%{}%", escaped(text)));
    let (key, value) = filter.meta.clone().unzip();
    let limit = filter.limit as usize;
    let mut found = Vec::new();
    // What is no JSON has no text, and hides nobody else's.
    for page in ids(connection, filter, SEARCHED_AT_MOST)?.chunks(TEXTS_AT_ONCE) {
        let rows: Vec<Found> = diesel::sql_query(
            r"SELECT job_id FROM job_data JOIN jobs ON id = job_id WHERE job_id IN (SELECT value FROM json_each(?1))
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
        .bind::<Nullable<Text>, _>(&key)
        .bind::<Nullable<Text>, _>(&value)
        .load(connection)?;
        let ids: Vec<_> = rows.into_iter().map(|row| row.job_id).collect();
        found.extend(match sealed {
            Some(text) => opened_with(connection, keys, &ids, text)?,
            None => ids,
        });
        if found.len() >= limit {
            break;
        }
    }
    found.truncate(limit);
    Ok(found)
}

/// Those of some jobs, newest first, that have a text in goal, reason or answer, once those are opened.
fn opened_with(connection: &mut SqliteConnection, keys: &Keys, ids: &[i64], text: &str) -> Outcome<Vec<i64>> {
    type Row = (i64, Sealed, Option<Sealed>, Option<Sealed>);
    let rows: Vec<Row> = jobs::table
        .inner_join(job_data::table)
        .filter(among(ids))
        .order(jobs::id.desc())
        .select((jobs::id, job_data::payload, jobs::output, jobs::reason))
        .load(connection)?;
    let wanted = text.to_ascii_lowercase();
    let has = |text: &str| text.to_ascii_lowercase().contains(&wanted);
    let fits = |(id, payload, output, reason): &Row| {
        // What cannot be opened or read has no text, and hides nobody else's.
        let part = |place, stored: Option<&Sealed>| keys.open(place, stored?).ok().map(Cow::into_owned);
        part(Place::reason(*id), reason.as_ref()).is_some_and(|text| has(&text))
            || part(Place::payload(*id), Some(payload))
                .and_then(|text| serde_json::from_str(&text).ok())
                .is_some_and(|payload: Payload| has(&payload.goal))
            || part(Place::output(*id), output.as_ref())
                .and_then(|text| serde_json::from_str(&text).ok())
                .is_some_and(|output: Output| has(&output.text))
    };
    Ok(rows.iter().filter(|row| fits(row)).map(|(id, ..)| *id).collect())
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

fn stated((id, name, attempt): (i64, String, i32)) -> Outcome<StateRow> {
    Ok(StateRow { job: JobId(id), state: state(&name)?, attempt: attempt.unsigned_abs() })
}

/// The states of some jobs, by id.
pub(super) fn states(connection: &mut SqliteConnection, ids: &[JobId]) -> Outcome<Vec<StateRow>> {
    let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
    let rows: Vec<(i64, String, i32)> = jobs::table
        .filter(among(&ids))
        .order(jobs::id)
        .select((jobs::id, jobs::state, jobs::attempt))
        .load(connection)?;
    rows.into_iter().map(stated).collect()
}

/// The states of jobs with numbers above `after`, by id.
pub(super) fn states_after(
    connection: &mut SqliteConnection,
    after: JobId,
    group: Option<&str>,
    limit: u32,
) -> Outcome<Vec<StateRow>> {
    let mut query = jobs::table
        .filter(jobs::id.gt(after.0))
        .order(jobs::id)
        .limit(i64::from(limit))
        .select((jobs::id, jobs::state, jobs::attempt))
        .into_boxed();
    if let Some(group) = group {
        let members = job_data::table
            .filter(job_data::group_name.eq(group))
            .filter(job_data::job_id.gt(after.0))
            .select(job_data::job_id);
        query = query.filter(jobs::id.eq_any(members));
    }
    query.load(connection)?.into_iter().map(stated).collect()
}

/// The statement of [`live`]. Each part reads one partial index.
pub(super) const LIVE: &str = "
    SELECT id, state, CAST(attempt AS INTEGER) AS attempt FROM jobs WHERE state = 'available'
    UNION ALL SELECT id, state, attempt FROM jobs WHERE state IN ('scheduled', 'retryable')
    UNION ALL SELECT id, state, attempt FROM jobs WHERE state = 'running'
    UNION ALL SELECT id, state, attempt FROM jobs WHERE state = 'suspended'";

/// The jobs that have not ended, by id, and the highest number there is.
pub(super) fn live(connection: &mut SqliteConnection, group: Option<&str>) -> Outcome<(JobId, Vec<StateRow>)> {
    connection.transaction(|connection| {
        let newest: Option<i64> = jobs::table.select(diesel::dsl::max(jobs::id)).first(connection)?;
        let mut rows: Vec<Stated> = match group {
            None => diesel::sql_query(LIVE).load(connection)?,
            Some(group) => diesel::sql_query(format!(
                "SELECT live.* FROM ({LIVE}) AS live JOIN job_data ON job_id = id WHERE group_name = ?"
            ))
            .bind::<Text, _>(group)
            .load(connection)?,
        };
        // Asked for in this order, SQLite would walk all jobs in it once for each part.
        rows.sort_unstable_by_key(|row| row.id);
        let row = |row: Stated| {
            let attempt = u32::try_from(row.attempt).unwrap_or(0);
            Ok(StateRow { job: JobId(row.id), state: state(&row.state)?, attempt })
        };
        Ok((JobId(newest.unwrap_or(0)), rows.into_iter().map(row).collect::<Outcome<_>>()?))
    })
}
