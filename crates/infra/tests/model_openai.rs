//! The OpenAI-compatible model against a real server on loopback: the cases from the field, and
//! what holds between tries.

use crate::support::model_server::{Answer, ModelServer};
use posse_core::model::conversation::ReasoningBack;
use posse_core::model::*;
use posse_core::stop::{Stop, StopReason, stop_pair};
use posse_core::tool::ToolSpec;
use posse_infra::model::openai::{MaxTokens, OpenAiConfig, OpenAiModel, ToolCallingChoice};
use serde_json::{Value, json};
use std::sync::Mutex;
use std::time::{Duration, Instant};

fn config(server: &ModelServer) -> OpenAiConfig {
    OpenAiConfig {
        tool_calling: ToolCallingChoice::Native,
        idle_timeout: Duration::from_secs(10),
        backoff: Duration::from_millis(1),
        ..OpenAiConfig::new("default", server.base_url(), "mock-1")
    }
}

fn model(config: OpenAiConfig) -> OpenAiModel {
    OpenAiModel::new(config).expect("a usable configuration")
}

fn request() -> ModelRequest {
    ModelRequest {
        messages: vec![
            Message::System { text: "Be brief.".to_owned() },
            Message::User { text: "Read both files.".to_owned() },
        ]
        .into(),
        tools: vec![ToolSpec {
            name: "files_read".to_owned(),
            description: "Reads a file.".to_owned(),
            parameters: json!({"type": "object", "properties": {"path": {"type": "string"}}}),
        }],
        ..ModelRequest::default()
    }
}

async fn ask(model: &OpenAiModel, request: &ModelRequest) -> Result<ModelReply, ModelError> {
    model.complete(request, &|_| {}, &Stop::never()).await
}

/// The conversation after `reply` and results for its calls, ids made ours as the core does.
fn followed(request: &ModelRequest, reply: &ModelReply) -> ModelRequest {
    let mut next = request.clone();
    let id = |n: usize| format!("aaaaaaa{n:02}");
    let calls = reply.calls.iter().cloned().enumerate();
    let calls: Vec<_> = calls.map(|(n, call)| CallRequest { id: id(n), ..call }).collect();
    let (text, reasoning) = (reply.text.clone(), reply.reasoning.clone());
    next.messages.push(Message::Assistant { text, reasoning, calls: calls.clone() });
    for CallRequest { id, name, .. } in calls {
        next.messages.push(Message::Tool { call_id: id, name, text: "ok".to_owned() });
    }
    next
}

fn refused(status: u16, message: &str) -> Answer {
    Answer::json(status, json!({"error": {"message": message, "type": "invalid_request_error"}}))
}

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
async fn b07_a_stream_without_its_end_is_asked_again() {
    for cut in [Answer::file("B07-eof-no-finish.sse"), Answer::file("B07-eof-no-finish.sse").breaking()] {
        let server = ModelServer::play(vec![cut, Answer::file("B00-final.sse")]).await;
        let deltas = Mutex::new(Vec::new());
        let sink = |delta| deltas.lock().expect("not poisoned").push(delta);
        let reply = model(config(&server)).complete(&request(), &sink, &Stop::never()).await.expect("a reply");
        assert_eq!(reply.text, "FINAL-OK");
        let failed = &reply.failed_tries[0];
        assert!(failed.usage.estimated && failed.usage.output > 0, "the half text was billed");
        let deltas = deltas.into_inner().expect("not poisoned");
        let restart = deltas.iter().position(|d| *d == Delta::Restarted(failed.clone()));
        assert!(restart.is_some_and(|at| at > 0), "{deltas:?}");
    }
}

#[tokio::test]
async fn b07_silence_ends_by_the_idle_limit() {
    let server =
        ModelServer::play(vec![Answer::file("B07-eof-no-finish.sse").holding(), Answer::file("B00-final.sse")]).await;
    let mut config = config(&server);
    config.idle_timeout = Duration::from_millis(150);
    let reply = ask(&model(config), &request()).await.expect("a reply");
    assert_eq!(reply.text, "FINAL-OK");
    assert!(reply.failed_tries[0].reason.contains("sent nothing for 150ms"), "{reply:?}");
    server.connection_dropped().await;
}

