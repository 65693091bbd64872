//! What library users build on: delegation, progress, events, seen through the test kit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use posse_core::events::states::{Followed, StateChanges};
use posse_core::job::dependency::After;
use posse_core::job::{JobId, Output, Payload};
use posse_core::model::ModelErrorKind;
use posse_core::port::Rules;
use posse_core::port::{JobQueries, JobRepository};
use posse_core::queue::rules::{Limits, Scope};
use posse_core::worker::executor::{AgentExecutor, JobContext, StepOutcome};
use posse_testing::{JobState, NewJob, ROLE, ScriptedModel, TestFleet};
use serde_json::json;

/// A job that asks one other for each word of its goal, and answers with their answers.
struct Foreman;

#[async_trait]
impl AgentExecutor for Foreman {
    async fn process_job(&self, cx: &mut JobContext) -> StepOutcome {
        let children = match cx.children().await {
            Ok(children) => children,
            Err(halt) => return halt.into(),
        };
        if children.is_empty() {
            let child = |word: &str| NewJob {
                role: ROLE.into(),
                payload: Payload { goal: word.into(), ..Payload::default() },
                ..NewJob::default()
            };
            let children = cx.job.payload.goal.split(' ').map(child).collect();
            return StepOutcome::Suspended {
                reason: "asks others".into(),
                children,
                waits_for: Vec::new(),
                entries: Vec::new(),
            };
        }
        let said = |child: &posse_core::job::Job| match &child.output {
            Some(output) => output.text.clone(),
            None => format!("({})", child.state),
        };
        let text = children.iter().map(said).collect::<Vec<_>>().join("+");
        StepOutcome::Completed { output: Output { text, ..Output::default() }, entries: Vec::new() }
    }
}

fn for_role(role: &str, goal: &str) -> NewJob {
    let payload = Payload { goal: goal.into(), ..Payload::default() };
    NewJob { role: role.into(), payload, ..NewJob::default() }
}

#[tokio::test]
async fn a_parent_answers_with_what_its_children_said() {
    let mut n = 0;
    let model = ScriptedModel::new().forever(move |_| {
        n += 1;
        posse_testing::scripted::Play::Reply(posse_testing::scripted::text_reply(&format!("answer {n}")))
    });
    let fleet = TestFleet::builder().executor("foreman", Arc::new(Foreman)).slots(1).start(model).await;
    let id = fleet.enqueue_job(for_role("foreman", "one two three")).await;
    fleet.drain().await;
    assert_eq!(fleet.answer(id).await, "answer 1+answer 2+answer 3");
    let attempts = fleet.store().attempts(id).await.expect("can be read");
    let outcomes: Vec<_> = attempts.iter().map(|a| (a.number, a.outcome.clone().unwrap_or_default())).collect();
    assert_eq!(outcomes, [(1, "suspended".into()), (1, "completed".into())], "waiting costs no attempt");
}

#[tokio::test]
async fn time_passes_by_hand_and_stops_where_something_is_due() {
    // Fails twice; the backoff is over long before an hour is.
    let model = ScriptedModel::new()
        .fail(ModelErrorKind::Transient, "503")
        .fail(ModelErrorKind::Transient, "503")
        .say("at last");
    let fleet = TestFleet::start(model).await;
    let id = fleet.enqueue("try").await;
    let began = fleet.now();
    fleet.advance(Duration::from_secs(3600)).await;
    assert_eq!(fleet.now() - began, 3_600_000);
    assert_eq!(fleet.answer(id).await, "at last");
    let ended = fleet.job(id).await.finalized_at.expect("ended");
    assert!(ended < began + 600_000, "as soon as it was due, not at the end of the hour: {}", ended - began);
}

#[tokio::test]
async fn a_chain_runs_in_order_and_events_tell_of_it() {
    let fleet = TestFleet::start(ScriptedModel::new().say("first").say("second")).await;
    let chain = vec![for_role(ROLE, "a"), NewJob { after: vec![After::Earlier(0)], ..for_role(ROLE, "b") }];
    let enqueued = fleet.store().enqueue(chain, fleet.now()).await.expect("is stored");
    let ids: Vec<_> = enqueued.into_iter().map(|one| one.id).collect();
    let mut events =
        StateChanges::follow(Arc::clone(fleet.store()) as _, Followed::Jobs(ids.clone())).await.expect("can be read");
    let mut ended = Vec::new();
    while let Some(event) = events.next().await {
        let event = event.expect("can be read");
        if event.to.is_some_and(JobState::is_final) {
            ended.push(event.job);
        }
    }
    assert_eq!(ended, ids);
    assert_eq!((fleet.answer(ids[0]).await, fleet.answer(ids[1]).await), ("first".into(), "second".into()));
}

/// Reports progress often, and counts what the clock would have made of it.
struct Reporter(Arc<AtomicU32>);

#[async_trait]
impl AgentExecutor for Reporter {
    async fn process_job(&self, cx: &mut JobContext) -> StepOutcome {
        for step in 0..100 {
            cx.report_progress(f64::from(step) / 100.0, &format!("step {step}")).await;
        }
        self.0.fetch_add(1, Ordering::SeqCst);
        let reason = cx.stop.stopped().await;
        StepOutcome::Stopped(reason)
    }
}

