//! Tasks: an agent gives parts of its work to others, waits for them without a slot, and joins their answers.

use std::sync::Arc;

use posse_core::job::{Job, JobId, JobState};
use posse_core::model::{CallRequest, Message, ModelProfile, ModelReply, ModelRequest, ToolCalling};
use posse_core::persona::PersonaTemplate;
use posse_core::port::JobQueries as _;
use posse_core::run::journal::Entry;
use posse_core::worker::executor::Delegation;
use posse_testing::scripted::{Play, ScriptedModel, calls_reply, text_reply};
use serde_json::{Value, json};

use super::kit::{Home, ROLE, Worker, WorkerOptions, persona};
use crate::support::wait::wait_async;

/// One who gives tasks to those who play the same role, which may give none.
fn giver() -> PersonaTemplate {
    let mut persona = persona();
    persona.tools = vec!["tasks".into()];
    persona.may_delegate_to = vec![ROLE.into()];
    persona.limits.max_task_depth = Some(1);
    persona
}

fn options(persona: PersonaTemplate) -> WorkerOptions {
    let delegation = Delegation { to: vec![persona.clone()], ..Delegation::default() };
    // A task cannot begin before the job that gave it has left the slot.
    WorkerOptions { persona, delegation, slots: 1, ..WorkerOptions::default() }
}

/// What is asked for, and what came behind it.
pub fn task_of(request: &ModelRequest) -> (String, Vec<Message>) {
    let is_task = |message: &Message| matches!(message, Message::User { text } if text.contains("Your task:\n"));
    let at = request.messages.iter().rposition(is_task).expect("a task");
    let Message::User { text } = &request.messages[at] else { unreachable!() };
    let (_, goal) = text.split_once("Your task:\n").expect("a task");
    (goal.to_owned(), request.messages[at + 1..].to_vec())
}

/// The results so far, whatever the calling.
pub fn results(behind: &[Message]) -> Vec<String> {
    let result = |message: &Message| match message {
        Message::Tool { text, .. } => Some(text.clone()),
        Message::User { text } => text.strip_prefix("Result of ").map(str::to_owned),
        _ => None,
    };
    behind.iter().filter_map(result).collect()
}

pub fn calls(calls: &[(&str, Value)]) -> ModelReply {
    let call = |(n, (name, arguments)): (usize, &(&str, Value))| CallRequest {
        id: format!("call_{n}"),
        name: (*name).into(),
        arguments: arguments.to_string(),
        extra: None,
    };
    calls_reply(calls.iter().enumerate().map(call).collect())
}

fn create(goal: &str) -> (&'static str, Value) {
    ("task_create", json!({"role": ROLE, "goal": goal}))
}

pub fn finish(answer: &str) -> (&'static str, Value) {
    ("finish", json!({"final_summary": answer}))
}

