//! `posse queue`: where jobs wait.

use anyhow::Result;
use clap::Subcommand;
use posse_app::json;
use posse_app::queues;

use super::Context;
use super::rules::{in_words, paused};
use crate::exit::Exit;
use crate::output::table::{painted, plain, render};
use crate::output::text::{count, visible};
use crate::wire;

/// Queues
#[derive(Subcommand)]
pub enum QueueCommand {
    /// Queues with jobs that have not ended, or with a rule: how many are where, what is paused or limited
    List,
}

/// Does what was asked.
pub async fn dispatch(cx: &Context, command: QueueCommand) -> Result<Exit> {
    let QueueCommand::List = command;
    let settings = cx.plain_settings()?;
    let store = wire::open_reader(&settings)?;
    let listed = match &store {
        Some(store) => queues::list(&**store).await?,
        None => Vec::new(),
    };
    if cx.out.json {
        cx.out.list("queues", json::listed(listed, false)?, None)?;
        return Ok(Exit::Ok);
    }
    if listed.is_empty() {
        cx.out.note("no queue has a job that has not ended");
        return Ok(Exit::Ok);
    }
    let (now, paint) = (wire::now(), cx.out.paint);
    let rows = listed.iter().map(|queue| {
        let rule = queue.rule.as_ref().map_or(String::new(), |rule| {
            let words = [paused(rule.paused_at, now), in_words(&rule.limits)];
            words.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(", ")
        });
        vec![
            painted(visible(&queue.queue), move |text| paint.cyan(text)),
            plain(count(queue.available)),
            plain(count(queue.scheduled)),
            plain(count(queue.running)),
            plain(count(queue.suspended)),
            painted(rule, move |text| paint.yellow(text)),
        ]
    });
    let titles = ["QUEUE", "AVAILABLE", "SCHEDULED", "RUNNING", "SUSPENDED", "RULE"];
    for line in render(&titles, rows.collect(), cx.out.width, |title| paint.dim(title)) {
        cx.out.line(line)?;
    }
    if let Some(store) = store
        && queues::all_paused(&*store).await?
    {
        cx.out.warn("everything is paused (posse resume --all)");
    }
    Ok(Exit::Ok)
}
