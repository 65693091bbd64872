//! What a run is told of the jobs before it, and the tool that reads what its first message has no room for.

use posse_core::job::JobId;
use posse_core::run::journal::{OfferedTool, Opening};
use posse_core::run::results::{self, MAX_SHOWN, PAGE_JOBS, ReadAnswer, ToldResults};
use posse_core::skill::shelf::most_bytes;
use posse_core::tool::{EffectClass, ToolError, ToolErrorCategory, ToolOutput, Writes};
use posse_core::worker::executor::{Halt, JobContext};
use serde_json::Value;

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
    // As much as skills may take, and for the same reason: each request of the run carries them.
    let (text, is_all) = results::told(&counts, &jobs, most_bytes(window));
    Ok(Before { told: Some(ToldResults { of, standing: counts.in_words(), text }), has_more: !is_all })
}

pub(super) fn reader() -> OfferedTool {
    OfferedTool { spec: results::spec(), effect: EffectClass::Pure, writes: Writes::Nothing, own_words: false }
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