#[tokio::test]
async fn progress_is_a_commit_of_its_own_once_a_second() {
    let reported = Arc::new(AtomicU32::new(0));
    let executor = Arc::new(Reporter(Arc::clone(&reported)));
    let fleet = TestFleet::builder().executor("reporter", executor).start(ScriptedModel::new()).await;
    let before = fleet.store().commits();
    let id = fleet.enqueue_job(for_role("reporter", "count")).await;
    while reported.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let progress = fleet.job(id).await.progress.expect("was reported");
    assert_eq!((progress.share, progress.text.as_str()), (0.0, "step 0"), "the others came within the second");
    assert!(fleet.store().commits() - before < 20, "{} commits", fleet.store().commits() - before);
    fleet.store().cancel(id, "enough".into(), fleet.now()).await.expect("works");
    fleet.drain().await;
    assert_eq!(fleet.job(id).await.state, JobState::Cancelled);
}

#[tokio::test]
async fn an_agent_tells_its_turns_as_progress() {
    let model = ScriptedModel::new().call(&[("list_files", json!({}))]).hang();
    let fleet = TestFleet::start(model).await;
    let id = fleet.enqueue("look, then think for ever").await;
    while fleet.model().asked() < 2 {
        tokio::task::yield_now().await;
    }
    let progress = fleet.job(id).await.progress.expect("is told with its turns");
    assert_eq!((progress.share, progress.text.as_str()), (1.0 / 20.0, "turn 1 of at most 20"));
}

#[tokio::test]
async fn what_a_rule_holds_is_named_and_waited_for_no_longer() {
    let fleet = TestFleet::start(ScriptedModel::new().say("one").say("two").say("three")).await;
    let began = std::time::Instant::now();
    let queued = |queue: &str| NewJob { queue: queue.into(), ..for_role(ROLE, "g") };
    let store = fleet.store();
    store.pause(Scope::Queue("p".into()), fleet.now()).await.expect("is paused");
    let none = Limits { running: Some(0), ..Limits::default() };
    store.set_limits(Scope::Queue("z".into()), none, fleet.now()).await.expect("is set");
    let (free, paused, limited) =
        (fleet.enqueue("g").await, fleet.enqueue_job(queued("p")).await, fleet.enqueue_job(queued("z")).await);
    fleet.drain().await;
    assert_eq!(fleet.answer(free).await, "one");
    let held: Vec<_> = fleet.held().await.into_iter().map(|(job, rule)| (job, rule.to_string())).collect();
    let zero = "queue z has a limit of 0 at once, and as many run".to_owned();
    assert_eq!(held, [(paused, "queue p is paused".into()), (limited, zero)]);
    assert!(began.elapsed() < Duration::from_secs(30), "it does not wait for what cannot come");
    // Somebody lets them go.
    store.resume(Scope::Queue("p".into())).await.expect("is resumed");
    fleet.drain().await;
    assert_eq!(fleet.answer(paused).await, "two");
    store.set_limits(Scope::Queue("z".into()), Limits::default(), fleet.now()).await.expect("is set");
    fleet.drain().await;
    assert_eq!((fleet.answer(limited).await.as_str(), fleet.held().await.len()), ("three", 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_becomes_due_is_waited_for_at_whatever_moment_it_is_claimed() {
    let model = (0..300).fold(ScriptedModel::new(), |model, _| model.say("Done."));
    let fleet = TestFleet::start(model).await;
    for _ in 0..300 {
        let job = fleet.enqueue_after(Duration::from_secs(1), "Wait.").await;
        fleet.advance(Duration::from_secs(1)).await;
        assert_eq!(fleet.job(job).await.state, JobState::Completed);
    }
}

/// Says that its job is completed, without having done anything about it the first time.
struct Boaster(AtomicU32);

#[async_trait]
impl AgentExecutor for Boaster {
    async fn process_job(&self, _: &mut JobContext) -> StepOutcome {
        match self.0.fetch_add(1, Ordering::Relaxed) {
            0 => StepOutcome::AlreadyCompleted,
            _ => StepOutcome::Completed { output: Output::default(), entries: Vec::new() },
        }
    }
}

#[tokio::test]
async fn who_says_wrongly_that_a_job_is_completed_has_failed() {
    let boaster = Arc::new(Boaster(AtomicU32::new(0)));
    let fleet = TestFleet::builder().executor("boaster", boaster).start(ScriptedModel::new()).await;
    let id = fleet.enqueue_job(for_role("boaster", "boast")).await;
    fleet.drain().await;
    let job = fleet.job(id).await;
    assert_eq!((job.state, job.attempt), (JobState::Retryable, 1));
    assert!(job.reason.expect("says why").contains("said that the job was completed when it was not"));
    fleet.advance(Duration::from_secs(3600)).await;
    fleet.drain().await;
    assert_eq!(fleet.job(id).await.state, JobState::Completed);
}

/// Asks for a child that waits for a job which is not there.
struct Dreamer;

#[async_trait]
impl AgentExecutor for Dreamer {
    async fn process_job(&self, _: &mut JobContext) -> StepOutcome {
        let child = NewJob { after: vec![After::Job(JobId(999))], ..for_role("dreamer", "x") };
        StepOutcome::Suspended {
            reason: "asks".into(),
            children: vec![child],
            waits_for: Vec::new(),
            entries: Vec::new(),
        }
    }
}

#[tokio::test]
async fn children_that_cannot_be_are_a_failure_with_its_reason() {
    let fleet = TestFleet::builder().executor("dreamer", Arc::new(Dreamer)).start(ScriptedModel::new()).await;
    let id = fleet.enqueue_job(for_role("dreamer", "dream")).await;
    fleet.drain().await;
    let job = fleet.job(id).await;
    assert_eq!((job.state, job.attempt, job.crashes), (JobState::Retryable, 1, 0));
    assert_eq!(job.reason.as_deref(), Some("the jobs that it was to wait for cannot be made: there is no job 999"));
}
