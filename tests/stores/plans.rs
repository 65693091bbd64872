//! Every statement that a test sends to SQLite, held against what it costs: none may look at a row for every job that
//! has ever ended, unless somebody decided so here.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, Once, PoisonError};

use diesel::connection::{Instrumentation, InstrumentationEvent, set_default_instrumentation};
use tempfile::TempDir;

/// How folders begin whose databases are heard: other tests of this program have databases of their own.
const HEARD: &str = "posse-behaviour-";

static RAN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// A folder for a database of which every statement is heard from now on, as it runs.
pub fn heard_folder() -> TempDir {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| set_default_instrumentation(|| Some(Box::new(Ear::default()))).expect("can be heard"));
    tempfile::Builder::new().prefix(HEARD).tempdir().expect("a folder")
}

/// Hears one connection.
#[derive(Default)]
struct Ear {
    is_heard: bool,
}

impl Instrumentation for Ear {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        match event {
            InstrumentationEvent::StartEstablishConnection { url, .. } => self.is_heard = url.contains(HEARD),
            InstrumentationEvent::StartQuery { query, .. } if self.is_heard => {
                let query = query.to_string();
                let text = query.split(" -- binds").next().unwrap_or(&query);
                RAN.lock().unwrap_or_else(PoisonError::into_inner).insert(text.to_owned());
            }
            _ => {}
        }
    }
}

/// Panics where a statement that ran walks a table which grows for ever. Values are not bound, so what SQLite must know
/// to use a partial index has to be in the text: with values it would plan anew at every use.
pub fn judge(database: &Path) {
    let connection = rusqlite::Connection::open(database).expect("opens");
    let ran = RAN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for sql in
        ran.iter().filter(|sql| ["SELECT", "UPDATE", "DELETE", "WITH"].iter().any(|verb| sql.trim().starts_with(verb)))
    {
        let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect(sql);
        let steps = plan.raw_query().mapped(|row| row.get(3)).collect::<Result<Vec<String>, _>>().expect(sql);
        for step in steps {
            assert!(is_bounded(&step, sql), "walks a table that grows for ever: {step}\n{sql}");
        }
    }
}

fn is_bounded(step: &str, sql: &str) -> bool {
    let Some(scanned) = step.strip_prefix("SCAN ") else { return true };
    let table = scanned.split(' ').next().unwrap_or(scanned);
    let grows = [
        "jobs",
        "job_data",
        "job_tags",
        "attempts",
        "steps",
        "tool_calls",
        "blobs",
        "annotations",
        "asks",
        "dependencies",
        "group_waits",
        "progress",
        "sessions",
        "session_jobs",
        "session_summaries",
        "memory_items",
        "schedule_jobs",
        "batches",
        "batch_names",
    ];
    // These hold only what has not ended, or still holds a key.
    let of_few = [
        "jobs_claim",
        "jobs_due",
        "jobs_lease",
        "jobs_suspended",
        "jobs_cancel",
        "jobs_unique",
        "asks_open",
        "asks_expiry",
        "sessions_deleted",
    ];
    // Newest first until a page is full; only people ask.
    let is_page = sql.contains("DESC LIMIT ?") && !sql.contains("jobs.state =") && !sql.contains("jobs.state IN");
    // The newest ten thousand at most.
    let is_near = sql.contains("`jobs`.`id` >= ?");
    // Only people ask how many there are of each kind.
    let counts = sql.contains("count(*)") && step.contains("INDEX jobs_final");
    !grows.contains(&table)
        || of_few.iter().any(|index| step.contains(&format!("INDEX {index}")))
        || is_page
        || is_near
        || counts
}
