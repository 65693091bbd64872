//! `posse job events` and `posse job replay`: what a journal tells, again.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use posse_app::json::item_of;
use posse_core::events::JobEvent;
use posse_core::events::run::{RunFollower, stream};
use posse_core::job::JobId;
use posse_core::port::JobQueries;
use posse_core::run::sent::requests;

use super::job_table::{no_such_job, reader_for};
use super::lists::FullArgs;
use super::prelude::*;
use crate::live::Renderer;
use crate::output::text::visible;
use crate::process::Signals;
use crate::records;

#[derive(Args)]
pub struct EventsArgs {
    /// The job's number
    id: i64,
    /// Go on until the job ends; the exit code is its outcome's
    #[arg(long, short)]
    follow: bool,
    #[command(flatten)]
    full: FullArgs,
}

#[derive(Args)]
pub struct ReplayArgs {
    /// The job's number
    id: i64,
    /// How many times faster than it was; 0 for at once. 10 on a terminal, else 0. No pause is longer than 10 s
    #[arg(long, value_name = "N")]
    speed: Option<u32>,
    /// Show arguments and results whole
    #[arg(long, conflicts_with = "requests")]
    full: bool,
    /// Print what models were asked, one JSON line for each request; `missing` says what the journal does not tell
    #[arg(long)]
    requests: bool,
}

#[derive(Args)]
pub struct ExportArgs {
    /// The job's number
    id: i64,
    /// The folder to write into; the one beside the database where workers write, unless named
    #[arg(long, value_name = "FOLDER")]
    to: Option<PathBuf>,
    /// The checkpoint as it was after this step; posse job events ID tells their numbers (seq)
    #[arg(long, value_name = "STEP")]
    at_step: Option<u64>,
}

/// The longest pause of a replay: a run may have waited for days.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

const SPEED: u32 = 10;

pub async fn events(cx: &Context, args: EventsArgs) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let id = JobId(args.id);
    let queries = reader_for(&settings, id)?;
    if !args.follow {
        for happened in RunFollower::new(queries, id).poll().await? {
            cx.out.json_line(&item_of(&happened, args.full.full)?)?;
        }
        return Ok(Exit::Ok);
    }
    let mut signals = Signals::listen()?;
    let mut happened = stream(queries.clone(), id);
    loop {
        tokio::select! {
            next = happened.next() => match next {
                Some(event) => cx.out.json_line(&item_of(&event?, args.full.full)?)?,
                None => {
                    let job = queries.job(id).await?;
                    return Ok(job.map_or(Exit::NotFound, |job| Exit::of(&job)));
                }
            },
            () = signals.next() => return Ok(Exit::Interrupted),
        }
    }
}

pub async fn export(cx: &Context, args: ExportArgs) -> Result<Exit> {
    let ExportArgs { id, to, at_step } = args;
    let settings = cx.plain_settings()?;
    let id = JobId(id);
    let queries: Arc<dyn JobQueries> = reader_for(&settings, id)?;
    if queries.job(id).await?.is_none() {
        return Err(no_such_job(&settings, id));
    }
    if to.is_none() && settings.keys.seals() {
        let what = "what this database says is sealed, and files beside it are not: name the folder with --to";
        return Err(usage(what));
    }
    let folder = to.unwrap_or_else(|| records::folder_of(&settings.beside_database("runs"), id));
    let written = records::write(&queries, id, &folder, at_step).await?;
    let lines: Vec<_> = written.iter().map(|file| visible(&file.display().to_string())).collect();
    cx.out.say(&json!({"job": id, "files": written}), lines.join("\n"))
}

pub async fn replay(cx: &Context, args: ReplayArgs) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let id = JobId(args.id);
    let queries = reader_for(&settings, id)?;
    let job = queries.job(id).await?.ok_or_else(|| no_such_job(&settings, id))?;
    let journal = queries.journal(id, 0).await?;
    if args.requests {
        let attempts = queries.attempts(id).await?;
        requests(&journal, &attempts).iter().try_for_each(|made| cx.out.json_line(made))?;
        return Ok(Exit::Ok);
    }
    let speed = args.speed.unwrap_or(if cx.out.moving { SPEED } else { 0 });
    let mut signals = Signals::listen()?;
    let mut renderer = Renderer::new(cx.out.paint, cx.out.width, args.full, wire::free_models(&settings));
    if !cx.out.json {
        renderer.heading(&job).iter().try_for_each(|line| cx.out.line(line))?;
    }
    let mut before = journal.first().map_or(0, |recorded| recorded.at);
    for recorded in journal {
        tokio::select! {
            () = pause(recorded.at - before, speed) => {}
            () = signals.next() => return Ok(Exit::Interrupted),
        }
        before = recorded.at;
        let event = JobEvent::entry(id, recorded);
        match cx.out.json {
            true => cx.out.json_line(&event)?,
            false => renderer.lines(&event).iter().try_for_each(|line| cx.out.line(line))?,
        }
    }
    Ok(Exit::Ok)
}

async fn pause(ms: i64, speed: u32) {
    if speed > 0 && ms > 0 {
        tokio::time::sleep((Duration::from_millis(ms.unsigned_abs()) / speed).min(LONGEST_PAUSE)).await;
    }
}
