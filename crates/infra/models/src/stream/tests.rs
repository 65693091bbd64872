use posse_core::model::{Delta, Finish, Usage};
use proptest::prelude::*;
use serde_json::json;

use super::super::sse::SseParser;
use super::*;

const B00: &[u8] = include_bytes!("../../../tests/fixtures/llm/B00-final.sse");
const B01: &[u8] = include_bytes!("../../../tests/fixtures/llm/B01-no-index-signature.sse");
const B03: &[u8] = include_bytes!("../../../tests/fixtures/llm/B03-empty-choices-no-delta.sse");
const B05: &[u8] = include_bytes!("../../../tests/fixtures/llm/B05-truncated-but-tool_calls.sse");
const B07: &[u8] = include_bytes!("../../../tests/fixtures/llm/B07-eof-no-finish.sse");
const B15: &[u8] = include_bytes!("../../../tests/fixtures/llm/B15-reasoning-roundtrip.sse");

/// Reads a stream the way the adapter does, in pieces of the given sizes.
fn read(bytes: &[u8], sizes: &[usize]) -> (Vec<Delta>, Result<WholeReply, Broken>) {
    let mut parser = SseParser::default();
    let mut assembler = StreamAssembler::default();
    let mut deltas = Vec::new();
    let mut rest = bytes;
    let mut sizes = sizes.iter().copied().cycle();
    while !rest.is_empty() && !assembler.over() {
        let (piece, after) = rest.split_at(sizes.next().unwrap_or(rest.len()).clamp(1, rest.len()));
        rest = after;
        for event in parser.push(piece).expect("short lines") {
            deltas.extend(assembler.event(&event));
        }
    }
    if let Some(event) = parser.finish().filter(|_| !assembler.over()) {
        deltas.extend(assembler.event(&event));
    }
    (deltas, assembler.finish())
}

fn whole(bytes: &[u8]) -> WholeReply {
    read(bytes, &[bytes.len()]).1.expect("a whole reply")
}

/// The calls of a stream of `tool_calls` deltas, as (id, name, arguments).
fn calls(pieces: &[Value]) -> Vec<(String, String, String)> {
    let mut assembler = StreamAssembler::default();
    for piece in pieces {
        assembler.push(json!({"choices": [{"delta": {"tool_calls": piece}}]}));
    }
    assembler.push(json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}));
    let reply = assembler.finish().expect("a whole reply");
    reply.calls.into_iter().map(|c| (c.id, c.name, c.arguments)).collect()
}

fn check_calls(pieces: &[Value], expected: &[(&str, &str, &str)]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|(id, name, arguments)| ((*id).to_owned(), (*name).to_owned(), (*arguments).to_owned()))
        .collect();
    assert_eq!(calls(pieces), expected, "{pieces:?}");
}

#[test]
fn a_plain_stream() {
    let (deltas, reply) = read(B00, &[7]);
    assert_eq!(deltas, [Delta::Text("FINAL".to_owned()), Delta::Text("-OK".to_owned())]);
    let reply = reply.expect("a whole reply");
    assert_eq!(reply.text, "FINAL-OK");
    assert_eq!(reply.finish, Finish::Stop);
    assert_eq!(reply.model.as_deref(), Some("mock-1"));
    assert_eq!(reply.usage, Some(Usage { input: 40, output: 2, cached: 0, estimated: false }));
}

#[test]
fn b01_no_index_and_a_late_signature() {
    let reply = whole(B01);
    assert_eq!(reply.finish, Finish::ToolCalls);
    let signature = |text: &str| {
        let value = json!({"google": {"thought_signature": text}});
        Some(Extra { value, provider: String::new() })
    };
    let call = |id: &str, path: &str, extra| CallRequest {
        id: id.to_owned(),
        name: "files_read".to_owned(),
        arguments: format!("{{\"path\":\"{path}\"}}"),
        extra,
    };
    assert_eq!(
        reply.calls,
        [call("fc-a1", "alpha.txt", signature("U0lHLUE=")), call("fc-b2", "beta.txt", signature("U0lHLUIy")),]
    );
}

