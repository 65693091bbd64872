//! Strict providers, from the database to the wire and back: what a run says to them, across
//! restarts, changes of provider and damage to its journal.

use posse_core::clock::{Clock as _, ManualClock};
use posse_core::job::{JobId, JobState};
use posse_core::model::Message;
use posse_core::model::conversation::{ReasoningBack, Rules};
use posse_core::port::JobQueries as _;
use posse_core::run::sent::{Reason, requests};
use posse_core::worker::Progress;
use posse_infra::model::fallback::FallbackModel;
use posse_infra::model::openai::{OpenAiConfig, OpenAiModel, ToolCallingChoice};
use posse_infra::process::SystemClock;
use posse_testing::scripted::ScriptedModel;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

use super::kit::{Home, Worker, WorkerOptions};
use crate::support::model_server::{Answer, ModelServer};

fn config(server: &ModelServer) -> OpenAiConfig {
    OpenAiConfig {
        tool_calling: ToolCallingChoice::Native,
        backoff: Duration::from_millis(1),
        retries: 0,
        ..OpenAiConfig::new("default", server.base_url(), "mock-1")
    }
}

fn model(config: OpenAiConfig) -> Arc<OpenAiModel> {
    Arc::new(OpenAiModel::new(config).expect("a usable configuration"))
}

/// The assistant messages of a request, as they were sent.
fn assistants(body: &Value) -> Vec<&Value> {
    body["messages"].as_array().into_iter().flatten().filter(|m| m["role"] == "assistant").collect()
}

async fn answer(home: &Home, id: JobId) -> String {
    let job = home.job(id).await;
    assert_eq!(job.state, JobState::Completed, "{:?}", job.reason);
    job.output.expect("an answer").text
}

fn refused(message: &str) -> Answer {
    Answer::json(400, json!({"error": {"message": message, "type": "invalid_request_error"}}))
}

/// A call of `read_file`, from a model that thinks before it.
fn thinks_and_reads(path: &str) -> Answer {
    let arguments = json!({"path": path}).to_string();
    let call =
        json!({"id": "call_00_r", "type": "function", "function": {"name": "read_file", "arguments": arguments}});
    let message = json!({"content": null, "reasoning_content": format!("I read {path}."), "tool_calls": [call]});
    Answer::json(200, json!({"choices": [{"message": message, "finish_reason": "tool_calls"}]}))
}

#[tokio::test]
async fn b15_reasoning_goes_back_or_not_as_the_provider_wants_also_after_a_restart() {
    for demanded in [true, false] {
        for restart in [true, false] {
            let server = ModelServer::start(None, move |body| {
                let turns = assistants(body);
                let reasoning: Vec<_> = turns.iter().map(|turn| turn.get("reasoning_content")).collect();
                if demanded && reasoning.iter().any(Option::is_none) {
                    return Answer::file("B15-then-400.json").status(400);
                }
                if !demanded && reasoning.iter().any(Option::is_some) {
                    return refused("messages.2.reasoning_content: Extra inputs are not permitted");
                }
                match turns.len() {
                    0 => thinks_and_reads("alpha.txt"),
                    1 => thinks_and_reads("beta.txt"),
                    _ => Answer::file("B00-final.json"),
                }
            })
            .await;
            // The setting is the wrong one each time, so it has to be learned.
            let back = if demanded { ReasoningBack::Forbidden } else { ReasoningBack::Required };
            let asked = || model(OpenAiConfig { reasoning: Some(back), ..config(&server) });
            let home = Home::new();
            let mut worker = Worker::start(&home, asked()).await;
            let id = home.enqueue("read both files").await;
            if restart {
                worker
                    .until(
                        |p| matches!(p, Progress::Recorded { recorded, .. } if recorded.entry.kind() == "call_ended"),
                    )
                    .await;
                worker.shut_down().await;
                worker = Worker::start(&home, asked()).await;
            }
            worker.until_ended(id).await;
            assert_eq!(answer(&home, id).await, "FINAL-OK");
            let chats = server.chats();
            let last = assistants(chats.last().expect("a request"));
            let wanted = ["I read alpha.txt.", "I read beta.txt."].map(|text| demanded.then(|| json!(text)));
            let sent: Vec<_> = last.iter().map(|turn| turn.get("reasoning_content").cloned()).collect();
            assert_eq!(sent, wanted, "demanded: {demanded}, restart: {restart}");
        }
    }
}

