//! `posse worker`: the processes that work.

use posse_app::workers::{self, WorkerView};
use posse_infra::process::LinuxProcessProbe;

use super::prelude::*;
use crate::output::table::plain;
use crate::output::text::{ago, one_line};

#[derive(Subcommand)]
pub enum WorkerCommand {
    /// Worker processes, and what each is doing now
    List,
    /// Ask a worker process to finish what is in hand and end; the only one where none is named
    Drain {
        /// Its id (posse worker list)
        id: Option<String>,
        /// All of them
        #[arg(long, conflicts_with = "id")]
        all: bool,
    },
}

pub async fn dispatch(cx: &Context, command: WorkerCommand) -> Result<Exit> {
    match command {
        WorkerCommand::List => list(cx).await,
        WorkerCommand::Drain { id, all } => drain(cx, id, all).await,
    }
}

async fn list(cx: &Context) -> Result<Exit> {
    let now = wire::now();
    let workers = cx.read(async |store| workers::list(store, &LinuxProcessProbe, now).await).await?;
    let none = "no worker is on the list; posse work starts one";
    let titles = ["WORKER", "PID", "STATUS", "JOBS", "STARTED", "LAST SIGN OF LIFE", "ROLES"];
    let row = |WorkerView { worker, status, jobs, slots_in_all }: &WorkerView| {
        vec![
            plain(one_line(&worker.id, 60)),
            plain(worker.pid.to_string()),
            plain(status.as_str()),
            plain(format!("{}/{slots_in_all}", jobs.len())),
            plain(ago(worker.started_at, now)),
            plain(ago(worker.heartbeat_at, now)),
            plain(one_line(&worker.roles.join(", "), 200)),
        ]
    };
    cx.out.list_or_table(("workers", false), &workers, none, &titles, row)?;
    if cx.out.json {
        return Ok(Exit::Ok);
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
        cx.out.table(&titles, in_hand)?;
    }
    Ok(Exit::Ok)
}

async fn drain(cx: &Context, id: Option<String>, all: bool) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let there = wire::open_reader(&settings)?.ok_or_else(workers::none_there)?.workers().await?;
    let worker = workers::to_drain(&there, id, all)?;
    let asked = workers::drain(&*wire::open_store(&settings)?, worker, wire::now()).await?;
    let lines = asked.iter().map(|id| format!("{id} claims nothing more, and ends when what is in hand has ended"));
    cx.out.say(&json!({"asked": asked}), lines.collect::<Vec<_>>().join("\n"))
}
