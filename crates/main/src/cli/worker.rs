//! `posse worker`: the processes that work.

use anyhow::Result;
use clap::Subcommand;

use super::Context;
use crate::exit::Exit;
use crate::output::table::{plain, render};
use crate::output::text::{ago, one_line};
use crate::wire;

/// Worker processes
#[derive(Subcommand)]
pub enum WorkerCommand {
    /// Worker processes on the list
    List,
}

/// Does what was asked.
pub async fn dispatch(cx: &Context, command: WorkerCommand) -> Result<Exit> {
    let WorkerCommand::List = command;
    let settings = cx.plain_settings()?;
    let workers = match wire::open_reader(&settings)? {
        Some(queries) => queries.workers().await?,
        None => Vec::new(),
    };
    if cx.out.json {
        cx.out.document(&workers)?;
        return Ok(Exit::Ok);
    }
    if workers.is_empty() {
        cx.out.note("no worker is on the list; posse work starts one");
        return Ok(Exit::Ok);
    }
    let now = wire::now();
    let rows = workers.iter().map(|w| {
        vec![
            plain(one_line(&w.id, 60)),
            plain(w.pid.to_string()),
            plain(w.slots.to_string()),
            plain(ago(w.started_at, now)),
            plain(ago(w.heartbeat_at, now)),
            plain(one_line(&w.roles.join(", "), 200)),
        ]
    });
    let titles = ["WORKER", "PID", "SLOTS", "STARTED", "LAST SIGN OF LIFE", "ROLES"];
    for line in render(&titles, rows.collect(), cx.out.width, |title| cx.out.paint.dim(title)) {
        cx.out.line(line)?;
    }
    Ok(Exit::Ok)
}
