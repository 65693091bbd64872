//! Jobs, one in each line; and the one that is meant.

use std::sync::Arc;

use posse_app::Code;
use posse_app::jobs::JobItem;
use posse_core::clock::Millis;
use posse_core::job::{Job, JobId};
use posse_core::port::Store;

use super::prelude::*;
use crate::output::table::{Cell, painted, plain};
use crate::output::text::{ago, one_line};
use crate::settings::Settings;

pub fn table(cx: &Context, jobs: &[JobItem]) -> Result<()> {
    let now = wire::now();
    print(cx, jobs.iter().map(|item| cells(cx, item, now)).collect())
}

pub fn print(cx: &Context, rows: Vec<Vec<Cell>>) -> Result<()> {
    cx.out.table(&["ID", "STATE", "ROLE", "TRY", "AGE", "GOAL"], rows)
}

pub fn cells(cx: &Context, JobItem { job, waits }: &JobItem, now: Millis) -> Vec<Cell> {
    let (paint, state) = (cx.out.paint, job.state);
    let brief = waits.as_ref().map(|waits| waits.brief.as_str()).filter(|brief| !brief.is_empty());
    let stopping = match (&job.progress, brief) {
        _ if job.cancel_requested && !state.is_final() => " (cancelling)".to_owned(),
        (_, Some(brief)) => format!(" ({brief})"),
        (Some(progress), None) => format!(" {:.0} %", progress.share * 100.0),
        (None, None) => String::new(),
    };
    vec![
        plain(job.id.to_string()),
        painted(format!("{state}{stopping}"), move |text| paint.state(state, text)),
        plain(&job.role),
        plain(format!("{}/{}", job.attempt, job.max_attempts)),
        plain(ago(job.created_at, now).replace(" ago", "")),
        match &job.damage {
            Some(why) => painted(one_line(why, 200), move |text| paint.red(text)),
            None => plain(format!("{}{}", beneath(job), one_line(&job.payload.goal, 200))),
        },
    ]
}

/// Where it is in a tree: the job that made it.
fn beneath(job: &Job) -> String {
    job.parent.map(|parent| format!("[of {parent}] ")).unwrap_or_default()
}

/// The database that a job is looked for in.
pub fn reader_for(settings: &Settings, id: JobId) -> Result<Arc<dyn Store>> {
    wire::open_reader(settings)?.ok_or_else(|| no_database(settings, id))
}

/// The database, to change a job in it.
pub fn open_for(settings: &Settings, id: JobId) -> Result<Arc<dyn Store>> {
    wire::open_existing(settings, || no_database(settings, id))
}

fn no_database(settings: &Settings, id: JobId) -> anyhow::Error {
    let path = settings.database.display();
    let none = format!("there is no job {id}, and no database at {path} yet (--db, POSSE_DB name another)");
    fail(Code::JobNotFound, none)
}

pub fn no_such_job(settings: &Settings, id: JobId) -> anyhow::Error {
    fail(Code::JobNotFound, format!("there is no job {id} in {}", settings.database.display()))
}
