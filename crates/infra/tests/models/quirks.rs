//! What servers get wrong, each oddity once, in a streamed reply and in a whole one. Each has a letter
//! to speak of it by. Those about the conversation sent (p, q, r, z) are in the core's
//! `tests/conversation.rs` (p here too, as it is learned); what becomes of a call in a text (i) and of a name that is not offered
//! (t) is in its `tests/run_machine.rs`.

use crate::support::model_server::{Answer, ModelServer};
use posse_core::model::*;
use posse_core::stop::Stop;
use posse_core::tool::ToolSpec;
use posse_infra::model::openai::{MaxTokens, OpenAiConfig, OpenAiModel, ToolCallingChoice};
use serde_json::{Value, json};
use std::time::Duration;

fn config(server: &ModelServer) -> OpenAiConfig {
    OpenAiConfig {
        tool_calling: ToolCallingChoice::Native,
        backoff: Duration::from_millis(1),
        retries: 0,
        ..OpenAiConfig::new("default", server.base_url(), "mock-1")
    }
}

fn model(config: OpenAiConfig) -> OpenAiModel {
    OpenAiModel::new(config).expect("a usable configuration")
}

async fn ask(answer: Answer) -> Result<ModelReply, ModelError> {
    let server = ModelServer::play(vec![answer]).await;
    let request =
        ModelRequest { messages: vec![Message::User { text: "hi".to_owned() }].into(), ..ModelRequest::default() };
    model(config(&server)).complete(&request, &|_| {}, &Stop::never()).await
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

/// A server that answers 400 and names the field to a body that `refuses` says something of.
async fn choosy(refuses: impl Fn(&Value) -> Option<&'static str> + Send + 'static) -> ModelServer {
    ModelServer::start(None, move |body| match refuses(body) {
        Some(words) => Answer::json(400, json!({"error": {"message": words, "type": "invalid_request_error"}})),
        None if body["stream"] == true => Answer::file("B00-final.sse"),
        None => Answer::file("B00-final.json"),
    })
    .await
}

/// What a model sends to `server` in the end, having asked twice: the first time as often as it was
/// refused and once more, the second time once.
async fn learned(server: &ModelServer, config: OpenAiConfig, request: &ModelRequest, refusals: usize) -> Value {
    let model = model(config);
    for refusals in [refusals, 0] {
        let reply = model.complete(request, &|_| {}, &Stop::never()).await.expect("a reply");
        assert_eq!((reply.text.as_str(), reply.failed_tries.len()), ("FINAL-OK", refusals));
    }
    assert_eq!(server.chats().len(), refusals + 2);
    server.chats().pop().expect("a request")
}

#[tokio::test]
async fn n_tokens_are_limited_by_the_field_that_is_taken_and_temperature_is_left_out() {
    const OLD: &str =
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
    const NEW: &str = "max_completion_tokens: Extra inputs are not permitted";
    const WARM: &str = "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported.";
    let request = ModelRequest {
        messages: vec![Message::User { text: "hi".to_owned() }].into(),
        max_tokens: Some(64),
        temperature: Some(0.2),
        ..ModelRequest::default()
    };
    for stream in [true, false] {
        for (first, old_taken, new_taken) in [
            (MaxTokens::MaxTokens, false, true),
            (MaxTokens::MaxCompletionTokens, true, false),
            (MaxTokens::MaxTokens, false, false),
        ] {
            let server = choosy(move |body| {
                let has = |field: &str| body.get(field).is_some();
                let old = (has("max_tokens") && !old_taken).then_some(OLD);
                old.or((has("max_completion_tokens") && !new_taken).then_some(NEW))
                    .or(has("temperature").then_some(WARM))
            })
            .await;
            let config = OpenAiConfig { stream, max_tokens_field: Some(first), ..config(&server) };
            let refusals = if old_taken || new_taken { 2 } else { 3 };
            let sent = learned(&server, config, &request, refusals).await;
            let limit = |taken: bool| if taken { json!(64) } else { Value::Null };
            assert_eq!((&sent["max_tokens"], &sent["max_completion_tokens"]), (&limit(old_taken), &limit(new_taken)));
            assert_eq!(sent["temperature"], Value::Null);
        }
    }
}

#[tokio::test]
async fn o_a_field_that_is_refused_by_name_is_left_out_from_then_on() {
    let look =
        ToolSpec { name: "look".to_owned(), description: "Looks.".to_owned(), parameters: json!({"type": "object"}) };
    let request = ModelRequest {
        messages: vec![Message::User { text: "hi".to_owned() }].into(),
        tools: vec![look],
        schema: Some(json!({"type": "object"})),
        ..ModelRequest::default()
    };
    for stream in [true, false] {
        let server = choosy(|body| {
            let strict = body["response_format"]["json_schema"]
                .get("strict")
                .map(|_| "response_format: strict is not supported");
            let usage = body.get("stream_options").map(|_| "stream_options: Extra inputs are not permitted");
            // These two are never sent for a job, so a refusal of them would come for nothing.
            let choice = body.get("tool_choice").map(|_| "tool_choice 'required' is incompatible with thinking");
            let parallel = body.get("parallel_tool_calls").map(|_| "parallel_tool_calls is not supported");
            usage.or(strict).or(choice).or(parallel)
        })
        .await;
        let config = OpenAiConfig { stream, ..config(&server) };
        let sent = learned(&server, config, &request, if stream { 2 } else { 1 }).await;
        assert_eq!(sent["response_format"]["json_schema"]["schema"], json!({"type": "object"}), "but the rest is sent");

        // Where the model is asked whether it makes calls, it is told to make one, if that may be said.
        let server = choosy(|body| (body["tool_choice"] == "required").then_some("tool_choice must be auto")).await;
        let config = OpenAiConfig { stream, tool_calling: ToolCallingChoice::Auto, ..self::config(&server) };
        model(config).profile().await.expect("a profile");
        let choices: Vec<_> = server.chats().iter().map(|body| body["tool_choice"].clone()).collect();
        assert_eq!(choices, ["required", "auto"]);
    }
}

#[tokio::test]
async fn p_a_second_system_message_is_sent_where_it_is_taken_and_nowhere_else() {
    let system = |text: &str| Message::System { text: text.to_owned() };
    let request = ModelRequest {
        messages: vec![system("Be brief."), system("Skills: none."), Message::User { text: "hi".to_owned() }].into(),
        ..ModelRequest::default()
    };
    let (two, joined) = (vec!["Be brief.", "Skills: none.", "hi"], vec!["Be brief.\n\nSkills: none.", "hi"]);
    for stream in [true, false] {
        for (taken, configured, refusals, wanted) in
            [(true, None, 0, &joined), (true, Some(true), 0, &two), (false, Some(true), 1, &joined)]
        {
            let server = choosy(move |body| {
                let is_second = body["messages"][1]["role"] == "system" && !taken;
                is_second.then_some("System message must be at the beginning.")
            })
            .await;
            let config = OpenAiConfig { stream, several_systems: configured, ..config(&server) };
            let sent = learned(&server, config, &request, refusals).await;
            let texts = sent["messages"].as_array().expect("messages").iter().map(|message| &message["content"]);
            assert!(texts.eq(wanted.iter()), "{sent}");
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