#[tokio::test]
async fn a_finish_without_done_is_a_whole_reply() {
    let body = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n";
    let server = ModelServer::play(vec![Answer::new(200, "text/event-stream", body)]).await;
    let reply = ask(&model(config(&server)), &request()).await.expect("a reply");
    assert_eq!((reply.text.as_str(), server.chats().len()), ("hi", 1));
}

#[tokio::test]
async fn silence_after_the_finish_costs_nothing_but_the_count() {
    let body = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n";
    let server = ModelServer::play(vec![Answer::new(200, "text/event-stream", body).holding()]).await;
    let mut config = config(&server);
    config.idle_timeout = Duration::from_millis(150);
    let reply = ask(&model(config), &request()).await.expect("a reply");
    assert_eq!((reply.text.as_str(), server.chats().len()), ("hi", 1));
    assert!(reply.usage.estimated);
    server.connection_dropped().await;
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
async fn b09_an_error_in_a_200_is_an_error() {
    let server = ModelServer::play(vec![Answer::file("B09-error-in-200.json"), Answer::file("B00-final.json")]).await;
    let mut config = config(&server);
    config.stream = false;
    config.retries = 0;
    let error = ask(&model(config.clone()), &request()).await.expect_err("no retries");
    assert_eq!(error.kind, ModelErrorKind::RateLimited);
    assert_eq!(error.retry_after, Some(Duration::from_secs(2)));
    assert!(error.message.contains("Quota for this minute is used up"), "{}", error.message);
    assert_eq!(error.failed_tries[0].usage.total(), 0, "a refusal costs nothing");

    let reply = ask(&model(config), &request()).await.expect("the second answer is a reply");
    assert_eq!(reply.text, "FINAL-OK");
}

#[tokio::test]
async fn b11_a_failed_tool_call_is_its_own_kind_and_not_retried() {
    let server = ModelServer::play(vec![Answer::file("B11-tool_use_failed.json").status(400)]).await;
    let error = ask(&model(config(&server)), &request()).await.expect_err("an error");
    assert_eq!(error.kind, ModelErrorKind::InvalidToolCall);
    assert!(error.message.contains("<function=files_read"), "{}", error.message);
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
async fn b15_reasoning_is_sent_to_who_wants_it_and_no_other() {
    let wanted = "The user wants alpha.txt. I should read it first.";
    let sent = |body: &Value| {
        let messages = body["messages"].as_array().cloned().unwrap_or_default();
        messages.iter().find_map(|m| Some(m.get("reasoning_content")?.as_str()?.to_owned()))
    };
    for demanded in [true, false] {
        let server = ModelServer::start(None, move |body| {
            let is_first = body["messages"].as_array().map_or(0, Vec::len) == 2;
            match (is_first, sent(body)) {
                (true, _) => Answer::file("B15-reasoning-roundtrip.sse"),
                (_, Some(words)) if demanded && words == wanted => Answer::file("B00-final.sse"),
                (_, None) if !demanded => Answer::file("B00-final.sse"),
                (_, None) => Answer::file("B15-then-400.json").status(400),
                _ => refused(400, "messages.2.reasoning_content: Extra inputs are not permitted"),
            }
        })
        .await;
        for configured in [Some(ReasoningBack::Required), Some(ReasoningBack::Forbidden), None] {
            let mut config = config(&server);
            config.reasoning = configured;
            let model = model(config);
            let before = server.chats().len();
            let reply = ask(&model, &request()).await.expect("a reply");
            assert_eq!(reply.reasoning.as_ref().map(|reasoning| reasoning.text.as_str()), Some(wanted));
            let next = followed(&request(), &reply);
            assert_eq!(ask(&model, &next).await.expect("a reply").text, "FINAL-OK");
            let lessons = usize::from((configured == Some(ReasoningBack::Required)) != demanded);
            assert_eq!(server.chats().len() - before, 2 + lessons);
            assert!(ask(&model, &next).await.expect("a reply").failed_tries.is_empty(), "learned");
        }
    }
}

#[tokio::test]
async fn thoughts_in_the_text_are_no_answer_however_they_come() {
    let piece = |content: Value, finish: Value| {
        format!(
            "data: {}\n\n",
            json!({"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": finish}]})
        )
    };
    let streamed = |pieces: &[&str], finish: &str| {
        let mut body: String = pieces.iter().map(|text| piece(json!(text), Value::Null)).collect();
        body += &piece(json!(""), json!(finish));
        Answer::new(200, "text/event-stream", body + "data: [DONE]\n\n")
    };
    let whole = |content: Value| {
        Answer::json(200, json!({"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}))
    };
    for (answer, thought, text) in [
        (streamed(&["<thi", "nk>Ge", "ese?</th", "ink>\n", "\nSeven."], "stop"), "Geese?", "Seven."),
        (streamed(&["Geese", "?\n</thi", "nk>\n\nSev", "en."], "stop"), "Geese?", "Seven."),
        (streamed(&["<think>", "Geese?", " Or "], "length"), "Geese? Or", ""),
        (streamed(&["Use `<think>", "` and `</think>`."], "stop"), "", "Use `<think>` and `</think>`."),
        (whole(json!("◁think▷Geese?◁/think▷Seven.")), "Geese?", "Seven."),
        (
            whole(json!([{"type": "text", "text": "<think>Geese?</think>"}, {"type": "text", "text": "Seven."}])),
            "Geese?",
            "Seven.",
        ),
        (
            whole(
                json!([{"type": "thinking", "thinking": [{"type": "text", "text": "Geese?"}]}, {"type": "text", "text": "Seven."}]),
            ),
            "Geese?",
            "Seven.",
        ),
    ] {
        let server = ModelServer::play(vec![answer]).await;
        let reply = ask(&model(config(&server)), &request()).await.expect("a reply");
        let thoughts = reply.reasoning.map(|reasoning| reasoning.text).unwrap_or_default();
        assert_eq!((thoughts.as_str(), reply.text.as_str()), (thought, text));
    }
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
async fn b19_a_refused_id_is_not_retried() {
    let server = ModelServer::play(vec![Answer::file("B19-id-shape-400.json").status(400)]).await;
    let error = ask(&model(config(&server)), &request()).await.expect_err("an error");
    assert_eq!(error.kind, ModelErrorKind::Rejected);
    assert!(error.message.contains("ids here are exactly 9 letters or digits"), "{}", error.message);
    assert_eq!(server.chats().len(), 1);
}

#[tokio::test]
async fn retries_wait_as_long_as_asked() {
    let limited = refused(429, "slow down").header("retry-after", "0.2");
    let server = ModelServer::play(vec![limited.clone(), limited, Answer::file("B00-final.sse")]).await;
    let started = Instant::now();
    let reply = ask(&model(config(&server)), &request()).await.expect("a reply");
    assert!(started.elapsed() >= Duration::from_millis(400), "{:?}", started.elapsed());
    assert_eq!(reply.failed_tries.len(), 2);
    let chats = server.chats();
    assert!(chats.len() == 3 && chats[0] == chats[2], "the same request each time");
}

#[tokio::test]
async fn a_long_wait_is_handed_up() {
    let server = ModelServer::play(vec![refused(429, "slow down").header("retry-after", "3600")]).await;
    let error = ask(&model(config(&server)), &request()).await.expect_err("an error");
    assert_eq!(error.kind, ModelErrorKind::RateLimited);
    assert_eq!(error.retry_after, Some(Duration::from_secs(3600)));
    assert_eq!(server.chats().len(), 1);
}

#[tokio::test]
async fn retries_come_to_an_end() {
    let server = ModelServer::play(vec![Answer::new(502, "text/html", "<h1>Bad Gateway</h1>")]).await;
    let error = ask(&model(config(&server)), &request()).await.expect_err("an error");
    assert_eq!(error.kind, ModelErrorKind::Transient);
    assert_eq!((server.chats().len(), error.failed_tries.len()), (5, 5));
    assert!(error.message.contains("answered 502: Bad Gateway"), "{}", error.message);
    assert!(error.message.contains(&server.base_url()), "{}", error.message);
}

#[tokio::test]
async fn an_empty_account_is_not_retried() {
    let body = json!({"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}});
    let server = ModelServer::play(vec![Answer::json(429, body)]).await;
    let error = ask(&model(config(&server)), &request()).await.expect_err("an error");
    assert_eq!(error.kind, ModelErrorKind::OutOfCredit);
    assert!(error.message.contains("billing"), "{}", error.message);
    assert_eq!(server.chats().len(), 1);
}

#[tokio::test]
async fn a_conversation_that_is_too_long_says_the_window() {
    let body = json!({"error": {"code": 400, "type": "exceed_context_size_error",
        "message": "the request exceeds the available context size", "n_ctx": 4096}});
    let server = ModelServer::play(vec![Answer::json(400, body)]).await;
    let error = ask(&model(config(&server)), &request()).await.expect_err("an error");
    assert_eq!((error.kind, error.context_window), (ModelErrorKind::ContextOverflow, Some(4096)));
    assert_eq!(server.chats().len(), 1);
}

#[tokio::test]
async fn a_stop_closes_the_connection() {
    let server = ModelServer::play(vec![Answer::file("B07-eof-no-finish.sse").holding()]).await;
    let model = model(config(&server));
    let (stopper, stop) = stop_pair();
    let sink = |delta| {
        // The reply has begun, so the stop comes in the middle of it.
        if matches!(delta, Delta::Text(_)) {
            stopper.stop(StopReason::Cancelled);
        }
    };
    let error = model.complete(&request(), &sink, &stop).await.expect_err("stopped");
    assert_eq!(error.kind, ModelErrorKind::Stopped);
    assert!(error.failed_tries[0].usage.input > 0, "what was read is billed all the same");
    server.connection_dropped().await;
    assert_eq!(server.chats().len(), 1);
}

#[tokio::test]
async fn a_stop_ends_a_wait() {
    let server = ModelServer::play(vec![refused(429, "slow down").header("retry-after", "30")]).await;
    let (stopper, stop) = stop_pair();
    let sink = |_| stopper.stop(StopReason::Shutdown);
    let started = Instant::now();
    let error = model(config(&server)).complete(&request(), &sink, &stop).await.expect_err("stopped");
    assert_eq!(error.kind, ModelErrorKind::Stopped);
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn headers_go_with_every_request() {
    let server = ModelServer::play(vec![Answer::file("B00-final.sse")]).await;
    let mut config = config(&server);
    config.api_key = Some("sk-canary-123".into());
    config.organization = Some("org-1".to_owned());
    config.project = Some("proj-1".to_owned());
    config.headers = vec![("x-title".to_owned(), "Posse".into())];
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
async fn a_key_is_shown_nowhere() {
    let echo = refused(401, "Incorrect API key provided: sk-canary-123. Header canary-header-9.");
    let server = ModelServer::play(vec![echo]).await;
    let mut config = config(&server);
    config.api_key = Some("sk-canary-123".into());
    config.headers = vec![("x-key".to_owned(), "canary-header-9".into())];
    let model = model(config);
    let error = ask(&model, &request()).await.expect_err("an error");
    assert_eq!(error.kind, ModelErrorKind::Unauthorized);
    assert!(error.message.contains("OPENAI_API_KEY"), "{}", error.message);
    let shown = format!("{model:?} {error:?} {error}");
    assert!(!shown.contains("canary"), "{shown}");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = ModelServer::play(vec![Answer::file("B00-final.sse")]).await;
    let target = format!("{}/chat/completions", elsewhere.base_url());
    let moved = Answer::new(307, "text/html", "moved").header("location", &target);
    let server = ModelServer::play(vec![moved]).await;
    let mut config = config(&server);
    config.api_key = Some("sk-canary-123".into());
    let error = ask(&model(config), &request()).await.expect_err("an error");
    assert_eq!(error.kind, ModelErrorKind::WorkerUnfit);
    assert!(error.message.contains(&target), "{}", error.message);
    assert!(elsewhere.received().is_empty(), "the key stays here");
}

#[tokio::test]
async fn an_endpoint_that_is_not_there_is_said_to_be_unreachable() {
    let server = ModelServer::play(vec![Answer::file("B00-final.sse")]).await;
    let mut config = config(&server);
    drop(server);
    config.retries = 1;
    let error = ask(&model(config), &request()).await.expect_err("an error");
    assert_eq!((error.kind, error.failed_tries.len()), (ModelErrorKind::Unreachable, 2));
    assert!(error.message.contains("could not be reached"), "{}", error.message);
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

#[test]
fn a_configuration_that_cannot_work_is_refused_at_once() {
    for (url, header) in [("not a url", "x-ok"), ("ftp://127.0.0.1/v1", "x-ok"), ("http://127.0.0.1/v1", "not ok")] {
        let mut config = OpenAiConfig::new("default", url, "m");
        config.headers = vec![(header.to_owned(), "v".into())];
        let error = OpenAiModel::new(config).expect_err("refused");
        assert_eq!(error.kind, ModelErrorKind::WorkerUnfit);
        assert!(error.message.contains("model default cannot be used"), "{}", error.message);
    }
}

#[tokio::test]
async fn the_profile_is_asked_of_the_list_first() {
    let models = json!({"data": [{"id": "mock-1", "context_window": 4096,
        "posse": {"tool_calling": "structured"}}]});
    let server = ModelServer::start(Some(models), |_| Answer::file("B00-final.sse")).await;
    let model = model(OpenAiConfig { tool_calling: ToolCallingChoice::Auto, ..config(&server) });
    for _ in 0..2 {
        let profile = model.profile().await.expect("a profile");
        assert_eq!(profile.tool_calling, ToolCalling::Structured);
        assert_eq!(profile.context_window, Some(4096));
    }
    assert_eq!(server.received().len(), 1, "asked once, and no chat");
}

#[tokio::test]
async fn the_profile_is_asked_of_the_model_last() {
    let call = json!({"choices": [{"message": {"tool_calls": [{"id": "x", "type": "function",
        "function": {"name": "report_ready", "arguments": "{\"ready\":true}"}}]}, "finish_reason": "tool_calls"}]});
    let prose = json!({"choices": [{"message": {"content": "I am ready."}, "finish_reason": "stop"}]});
    for (answer, expected) in [
        (Answer::json(200, call), ToolCalling::Native),
        (Answer::json(200, prose), ToolCalling::Structured),
        (refused(400, "this server knows no tools"), ToolCalling::Structured),
        (Answer::file("B11-tool_use_failed.json").status(400), ToolCalling::Structured),
    ] {
        let server = ModelServer::start(None, move |body| match body["tool_choice"].as_str() {
            Some("auto") => answer.clone(),
            _ => refused(400, "tool_choice must be auto"),
        })
        .await;
        let model = model(OpenAiConfig { tool_calling: ToolCallingChoice::Auto, ..config(&server) });
        assert_eq!(model.profile().await.expect("a profile").tool_calling, expected);
        let asked = server.received().len();
        model.profile().await.expect("a profile");
        assert_eq!(server.received().len(), asked, "kept");
    }
}

#[tokio::test]
async fn a_profile_that_cannot_be_asked_for_is_an_error_and_not_kept() {
    let mut first = true;
    let server = ModelServer::start(None, move |_| {
        if std::mem::take(&mut first) { refused(401, "no key") } else { Answer::file("B00-final.json") }
    })
    .await;
    let model = model(OpenAiConfig { tool_calling: ToolCallingChoice::Auto, ..config(&server) });
    let error = model.profile().await.expect_err("no key");
    assert_eq!(error.kind, ModelErrorKind::Unauthorized);
    let profile = model.profile().await.expect("a profile");
    assert_eq!(profile.tool_calling, ToolCalling::Structured);
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
