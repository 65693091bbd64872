//! `posse job fork`: a new job that goes on from the middle of another one's run.

use anyhow::Result;
use clap::Args;
use posse_core::job::JobId;
use posse_core::run::fork::{Cut, MAX_EDIT_BYTES, fork as make};
use serde_json::json;

use super::Context;
use super::enqueue::{read_goal, read_words};
use super::job_table::{no_such_job, open_for};
use crate::exit::{Exit, usage};
use crate::wire;

/// What to fork, and where
#[derive(Args)]
pub struct ForkArgs {
    /// The job's number
    id: i64,
    /// The last step that the fork keeps; posse job events ID tells their numbers (seq)
    #[arg(long, value_name = "STEP")]
    at_step: u64,
    /// What that step shall say instead: a tool's result, an answer or a note; `-` reads it from standard input
    #[arg(long, value_name = "TEXT")]
    edit: Option<String>,
    /// What shall be done instead; `-` reads it from standard input
    #[arg(long, value_name = "TEXT")]
    goal: Option<String>,
}

pub async fn fork(cx: &Context, args: ForkArgs) -> Result<Exit> {
    let ForkArgs { id, at_step, edit, goal } = args;
    if edit.as_deref() == Some("-") && goal.as_deref() == Some("-") {
        return Err(usage("--edit and --goal cannot both be read from standard input"));
    }
    let edit = edit.map(|text| read_words("edit", vec![text], MAX_EDIT_BYTES)).transpose()?;
    let goal = goal.map(|goal| read_goal(vec![goal])).transpose()?;
    let settings = cx.plain_settings()?;
    let id = JobId(id);
    let store = open_for(&settings, id)?;
    let source = store.job(id).await?.ok_or_else(|| no_such_job(&settings, id))?;
    let journal = store.journal(id, 0).await?;
    let fork = make(&source, journal, Cut { at_step, edit, goal })?;
    let new = store.fork(fork, wire::now()).await?;
    let line = format!("job {new} goes on from job {id} at step {at_step}; posse work runs it");
    cx.out.say(&json!({"id": new, "forked_from": {"job": id, "step": at_step}}), line)
}