/// The first provider breaks down after its turn; the second one is stricter, and gets neither the
/// first one's ids, nor its thoughts, nor its signatures.
/// A provider that says "at once" for ever when it is asked what its model can do is given up like one that says so
/// to a job's request: its wish has a floor that grows, and an end.
#[tokio::test]
async fn a_wish_before_the_run_begins_has_a_floor_that_grows_and_an_end() {
    let server =
        ModelServer::start(None, |_| Answer::json(429, json!({"error": "slow down"})).header("retry-after", "0"));
    let server = server.await;
    let probed = OpenAiConfig { tool_calling: ToolCallingChoice::Auto, ..config(&server) };
    let home = Home::new();
    let clock = Arc::new(ManualClock::at(SystemClock.now() + 60_000));
    let id = home.enqueue("anything").await;
    let (mut wishes, mut failures) = (Vec::new(), 0);
    loop {
        // How often it failed is known to the next worker, too.
        let options = WorkerOptions { clock: clock.clone(), ..WorkerOptions::default() };
        let mut worker = Worker::start_with(&home, model(probed.clone()), options).await;
        worker.until_ended(id).await;
        worker.shut_down().await;
        let job = home.job(id).await;
        match job.state {
            JobState::Scheduled => wishes.push((job.run_at - clock.now()) / 1000),
            JobState::Retryable => failures += 1,
            state => break assert_eq!(state, JobState::Discarded, "{:?}", job.reason),
        }
        assert_eq!(job.attempt, failures, "a wish spends no attempt, a failure one");
        assert!(wishes.len() < 10, "it has no end: {wishes:?}");
        clock.advance(job.run_at - clock.now());
    }
    assert_eq!((wishes, failures), (vec![10, 20, 40, 80], 4));
    let reason = home.job(id).await.reason.expect("a reason");
    assert!(reason.contains("429") && reason.contains("slow down"), "{reason}");
    let made = requests(&home.store.journal(id, 0).await.expect("readable"), &[]);
    assert_eq!(made.len(), 9);
    assert!(made.iter().all(|made| made.reason == Reason::Abilities && made.request.is_none()));
}

#[tokio::test]
async fn b19_a_change_of_provider_in_the_middle() {
    let first = ModelServer::start(None, |body| match assistants(body).len() {
        0 => {
            let call = |id: &str, path: &str| {
                json!({"id": id, "type": "function", "extra_content": {"google": {"thought_signature": "U0lH"}},
                    "function": {"name": "read_file", "arguments": json!({"path": path}).to_string()}})
            };
            let calls = [call("call_AbC123xyz1", "alpha.txt"), call("call_AbC123xyz2", "beta.txt")];
            let message = json!({"content": " ", "reasoning": "I read both.", "tool_calls": calls});
            Answer::json(200, json!({"choices": [{"message": message, "finish_reason": "tool_calls"}]}))
        }
        _ => Answer::json(503, json!({"error": {"message": "overloaded"}})),
    })
    .await;
    let second = ModelServer::start(None, |body| {
        let nine = |id: &Value| id.as_str().is_some_and(posse_core::model::conversation::is_call_id);
        let messages = body["messages"].as_array().cloned().unwrap_or_default();
        let ids = messages.iter().flat_map(|m| {
            let calls = m["tool_calls"].as_array().into_iter().flatten().map(|call| &call["id"]);
            calls.chain(m.get("tool_call_id"))
        });
        if !ids.into_iter().all(nine) {
            return Answer::file("B19-id-shape-400.json").status(400);
        }
        if assistants(body).iter().any(|turn| turn["reasoning_content"] != "(not recorded)") {
            return Answer::file("B15-then-400.json").status(400);
        }
        if body.to_string().contains("extra_content") {
            return refused("extra_content: Extra inputs are not permitted");
        }
        Answer::file("B00-final.json")
    })
    .await;
    let strict = OpenAiConfig { reasoning: Some(ReasoningBack::Required), ..config(&second) };
    let pair = Arc::new(FallbackModel::new(model(config(&first)), model(strict)));
    let home = Home::new();
    let mut worker = Worker::start(&home, pair).await;
    let id = home.enqueue("read both files").await;
    worker.until_ended(id).await;
    assert_eq!(answer(&home, id).await, "FINAL-OK");
    assert_eq!(second.chats().len(), 1, "taken as it was");
    let results: Vec<_> = second.chats()[0]["messages"].as_array().into_iter().flatten().cloned().collect();
    let results: Vec<_> = results.iter().filter(|m| m["role"] == "tool").map(|m| m["content"].to_string()).collect();
    assert!(results[0].contains("ALPHA-7") && results[1].contains("BETA-9"), "{results:?}");
}

