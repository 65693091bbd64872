//! What is wrong with a database and the fleet on it: what `posse doctor` finds there.

use posse_core::clock::Millis;
use posse_core::doctor::keys::STUCK_MS;
use posse_core::doctor::{Facts, Finding, RESTORE, Verdict};
use posse_core::memory::MemoryStanding;
use posse_core::port::{Database, JobFilter, ProcessProbe, RepositoryError, SchemaSteps, Store};
use posse_core::queue::retention::{Keep, Kept, Retention};
use posse_core::run::journal::disagreement;
use posse_core::store::seal::Keys;
use posse_core::text::plural;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{Result, retention};

/// Histories that are compared with their ledger: those of the newest jobs.
const SAMPLE: u32 = 50;
/// Unique keys whose holders are looked at: the oldest.
const HOLDERS: u32 = 1000;

/// What was found: the document of `posse doctor --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Diagnosis {
    /// The worst of it.
    pub verdict: Verdict,
    /// One for each check.
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// From what each check found.
    pub fn new(findings: Vec<Finding>) -> Diagnosis {
        Diagnosis { verdict: findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Ok), findings }
    }
}

/// That something keeps the rest from being looked at.
pub fn unusable(error: &dyn std::fmt::Display) -> Finding {
    Finding::wrong("database", error.to_string(), "mend that, then look again")
}

/// What a database says before it is opened, `path` being what it is called; and whether it can be.
pub fn closed(database: &dyn Database, is_there: bool, path: &str) -> (Finding, bool) {
    if !is_there {
        let finding = match database.left_behind() {
            None => Finding::ok("database", format!("there is none at {path} yet; the first job makes it")),
            Some(what) => Finding::wrong(
                "database",
                format!("there is none at {path} any more: {what}"),
                "put it back, or posse db restore FILE; to begin anew, end the workers and remove what lies there",
            ),
        };
        return (finding, false);
    }
    match database.schema() {
        Ok(SchemaSteps { last, is_current: true }) => {
            (Finding::ok("database", format!("{path}, schema {}", last.unwrap_or_default())), true)
        }
        Ok(SchemaSteps { last, .. }) => {
            let message = format!("{path} has schema {}, of an older posse", last.unwrap_or_else(|| "none".into()));
            (Finding::wrong("database", message, "posse db migrate"), false)
        }
        Err(error) => (unusable(&error), false),
    }
}

/// Whether it can be written.
pub fn writing(database: &dyn Database) -> Finding {
    match database.try_write() {
        Ok(()) => Finding::ok("writing", "works"),
        Err(error) => Finding::wrong("writing", error.to_string(), "mend that, then look again"),
    }
}

/// What a look at an open database goes by.
#[derive(Clone, Copy)]
pub struct Look<'a> {
    /// The database.
    pub store: &'a dyn Store,
    /// Tells which workers are gone.
    pub processes: &'a dyn ProcessProbe,
    /// The time.
    pub now: Millis,
    /// Roles that some persona plays.
    pub roles: &'a [String],
    /// How long the settings say that what has ended is kept.
    pub retention: &'a [Keep],
    /// What texts can be opened with.
    pub keys: &'a Keys,
    /// Whether each index is compared with its table too.
    pub full: bool,
}

/// Damage, the fleet, and the histories in it.
pub async fn open(look: Look<'_>) -> Vec<Finding> {
    let mut findings = match damage(look.store, look.full).await {
        Ok(findings) => findings,
        Err(error) => return vec![unusable(&error)],
    };
    match gathered(&look).await {
        Ok(found) => findings.extend(found),
        Err(error) => findings.push(unusable(&error)),
    }
    findings
}

/// What is damaged.
pub async fn damage(store: &dyn Store, full: bool) -> Result<Vec<Finding>> {
    let problems = store.check(full).await?;
    Ok(match problems.is_empty() {
        true => vec![Finding::ok("damage", "none found")],
        false => problems.into_iter().map(|problem| Finding::wrong("damage", problem, RESTORE)).collect(),
    })
}

