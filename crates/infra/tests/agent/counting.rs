//! Runs whose tokens the server counts that runs their model.

use posse_core::job::JobState;
use posse_core::run::journal::Entry;
use posse_infra::model::openai::{OpenAiConfig, OpenAiModel, TokenizerChoice, ToolCallingChoice};
use serde_json::{Value, json};
use std::sync::Arc;

use super::kit::{Home, Worker, WorkerOptions};
use crate::support::model_server::{Answer, ModelServer};

const WINDOW: u32 = 6_000;

/// A model that reads a file in each of so many turns and then ends; sums up when asked to. Its replies
/// tell no usage, so that nothing but the tokenizer knows better than an estimate.
async fn reader(turns: usize) -> ModelServer {
    let mut turn = 0;
    ModelServer::start(None, move |body| {
        let message = match body["tools"].is_array() {
            false => json!({"role": "assistant", "content": "The files were read."}),
            true if turn == turns => json!({"role": "assistant", "content": "end"}),
            true => {
                turn += 1;
                let arguments = json!({"path": format!("data{turn}.txt")}).to_string();
                let call =
                    json!({"id": "x", "type": "function", "function": {"name": "read_file", "arguments": arguments}});
                json!({"role": "assistant", "content": null, "tool_calls": [call]})
            }
        };
        let finish = if message.get("tool_calls").is_some() { "tool_calls" } else { "stop" };
        Answer::json(200, json!({"choices": [{"index": 0, "message": message, "finish_reason": finish}]}))
    })
    .await
}

fn model(server: &ModelServer) -> Arc<OpenAiModel> {
    let config = OpenAiConfig {
        stream: false,
        context_window: Some(WINDOW),
        tokenizer: TokenizerChoice::Server,
        tool_calling: ToolCallingChoice::Native,
        ..OpenAiConfig::new("default", server.base_url(), "mock-1")
    };
    Arc::new(OpenAiModel::new(config).expect("a usable configuration"))
}

/// Half the bytes of a text: of prose, twice what it is estimated at.
fn tokens_of(text: &str) -> usize {
    text.len().div_ceil(2)
}

fn home(files: usize) -> Home {
    let home = Home::new();
    for n in 1..=files {
        let text = format!("File {n}. {}", "The ship sails on to the next port. ".repeat(40));
        std::fs::write(home.workspace().join(format!("data{n}.txt")), text).expect("a file");
    }
    home
}

/// What the messages and tools of a request have by the tokenizer, without what a template adds.
fn size(chat: &Value) -> usize {
    let text = |value: &Value| value.as_str().map_or(0, tokens_of);
    let of_calls = |message: &Value| {
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        calls.map(|call| text(&call["function"]["name"]) + text(&call["function"]["arguments"])).sum::<usize>()
    };
    let messages = chat["messages"].as_array().into_iter().flatten();
    let tools = chat["tools"].as_array().into_iter().flatten().map(|tool| tokens_of(&tool["function"].to_string()));
    messages.map(|message| text(&message["content"]) + of_calls(message)).sum::<usize>() + tools.sum::<usize>()
}

fn options() -> WorkerOptions {
    let mut options = WorkerOptions::default();
    options.persona.limits.max_turns = 100;
    options.persona.tools = vec!["read_file".into()];
    options
}

#[tokio::test]
async fn a_run_is_held_to_its_window_by_the_servers_count() {
    let (home, server) = (home(12), reader(12).await);
    server.tokenize(|body| {
        let tokens = tokens_of(body["content"].as_str().expect("a text"));
        Answer::json(200, json!({"tokens": vec![1; tokens]}))
    });
    let mut worker = Worker::start_with(&home, model(&server), options()).await;
    let id = home.enqueue("read all files").await;
    worker.until_ended(id).await;
    let job = home.job(id).await;
    assert_eq!((job.state, job.output.expect("an answer").text.as_str()), (JobState::Completed, "end"));

    let entries = home.entries(id).await;
    let count = |kind: &str| entries.iter().filter(|entry| entry.kind() == kind).count();
    assert!(count("counted") > 2 && count("compacted") > 1, "{} and {}", count("counted"), count("compacted"));
    let chats = server.chats();
    let sizes: Vec<_> = chats.iter().filter(|chat| chat["tools"].is_array()).map(size).collect();
    // The budget is 0.8 of the window; by the estimate it would hold twice as much.
    assert!(sizes.iter().all(|size| *size <= WINDOW as usize * 8 / 10), "{sizes:?}");
    assert!(sizes.iter().any(|size| *size > WINDOW as usize / 2), "and the window is used: {sizes:?}");
    // No text was sent to be counted twice.
    let mut texts: Vec<_> = server.tokenized().iter().map(|body| body["content"].to_string()).collect();
    let all = texts.len();
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), all);
    // What was counted is in the journal, so the run is the same for whoever finds it.
    let tokens = entries.iter().find_map(|entry| match entry {
        Entry::Counted { messages, .. } => messages.last().map(|count| (count.bytes, count.tokens)),
        _ => None,
    });
    let (bytes, tokens) = tokens.expect("a count");
    assert!(tokens.abs_diff(bytes as u64 / 2) <= 2, "{tokens} of {bytes} bytes");
}

#[tokio::test]
async fn a_run_goes_on_by_estimates_where_the_server_cannot_count() {
    for answer in [Answer::json(404, json!({})), Answer::json(200, json!({})).holding()] {
        let (home, server) = (home(12), reader(12).await);
        server.tokenize(move |_| answer.clone());
        let mut worker = Worker::start_with(&home, model(&server), options()).await;
        let id = home.enqueue("read all files").await;
        worker.until_ended(id).await;
        let job = home.job(id).await;
        assert_eq!((job.state, job.output.expect("an answer").text.as_str()), (JobState::Completed, "end"));
        assert!(home.entries(id).await.iter().all(|entry| entry.kind() != "counted"));
        // The estimate, which is half of what this tokenizer would say, lets more through.
        let largest = server.chats().iter().map(size).max().expect("chats");
        assert!(largest > WINDOW as usize, "{largest}");
        let asked = server.tokenized().len();
        assert!((1..=4).contains(&asked), "asked once, for a few texts at once: {asked}");
    }
}
