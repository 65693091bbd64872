//! `posse bench`: how fast this machine is.

use anyhow::Result;
use clap::Subcommand;

use super::Context;
use crate::bench::{peer, queue};
use crate::exit::Exit;

/// How fast this machine is
#[derive(Subcommand)]
pub enum BenchCommand {
    /// The queue, with jobs that do nothing: one line of JSON for each result
    Queue(queue::QueueArgs),
    /// One process of the above, for a benchmark harness
    #[command(subcommand, hide = true)]
    Peer(peer::Verb),
}

/// Does what was asked.
pub async fn dispatch(cx: &Context, command: BenchCommand) -> Result<Exit> {
    match command {
        BenchCommand::Queue(args) => queue::run(&cx.out, args).await?,
        BenchCommand::Peer(verb) => peer::run(verb).await?,
    }
    Ok(Exit::Ok)
}
