//! What servers get wrong, each oddity once, in a streamed reply and in a whole one. Each has a letter
//! to speak of it by. Those about the conversation sent (p, q, r, z) are in the core's
//! `tests/conversation.rs`, those about fields that are refused (n, o) in `model_openai.rs`.

#[path = "support/model_server.rs"]
mod model_server;

use model_server::{Answer, ModelServer};
use posse_core::model::*;
use posse_core::stop::Stop;
use posse_infra::model::openai::{OpenAiConfig, OpenAiModel, ToolCallingChoice};
use serde_json::{Value, json};
use std::time::Duration;

fn model(server: &ModelServer) -> OpenAiModel {
    let config = OpenAiConfig {
        tool_calling: ToolCallingChoice::Native,
        backoff: Duration::from_millis(1),
        retries: 0,
        ..OpenAiConfig::new("default", server.base_url(), "mock-1")
    };
    OpenAiModel::new(config).expect("a usable configuration")
}

async fn ask(answer: Answer) -> Result<ModelReply, ModelError> {
    let server = ModelServer::play(vec![answer]).await;
    let request =
        ModelRequest { messages: vec![Message::User { text: "hi".to_owned() }].into(), ..ModelRequest::default() };
    model(&server).complete(&request, &|_| {}, &Stop::never()).await
}

/// One reply in both forms: as a body, and as a stream that says it in one piece. `finish` is left
/// out where it is null.
fn both(message: Value, finish: Value) -> [Answer; 2] {
    let choice = |field: &str, said: &Value| {
        let mut choice = json!({field: said});
        if !finish.is_null() {
            choice["finish_reason"] = finish.clone();
        }
        json!({"choices": [choice]})
    };
    let body = Answer::json(200, choice("message", &message));
    let events = format!("data: {}\n\ndata: [DONE]\n\n", choice("delta", &message));
    [body, Answer::new(200, "text/event-stream", events)]
}

async fn replies(message: Value, finish: Value) -> Vec<ModelReply> {
    let mut replies = Vec::new();
    for answer in both(message, finish) {
        replies.push(ask(answer).await.expect("a reply"));
    }
    replies
}

fn call(arguments: Value) -> Value {
    json!({"content": null, "tool_calls": [{"id": "a", "type": "function",
        "function": {"name": "look", "arguments": arguments}}]})
}

#[tokio::test]
async fn a_words_nobody_knows_are_kept_or_passed_over() {
    let parts = json!([{"type": "text", "text": "Seven"}, {"type": "hologram", "frames": 3}, {"type": "text", "text": " geese."}]);
    for reply in replies(json!({"role": "oracle", "content": parts, "mood": "good"}), json!("eureka")).await {
        assert_eq!((reply.text.as_str(), reply.finish), ("Seven geese.", Finish::Other("eureka".to_owned())));
    }
}

#[tokio::test]
async fn b_a_reply_with_the_least_there_can_be() {
    for reply in replies(json!({"content": "hi"}), Value::Null).await {
        assert_eq!((reply.text.as_str(), &reply.finish, reply.model.as_str()), ("hi", &Finish::Stop, "mock-1"));
        assert!(reply.usage.estimated && reply.usage.total() > 0, "what is not counted is estimated");
    }
}

#[tokio::test]
async fn c_content_and_calls_may_be_null_empty_or_parts() {
    for nothing in [json!(null), json!([])] {
        for reply in
            replies(json!({"content": [{"type": "text", "text": "hi"}], "tool_calls": nothing}), json!("stop")).await
        {
            assert_eq!((reply.text.as_str(), reply.calls.len(), reply.finish), ("hi", 0, Finish::Stop));
        }
    }
    for empty in [json!(null), json!(""), json!([])] {
        let mut message = call(json!("{}"));
        message["content"] = empty;
        for reply in replies(message, json!("tool_calls")).await {
            assert_eq!((reply.text.as_str(), reply.calls.len(), reply.finish), ("", 1, Finish::ToolCalls));
        }
    }
}

