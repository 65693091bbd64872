//! What is sent: exactly what the chat completions API allows, nothing that is empty, and the same bytes each time.

use super::*;
use posse_core::model::conversation::Conversation;
use posse_core::model::conversation::ReasoningBack;
use posse_core::model::{Author, Extra, Reasoning};
use posse_infra::model::openai::MaxTokens;
use posse_infra::model::secret::Secret;

#[tokio::test]
async fn headers_go_with_every_request() {
    let server = ModelServer::play(vec![Answer::file("B00-final.sse")]).await;
    let mut config = config(&server);
    config.api_key = Some(Secret::new("sk-canary-123"));
    config.organization = Some("org-1".to_owned());
    config.project = Some("proj-1".to_owned());
    config.headers = vec![("x-title".to_owned(), Secret::new("Posse"))];
    config.max_tokens_field = Some(MaxTokens::MaxCompletionTokens);
    let request = ModelRequest { max_tokens: Some(7), ..request() };
    ask(&model(config), &request).await.expect("a reply");
    let received = &server.received()[0];
    for (name, value) in [
        ("authorization", "Bearer sk-canary-123"),
        ("openai-organization", "org-1"),
        ("openai-project", "proj-1"),
        ("x-title", "Posse"),
        ("content-type", "application/json"),
    ] {
        assert_eq!(received.headers.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert_eq!(received.body["max_completion_tokens"], 7);
}

#[tokio::test]
async fn without_a_key_none_is_sent() {
    let server = ModelServer::play(vec![Answer::file("B00-final.sse")]).await;
    ask(&model(config(&server)), &request()).await.expect("a reply");
    assert!(!server.received()[0].headers.contains_key("authorization"));
}

#[tokio::test]
async fn an_address_that_names_only_a_host_is_asked_beneath_v1_too() {
    let server = ModelServer::play(vec![Answer::file("B00-final.sse"), Answer::file("B00-final.sse")]).await;
    let mut config = config(&server);
    config.base_url = server.base_url().trim_end_matches("/v1").to_owned();
    config.base_url_from = Some("OPENAI_BASE_URL".into());
    let bare = model(config.clone());
    for _ in 0..2 {
        ask(&bare, &request()).await.expect("an answer");
    }
    let asked: Vec<_> = server.received().iter().map(|received| received.line.replace(" HTTP/1.1", "")).collect();
    assert_eq!(asked, ["POST /chat/completions", "POST /v1/chat/completions", "POST /v1/chat/completions"]);
    // Where there is a path it is what somebody meant, and the error says where it came from.
    config.base_url += "/v2";
    let error = ask(&model(config), &request()).await.expect_err("nothing is there");
    assert!(error.message.contains("/v2 (OPENAI_BASE_URL) answered 404"), "{}", error.message);
}

/// The body that is sent for `request`.
async fn sent(request: &ModelRequest, set: impl FnOnce(&mut OpenAiConfig)) -> Value {
    let server = ModelServer::start(None, |body| match body["stream"] == true {
        true => Answer::file("B00-final.sse"),
        false => Answer::file("B00-final.json"),
    })
    .await;
    let mut config = config(&server);
    set(&mut config);
    ask(&model(config), request).await.expect("a reply");
    server.chats().pop().expect("a request")
}

#[tokio::test]
async fn the_least_request_holds_the_least_fields() {
    let request = ModelRequest { messages: vec![user("hi")].into(), ..ModelRequest::default() };
    assert_eq!(
        sent(&request, |config| config.stream = false).await,
        json!({"model": "mock-1", "messages": [{"role": "user", "content": "hi"}], "stream": false})
    );
}

#[tokio::test]
async fn every_field_at_once() {
    let request = ModelRequest {
        messages: vec![user("hi")].into(),
        tools: vec![tool("b"), tool("a")],
        schema: Some(json!({"type": "object"})),
        max_tokens: Some(64),
        temperature: Some(0.7),
        ..ModelRequest::default()
    };
    let body = sent(&request, |config| config.max_tokens_field = Some(MaxTokens::MaxCompletionTokens)).await;
    assert_eq!(body["tools"][0]["function"]["name"], "a");
    assert_eq!(body["tools"][1]["type"], "function");
    assert_eq!(
        body["response_format"],
        json!({"type": "json_schema", "json_schema": {"name": "step", "strict": true, "schema": {"type": "object"}}})
    );
    assert_eq!(body["max_completion_tokens"], 64);
    assert_eq!(body["stream_options"], json!({"include_usage": true}));
    assert!(body.get("max_tokens").is_none() && body.get("tool_choice").is_none());
    assert_eq!(body["temperature"], 0.7, "as it was meant, not as 32 bits hold it");
}

#[tokio::test]
async fn a_turn_with_calls() {
    let call = |id: &str, extra| CallRequest {
        id: id.to_owned(),
        name: "read_file".to_owned(),
        arguments: "{\"path\":1}".to_owned(),
        extra,
    };
    let result =
        |id: &str| Message::Tool { call_id: id.to_owned(), name: "read_file".to_owned(), text: "r".to_owned() };
    let server = ModelServer::play(vec![Answer::file("B00-final.sse")]).await;
    let provider = server.base_url().trim_start_matches("http://").trim_end_matches("/v1").to_owned();
    let by = Author { provider: provider.clone(), model: "mock-1".to_owned() };
    let extra = Extra { value: json!({"g": {"s": "x"}}), provider };
    let request = ModelRequest {
        messages: vec![
            Message::System { text: "s".to_owned() },
            user("u"),
            Message::Assistant {
                text: String::new(),
                reasoning: Some(Reasoning { text: "because".to_owned(), by }),
                calls: vec![call("aaaaaaaa1", Some(extra)), call("aaaaaaaa2", None)],
            },
            result("aaaaaaaa1"),
            result("aaaaaaaa2"),
        ]
        .into(),
        ..ModelRequest::default()
    };
    let config = OpenAiConfig { reasoning: Some(ReasoningBack::Optional), ..config(&server) };
    ask(&model(config), &request).await.expect("a reply");
    let wanted = json!([
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": null, "reasoning_content": "because", "tool_calls": [
            {"id": "aaaaaaaa1", "type": "function",
             "function": {"name": "read_file", "arguments": "{\"path\":1}"},
             "extra_content": {"g": {"s": "x"}}},
            {"id": "aaaaaaaa2", "type": "function",
             "function": {"name": "read_file", "arguments": "{\"path\":1}"}},
        ]},
        {"role": "tool", "tool_call_id": "aaaaaaaa1", "content": "r"},
        {"role": "tool", "tool_call_id": "aaaaaaaa2", "content": "r"},
    ]);
    assert_eq!(server.chats()[0]["messages"], wanted);
}