#[test]
fn b03_stray_choices_and_late_usage() {
    let reply = whole(B03);
    assert_eq!((reply.text.as_str(), reply.finish), ("Seven geese.", Finish::Stop));
    assert_eq!(reply.usage, Some(Usage { input: 31, output: 4, cached: 0, estimated: false }));
}

#[test]
fn b05_cut_arguments_are_left_as_they_are() {
    let reply = whole(B05);
    assert_eq!(reply.finish, Finish::ToolCalls);
    assert_eq!(reply.calls[0].arguments, "{\"path\":\"notes.md\",\"content\":\"line 1\\nline 2\\nli");
}

#[test]
fn b07_no_end_is_no_reply() {
    assert!(matches!(read(B07, &[B07.len()]).1, Err(Broken::Cut(_))));
}

#[test]
fn b15_reasoning_is_kept_apart() {
    let reply = whole(B15);
    assert_eq!(reply.reasoning, "The user wants alpha.txt. I should read it first.");
    assert_eq!((reply.text.as_str(), reply.calls.len()), ("", 1));
}

#[test]
fn which_call_a_piece_belongs_to() {
    let start = |index: Value, id: Value, name: &str, arguments: &str| json!({"index": index, "id": id, "function": {"name": name, "arguments": arguments}});
    let more = |index: Value, arguments: &str| json!({"index": index, "function": {"arguments": arguments}});
    let none = Value::Null;

    // As OpenAI sends them, interleaved.
    check_calls(
        &[
            json!([start(json!(0), json!("a"), "f", "")]),
            json!([start(json!(1), json!("b"), "g", "")]),
            json!([more(json!(0), "{\"x\":"), more(json!(1), "{}")]),
            json!([more(json!(0), "1}")]),
        ],
        &[("a", "f", "{\"x\":1}"), ("b", "g", "{}")],
    );
    // Index always 0, ids differ.
    check_calls(
        &[json!([start(json!(0), json!("a"), "f", "{}")]), json!([start(json!(0), json!("b"), "f", "{\"x\":1}")])],
        &[("a", "f", "{}"), ("b", "f", "{\"x\":1}")],
    );
    // Index always 0, no ids.
    check_calls(
        &[
            json!([start(json!(0), none.clone(), "f", "{\"x\":1}")]),
            json!([start(json!(0), none.clone(), "f", "{\"x\":2}")]),
        ],
        &[("", "f", "{\"x\":1}"), ("", "f", "{\"x\":2}")],
    );
    // No index, no ids, all in one piece, with calls that take no arguments.
    check_calls(
        &[json!([
            start(none.clone(), none.clone(), "f", ""),
            start(none.clone(), none.clone(), "f", ""),
            start(none.clone(), none.clone(), "g", "{}"),
        ])],
        &[("", "f", "{}"), ("", "f", "{}"), ("", "g", "{}")],
    );
    // The name in every piece.
    check_calls(
        &[
            json!([start(json!(0), json!("a"), "f", "{\"x\"")]),
            json!([start(json!(0), json!("a"), "f", ":1}")]),
            json!([start(json!(0), json!("a"), "f", "")]),
        ],
        &[("a", "f", "{\"x\":1}")],
    );
    // A new id with every piece of one call.
    check_calls(
        &[
            json!([start(json!(0), json!("a"), "f", "{\"x\"")]),
            json!([{"index": 0, "id": "zz", "function": {"arguments": ":1}"}}]),
        ],
        &[("a", "f", "{\"x\":1}")],
    );
    // One id for two calls, as in B13.
    check_calls(
        &[
            json!([start(none.clone(), json!("a"), "f", "{\"x\":1}")]),
            json!([start(none, json!("a"), "f", "{\"x\":2}")]),
        ],
        &[("a", "f", "{\"x\":1}"), ("a", "f", "{\"x\":2}")],
    );
    // The index only from the second piece on; arguments as an object.
    check_calls(
        &[
            json!([{"id": "a", "function": {"name": "f"}}]),
            json!([{"index": 0, "id": "a", "function": {"arguments": {"x": 1}}}]),
        ],
        &[("a", "f", "{\"x\":1}")],
    );
}