/// A model that works parts, and the whole as `whole` says by the results so far.
fn model(whole: impl Fn(&[String]) -> Vec<(&'static str, Value)> + Send + 'static) -> ScriptedModel {
    ScriptedModel::new().forever(move |request| {
        let (goal, behind) = task_of(request);
        Play::Reply(match goal.strip_prefix("part ") {
            Some(part) => calls(&[finish(&format!("{} is done", part.to_uppercase()))]),
            None => calls(&whole(&results(&behind))),
        })
    })
}

pub async fn ended(home: &Home, id: JobId) -> Job {
    let ended = wait_async(std::time::Duration::from_secs(30), async || {
        let job = home.job(id).await;
        if job.state.is_final() { Ok(job) } else { Err(job) }
    });
    ended.await.unwrap_or_else(|job| panic!("job {id} is {}: {:?}", job.state, job.reason))
}

async fn children(home: &Home, id: JobId) -> Vec<Job> {
    home.store.children(id).await.expect("readable")
}

fn joined(results: &[String]) -> Vec<(&'static str, Value)> {
    match results {
        [] => vec![create("part alpha"), create("part beta"), ("task_wait", json!({}))],
        [.., last] => {
            assert!(last.contains("| ALPHA is done") && last.contains("| BETA is done"), "{last}");
            vec![finish("ALPHA and BETA")]
        }
    }
}

#[tokio::test]
async fn parts_are_given_waited_for_and_joined() {
    let home = Home::new();
    let scripted = Arc::new(model(joined));
    let worker = Worker::start_with(&home, scripted.clone(), options(giver())).await;
    let id = home.enqueue("the whole").await;
    let job = ended(&home, id).await;
    assert_eq!((job.state, job.output.expect("an answer").text.as_str()), (JobState::Completed, "ALPHA and BETA"));
    let parts = children(&home, id).await;
    assert_eq!(parts.iter().map(|part| part.payload.goal.as_str()).collect::<Vec<_>>(), ["part alpha", "part beta"]);
    for part in &parts {
        assert_eq!((part.parent, part.queue.as_str()), (Some(id), job.queue.as_str()));
        assert_eq!(part.payload.workspace, job.payload.workspace, "the workspace goes down the tree");
        assert_eq!(part.payload.task.as_ref().map(|task| task.depth), Some(1));
    }
    let attempts = home.store.attempts(id).await.expect("readable");
    let outcomes: Vec<_> = attempts.iter().map(|attempt| attempt.outcome.clone().unwrap_or_default()).collect();
    assert_eq!(outcomes, ["suspended", "completed"], "its slot was free meanwhile");
    for part in scripted.requests().iter().filter(|request| task_of(request).0.starts_with("part ")) {
        assert!(part.tools.iter().all(|tool| !tool.name.starts_with("task_")), "no deeper than is allowed");
    }
    let waits =
        |entry: &Entry| matches!(entry, Entry::CallEnded { text, .. } if text.contains("came to the following"));
    assert_eq!(home.entries(id).await.iter().filter(|entry| waits(entry)).count(), 1);
    worker.shut_down().await;
    scripted.assert_clean();
}

#[tokio::test]
async fn a_restart_while_it_waits_changes_nothing() {
    let mut home = Home::new();
    let scripted = Arc::new(model(joined));
    let mut worker = Worker::start_with(&home, scripted.clone(), options(giver())).await;
    let id = home.enqueue("the whole").await;
    // Its first attempt: it has given both, and is suspended. Then the process is gone.
    worker.until_ended(id).await;
    drop(worker);
    home.store = home.another_store();
    assert_eq!(children(&home, id).await.len(), 2);
    let worker = Worker::start_with(&home, scripted.clone(), options(giver()).after_the_lease()).await;
    let job = ended(&home, id).await;
    assert_eq!(job.state, JobState::Completed, "{:?}", job.reason);
    assert_eq!(children(&home, id).await.len(), 2, "nothing is given twice");
    worker.shut_down().await;
    scripted.assert_clean();
}

#[tokio::test]
async fn an_answer_before_the_tasks_have_ended_is_not_accepted() {
    let home = Home::new();
    let scripted = Arc::new(model(|results| match results.len() {
        0 => vec![create("part alpha")],
        1 => vec![finish("too early")],
        2 => {
            assert!(results[1].contains("has not ended") && results[1].contains("task_wait"), "{}", results[1]);
            vec![("task_wait", json!({}))]
        }
        _ => vec![finish("in time")],
    }));
    let worker = Worker::start_with(&home, scripted.clone(), options(giver())).await;
    let job = ended(&home, home.enqueue("the whole").await).await;
    assert_eq!(job.output.expect("an answer").text, "in time");
    worker.shut_down().await;
    scripted.assert_clean();
}

#[tokio::test]
async fn tasks_end_with_a_run_that_comes_to_no_answer() {
    let home = Home::new();
    let scripted = Arc::new(model(|_| vec![create("part alpha")]));
    let mut persona = giver();
    persona.limits.max_turns = 1;
    let worker = Worker::start_with(&home, scripted.clone(), options(persona)).await;
    let id = home.enqueue("the whole").await;
    let job = ended(&home, id).await;
    assert_eq!(job.state, JobState::Discarded);
    let part = children(&home, id).await.remove(0);
    assert_eq!(part.state, JobState::Cancelled);
    assert!(part.reason.as_deref().is_some_and(|reason| reason.contains(&format!("job {id}"))), "{:?}", part.reason);
    worker.shut_down().await;
    scripted.assert_clean();
}

#[tokio::test]
async fn what_is_left_to_the_giver_bounds_its_tasks() {
    let home = Home::new();
    let scripted = Arc::new(model(joined));
    let mut persona = giver();
    persona.limits.max_tokens = Some(100_000);
    persona.limits.max_seconds = Some(600);
    let worker = Worker::start_with(&home, scripted.clone(), options(persona)).await;
    let id = home.enqueue("the whole").await;
    ended(&home, id).await;
    for part in children(&home, id).await {
        let task = part.payload.task.expect("it is a task");
        assert!(task.max_tokens.is_some_and(|left| left < 100_000), "{task:?}");
        assert!(task.max_seconds.is_some_and(|left| left <= 600), "{task:?}");
        let Some(Entry::Began { opening, .. }) = home.entries(part.id).await.into_iter().next() else {
            panic!("it began")
        };
        assert_eq!(opening.persona.limits.max_tokens, task.max_tokens);
    }
    worker.shut_down().await;
    scripted.assert_clean();
}

#[tokio::test]
async fn steps_by_schema_give_tasks_too_and_are_shown_how() {
    let home = Home::new();
    let profile = ModelProfile {
        name: "small".into(),
        model: "small-1".into(),
        tool_calling: ToolCalling::Structured,
        context_window: Some(16_384),
    };
    let step = |(tool, arguments): (&str, Value)| {
        Play::Reply(text_reply(&json!({"thinking": "next", "tool": tool, "arguments": arguments}).to_string()))
    };
    let scripted = ScriptedModel::new().with_profile(profile).forever(move |request| {
        let (goal, behind) = task_of(request);
        let results = results(&behind);
        match (goal.strip_prefix("part "), results.len()) {
            (Some(part), _) => step(finish(&format!("{} is done", part.to_uppercase()))),
            (None, 0) => step(create("part alpha")),
            (None, 1) => step(create("part beta")),
            (None, 2) => step(("task_wait", json!({}))),
            (None, _) => {
                assert!(results[2].contains("| ALPHA is done") && results[2].contains("| BETA is done"), "{results:?}");
                step(finish("ALPHA and BETA"))
            }
        }
    });
    let scripted = Arc::new(scripted);
    let worker = Worker::start_with(&home, scripted.clone(), options(giver())).await;
    let job = ended(&home, home.enqueue("the whole").await).await;
    assert_eq!(job.output.expect("an answer").text, "ALPHA and BETA", "{:?}", job.reason);
    worker.shut_down().await;
    scripted.assert_clean();
    for request in scripted.requests() {
        let is_part = task_of(&request).0.starts_with("part ");
        let shown = request.messages.iter().any(|message| {
            matches!(message, Message::Assistant { text, .. } if text.contains(r#""tool":"task_create""#) && text.contains("ferry"))
        });
        assert_eq!(shown, !is_part, "only who may give tasks is shown how");
        let schema = request.schema.map(|schema| format!("{schema:?}")).unwrap_or_default();
        assert_eq!(schema.contains("task_create"), !is_part, "{schema}");
    }
}
