//! `posse bench`: how fast this machine is.

use anyhow::Result;
use clap::Subcommand;
use posse_bench::queue;

use super::Context;
use crate::env;
use crate::exit::Exit;
use crate::settings::sealing;

/// How fast this machine is
#[derive(Subcommand)]
pub enum BenchCommand {
    /// The queue, with jobs that do nothing: one line of JSON for each result
    Queue(queue::QueueArgs),
}

pub async fn dispatch(cx: &Context, command: BenchCommand) -> Result<Exit> {
    let BenchCommand::Queue(args) = command;
    // The environment's keys alone: those of a settings file are for the database that it is of.
    let keys = sealing::keys(&env::own, None)?;
    queue::run(args, keys, &|line| cx.out.json_line(line)).await?;
    Ok(Exit::Ok)
}
