//! `posse doctor`: everything that can be looked at, looked at.

use std::path::Path;

use anyhow::Result;
use clap::Args;
use posse_core::doctor::keys::STUCK_MS;
use posse_core::doctor::{Facts, Finding, RESTORE, Verdict, space};
use posse_core::model::Models as _;
use posse_core::port::RateLimiter as _;
use posse_core::port::Rules as _;
use posse_core::port::{CareRepository as _, JobFilter, JobQueries as _, ProcessProbe as _, RepositoryError};
use posse_core::queue::retention::{Kept, Retention};
use posse_core::run::journal::audit::disagreement;
use posse_infra::persona::Severity;
use posse_infra::process::LinuxProcessProbe;
use posse_infra::sandbox::Exact;
use posse_infra::sqlite::{SchemaSteps, SqliteStore, left_behind, schema_of, try_write};
use serde_json::json;

use super::Context;
use crate::exit::Exit;
use crate::output::text::{plural, visible};
use crate::retention;
use crate::settings::Settings;
use crate::wire::{self, Kit};

/// How deep to look
#[derive(Args)]
pub struct DoctorArgs {
    /// Compare each index of the database with its table too, which takes several times as long
    #[arg(long)]
    full: bool,
}

/// Histories that are compared with their ledger: those of the newest jobs.
const SAMPLE: u32 = 50;
/// Unique keys whose holders are looked at: the oldest.
const HOLDERS: u32 = 1000;

/// Looks at all; the exit code is not 0 if something is wrong.
pub async fn doctor(cx: &Context, args: DoctorArgs) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let mut findings = project(&settings).await;
    findings.extend(database(&settings, args.full).await);
    let worst = findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Ok);
    if cx.out.json {
        cx.out.document(&json!({"verdict": worst, "findings": findings}))?;
    } else {
        let paint = cx.out.paint;
        for Finding { check, verdict, message, way_out } in &findings {
            let word = match verdict {
                Verdict::Ok => paint.green("ok     "),
                Verdict::Warning => paint.yellow("warning"),
                Verdict::Wrong => paint.red("wrong  "),
            };
            cx.out.line_at(9, format!("{word}  {check}: {}", visible(message)))?;
            if let Some(way_out) = way_out {
                cx.out.line(format!("           {}", paint.dim(visible(way_out))))?;
            }
        }
    }
    Ok(if worst == Verdict::Wrong { Exit::Failed } else { Exit::Ok })
}

/// Settings, personas, models, space.
async fn project(settings: &Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    match Kit::gather(settings).await {
        Err(error) => findings.push(Finding::wrong("project", format!("{error:#}"), "mend that, then look again")),
        Ok(kit) => {
            findings.push(Finding::ok("personas", format!("{} can be used", kit.personas.personas.len())));
            let problems = kit.personas.problems.iter().filter(|problem| problem.severity != Severity::Note);
            findings.extend(problems.map(|problem| {
                let way_out = "posse persona check tells more";
                match problem.severity {
                    Severity::Error => Finding::wrong("personas", problem.to_string(), way_out),
                    _ => Finding::warning("personas", problem.to_string(), way_out),
                }
            }));
            findings.extend(models(&kit));
            findings.push(match wire::probe_commands(settings, &kit.offer, &kit.personas.personas).await {
                None => Finding::ok("commands", "no persona runs any"),
                Some(Ok(exact)) => Finding::ok("commands", format!("run in sandboxes; {}", held(exact))),
                Some(Err(why)) => Finding::wrong("commands", format!("cannot run: {why}"), wire::COMMANDS_WAY_OUT),
            });
        }
    }
    findings.extend(space_at("the workspace", &settings.workspace));
    findings.extend(settings.database.parent().and_then(|folder| space_at("the database", folder)));
    findings
}

/// How the limits of commands are held here.
fn held(Exact { memory, processes }: Exact) -> &'static str {
    match (memory, processes) {
        (true, true) => "control groups hold their limits on memory and processes exactly",
        (true, false) => "a control group holds their limit on memory exactly, processes are counted 40 times a second",
        (false, true) => "a control group holds their limit on processes exactly, memory is added up 40 times a second",
        (false, false) => {
            "memory and processes are added up 40 times a second, for no control group can be made here (RELIABILITY.md)"
        }
    }
}

/// Whether each model that a persona would ask can be had.
fn models(kit: &Kit) -> Vec<Finding> {
    let mut asked: Vec<_> = kit.personas.personas.iter().map(|file| file.persona.model.clone()).collect();
    asked.sort();
    asked.dedup();
    let judge = |name: Option<String>| {
        let shown = name.clone().unwrap_or_else(|| "the default".into());
        match kit.models.get(name.as_deref()) {
            Ok(_) => Finding::ok("models", format!("{shown} can be asked")),
            Err(error) => Finding::wrong("models", format!("{shown}: {}", error.message), "posse model list"),
        }
    };
    asked.into_iter().map(judge).collect()
}