#[tokio::test]
async fn b17_a_refusal_and_a_filter_cost_one_request() {
    for (file, reason) in [
        ("B17a-refusal.json", "the model refused: I can't help with that request."),
        ("B17b-content-filter.json", "the provider's content filter stopped the reply"),
    ] {
        let server = ModelServer::play(vec![Answer::file(file)]).await;
        let home = Home::new();
        let mut worker = Worker::start(&home, model(config(&server))).await;
        let id = home.enqueue("something").await;
        worker.until_ended(id).await;
        let job = home.job(id).await;
        assert_eq!((job.state, server.chats().len()), (JobState::Discarded, 1));
        assert!(job.reason.as_deref().is_some_and(|r| r.starts_with(reason)), "{:?}", job.reason);
    }
}

/// A provider that nothing is known of says once what it minds.
#[tokio::test]
async fn an_order_of_roles_is_learned_from_one_refusal() {
    let server = ModelServer::start(None, |body| {
        let messages = body["messages"].as_array().cloned().unwrap_or_default();
        let roles: Vec<_> = messages.iter().map(|m| m["role"].as_str().unwrap_or_default()).collect();
        if roles.windows(2).any(|pair| pair == ["tool", "user"]) {
            return Answer::json(
                400,
                json!({"object": "error", "message": "Unexpected role 'user' after role 'tool'",
                    "type": "invalid_request_message_order", "code": "3230"}),
            );
        }
        match roles.len() {
            2 => thinks_and_reads("alpha.txt"),
            // Nothing at all, twice: each time a note follows.
            4 | 6 => Answer::json(200, json!({"choices": [{"message": {"content": ""}, "finish_reason": "stop"}]})),
            _ => Answer::file("B00-final.json"),
        }
    })
    .await;
    let home = Home::new();
    let mut worker = Worker::start(&home, model(config(&server))).await;
    let id = home.enqueue("read alpha.txt").await;
    worker.until_ended(id).await;
    assert_eq!(answer(&home, id).await, "FINAL-OK");
    let failed: usize = home
        .entries(id)
        .await
        .iter()
        .map(|entry| match entry {
            posse_core::run::journal::Entry::Turn(turn) => turn.failed_tries.len(),
            _ => 0,
        })
        .sum();
    assert_eq!(failed, 1);
}

/// C03: whichever row of a journal is gone, a worker goes on with the run, to the strictest of
/// providers, and the task is still there.
#[tokio::test]
async fn c03_a_journal_with_a_row_deleted_by_hand_is_no_end() {
    let strictest = Rules {
        user_after_tool: false,
        take_turns: true,
        reasoning: ReasoningBack::Required,
        several_systems: false,
        signed_calls: true,
    };
    let read = |path: &str| ("read_file", json!({"path": path}));
    let mut row = 0;
    loop {
        let home = Home::new();
        let model = Arc::new(
            ScriptedModel::new()
                .strict(strictest)
                .call(&[read("alpha.txt"), read("beta.txt")])
                .call(&[read("one.txt")])
                .hang(),
        );
        let mut worker = Worker::start(&home, model.clone()).await;
        let id = home.enqueue("read them all").await;
        for _ in 0..3 {
            worker.until(|p| matches!(p, Progress::AskingModel { .. })).await;
        }
        worker.shut_down().await;
        model.assert_clean();

        let rows = home.entries(id).await.len();
        if row == rows {
            break;
        }
        let database = rusqlite::Connection::open(home.folder.path().join("posse.db")).expect("the database");
        let deleted = database.execute("DELETE FROM steps WHERE job_id = ?1 AND seq = ?2", (id.0, row as i64));
        assert_eq!(deleted.expect("a row may be deleted"), 1);
        drop(database);

        let model = Arc::new(ScriptedModel::new().strict(strictest).call(&[read("two.txt")]).say("FINAL-OK"));
        let mut next = Worker::start(&home, model.clone()).await;
        next.until_ended(id).await;
        assert_eq!(answer(&home, id).await, "FINAL-OK", "without row {row}");
        model.assert_clean();
        let requests = model.requests();
        let task = |m: &Message| matches!(m, Message::User { text } if text.contains("read them all"));
        assert!(requests.iter().all(|request| request.messages.iter().any(task)), "without row {row}");
        row += 1;
    }
    assert!(row >= 9, "only {row} rows were there");
}
