//! The shapes in which servers put what a reply says, in a body and in a stream.

use super::*;
use posse_core::model::{Finish, Usage};

/// What comes of a message, as a body and as a stream that says it in one piece.
async fn both(message: &str, finish: &str) -> [ModelReply; 2] {
    let message: Value = serde_json::from_str(message).expect("JSON");
    let events = piece(message.clone(), json!(finish)) + &event("[DONE]");
    let body = outcome(whole(message, json!(finish))).await.expect("a reply");
    [body, outcome(streamed(events)).await.expect("a reply")]
}

#[tokio::test]
async fn content_in_every_shape() {
    for (message, text, thought) in [
        (r#"{"content":"a"}"#, "a", ""),
        (r#"{"content":null}"#, "", ""),
        (r#"{}"#, "", ""),
        (r#"{"content":7}"#, "", ""),
        (r#"{"content":["a",{"type":"text","text":"b"},{"type":"odd"}]}"#, "ab", ""),
        (
            r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"t"}]},{"type":"text","text":"b"}]}"#,
            "b",
            "t",
        ),
        (r#"{"content":[{"type":"reasoning_content","text":"t"},{"type":"output_text","text":"b"}]}"#, "b", "t"),
        (r#"{"content":[{"text":"t","thought":true},{"text":"b"}]}"#, "b", "t"),
        (r#"{"content":[{"thinking":"t"},{"text":"b"}]}"#, "b", "t"),
        (r#"{"content":{"type":"thinking","thinking":"t"}}"#, "", "t"),
        (r#"{"content":"a","thinking":"t"}"#, "a", "t"),
        (r#"{"content":"a","thinking_blocks":[{"type":"thinking","thinking":"t","signature":"s"}]}"#, "a", "t"),
        (r#"{"content":"a","reasoning_details":[{"type":"reasoning.text","text":"t"}]}"#, "a", "t"),
        (r#"{"content":"a","reasoning_content":"t"}"#, "a", "t"),
        (r#"{"content":"a","reasoning":{"content":"t"}}"#, "a", "t"),
        (r#"{"content":"a","reasoning_content":"","reasoning":"t"}"#, "a", "t"),
    ] {
        for reply in both(message, "stop").await {
            assert_eq!((reply.text.as_str(), thoughts(&reply)), (text, thought), "{message}");
        }
    }
}

#[tokio::test]
async fn refusals_in_both_places() {
    for (message, refusal) in [
        (r#"{"refusal":"no"}"#, Some("no")),
        (r#"{"content":[{"type":"refusal","refusal":"no"}]}"#, Some("no")),
        (r#"{"content":"a","refusal":""}"#, None),
    ] {
        for reply in both(message, "stop").await {
            assert_eq!(reply.refusal.as_deref(), refusal, "{message}");
        }
    }
}

#[tokio::test]
async fn calls_in_every_shape() {
    for (message, arguments) in [
        (r#"{"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}"#, "{}"),
        (r#"{"tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]}"#, r#"{"a":1}"#),
        (r#"{"tool_calls":{"function":{"name":"f","arguments":"x"}}}"#, "x"),
        (r#"{"tool_calls":[{"name":"f","arguments":{"a":1}}]}"#, r#"{"a":1}"#),
        (r#"{"function_call":{"name":"f","arguments":"{}"}}"#, "{}"),
        (r#"{"tool_calls":[{},null,{"id":7,"function":{"name":"f","arguments":[]}}]}"#, "[]"),
        (r#"{"tool_calls":[{"id":"c","function":{"name":"f","arguments":null}}]}"#, "{}"),
        (r#"{"tool_calls":[{"id":"c","function":{"name":"f","arguments":""}}]}"#, "{}"),
    ] {
        for reply in both(message, "tool_calls").await {
            let calls: Vec<_> = reply.calls.iter().map(|call| (call.name.as_str(), call.arguments.as_str())).collect();
            assert_eq!(calls, [("f", arguments)], "{message}");
        }
    }
    for none in [r#"{"tool_calls":null}"#, r#"{"tool_calls":[]}"#, r#"{"tool_calls":"x"}"#] {
        for reply in both(none, "stop").await {
            assert_eq!(reply.calls, [], "{none}");
        }
    }
}

#[tokio::test]
async fn usage_in_every_shape() {
    let counted = |input, output, cached| Some(Usage { input, output, cached, estimated: false });
    for (told, expected) in [
        (r#"{"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}"#, counted(3, 4, 0)),
        (r#"{"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":9}}"#, counted(3, 6, 0)),
        (r#"{"usage":{"input_tokens":3.0,"output_tokens":"4"}}"#, counted(3, 4, 0)),
        (r#"{"usage":{"prompt_tokens":3,"prompt_tokens_details":{"cached_tokens":2}}}"#, counted(3, 0, 2)),
        (r#"{"usage":{"prompt_tokens":3,"prompt_tokens_details":null,"prompt_cache_hit_tokens":1}}"#, counted(3, 0, 1)),
        (r#"{"usage":{"prompt_tokens":0,"completion_tokens":0}}"#, None),
        (r#"{"usage":{"prompt_tokens":-3}}"#, None),
        (r#"{"usage":null}"#, None),
        (r#"{"usage":7,"model":3,"created":1.5,"service_tier":"on_demand"}"#, None),
    ] {
        let mut body: Value = serde_json::from_str(told).expect("JSON");
        body["choices"] = json!([{"message": {"content": "hi"}, "finish_reason": "stop"}]);
        let usage = outcome(Answer::json(200, body)).await.expect("a reply").usage;
        match expected {
            Some(expected) => assert_eq!(usage, expected, "{told}"),
            None => assert!(usage.estimated, "{told}"),
        }
    }
}

#[tokio::test]
async fn calls_decide_the_finish() {
    for (finish, arguments, expected) in [
        ("stop", Some("{\"a\":1}"), Finish::ToolCalls),
        ("stop", None, Finish::Stop),
        ("tool_calls", None, Finish::Stop),
        // Cut, and the server says nothing of a limit: so do we.
        ("tool_calls", Some("{\"a\":\"b"), Finish::ToolCalls),
        ("stop", Some("{\"a\":"), Finish::ToolCalls),
        ("x", Some("{"), Finish::Other("x".to_owned())),
        ("tool_calls", Some("{} trailing"), Finish::ToolCalls),
        ("tool_calls", Some("{\"a\":1}{\"b\":2}"), Finish::ToolCalls),
        ("tool_calls", Some("{a: 1}"), Finish::ToolCalls),
        ("tool_calls", Some("  "), Finish::ToolCalls),
        ("length", Some("{\"a\":"), Finish::Length),
        ("content_filter", Some("{\"a\":"), Finish::ContentFilter),
    ] {
        let calls: Vec<_> =
            arguments.iter().map(|text| json!({"function": {"name": "f", "arguments": text}})).collect();
        for reply in both(&json!({"content": "", "tool_calls": calls}).to_string(), finish).await {
            assert_eq!(reply.finish, expected, "{finish} {arguments:?}");
            if let (Some(before), Some(after)) = (arguments, reply.calls.first()) {
                let untouched = if before.trim().is_empty() { "{}" } else { before };
                assert_eq!(after.arguments, untouched);
            }
        }
    }
}
