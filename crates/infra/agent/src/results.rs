//! What a run is told of the jobs before it, and the tool that reads what its first message has no room for.

use posse_core::job::JobId;
use posse_core::run::journal::{OfferedTool, Opening};
use posse_core::run::results::{self, MAX_SHOWN, PAGE_JOBS, ReadAnswer, ToldResults};
use posse_core::tool::{EffectClass, ToolError, ToolErrorCategory, ToolOutput};
use posse_core::worker::executor::{Halt, JobContext};
use serde_json::Value;

/// The part of the window that answers may take: a quarter. They stand in the head of the conversation, which nothing
/// makes smaller later.
const SHARE: u32 = 4;

/// Tokens they may take at most, in the largest window too: each request of the run carries them.
const MOST_TOKENS: u32 = 16 * 1024;

/// The window where it is not known.
const UNKNOWN_WINDOW: u32 = 32 * 1024;

/// A token of text has at least so many bytes on average.
const BYTES_OF_TOKEN: u32 = 3;

/// How many forks of forks are followed back to the first one.
const MOST_FORKS: usize = 100;

#[derive(Default)]
pub(super) struct Before {
    pub told: Option<ToldResults>,
    pub has_more: bool,
}

/// What the jobs before this one came to, as far as its window has room.
pub(super) async fn before(cx: &JobContext, window: Option<u32>) -> Result<Before, Halt> {
    let (mut of, mut fork) = (cx.job.id, cx.job.payload.forked_from);
    let mut counts = cx.result_counts(of).await?;
    // A fork that begins anew waited for nothing itself.
    for _ in 0..MOST_FORKS {
        let Some(from) = fork.filter(|_| counts.jobs() == 0) else { break };
        of = from.job;
        counts = cx.result_counts(of).await?;
        fork = cx.job_of(of).await?.and_then(|job| job.payload.forked_from);
    }
    if counts.jobs() == 0 {
        return Ok(Before::default());
    }
    let jobs = cx.results(of, JobId(0), MAX_SHOWN as u32).await?;
    let tokens = (window.unwrap_or(UNKNOWN_WINDOW) / SHARE).min(MOST_TOKENS);
    let (text, is_all) = results::told(&counts, &jobs, (tokens * BYTES_OF_TOKEN) as usize);
    Ok(Before { told: Some(ToldResults { of, standing: counts.in_words(), text }), has_more: !is_all })
}

pub(super) fn reader() -> OfferedTool {
    OfferedTool { spec: results::spec(), effect: EffectClass::Pure }
}

/// Whose jobs a call of `name` reads: where the run was offered our tool, and not one of that name of somebody else's.
pub(super) fn reads(opening: Option<&Opening>, name: &str) -> Option<JobId> {
    let told = opening?.results.as_ref()?;
    let offered = opening?.tools.iter().any(|tool| tool.spec.name == name && tool.spec == results::spec());
    offered.then_some(told.of)
}

pub(super) async fn read(cx: &JobContext, of: JobId, args: Value) -> Result<ToolOutput, ToolError> {
    use ToolErrorCategory::{Failed, InvalidArguments, NotFound, Stopped};
    let misfit = |error| ToolError::new(InvalidArguments, format!("the arguments do not fit: {error}"));
    let args: ReadAnswer = serde_json::from_value(args).map_err(misfit)?;
    let halted = |halt| match halt {
        Halt::Stop(_) => ToolError::new(Stopped, "the call was stopped"),
        Halt::Broken(why) => ToolError::new(Failed, why),
    };
    if args.job > 0 {
        let found = cx.results(of, JobId(args.job - 1), 1).await.map_err(halted)?;
        let Some(job) = found.into_iter().find(|job| job.id.0 == args.job) else {
            let message = format!(
                "job {} is none of those before this task, or was deleted; leave job out to list them",
                args.job
            );
            return Err(ToolError::new(NotFound, message));
        };
        return Ok(results::page(&job, args.offset).into());
    }
    let counts = cx.result_counts(of).await.map_err(halted)?;
    let mut jobs = cx.results(of, JobId(args.after.max(0)), PAGE_JOBS as u32 + 1).await.map_err(halted)?;
    let more = jobs.len() > PAGE_JOBS;
    jobs.truncate(PAGE_JOBS);
    Ok(results::list(&counts, &jobs, more).into())
}