#[test]
fn done_alone_ends_a_complete_reply() {
    let finish = |delta: Value| {
        let mut assembler = StreamAssembler::default();
        assembler.push(json!({"choices": [{"delta": delta, "finish_reason": null}]}));
        assembler.event(&SseEvent { name: String::new(), data: "[DONE]".to_owned() });
        assembler.finish()
    };
    assert!(finish(json!({"content": "hi"})).is_ok());
    assert!(finish(json!({"content": ""})).is_err());
    let call =
        |arguments: &str| json!({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": arguments}}]});
    assert_eq!(finish(call("{}")).expect("whole").finish, Finish::ToolCalls);
    assert!(finish(call("{\"x\":")).is_err());
    assert!(finish(call("")).is_err());
}

#[test]
fn errors_inside_a_stream() {
    let broken = |events: &[(&str, &str)]| {
        let mut assembler = StreamAssembler::default();
        for (name, data) in events {
            assembler.event(&SseEvent { name: (*name).to_owned(), data: (*data).to_owned() });
        }
        assembler.finish().expect_err("broken")
    };
    let half = ("", r#"{"choices":[{"delta":{"content":"half"}}]}"#);
    for event in [
        ("", r#"{"error":{"message":"m","code":502}}"#),
        ("error", r#"{"message":"m","code":"502"}"#),
        ("", r#"{"choices":[{"delta":{"content":""},"finish_reason":"error","error":{"code":502,"message":"m"}}]}"#),
    ] {
        let fault = Fault { message: "m".to_owned(), code: "502".to_owned(), ..Fault::default() };
        assert_eq!(broken(&[half, event]), Broken::Fault(fault), "{event:?}");
    }
    assert!(matches!(broken(&[half, ("", r#"{"choices":[{"finish_reason":"error"}]}"#)]), Broken::Cut(_)));
    // A piece that cannot be read is never skipped: it may have been a call.
    assert!(matches!(broken(&[half, ("", "{\"choices\":[{"), ("", "[DONE]")]), Broken::Cut(_)));
}

#[test]
fn events_without_a_blank_line_between() {
    let text = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\
                data: {\"choices\":[{\"delta\":{\"content\":\"b\"},\"finish_reason\":\"stop\"}]}\n\
                data: [DONE]\n\n";
    assert_eq!(whole(text.as_bytes()).text, "ab");
}

#[test]
fn a_body_without_a_choice_is_no_reply() {
    let mut assembler = StreamAssembler::default();
    assembler.push(json!({"choices": [], "usage": {"prompt_tokens": 1}}));
    assert!(matches!(assembler.finish_body(), Err(Broken::Cut(_))));
}

proptest! {
    #[test]
    fn pieces_do_not_matter(
        which in 0usize..6,
        sizes in proptest::collection::vec(1usize..300, 1..12),
        crlf in any::<bool>(),
    ) {
        let bytes = [B00, B01, B03, B05, B07, B15][which];
        let bytes = if crlf {
            String::from_utf8_lossy(bytes).replace('\n', "\r\n").into_bytes()
        } else {
            bytes.to_vec()
        };
        prop_assert_eq!(read(&bytes, &sizes), read(&bytes, &[bytes.len()]));
    }
}

#[test]
fn cut_anywhere_it_is_whole_or_nothing() {
    for bytes in [B00, B01, B03, B05, B15] {
        let full = whole(bytes);
        for end in 0..bytes.len() {
            if let Ok(reply) = read(&bytes[..end], &[end.max(1)]).1 {
                // The count of tokens may be lost with the last piece; nothing else may.
                assert_eq!(WholeReply { usage: full.usage, ..reply }, full, "cut at {end}");
            }
        }
    }
}
