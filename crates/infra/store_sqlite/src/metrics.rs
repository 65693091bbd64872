//! What is asked of the database to watch a fleet by.

use async_trait::async_trait;
use diesel::dsl::count_star;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use posse_core::clock::Millis;
use posse_core::metrics::{JobsIn, MetricsQueries, Standing, Written};
use posse_core::port::RepositoryError;

use super::fault::Outcome;
use super::literal::IsOpenAsk;
use super::log::Log;
use super::rows::state;
use super::schema::{asks, workers};
use super::{SqliteStore, care, endpoints};
use posse_core::store::seal::Keys;

/// Jobs that have not ended. Each part reads one partial index; none looks at a final job.
pub(super) const JOBS: &str = "
    SELECT role, queue, 'available' AS state, count(*) AS jobs FROM jobs WHERE state = 'available' GROUP BY role, queue
    UNION ALL
    SELECT role, queue, state, count(*) FROM jobs WHERE state IN ('scheduled', 'retryable') GROUP BY role, queue, state
    UNION ALL
    SELECT role, queue, 'running', count(*) FROM jobs WHERE state = 'running' GROUP BY role, queue
    UNION ALL
    SELECT role, queue, 'suspended', count(*) FROM jobs WHERE state = 'suspended' GROUP BY role, queue
    ORDER BY 1, 2, 3";

/// Ids are given out in order and never again, so the highest that was tells how many there were.
const ENQUEUED: &str = "SELECT seq AS n FROM sqlite_sequence WHERE name = 'jobs'";

/// Jobs that have not ended, by role, queue and state.
pub(super) fn jobs(connection: &mut SqliteConnection) -> Outcome<Vec<JobsIn>> {
    #[derive(QueryableByName)]
    struct Row {
        #[diesel(sql_type = Text)]
        role: String,
        #[diesel(sql_type = Text)]
        queue: String,
        #[diesel(sql_type = Text)]
        state: String,
        #[diesel(sql_type = BigInt)]
        jobs: i64,
    }
    let rows: Vec<Row> = diesel::sql_query(JOBS).load(connection)?;
    let of = |row: Row| {
        Ok(JobsIn { role: row.role, queue: row.queue, state: state(&row.state)?, jobs: row.jobs.unsigned_abs() })
    };
    rows.into_iter().map(of).collect()
}

fn enqueued(connection: &mut SqliteConnection) -> Outcome<u64> {
    #[derive(QueryableByName)]
    struct Row {
        #[diesel(sql_type = BigInt)]
        n: i64,
    }
    // There is no row before the first job.
    let row: Option<Row> = diesel::sql_query(ENQUEUED).get_result(connection).optional()?;
    Ok(row.map_or(0, |row| row.n.unsigned_abs()))
}

fn standing(connection: &mut SqliteConnection, keys: &Keys, now: Millis) -> Outcome<Standing> {
    let roles_and_slots: Vec<(String, i32)> =
        workers::table.select((workers::roles, workers::slots)).load(connection)?;
    // Each role has as many slots as the process says; one whose roles cannot be read has one.
    let of_worker = |(roles, slots): &(String, i32)| {
        let roles = serde_json::from_str::<Vec<String>>(roles).map_or(1, |roles| roles.len() as u64);
        u64::from(slots.unsigned_abs()).saturating_mul(roles)
    };
    let open: i64 = asks::table.filter(IsOpenAsk).select(count_star()).first(connection)?;
    let (pages, free, size) = care::pages(connection)?;
    let mut standing = Standing {
        at: now,
        jobs: jobs(connection)?,
        due: care::due(connection, now)?,
        enqueued: enqueued(connection)?,
        workers: roles_and_slots.len() as u64,
        slots: roles_and_slots.iter().map(of_worker).sum(),
        open_questions: open.unsigned_abs(),
        failing_endpoints: endpoints::failing(connection, keys)?,
        ..Standing::default()
    };
    standing.storage.bytes = pages * size;
    standing.storage.free_bytes = free * size;
    standing.storage.gives_back = care::gives_back(connection)?;
    Ok(standing)
}

#[async_trait]
impl MetricsQueries for SqliteStore {
    async fn standing(&self, now: Millis) -> Result<Standing, RepositoryError> {
        let mut standing = self
            .read(move |connection, keys| connection.transaction(|connection| standing(connection, keys, now)))
            .await?;
        standing.storage.log_bytes = Log::of(&self.path).bytes();
        Ok(standing)
    }

    fn written(&self) -> Written {
        self.writer.as_ref().map_or_else(Written::default, super::Writer::written)
    }
}
