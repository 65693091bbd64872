//! Groups of jobs: how they stand and what they used.

use std::collections::BTreeMap;

use diesel::connection::DefaultLoadingMode;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use posse_core::job::{GroupStanding, GroupUse, JobState, Output};

use super::fault::Outcome;
use super::rows::state;
use super::schema::{job_data, jobs};
use posse_core::store::seal::{Keys, Place, Sealed};

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = Text)]
    group_name: String,
    #[diesel(sql_type = Text)]
    state: String,
    #[diesel(sql_type = BigInt)]
    jobs: i64,
}

/// Reads the index of groups and the state of each job in it.
const STANDINGS: &str = "
    SELECT group_name, state, count(*) AS jobs FROM job_data JOIN jobs ON id = job_id
    WHERE group_name IS NOT NULL";

/// Every group, by name.
pub(super) fn all(connection: &mut SqliteConnection) -> Outcome<Vec<GroupStanding>> {
    standings(diesel::sql_query(format!("{STANDINGS} GROUP BY group_name, state")).load(connection)?)
}

/// One group, if it has jobs.
pub(super) fn one(
    connection: &mut SqliteConnection,
    keys: &Keys,
    name: &str,
) -> Outcome<Option<(GroupStanding, GroupUse)>> {
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
    let rows = diesel::sql_query(format!("{STANDINGS} AND group_name = ? GROUP BY group_name, state"))
        .bind::<Text, _>(name)
        .load(connection)?;
    let Some(standing) = standings(rows)?.pop() else { return Ok(None) };
    if keys.seals() {
        return Ok(Some((standing, opened_use(connection, keys, name)?)));
    }
    let used: Used = diesel::sql_query(
        "SELECT CAST(total(output ->> '$.turns') AS INTEGER) AS turns,
                CAST(total(output ->> '$.usage.input') AS INTEGER) AS input,
                CAST(total(output ->> '$.usage.output') AS INTEGER) AS output,
                CAST(total(output ->> '$.cost_microusd') AS INTEGER) AS cost
         FROM job_data JOIN jobs ON id = job_id WHERE group_name = ? AND json_valid(output)",
    )
    .bind::<Text, _>(name)
    .get_result(connection)?;
    let used = GroupUse {
        turns: used.turns.unsigned_abs(),
        input_tokens: used.input.unsigned_abs(),
        output_tokens: used.output.unsigned_abs(),
        cost_microusd: used.cost.unsigned_abs(),
    };
    Ok(Some((standing, used)))
}

/// What a group used, where answers are sealed: SQLite cannot look into them.
fn opened_use(connection: &mut SqliteConnection, keys: &Keys, name: &str) -> Outcome<GroupUse> {
    let outputs = job_data::table
        .inner_join(jobs::table)
        .filter(job_data::group_name.eq(name))
        .filter(jobs::output.is_not_null())
        .select((jobs::id, jobs::output.assume_not_null()))
        .load_iter::<(i64, Sealed), DefaultLoadingMode>(connection)?;
    let mut used = GroupUse::default();
    for row in outputs {
        let (job, sealed) = row?;
        // What cannot be opened or read has used nothing that anybody knows of.
        let Ok(text) = keys.open(Place::output(job), &sealed) else { continue };
        let Ok(output) = serde_json::from_str::<Output>(&text) else { continue };
        used.turns += u64::from(output.turns);
        used.input_tokens += output.usage.input;
        used.output_tokens += output.usage.output;
        used.cost_microusd += output.cost_microusd.unwrap_or(0);
    }
    Ok(used)
}

fn standings(rows: Vec<Count>) -> Outcome<Vec<GroupStanding>> {
    let mut groups: BTreeMap<String, Vec<(JobState, u64)>> = BTreeMap::new();
    for Count { group_name, state: name, jobs } in rows {
        groups.entry(group_name).or_default().push((state(&name)?, jobs.unsigned_abs()));
    }
    let place = |state: JobState| JobState::ALL.iter().position(|s| *s == state);
    let standing = |(group, mut states): (String, Vec<(JobState, u64)>)| {
        states.sort_by_key(|(state, _)| place(*state));
        GroupStanding { group, states }
    };
    Ok(groups.into_iter().map(standing).collect())
}
