//! Summaries: of what leaves the conversation, and of a try that failed.

use std::sync::Arc;
use std::time::Instant;

use posse_core::executor::{Halt, JobContext};
use posse_core::model::{Message, Model, ModelError, ModelReply, Usage};
use posse_core::run::Run;
use posse_core::run::compaction::{Purpose, Summariser, SummaryRoom, transcript};
use posse_core::run::machine::{Input, Step, ToSummarise, step};
use posse_core::worker::Progress;

use super::GenericAgentExecutor;

/// Most tokens of a summary.
const SUMMARY_TOKENS: u32 = 1_000;

/// What the requests for one summary came to.
#[derive(Default)]
struct Written {
    text: String,
    usage: Usage,
    model: String,
    cost_microusd: Option<u64>,
}

impl Written {
    fn add(&mut self, reply: &ModelReply) {
        self.usage.add(&reply.usage);
        reply.failed_tries.iter().for_each(|failed| self.usage.add(&failed.usage));
        self.model.clone_from(&reply.model);
        if let Some(cost) = reply.cost_microusd {
            *self.cost_microusd.get_or_insert(0) += cost;
        }
    }
}

impl GenericAgentExecutor {
    /// Has a model write a summary, in as many requests as its window asks for.
    pub(super) async fn summarise(&self, cx: &JobContext, run: &mut Run, what: &ToSummarise) -> Result<Step, Halt> {
        let began = Instant::now();
        let mut written = Written::default();
        let mut failure = None;
        match self.summary_model(run) {
            Err(error) => failure = Some(error.message),
            Ok(model) => {
                let window = model.profile().await.ok().and_then(|profile| profile.context_window).or(run.window());
                let room = SummaryRoom { window, reply: SUMMARY_TOKENS };
                let count = |message: &Message| run.count(message);
                let mut summariser = Summariser::new(&what.task, &what.messages, what.purpose.clone(), room, &count);
                while let Some(request) = summariser.request() {
                    cx.check()?;
                    cx.report(Progress::AskingModel { job: cx.job.id });
                    match model.complete(&request, &|_| {}, &cx.stop).await {
                        Ok(reply) => {
                            written.add(&reply);
                            summariser.replied(&reply.text, &count);
                        }
                        Err(error) => {
                            if let Some(reason) = cx.stop.reason() {
                                return Err(reason.into());
                            }
                            error.failed_tries.iter().for_each(|failed| written.usage.add(&failed.usage));
                            failure = Some(error.message);
                            break;
                        }
                    }
                }
                written.text = summariser.notes().to_owned();
            }
        }
        if what.purpose == Purpose::Compaction {
            cx.archive(run.next_seq(), transcript(&what.messages)).await?;
        }
        let text = match failure {
            None => Ok(written.text),
            Some(why) => Err(why),
        };
        let ms = began.elapsed().as_millis() as u64;
        let Written { usage, model, cost_microusd, .. } = written;
        Ok(step(run, Input::Summarised { text, usage, model, cost_microusd, ms }))
    }

    fn summary_model(&self, run: &Run) -> Result<Arc<dyn Model>, ModelError> {
        match run.opening().and_then(|opening| opening.persona.context.summary_model.as_deref()) {
            Some(name) => self.models.get(Some(name)),
            None => self.model(run),
        }
    }
}