/// The messages that are sent of a conversation, each as text.
async fn messages(server: &ModelServer, model: &OpenAiModel, of: &Conversation, tail: Option<&str>) -> Vec<String> {
    let request = ModelRequest { messages: of.clone(), tail: tail.map(str::to_owned), ..ModelRequest::default() };
    ask(model, &request).await.expect("a reply");
    let sent = server.chats().pop().expect("a request");
    sent["messages"].as_array().expect("messages").iter().map(Value::to_string).collect()
}

#[tokio::test]
async fn what_is_settled_never_changes() {
    let server = ModelServer::play(vec![Answer::file("B00-final.sse")]).await;
    let model = model(config(&server));
    let mut conversation = Conversation::from(vec![user("u"), says("a")]);
    let first = messages(&server, &model, &conversation, Some("view 1")).await;
    assert_eq!(first.len(), 3);
    for message in [user("v"), says("b"), user("w")] {
        conversation.push(message);
    }
    let second = messages(&server, &model, &conversation, Some("view 2")).await;
    assert_eq!(second[..2], first[..2]);
    assert!(first[2].contains("view 1") && second.last().is_some_and(|last| last.contains("view 2")));
    // A worker that has only just loaded the conversation sends the same.
    let cold = Conversation::from(conversation.to_vec());
    assert_eq!(messages(&server, &model, &cold, Some("view 2")).await, second);
}

#[tokio::test]
async fn a_conversation_is_sent_to_each_model_by_its_rules() {
    let server = ModelServer::play(vec![Answer::file("B00-final.sse")]).await;
    let conversation = Conversation::from(vec![user("u"), user("v")]);
    let (plain, turns) = (config(&server), OpenAiConfig { take_turns: Some(true), ..config(&server) });
    let (plain, turns) = (model(plain), model(turns));
    assert_eq!(messages(&server, &plain, &conversation, None).await.len(), 2);
    assert_eq!(messages(&server, &turns, &conversation, None).await.len(), 1);
    assert_eq!(messages(&server, &plain, &conversation, None).await.len(), 2);
}
