//! Summaries: of what leaves the conversation, and of a try that failed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use posse_core::executor::{Halt, JobContext};
use posse_core::model::{Message, Model, ModelError, ModelReply};
use posse_core::run::Run;
use posse_core::run::compaction::{Purpose, SUMMARY_TOKENS, Summariser, SummaryRoom, transcript};
use posse_core::run::machine::{Input, Step, ToSummarise, Written, step};
use posse_core::worker::Progress;

use super::{GenericAgentExecutor, in_time, time_left};

/// What is to be summed up, and for whom.
pub(super) struct Record<'a> {
    pub task: &'a str,
    pub messages: &'a [Message],
    pub purpose: Purpose,
    /// The model's window, where the model itself does not know it.
    pub window: Option<u32>,
    /// How long it may take, where that is limited.
    pub time_left: Option<Duration>,
    pub count: &'a (dyn Fn(&Message) -> u64 + Sync),
}

impl GenericAgentExecutor {
    /// Has a model write a summary of a part of the conversation.
    pub(super) async fn summarise(&self, cx: &JobContext, run: &mut Run, what: &ToSummarise) -> Result<Step, Halt> {
        let count = |message: &Message| run.count(message);
        let record = Record {
            task: &what.task,
            messages: &what.messages,
            purpose: what.purpose.clone(),
            window: run.window(),
            time_left: time_left(run),
            count: &count,
        };
        let (text, written) = self.write_summary(cx, self.summary_model(run), record).await?;
        if what.purpose == Purpose::Compaction {
            cx.archive(run.next_seq(), transcript(&what.messages)).await?;
        }
        Ok(step(run, Input::Summarised { text, written }))
    }

    /// Has a model write a summary, in as many requests as its window asks for. There is no text
    /// where it failed; what was written says why.
    pub(super) async fn write_summary(
        &self,
        cx: &JobContext,
        model: Result<Arc<dyn Model>, ModelError>,
        record: Record<'_>,
    ) -> Result<(Option<String>, Written), Halt> {
        let began = Instant::now();
        let mut written = Written::default();
        let Record { task, messages, purpose, window, time_left, count } = record;
        let model = match model {
            Ok(model) => model,
            Err(error) => return Ok((None, Written { failure: Some(error.message), ..written })),
        };
        let window = model.profile().await.ok().and_then(|profile| profile.context_window).or(window);
        let room = SummaryRoom { window, reply: SUMMARY_TOKENS };
        let mut summariser = Summariser::new(task, messages, purpose, room, &count);
        while let Some(request) = summariser.request() {
            cx.check()?;
            cx.report(Progress::AskingModel { job: cx.job.id });
            let left = time_left.map(|left| left.saturating_sub(began.elapsed()));
            match in_time(left, model.complete(&request, &|_| {}, &cx.stop)).await {
                Ok(reply) => {
                    add(&mut written, &reply);
                    summariser.replied(&reply.text, &count);
                }
                Err(error) => {
                    if let Some(reason) = cx.stop.reason() {
                        return Err(reason.into());
                    }
                    error.failed_tries.iter().for_each(|failed| written.usage.add(&failed.usage));
                    written.failure = Some(error.message);
                    break;
                }
            }
        }
        written.ms = began.elapsed().as_millis() as u64;
        let text = written.failure.is_none().then(|| summariser.notes().to_owned());
        Ok((text, written))
    }

    fn summary_model(&self, run: &Run) -> Result<Arc<dyn Model>, ModelError> {
        match run.opening().and_then(|opening| opening.persona.context.summary_model.as_deref()) {
            Some(name) => self.models.get(Some(name)),
            None => self.model(run),
        }
    }
}

fn add(written: &mut Written, reply: &ModelReply) {
    written.usage.add(&reply.usage);
    reply.failed_tries.iter().for_each(|failed| written.usage.add(&failed.usage));
    written.model.clone_from(&reply.model);
    if let Some(cost) = reply.cost_microusd {
        *written.cost_microusd.get_or_insert(0) += cost;
    }
}
