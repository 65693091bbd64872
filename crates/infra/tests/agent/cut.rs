//! Requests that are cut off before their reply is whole: what they read and wrote was used, and counts.

use async_trait::async_trait;
use posse_core::clock::Clock;
use posse_core::job::JobState;
use posse_core::model::{Delta, DeltaSink, Model, ModelError, ModelErrorKind, ModelProfile, ModelReply, ModelRequest};
use posse_core::persona::RunLimits;
use posse_core::port::{JobQueries, JobRepository};
use posse_core::run::Run;
use posse_core::run::journal::Entry;
use posse_core::stop::Stop;
use posse_core::worker::Progress;
use posse_infra::process::SystemClock;
use posse_testing::scripted::ScriptedModel;
use std::sync::Arc;

use super::kit::{Home, Worker, WorkerOptions};

const WORDS: &str = "a story that never comes to its end ";

/// Says a little, and then nothing until it is stopped. Like a model of somebody else's, it counts nothing.
struct Babbler(ScriptedModel);

#[async_trait]
impl Model for Babbler {
    async fn profile(&self) -> Result<ModelProfile, ModelError> {
        self.0.profile().await
    }

    async fn complete(&self, _: &ModelRequest, deltas: &DeltaSink<'_>, stop: &Stop) -> Result<ModelReply, ModelError> {
        for _ in 0..10 {
            deltas(Delta::Text(WORDS.into()));
        }
        stop.stopped().await;
        let (kind, message) = (ModelErrorKind::Stopped, "stopped".to_owned());
        Err(ModelError { kind, message, retry_after: None, context_window: None, failed_tries: Vec::new() })
    }
}

fn babbler() -> Arc<dyn Model> {
    Arc::new(Babbler(ScriptedModel::new()))
}

async fn used(home: &Home, id: posse_core::job::JobId) -> (u64, u64) {
    let journal = home.store.journal(id, 0).await.expect("readable");
    let usage = Run::replay(&journal).output().usage;
    assert!(usage.estimated);
    (usage.input, usage.output)
}

#[tokio::test]
async fn a_cancel_in_the_middle_of_a_reply_counts_what_was_sent_and_received() {
    let home = Home::new();
    let mut worker = Worker::start(&home, babbler()).await;
    let id = home.enqueue("tell a story").await;
    worker.until(|p| matches!(p, Progress::Delta { .. })).await;
    home.store.cancel(id, "enough".into(), SystemClock.now()).await.expect("asked");
    worker.until_ended(id).await;
    let job = home.job(id).await;
    assert_eq!(job.state, JobState::Cancelled);
    let (input, output) = used(&home, id).await;
    assert!(input > 200 && output == (10 * WORDS.len()).div_ceil(4) as u64, "{input} in, {output} out");
    assert_eq!(job.output.map(|output| output.usage.total()), Some(input + output), "and the job says so");
}

#[tokio::test]
async fn a_shutdown_and_the_time_limit_do_too_and_budgets_know() {
    let home = Home::new();
    let mut worker = Worker::start(&home, babbler()).await;
    let id = home.enqueue("tell a story").await;
    worker.until(|p| matches!(p, Progress::Delta { .. })).await;
    worker.shut_down().await;
    let (input, output) = used(&home, id).await;
    assert!(input > 0 && output > 0);
    assert_eq!(home.job(id).await.state, JobState::Available);

    let home = Home::new();
    let mut options = WorkerOptions::default();
    options.persona.limits = RunLimits { max_seconds: Some(1), max_tokens: Some(100_000), ..RunLimits::default() };
    let mut worker = Worker::start_with(&home, babbler(), options).await;
    let id = home.enqueue("tell a story").await;
    worker.until_ended(id).await;
    let (input, output) = used(&home, id).await;
    assert!(input > 200 && output > 0, "{input} in, {output} out");
    let entries = home.entries(id).await;
    assert!(entries.iter().any(|entry| matches!(entry, Entry::TurnFailed { .. })));
    assert_eq!(home.job(id).await.output.expect("what there is").status, "max_seconds");
}