fn space_at(what: &str, folder: &Path) -> Option<Finding> {
    // Where there is no folder yet there is nothing to be full.
    let free = posse_infra::process::free_space(folder)?;
    Some(space(what, &folder.display().to_string(), free))
}

/// The database, the fleet on it, the histories in it.
async fn database(settings: &Settings, full: bool) -> Vec<Finding> {
    let path = settings.database.display();
    let unusable = |error: &dyn std::fmt::Display| {
        vec![Finding::wrong("database", error.to_string(), "mend that, then look again")]
    };
    // What every other command loads too, be there a database or not.
    if let Err(error) = wire::register_extension(settings) {
        return vec![Finding::wrong("extension", format!("{error:#}"), "mend or remove that file, then look again")];
    }
    if !settings.database.exists() {
        return vec![match left_behind(&settings.database) {
            None => Finding::ok("database", format!("there is none at {path} yet; the first job makes it")),
            Some(what) => Finding::wrong(
                "database",
                format!("there is none at {path} any more: {what}"),
                "put it back, or posse db restore FILE; to begin anew, end the workers and remove what lies there",
            ),
        }];
    }
    let mut findings = match schema_of(&settings.database) {
        Ok(SchemaSteps { last, is_current: true }) => {
            vec![Finding::ok("database", format!("{path}, schema {}", last.unwrap_or_default()))]
        }
        Ok(SchemaSteps { last, .. }) => {
            let message = format!("{path} has schema {}, of an older posse", last.unwrap_or_else(|| "none".into()));
            return vec![Finding::wrong("database", message, "posse db migrate")];
        }
        Err(error) => return unusable(&error),
    };
    let store = match wire::open_to_look(settings) {
        Ok(Some(store)) => store,
        Ok(None) => return findings,
        Err(error) => return unusable(&error),
    };
    findings.push(match try_write(&settings.database) {
        Ok(()) => Finding::ok("writing", "works"),
        Err(error) => Finding::wrong("writing", error.to_string(), "mend that, then look again"),
    });
    match damage(&store, full).await {
        Ok(damage) => findings.extend(damage),
        Err(error) => return unusable(&error),
    }
    match gathered(settings, &store).await {
        Ok(found) => findings.extend(found),
        Err(error) => findings.extend(unusable(&error)),
    }
    findings
}

async fn damage(store: &SqliteStore, full: bool) -> Result<Vec<Finding>> {
    let problems = store.check(full).await?;
    Ok(match problems.is_empty() {
        true => vec![Finding::ok("damage", "none found")],
        false => problems.into_iter().map(|problem| Finding::wrong("damage", problem, RESTORE)).collect(),
    })
}

async fn gathered(settings: &Settings, store: &SqliteStore) -> Result<Vec<Finding>> {
    let now = wire::now();
    let workers = store.workers().await?;
    let personas = wire::personas(settings, &wire::Offer::gather(settings))?;
    let facts = Facts {
        now,
        due: store.due_jobs(now).await?,
        gone: LinuxProcessProbe.dead(&workers),
        workers,
        held: store.held_jobs().await?,
        schedules: store.schedules().await?,
        roles: personas.roles(),
        jumps: store.clock_jumps().await?,
        storage: store.storage().await?,
        waiting: store.key_holders(now - STUCK_MS, HOLDERS).await?,
        rules: store.rules().await?,
        endpoints: store.failing_endpoints().await?,
    };
    let mut findings = facts.findings();
    findings.push(kept(settings, &store.retention().await?.unwrap_or_default()));
    match store.sealed_with().await? {
        Some(key) if !settings.keys.has(&key) => {
            let message = format!("texts are sealed with key {key}, which is not configured here");
            let way_out = "add the key to POSSE_SEAL_KEYS or [sealing] key_file; histories were not looked at";
            findings.push(Finding::wrong("sealing", message, way_out));
            return Ok(findings);
        }
        Some(key) => findings.push(Finding::ok("sealing", format!("texts are sealed with key {key}"))),
        None => {}
    }
    findings.extend(histories(store).await?);
    Ok(findings)
}

/// How long what has ended is kept, and whether the settings would have it otherwise.
fn kept(settings: &Settings, kept: &Retention) -> Finding {
    match retention::disagreement(kept, &settings.retention) {
        Some((what, way_out)) => Finding::warning("retention", what, way_out),
        None => {
            let each = Kept::ALL.map(|kind| format!("{} {}", kind.as_str(), retention::words(kept.of(kind))));
            Finding::ok("retention", each.join(", "))
        }
    }
}

/// Whether the newest jobs' ledgers say what their journals say.
async fn histories(store: &SqliteStore) -> Result<Vec<Finding>> {
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
