//! Calls that programs make, by workers that die and runs that wait. What runs the programs here is a function: whoever
//! does makes its calls through the same port.

use std::sync::Arc;

use futures::future::BoxFuture;
use posse_core::job::{JobId, JobState};
use posse_core::persona::PersonaTemplate;
use posse_core::port::JobQueries as _;
use posse_core::run::journal::{CallState, Entry};
use posse_core::tool::calls::{CallResult, Calls, Came, EXECUTE_CODE, MadeCall};
use posse_core::tool::{EffectClass, Tool, ToolError};
use posse_core::worker::executor::Delegation;
use posse_infra::tool::FnTool;
use posse_testing::scripted::{Play, ScriptedModel};
use serde_json::{Value, json};

use super::kit::{Home, ROLE, Worker, WorkerOptions, gate, lines, persona};
use super::tasks::{calls, ended, finish, results, task_of};

type Program = fn(Arc<dyn Calls>) -> BoxFuture<'static, Result<String, ToolError>>;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Args {}

/// The tool that runs this program, whatever it is told.
fn running(program: Program) -> Arc<dyn Tool> {
    let tool = FnTool::new(EXECUTE_CODE, "Runs the program.", EffectClass::Idempotent, move |cx, _: Args| async move {
        let calls = cx.calls.expect("a program of a job has somebody who makes its calls");
        calls.begin().await?;
        program(calls).await.map(Into::into)
    });
    Arc::new(tool)
}

fn made(tool: &str, arguments: &Value) -> MadeCall {
    MadeCall { tool: tool.into(), arguments: arguments.to_string() }
}

async fn one(calls: &Arc<dyn Calls>, tool: &str, arguments: Value) -> Result<CallResult, ToolError> {
    calls.make(vec![made(tool, &arguments)]).await
}

/// A model that runs the program, and answers with what it gave. Others do their part.
fn model() -> ScriptedModel {
    ScriptedModel::new().forever(|request| {
        let (goal, behind) = task_of(request);
        Play::Reply(match (goal.strip_prefix("part "), &results(&behind)[..]) {
            (Some(part), _) => calls(&[finish(&format!("{} is done", part.to_uppercase()))]),
            (None, []) => calls(&[(EXECUTE_CODE, json!({}))]),
            (None, [.., last]) => calls(&[finish(last)]),
        })
    })
}

fn with(tools: Vec<Arc<dyn Tool>>) -> WorkerOptions {
    WorkerOptions { tools, ..WorkerOptions::default() }
}

async fn answer(home: &Home, id: JobId) -> String {
    let job = ended(home, id).await;
    assert_eq!(job.state, JobState::Completed, "{:?}", job.reason);
    job.output.expect("an answer").text
}

async fn begun(home: &Home, id: JobId) -> usize {
    home.entries(id).await.iter().filter(|entry| matches!(entry, Entry::ProgramBegan { .. })).count()
}

#[tokio::test]
async fn files_are_read_and_written_through_the_ledger() {
    let home = Home::new();
    let program: Program = |calls| {
        Box::pin(async move {
            let both = ["alpha.txt", "beta.txt"].map(|path| made("read_file", &json!({ "path": path })));
            let first = calls.make(both.into()).await?;
            let second = calls.make(Vec::new()).await?;
            let mut texts = [first.text, second.text];
            texts.sort();
            let written = one(&calls, "create_file", json!({"path": "both.txt", "content": texts.join("+")})).await?;
            let again = one(&calls, "create_file", json!({"path": "both.txt", "content": "x"})).await?;
            let wrong = one(&calls, "read_file", json!({"file": "alpha.txt"})).await?;
            let missing = one(&calls, "run_command", json!({"command": "true"})).await?;
            assert!(wrong.text.contains("path") && missing.text.contains("cannot call"), "{wrong:?} {missing:?}");
            Ok(format!("{:?} {:?} {:?} {:?}", written.came, again.came, wrong.came, missing.came))
        })
    };
    let _worker = Worker::start_with(&home, Arc::new(model()), with(vec![running(program)])).await;
    let id = home.enqueue("the whole").await;
    assert_eq!(answer(&home, id).await, "Done Failed(Conflict) Refused Refused");
    assert_eq!(
        std::fs::read_to_string(home.workspace().join("both.txt")).expect("written").trim_end(),
        "ALPHA-7+BETA-9"
    );
    let mut states: Vec<_> = home.ledger(id).await.into_values().map(CallState::as_str).collect();
    states.sort_unstable();
    assert_eq!(states, ["done", "done", "done", "done", "failed"]);
    assert_eq!(begun(&home, id).await, 1);
}