async fn gathered(look: &Look<'_>) -> Result<Vec<Finding>> {
    let Look { store, processes, now, roles, retention, keys, .. } = *look;
    let workers = store.workers().await?;
    let facts = Facts {
        now,
        due: store.due_jobs(now).await?,
        gone: processes.dead(&workers),
        workers,
        held: store.held_jobs().await?,
        schedules: store.schedules().await?,
        roles: roles.to_vec(),
        jumps: store.clock_jumps().await?,
        storage: store.storage().await?,
        waiting: store.key_holders(now - STUCK_MS, HOLDERS).await?,
        rules: store.rules().await?,
        endpoints: store.failing_endpoints().await?,
    };
    let mut findings = facts.findings();
    findings.push(kept(retention, &store.retention().await?.unwrap_or_default()));
    match store.sealed_with().await? {
        Some(key) if !keys.has(&key) => {
            let message = format!("texts are sealed with key {key}, which is not configured here");
            let way_out = "add the key to POSSE_SEAL_KEYS or [sealing] key_file; histories were not looked at";
            findings.push(Finding::wrong("sealing", message, way_out));
            return Ok(findings);
        }
        Some(key) => findings.push(Finding::ok("sealing", format!("texts are sealed with key {key}"))),
        None => {}
    }
    findings.extend(histories(store).await?);
    findings.push(remembered(&store.memory_standing().await?));
    Ok(findings)
}

/// Whether what is remembered can be found by its words, and by its meaning.
fn remembered(standing: &MemoryStanding) -> Finding {
    let MemoryStanding { items, .. } = standing;
    let of = |n: u64, what: &str| (n > 0).then(|| what.replace("{}", &plural(n, "item")));
    let wrong = [
        of(standing.without_words, "{} cannot be found by their words"),
        of(standing.stray_words, "words of {} are indexed that should not be"),
        of(standing.unindexed_vectors, "{} cannot be found by their vectors"),
        of(standing.stray_vectors, "vectors of {} are indexed that should not be"),
    ];
    let wrong: Vec<_> = wrong.into_iter().flatten().collect();
    if !wrong.is_empty() {
        let message = format!("of {}: {}", plural(*items, "item"), wrong.join(", "));
        return Finding::warning("memory", message, "posse memory reindex");
    }
    let vectors = match (&standing.space, standing.without_vector) {
        (None, _) => ", found by words alone".to_owned(),
        (Some(space), 0) => format!(", with vectors of {}", space.model),
        (Some(space), lack) => format!(", {} of them without a vector of {} yet", lack, space.model),
    };
    Finding::ok("memory", format!("{} remembered{vectors}", plural(*items, "item")))
}

/// How long what has ended is kept, and whether the settings would have it otherwise.
fn kept(said: &[Keep], kept: &Retention) -> Finding {
    match retention::disagreement(kept, said) {
        Some((what, way_out)) => Finding::warning("retention", what, way_out),
        None => {
            let each = Kept::ALL.map(|kind| format!("{} {}", kind.as_str(), retention::words(kept.of(kind))));
            Finding::ok("retention", each.join(", "))
        }
    }
}

/// Whether the newest jobs' ledgers say what their journals say.
async fn histories(store: &dyn Store) -> Result<Vec<Finding>> {
    let jobs = store.jobs(JobFilter { limit: SAMPLE, ..JobFilter::default() }).await?;
    let mut findings = Vec::new();
    for job in &jobs {
        if let Some(why) = &job.damage {
            let message = format!("job {}: {why}", job.id);
            let way_out = format!("posse job cancel {}, if it has not ended, and posse job delete {}", job.id, job.id);
            findings.push(Finding::wrong("histories", message, way_out));
        }
        // The journal may grow between the two reads; only what stays different is wrong.
        let mut said = None;
        for _ in 0..3 {
            said = match (store.journal(job.id, 0).await, store.ledger(job.id).await) {
                (Ok(journal), Ok(ledger)) => disagreement(store.installation(), job.id, &journal, &ledger),
                (Err(error @ RepositoryError::Unusable(_)), _) | (_, Err(error @ RepositoryError::Unusable(_))) => {
                    Some(error.to_string())
                }
                (journal, ledger) => {
                    journal?;
                    ledger?;
                    None
                }
            };
            if said.is_none() {
                break;
            }
        }
        if let Some(said) = said {
            let message = format!("job {}: {said}", job.id);
            findings.push(Finding::wrong(
                "histories",
                message,
                "posse db check --full; posse db restore FILE puts the last backup in its place",
            ));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok(
            "histories",
            format!("journal and ledger agree for the newest {}", plural(jobs.len() as u64, "job")),
        ));
    }
    Ok(findings)
}
