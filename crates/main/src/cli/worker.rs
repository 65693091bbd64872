//! `posse worker`: the processes that work.

use anyhow::Result;
use clap::{Args, Subcommand};
use posse_app::Code;
use posse_app::json;
use posse_app::workers::{self, WorkerView};
use posse_core::job::lease::WorkerId;
use posse_infra::process::LinuxProcessProbe;
use serde_json::json;

use super::Context;
use crate::exit::{Exit, fail, usage};
use crate::output::table::{plain, render};
use crate::output::text::{ago, one_line};
use crate::wire;

/// Worker processes
#[derive(Subcommand)]
pub enum WorkerCommand {
    /// Worker processes, and what each is doing now
    List,
    /// Ask a worker process to finish what is in hand and end; the only one where none is named
    Drain(DrainArgs),
}

/// Which worker to drain
#[derive(Args)]
pub struct DrainArgs {
    /// Its id (posse worker list)
    id: Option<String>,
    /// All of them
    #[arg(long, conflicts_with = "id")]
    all: bool,
}

/// Does what was asked.
pub async fn dispatch(cx: &Context, command: WorkerCommand) -> Result<Exit> {
    match command {
        WorkerCommand::List => list(cx).await,
        WorkerCommand::Drain(args) => drain(cx, args).await,
    }
}

async fn list(cx: &Context) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let now = wire::now();
    let workers = match wire::open_reader(&settings)? {
        Some(store) => workers::list(&*store, &LinuxProcessProbe, now).await?,
        None => Vec::new(),
    };
    if cx.out.json {
        cx.out.list("workers", json::listed(workers, false)?, None)?;
        return Ok(Exit::Ok);
    }
    if workers.is_empty() {
        cx.out.note("no worker is on the list; posse work starts one");
        return Ok(Exit::Ok);
    }
    let rows = workers.iter().map(|WorkerView { worker, status, jobs, slots_in_all }| {
        vec![
            plain(one_line(&worker.id, 60)),
            plain(worker.pid.to_string()),
            plain(status.as_str()),
            plain(format!("{}/{slots_in_all}", jobs.len())),
            plain(ago(worker.started_at, now)),
            plain(ago(worker.heartbeat_at, now)),
            plain(one_line(&worker.roles.join(", "), 200)),
        ]
    });
    let titles = ["WORKER", "PID", "STATUS", "JOBS", "STARTED", "LAST SIGN OF LIFE", "ROLES"];
    for line in render(&titles, rows.collect(), cx.out.width, |title| cx.out.paint.dim(title)) {
        cx.out.line(line)?;
    }
    let in_hand = workers.iter().flat_map(|listed| &listed.jobs).map(|held| {
        let last = held.last_entry.as_deref().zip(held.last_entry_at);
        let doing = last.map_or("began".into(), |(kind, at)| format!("{} {}", kind.replace('_', " "), ago(at, now)));
        vec![
            plain(held.job.to_string()),
            plain(&held.role),
            plain(ago(held.since, now)),
            plain(held.entries.to_string()),
            plain(doing),
            plain(one_line(&held.worker, 60)),
        ]
    });
    let in_hand: Vec<_> = in_hand.collect();
    if !in_hand.is_empty() {
        cx.out.line("")?;
        let titles = ["JOB", "ROLE", "SINCE", "ENTRIES", "LAST ENTRY", "WORKER"];
        for line in render(&titles, in_hand, cx.out.width, |title| cx.out.paint.dim(title)) {
            cx.out.line(line)?;
        }
    }
    Ok(Exit::Ok)
}

async fn drain(cx: &Context, args: DrainArgs) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let none = || fail(Code::WorkerNotFound, "no worker is on the list");
    let workers = wire::open_reader(&settings)?.ok_or_else(none)?.workers().await?;
    let worker = match (args.id, &workers[..]) {
        (_, []) => return Err(none()),
        (Some(id), _) => Some(id),
        (None, _) if args.all => None,
        (None, [only]) => Some(only.id.clone()),
        (None, several) => {
            let ids: Vec<_> = several.iter().map(|worker| worker.id.as_str()).collect();
            return Err(usage(format!("name the worker, or all of them by --all; there are {}", ids.join(", "))));
        }
    };
    let store = wire::open_store(&settings)?;
    let asked = store.request_drain(worker.clone().map(WorkerId), wire::now()).await?;
    if let Some(id) = worker.filter(|_| asked.is_empty()) {
        return Err(fail(Code::WorkerNotFound, format!("there is no worker '{id}' (posse worker list)")));
    }
    if cx.out.json {
        cx.out.document(&json!({"asked": asked}))?;
        return Ok(Exit::Ok);
    }
    for id in asked {
        cx.out.line(format!("{id} claims nothing more, and ends when what is in hand has ended"))?;
    }
    Ok(Exit::Ok)
}