#[tokio::test]
async fn a_worker_that_dies_in_a_call_repeats_none_and_the_program_is_told() {
    let home = Home::new();
    let program: Program = |calls| {
        Box::pin(async move {
            let read = one(&calls, "read_file", json!({"path": "alpha.txt"})).await?;
            let first = one(&calls, "gate", json!({"line": "first"})).await?;
            let second = match first.came {
                Came::Unknown => one(&calls, "gate", json!({"line": "second"})).await?,
                _ => first,
            };
            Ok(format!("{} {:?}", read.text, second.came))
        })
    };
    let (tool, mut first) = gate(EffectClass::Once);
    let worker = Worker::start_with(&home, Arc::new(model()), with(vec![running(program), tool])).await;
    let id = home.enqueue("the whole").await;
    assert_eq!(first.begun.recv().await.as_deref(), Some("first"));
    std::fs::write(home.workspace().join("alpha.txt"), "changed since").expect("written");
    drop(worker);

    let (tool, second) = gate(EffectClass::Once);
    second.let_go.add_permits(9);
    let options = with(vec![running(program), tool]).after_the_lease();
    let _worker = Worker::start_with(&home, Arc::new(model()), options).await;
    assert_eq!(answer(&home, id).await, "ALPHA-7 Done", "what was read before is what was read then");
    assert_eq!(lines(&home.workspace().join("ledger.txt")), ["first", "second"]);
    assert_eq!(begun(&home, id).await, 1);
}

#[tokio::test]
async fn a_program_that_goes_another_way_is_not_gone_on_with() {
    let home = Home::new();
    // What a program must not do: it looks at something beside the results of its calls.
    static SECOND: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    let program: Program = |calls| {
        Box::pin(async move {
            one(&calls, "read_file", json!({"path": "alpha.txt"})).await?;
            let is_second = SECOND.swap(true, std::sync::atomic::Ordering::SeqCst);
            let line = if is_second { "second" } else { "first" };
            one(&calls, "gate", json!({ "line": line })).await?;
            Ok("not to be told".into())
        })
    };
    let (tool, mut first) = gate(EffectClass::Idempotent);
    let worker = Worker::start_with(&home, Arc::new(model()), with(vec![running(program), tool])).await;
    let id = home.enqueue("the whole").await;
    assert_eq!(first.begun.recv().await.as_deref(), Some("first"));
    drop(worker);

    let (tool, second) = gate(EffectClass::Idempotent);
    second.let_go.add_permits(9);
    let options = with(vec![running(program), tool]).after_the_lease();
    let _worker = Worker::start_with(&home, Arc::new(model()), options).await;
    let told = answer(&home, id).await;
    assert!(
        told.contains(r#"its call 2 had been gate {"line":"first"}, and was now gate {"line":"second"}"#),
        "{told}"
    );
    assert_eq!(lines(&home.workspace().join("ledger.txt")), ["first"], "nothing more ran");
}

#[tokio::test]
async fn a_program_waits_for_tasks_without_a_slot_and_goes_on() {
    let home = Home::new();
    let mut persona: PersonaTemplate = persona();
    persona.tools.push("tasks".into());
    persona.may_delegate_to = vec![ROLE.into()];
    persona.limits.max_task_depth = Some(1);
    let program: Program = |calls| {
        Box::pin(async move {
            one(&calls, "append_file", json!({"path": "once.txt", "text": "x"})).await?;
            one(&calls, "task_create", json!({"role": ROLE, "goal": "part alpha"})).await?;
            let waited = one(&calls, "task_wait", json!({})).await?;
            Ok(format!("{:?} {}", waited.came, waited.text.contains("ALPHA is done")))
        })
    };
    let delegation = Delegation { to: vec![persona.clone()], ..Delegation::default() };
    // The task cannot begin before the job that gave it has left the slot.
    let options = WorkerOptions { persona, delegation, slots: 1, ..with(vec![running(program)]) };
    let _worker = Worker::start_with(&home, Arc::new(model()), options).await;
    let id = home.enqueue("the whole").await;
    assert_eq!(answer(&home, id).await, "Done true");
    let attempts = home.store.attempts(id).await.expect("readable");
    let outcomes: Vec<_> = attempts.iter().map(|attempt| attempt.outcome.clone().unwrap_or_default()).collect();
    assert_eq!(outcomes, ["suspended", "completed"]);
    assert_eq!(home.store.children(id).await.expect("readable").len(), 1);
    assert_eq!(std::fs::read_to_string(home.workspace().join("once.txt")).expect("written"), "x\n");
    assert_eq!(begun(&home, id).await, 1);
}
