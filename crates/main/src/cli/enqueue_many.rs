//! `posse enqueue --jsonl`: many jobs from a file.

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal as _};
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use posse_app::batch::{self, CHUNK, Stored};
use posse_app::enqueue::{Intake, RetryAsked};
use posse_core::job::enqueue::{Ask, accept_label};
use posse_infra::process::SystemClock;

use super::Context;
use crate::exit::{Exit, usage};
use crate::output::Out;
use crate::output::text::{count, plural};
use crate::settings::Settings;
use crate::{wire, workspace};

/// Enqueues the lines of `file`; `defaults` stand in where they have nothing.
pub async fn enqueue_many(
    cx: &Context,
    settings: &Settings,
    intake: &Intake,
    file: &Path,
    batch: Option<String>,
    (ask, retry): (Ask, RetryAsked),
) -> Result<Exit> {
    if let Some(name) = &batch {
        accept_label("batch", name)?;
    }
    let is_stdin = file == Path::new("-");
    let name = if is_stdin { "standard input".to_owned() } else { file.display().to_string() };
    let open = || -> Result<Box<dyn BufRead + Send>> {
        if is_stdin {
            return Ok(Box::new(BufReader::new(std::io::stdin())));
        }
        let opened = File::open(file).map_err(|error| usage(format!("{name} cannot be read: {error}")))?;
        Ok(Box::new(BufReader::new(opened)))
    };
    let workspace = |folder: &Path| workspace::accepted(settings, folder);
    let lines = batch::File { name: &name, intake, ask: &ask, retry, workspace: &workspace, clock: &SystemClock };
    if !is_stdin {
        lines.check(open()?)?;
    }
    let input = open()?;
    let store = wire::open_store(settings)?;
    let mut progress = Progress { out: &cx.out, began: Instant::now(), told: 0 };
    let stored = lines.store(&*store, input, batch, &mut |jobs| progress.tell(jobs)).await;
    progress.end();
    let stored = stored?;
    if cx.out.json {
        return cx.out.document(&stored);
    }
    let Stored { jobs, existing, changed, first, last, resumed_after_line, jobs_before, seconds, .. } = stored;
    let ids = first.zip(last).map(|(first, last)| format!(", {first} to {last}")).unwrap_or_default();
    let rate = count((jobs as f64 / seconds.max(0.001)) as u64);
    cx.out.line(format!("{} enqueued{ids}, in {seconds:.1} s ({rate}/s)", plural(jobs, "job")))?;
    if existing > 0 {
        cx.out.note(format!(
            "the unique keys of {} more were held already: {} of the jobs that hold them were changed, the others not",
            count(existing as u64),
            count(changed as u64)
        ));
    }
    if resumed_after_line > 0 {
        let (lines, before) = (count(resumed_after_line), plural(jobs_before, "job"));
        cx.out.note(format!("lines 1 to {lines} were stored before, as {before}"));
    }
    Ok(Exit::Ok)
}

struct Progress<'a> {
    out: &'a Out,
    began: Instant,
    told: u64,
}

impl Progress<'_> {
    fn tell(&mut self, jobs: u64) {
        let rate = count((jobs as f64 / self.began.elapsed().as_secs_f64().max(0.001)) as u64);
        let line = format!("{} stored ({rate}/s)", plural(jobs, "job"));
        if std::io::stderr().is_terminal() {
            self.told = jobs;
            self.out.moving_line(&line);
        } else if jobs - self.told >= 10 * CHUNK as u64 {
            self.told = jobs;
            self.out.note(line);
        }
    }

    fn end(&self) {
        if self.told > 0 && std::io::stderr().is_terminal() {
            self.out.moving_line("");
        }
    }
}
