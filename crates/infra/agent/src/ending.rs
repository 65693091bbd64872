//! Who hears of a run's end.

use std::time::Duration;

use posse_core::annotation::{MAX_TEXT_BYTES, NewAnnotation};
use posse_core::run::Run;
use posse_core::run::hook::{HookError, RunEnd};
use posse_core::run::journal::effect_key;
use posse_core::stop::StopReason;
use posse_core::worker::executor::{Halt, JobContext};

use super::GenericAgentExecutor;

/// Stands for the id of a call.
const AFTER_RUN: &str = "after_run";

/// How long hooks that hear of an end may take once this worker has to end.
const GRACE: Duration = Duration::from_secs(5);

impl GenericAgentExecutor {
    /// Tells the hooks how the run ended. What goes wrong there is noted on the job, and changes nothing of its end.
    pub(super) async fn after_run(&self, cx: &JobContext, run: &Run) -> Result<(), Halt> {
        let (workspace, workspace_id) = self.workspace(&cx.job);
        let output = run.output();
        let end = RunEnd {
            job: cx.job.id,
            role: &self.persona.role,
            goal: &cx.job.payload.goal,
            workspace: &workspace,
            workspace_id,
            output: &output,
            effect_key: &effect_key(cx.installation(), cx.job.id, AFTER_RUN),
        };
        let overdue = async {
            if cx.stop.stopped().await != StopReason::LeaseLost {
                tokio::time::sleep(GRACE).await;
            }
        };
        let heard = tokio::select! {
            biased;
            heard = self.hooks.after_run(&end) => heard,
            () = overdue => Err(HookError::Failed("a hook was cut off after the run: this worker had to end".into())),
        };
        let Err(error) = heard else { return Ok(()) };
        if cx.stop.reason() == Some(StopReason::LeaseLost) {
            return Err(StopReason::LeaseLost.into());
        }
        tracing::warn!(job.id = cx.job.id.0, "after the run: {error}");
        let text = error.to_string();
        let text = text[..text.floor_char_boundary(MAX_TEXT_BYTES)].replace('\0', "\u{fffd}");
        cx.annotate("hook", NewAnnotation { text, tags: vec!["hook_failed".into()] }).await
    }
}