#[tokio::test]
async fn d_arguments_may_be_an_object_null_or_empty() {
    for (arguments, read) in [
        (json!({"path": "alpha.txt"}), r#"{"path":"alpha.txt"}"#),
        (json!(null), "{}"),
        (json!(""), "{}"),
        (json!({}), "{}"),
    ] {
        for reply in replies(call(arguments), json!("tool_calls")).await {
            assert_eq!((reply.calls[0].arguments.as_str(), &reply.finish), (read, &Finish::ToolCalls));
        }
    }
}

#[tokio::test]
async fn e_arguments_that_are_no_json_come_as_the_model_wrote_them() {
    for arguments in [r#"{"a":1} and so on"#, r#"{"a":1}{"b":2}"#, "{a: 1}"] {
        for reply in replies(call(json!(arguments)), json!("tool_calls")).await {
            assert_eq!((reply.calls[0].arguments.as_str(), &reply.finish), (arguments, &Finish::ToolCalls));
        }
    }
}

#[tokio::test]
async fn f_and_g_calls_without_id_and_index_are_told_apart() {
    let piece = |index: Value, path: &str| json!({"index": index, "function": {"name": "look", "arguments": json!({"path": path}).to_string()}});
    for index in [json!(null), json!(0)] {
        let calls = json!([piece(index.clone(), "alpha.txt"), piece(index, "beta.txt")]);
        for reply in replies(json!({"tool_calls": calls}), json!("stop")).await {
            let paths: Vec<_> = reply.calls.iter().map(|call| call.arguments.as_str()).collect();
            assert_eq!(paths, [r#"{"path":"alpha.txt"}"#, r#"{"path":"beta.txt"}"#]);
            assert_eq!(reply.finish, Finish::ToolCalls);
        }
    }
}

#[tokio::test]
async fn h_an_end_without_a_finish_counts_if_what_came_is_whole() {
    let stream = |events: &[Value], done: bool| {
        let mut text: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        if done {
            text += "data: [DONE]\n\n";
        }
        Answer::new(200, "text/event-stream", text)
    };
    let said = json!({"choices": [{"delta": {"content": "hi"}, "finish_reason": null}]});
    assert_eq!(ask(stream(std::slice::from_ref(&said), true)).await.expect("a reply").text, "hi");
    assert_eq!(ask(stream(&[said], false)).await.expect_err("cut").kind, ModelErrorKind::Transient);
    let cut = json!({"choices": [{"delta": call(json!("{\"a\":"))}]});
    assert_eq!(ask(stream(&[cut], true)).await.expect_err("cut").kind, ModelErrorKind::Transient);
}

#[tokio::test]
async fn j_any_grammar_of_events_is_read() {
    let text = "\u{feff}: OPENROUTER PROCESSING\r\n\r\ndata:{\"choices\":[{\"delta\":{\"content\":\"Seven\"}}]}\r\n\r\n\r\n\
                : PING\r\nevent: message\r\nid: 7\r\ndata: {\"choices\":[{\"delta\":{\"content\":\" geese.\"},\r\n\
                data: \"finish_reason\":\"stop\"}]}\r\n\r\ndata: [DONE]\r\n\r\n";
    let reply = ask(Answer::new(200, "text/event-stream", text)).await.expect("a reply");
    assert_eq!(reply.text, "Seven geese.");
}

#[tokio::test]
async fn k_an_error_inside_a_200_is_one_wherever_it_stands() {
    let error = json!({"error": {"message": "Provider returned error", "code": 429}, "choices": []});
    let half = json!({"choices": [{"delta": {"content": "half"}}]});
    let in_choice =
        json!({"choices": [{"message": {"content": ""}, "delta": {}, "error": {"message": "x", "code": 429}}]});
    for answer in [
        Answer::json(200, error.clone()),
        Answer::json(200, in_choice.clone()),
        Answer::new(200, "text/event-stream", format!("data: {half}\n\ndata: {error}\n\ndata: [DONE]\n\n")),
        Answer::new(200, "text/event-stream", format!("data: {half}\n\ndata: {in_choice}\n\n")),
    ] {
        assert_eq!(ask(answer).await.expect_err("an error").kind, ModelErrorKind::RateLimited);
    }
    let nothing = Answer::json(200, json!({"choices": []}));
    assert_eq!(ask(nothing).await.expect_err("no reply").kind, ModelErrorKind::Transient);
}

#[tokio::test]
async fn l_of_running_totals_the_last_one_counts() {
    let piece = |text: &str, output: u64, finish: Value| {
        let choice = json!({"delta": {"content": text}, "finish_reason": finish});
        let usage = json!({"prompt_tokens": 31, "completion_tokens": output});
        format!("data: {}\n\n", json!({"choices": [choice], "usage": usage}))
    };
    let last = json!({"choices": [], "usage": {"prompt_tokens": 31, "completion_tokens": 4}});
    let cumulative = [piece("Seven", 1, json!(null)), piece(" geese.", 3, json!("stop"))].concat();
    let text = format!("{cumulative}data: {last}\n\ndata: [DONE]\n\n");
    let reply = ask(Answer::new(200, "text/event-stream", text)).await.expect("a reply");
    assert_eq!(reply.usage, Usage { input: 31, output: 4, cached: 0, estimated: false });
}

#[tokio::test]
async fn m_reasoning_is_read_under_both_names_and_with_its_author() {
    for (name, value) in [
        ("reasoning_content", json!("because")),
        ("reasoning", json!("because")),
        ("reasoning", json!({"content": "because"})),
    ] {
        let mut message = json!({"content": "hi"});
        message[name] = value;
        for reply in replies(message, json!("stop")).await {
            let reasoning = reply.reasoning.expect("it was given");
            assert_eq!((reasoning.text.as_str(), reply.text.as_str()), ("because", "hi"));
            assert_eq!(reasoning.by.model, "mock-1");
            assert!(reasoning.by.provider.starts_with("127.0.0.1:"), "{:?}", reasoning.by);
        }
    }
}

#[tokio::test]
async fn t_a_decorated_name_comes_as_the_model_wrote_it() {
    for name in ["functions.look", "look:0"] {
        let mut message = call(json!("{}"));
        message["tool_calls"][0]["function"]["name"] = json!(name);
        for reply in replies(message, json!("tool_calls")).await {
            assert_eq!(reply.calls[0].name, name);
        }
    }
}

/// Whether what stands in the middle of a stream or in an error's body, each failure is of one kind.
#[tokio::test]
async fn s_and_u_to_x_failures_are_told_apart() {
    use ModelErrorKind::*;
    for (status, error, kind, window) in [
        (400, json!({"code": "tool_use_failed", "message": "x", "failed_generation": "<f>"}), InvalidToolCall, None),
        (
            400,
            json!({"code": 400, "type": "exceed_context_size_error", "message": "the request exceeds the available context size", "n_ctx": 4096}),
            ContextOverflow,
            Some(4096),
        ),
        (
            400,
            json!({"code": 400, "message": "This model's maximum context length is 8192 tokens. However, you requested 0 output tokens and your prompt contains at least 8193 input tokens"}),
            ContextOverflow,
            Some(8192),
        ),
        (
            400,
            json!({"type": "invalid_request_error", "message": "prompt is too long: 213462 tokens > 200000 maximum"}),
            ContextOverflow,
            Some(200_000),
        ),
        (413, json!({"type": "request_too_large", "message": "Request exceeds the maximum size"}), Rejected, None),
        (400, json!({"message": "Too many tokens, please wait before trying again."}), RateLimited, None),
    ] {
        let failed = ask(Answer::json(status, json!({"error": error}))).await.expect_err("an error");
        assert_eq!((failed.kind, failed.context_window), (kind, window), "{error}");
        if status == 400 {
            let event = format!("event: error\ndata: {}\n\n", json!({"error": error}));
            let failed = ask(Answer::new(200, "text/event-stream", event)).await.expect_err("an error");
            assert_eq!((failed.kind, failed.context_window), (kind, window), "in a stream: {error}");
        }
    }
}

#[tokio::test]
async fn y_waits_are_read_in_every_form() {
    let soon = httpdate::fmt_http_date(std::time::SystemTime::now() + Duration::from_secs(3600));
    for (name, value, least, most) in [
        ("retry-after", "7", 7, 7),
        ("retry-after-ms", "7000", 7, 7),
        ("retry-after", soon.as_str(), 3500, 3600),
        ("x-ratelimit-reset-requests", "6m0s", 360, 360),
    ] {
        let limited = Answer::json(429, json!({"error": {"message": "slow down"}})).header(name, value);
        let wait = ask(limited).await.expect_err("limited").retry_after.expect("a wait").as_secs();
        assert!((least..=most).contains(&wait), "{name}: {value} gave {wait}");
    }
}
