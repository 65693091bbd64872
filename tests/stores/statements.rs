//! The statements that SQLite is sent, as they run, of databases in folders made here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use diesel::connection::{Instrumentation, InstrumentationEvent, set_default_instrumentation};
use tempfile::TempDir;

/// How the folders begin: other tests of this program have databases of their own.
const BEGINNING: &str = "posse-statements-";

/// What the connections to one database were sent.
#[derive(Default)]
pub struct Sent {
    /// Statements in the order in which they ran, without their values.
    pub ran: Vec<Ran>,
    /// Statements that a connection kept prepared.
    pub kept: BTreeSet<Arc<str>>,
    texts: BTreeSet<Arc<str>>,
}

/// One run of a statement.
pub struct Ran {
    pub sql: Arc<str>,
    /// Whether the thread that only writes ran it, and not a caller's.
    pub by_writer: bool,
}

impl Sent {
    /// What read or wrote rows, each text once.
    pub fn about_rows(&self) -> BTreeSet<&str> {
        let is_about_rows = |sql: &&str| {
            ["SELECT", "INSERT", "REPLACE", "UPDATE", "DELETE", "WITH"].iter().any(|verb| sql.trim().starts_with(verb))
        };
        self.texts.iter().map(AsRef::as_ref).filter(is_about_rows).collect()
    }
}

static SENT: Mutex<BTreeMap<String, Sent>> = Mutex::new(BTreeMap::new());

fn sent() -> MutexGuard<'static, BTreeMap<String, Sent>> {
    SENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder for a database of which every statement is noted from now on.
pub struct Noted(TempDir);

impl Noted {
    pub fn folder() -> Noted {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| set_default_instrumentation(|| Some(Box::new(Note::default()))).expect("is taken"));
        Noted(tempfile::Builder::new().prefix(BEGINNING).tempdir().expect("a folder"))
    }

    pub fn database(&self) -> PathBuf {
        self.0.path().join("jobs.db")
    }

    /// What was sent since the last call.
    pub fn sent(&self) -> Sent {
        let name = self.0.path().file_name().expect("a name").to_string_lossy().into_owned();
        sent().remove(&name).unwrap_or_default()
    }

    /// How SQLite runs a statement. Values are not bound, so what it must know to use a partial index has to be in the
    /// text: with values it would plan anew at every use.
    pub fn plan(&self, sql: &str) -> Vec<String> {
        let connection = rusqlite::Connection::open(self.database()).expect("opens");
        let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect(sql);
        plan.raw_query().mapped(|row| row.get(3)).collect::<Result<_, _>>().expect(sql)
    }
}

/// Notes what one connection is sent.
#[derive(Default)]
struct Note {
    folder: Option<String>,
}

impl Instrumentation for Note {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        if let InstrumentationEvent::StartEstablishConnection { url, .. } = event {
            self.folder = url.split('/').find(|part| part.starts_with(BEGINNING)).map(str::to_owned);
        }
        let Some(folder) = &self.folder else { return };
        match event {
            InstrumentationEvent::StartQuery { query, .. } => {
                let query = query.to_string();
                let text = query.split(" -- binds").next().unwrap_or(&query);
                let by_writer = std::thread::current().name() == Some("posse-writer");
                let mut sent = sent();
                let sent = sent.entry(folder.clone()).or_default();
                let sql = sent.texts.get(text).cloned().unwrap_or_else(|| text.into());
                sent.texts.insert(Arc::clone(&sql));
                sent.ran.push(Ran { sql, by_writer });
            }
            InstrumentationEvent::CacheQuery { sql, .. } => {
                sent().entry(folder.clone()).or_default().kept.insert(sql.into());
            }
            _ => {}
        }
    }
}
