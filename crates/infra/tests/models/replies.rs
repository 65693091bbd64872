//! Whole replies: the cases from the field, and the shapes in which servers say the same.

use super::*;
use posse_core::model::{Delta, Finish, Usage};
use std::sync::Mutex;

#[tokio::test]
async fn b01_calls_without_index_go_back_with_their_signature() {
    let server =
        ModelServer::play(vec![Answer::file("B01-no-index-signature.sse"), Answer::file("B00-final.sse")]).await;
    let model = model(config(&server));
    let reply = ask(&model, &request()).await.expect("a reply");
    assert_eq!(reply.finish, Finish::ToolCalls);
    let paths: Vec<_> = reply.calls.iter().map(|call| call.arguments.as_str()).collect();
    assert_eq!(paths, [r#"{"path":"alpha.txt"}"#, r#"{"path":"beta.txt"}"#]);
    assert!(reply.usage.estimated && reply.usage.input > 0, "no usage is not free");

    let last = ask(&model, &followed(&request(), &reply)).await.expect("a reply");
    assert_eq!(last.text, "FINAL-OK");
    let calls = server.chats()[1]["messages"][2]["tool_calls"].clone();
    assert_eq!(calls[0]["extra_content"], json!({"google": {"thought_signature": "U0lHLUE="}}));
    assert_eq!(calls[1]["extra_content"], json!({"google": {"thought_signature": "U0lHLUIy"}}));
}

#[tokio::test]
async fn b03_stray_choices_and_usage_at_the_end() {
    let server = ModelServer::play(vec![Answer::file("B03-empty-choices-no-delta.sse")]).await;
    let deltas = Mutex::new(String::new());
    let sink = |delta| {
        if let Delta::Text(text) = delta {
            deltas.lock().expect("not poisoned").push_str(&text);
        }
    };
    let reply = model(config(&server)).complete(&request(), &sink, &Stop::never()).await.expect("a reply");
    assert_eq!((reply.text.as_str(), &reply.finish), ("Seven geese.", &Finish::Stop));
    assert_eq!(reply.usage, Usage { input: 31, output: 4, cached: 0, estimated: false });
    assert_eq!(deltas.into_inner().expect("not poisoned"), "Seven geese.");
}

#[tokio::test]
async fn b05_cut_arguments_come_out_as_a_cut_reply() {
    let server = ModelServer::play(vec![Answer::file("B05-truncated-but-tool_calls.sse")]).await;
    // The server says `tool_calls` over 64 tokens, which is what was asked for at most.
    let asked = ModelRequest { max_tokens: Some(64), ..request() };
    let reply = ask(&model(config(&server)), &asked).await.expect("a reply");
    assert_eq!(reply.finish, Finish::Length);
    assert!(reply.calls[0].arguments.ends_with("line 2\\nli"), "nothing is closed or mended");
    assert_eq!(server.chats().len(), 1);
}

#[tokio::test]
async fn b13_ids_stay_as_the_provider_sent_them() {
    let server = ModelServer::play(vec![Answer::file("B13-duplicate-ids.json")]).await;
    let reply = ask(&model(config(&server)), &request()).await.expect("a reply");
    let calls: Vec<_> = reply.calls.iter().map(|c| (c.id.as_str(), c.arguments.as_str())).collect();
    assert_eq!(calls, [("files_read_46", r#"{"path":"alpha.txt"}"#), ("files_read_46", r#"{"path":"beta.txt"}"#)]);
}

#[tokio::test]
async fn a_server_that_does_not_stream_is_read_all_the_same() {
    let server = ModelServer::play(vec![Answer::file("B00-final.json")]).await;
    let reply = ask(&model(config(&server)), &request()).await.expect("a reply");
    assert_eq!(server.chats()[0]["stream"], true);
    assert_eq!(reply.text, "FINAL-OK");
    assert_eq!(reply.usage, Usage { input: 40, output: 12, cached: 0, estimated: false });
}

#[tokio::test]
async fn b17_refusals_and_filters_are_replies() {
    let server = ModelServer::play(vec![Answer::file("B17a-refusal.json")]).await;
    let reply = ask(&model(config(&server)), &request()).await.expect("a reply");
    assert_eq!(reply.refusal.as_deref(), Some("I can't help with that request."));
    assert_eq!((reply.text.as_str(), server.chats().len()), ("", 1));

    let server = ModelServer::play(vec![Answer::file("B17b-content-filter.json")]).await;
    let reply = ask(&model(config(&server)), &request()).await.expect("a reply");
    assert_eq!(reply.finish, Finish::ContentFilter);
    assert_eq!(server.chats().len(), 1);
}

#[tokio::test]
async fn what_a_reply_cost() {
    let server = ModelServer::play(vec![Answer::file("B00-final.json")]).await;
    let mut config = config(&server);
    config.price_input = Some(1.0);
    config.price_output = Some(4.0);
    let reply = ask(&model(config), &request()).await.expect("a reply");
    assert_eq!(reply.cost_microusd, Some(40 + 4 * 12));
}

#[tokio::test]
async fn prices_are_per_million_and_rounded_up() {
    for (input, output, cost) in [(None, None, None), (Some(2.5), Some(10.0), Some(220)), (Some(0.01), None, Some(1))] {
        let server = ModelServer::play(vec![Answer::file("B00-final.json")]).await;
        let config = OpenAiConfig { price_input: input, price_output: output, ..config(&server) };
        assert_eq!(ask(&model(config), &request()).await.expect("a reply").cost_microusd, cost);
    }
}

#[tokio::test]
async fn an_author_is_a_host_and_a_model() {
    let server = ModelServer::play(vec![Answer::file("B15-reasoning-roundtrip.sse")]).await;
    let host = server.base_url().trim_start_matches("http://").trim_end_matches("/v1").to_owned();
    let config = OpenAiConfig { base_url: format!("http://u:p@{host}/v1"), ..config(&server) };
    let by = ask(&model(config), &request()).await.expect("a reply").reasoning.expect("it thought").by;
    assert_eq!((by.provider, by.model.as_str()), (host, "mock-1"));
}
