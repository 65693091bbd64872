//! Summaries: of what leaves the conversation, and of a try that failed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use posse_core::model::{Message, Model, ModelError, ModelReply, Usage};
use posse_core::run::Run;
use posse_core::run::compaction::{Purpose, SUMMARY_TOKENS, Summariser, SummaryRoom, transcript};
use posse_core::run::journal::Entry;
use posse_core::run::machine::{Input, Step, ToSummarise, step};
use posse_core::stop::StopReason;
use posse_core::worker::Progress;
use posse_core::worker::executor::{Halt, JobContext};

use super::{GenericAgentExecutor, ask, has_cost, ms_since, time_left};

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
        let count = run.counter();
        let ToSummarise { task, messages, purpose, .. } = what;
        let (window, time_left) = (run.window(), time_left(run));
        let record = Record { task, messages, purpose: purpose.clone(), window, time_left, count: &count };
        let model = self.summary_model(run);
        let text = self.write_summary(cx, run, model, record).await?;
        if what.purpose == Purpose::Compaction {
            cx.archive(run.summary_from(), transcript(&what.messages)).await?;
        }
        Ok(step(run, Input::Summarised { text }))
    }

    /// Has a model write a summary, in as many requests as its window asks for, and commits what each
    /// cost as soon as its reply is there. There is no text where one failed; what was committed says
    /// why.
    pub(super) async fn write_summary(
        &self,
        cx: &JobContext,
        run: &mut Run,
        model: Result<Arc<dyn Model>, ModelError>,
        record: Record<'_>,
    ) -> Result<Option<String>, Halt> {
        let began = Instant::now();
        let Record { task, messages, purpose, window, time_left, count } = record;
        let model = match model {
            Ok(model) => model,
            Err(error) => return commit(cx, run, cost(0, Err(error), 0)).await.map(|()| None),
        };
        let window = model.profile().await.ok().and_then(|profile| profile.context_window).or(window);
        let room = SummaryRoom { window, reply: SUMMARY_TOKENS };
        let mut summariser = Summariser::new(task, messages, purpose, room, &count);
        for part in 0.. {
            let Some(request) = summariser.request() else { break };
            cx.still_ours().await?;
            cx.report(Progress::AskingModel { job: cx.job.id });
            let asked = Instant::now();
            let left = time_left.map(|left| left.saturating_sub(asked - began));
            let answer = ask(&*model, &request, &|_| {}, &cx.stop, left).await;
            let ms = ms_since(asked);
            if let (Err(error), Some(reason)) = (&answer, cx.stop.reason()) {
                if reason != StopReason::LeaseLost && has_cost(error) {
                    commit(cx, run, cost(part, answer, ms)).await?;
                }
                return Err(reason.into());
            }
            let text = answer.as_ref().ok().map(|reply| reply.text.clone());
            commit(cx, run, cost(part, answer, ms)).await?;
            let Some(text) = text else { return Ok(None) };
            summariser.replied(&text, &count);
        }
        Ok(Some(summariser.notes().to_owned()))
    }

    fn summary_model(&self, run: &Run) -> Result<Arc<dyn Model>, ModelError> {
        match run.opening().and_then(|opening| opening.persona.context.summary_model.as_deref()) {
            Some(name) => self.models.get(Some(name)),
            None => self.model(run),
        }
    }
}

async fn commit(cx: &JobContext, run: &mut Run, entry: Entry) -> Result<(), Halt> {
    let seq = run.next_seq();
    run.apply(&entry);
    cx.append(seq, vec![entry]).await
}

fn cost(part: u32, answer: Result<ModelReply, ModelError>, ms: u64) -> Entry {
    let (mut usage, failed_tries, model, cost_microusd, failure) = match answer {
        Ok(reply) => (reply.usage, reply.failed_tries, reply.model, reply.cost_microusd, None),
        Err(error) => (Usage::default(), error.failed_tries, String::new(), None, Some(error.message)),
    };
    failed_tries.iter().for_each(|failed| usage.add(&failed.usage));
    Entry::Summarised { part: Some(part), usage, model, cost_microusd, failure, ms }
}
