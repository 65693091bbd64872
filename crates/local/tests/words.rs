//! What is read and written, without a model: requests, prompts and the text of answers.

use axum::http::StatusCode;
use posse_local::prompt::{ControlTexts, Piece, turns};
use posse_local::text::{Pushed, TextOut};
use posse_local::wire::{ApiError, ChatRequest, Message};
use serde_json::{Value, json};

fn request(body: Value) -> ChatRequest {
    serde_json::from_value(body).expect("a request")
}

fn code_of(body: Value) -> String {
    let error = request(body).settings().expect_err("an error").json();
    error["error"]["code"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn the_default_is_greedy_and_unknown_or_null_fields_do_no_harm() {
    let r = request(json!({
        "messages": [{"role": "user", "content": "hi", "name": "x"}], "model": "any", "tools": [],
        "tool_choice": "auto", "stop": null, "stream": null, "logit_bias": {"1": 2}, "seed": -1,
    }));
    let s = r.settings().expect("settings");
    assert_eq!((s.temperature, s.max_tokens, s.seed), (0.0, None, Some(u32::MAX)));
    assert!(!r.streams() && !r.streams_usage());
}

#[test]
fn settings_are_read() {
    let s = request(json!({
        "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9, "max_completion_tokens": 5,
        "temperature": 0.5, "top_p": 0.9, "stop": ["a", "b"],
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": 1}}},
    }))
    .settings()
    .expect("settings");
    assert_eq!(s.max_tokens, Some(5));
    assert_eq!(s.stop, ["a", "b"]);
    assert_eq!(s.schema, Some(json!({"const": 1})));
}

#[test]
fn a_schema_keeps_the_order_of_its_properties() {
    let schema = r#"{"properties":{"thinking":{},"tool":{},"a":{}}}"#;
    let body = format!(
        r#"{{"messages":[{{"role":"user","content":""}}],"response_format":
        {{"type":"json_schema","json_schema":{{"schema":{schema}}}}}}}"#
    );
    let r: ChatRequest = serde_json::from_str(&body).expect("a request");
    assert_eq!(r.settings().expect("settings").schema.expect("a schema").to_string(), schema);
}

#[test]
fn what_cannot_be_done_is_refused() {
    let m = json!([{"role": "user", "content": "hi"}]);
    assert_eq!(code_of(json!({"messages": m, "tools": [{"type": "function"}]})), "tools_unsupported");
    assert_eq!(code_of(json!({"messages": []})), "invalid_value");
    assert_eq!(code_of(json!({"messages": m, "n": 2})), "invalid_value");
    assert_eq!(code_of(json!({"messages": m, "max_tokens": 0})), "invalid_value");
    assert_eq!(code_of(json!({"messages": m, "temperature": -1})), "invalid_value");
    assert_eq!(code_of(json!({"messages": m, "top_p": 2})), "invalid_value");
}

#[test]
fn errors_have_the_openai_shape() {
    let e = ApiError::too_long(9000, 8192);
    assert_eq!(e.status, StatusCode::BAD_REQUEST);
    let e = &e.json()["error"];
    assert_eq!(e["type"], "invalid_request_error");
    assert_eq!(e["code"], "exceed_context_size_error");
    assert_eq!((&e["n_ctx"], &e["n_prompt_tokens"]), (&json!(8192), &json!(9000)));
    assert_eq!(ApiError::internal("x").json()["error"]["type"], "server_error");
}

fn read(messages: Value) -> Result<Vec<(&'static str, String)>, ApiError> {
    let messages: Vec<Message> = serde_json::from_value(messages).expect("messages");
    Ok(turns(&messages)?.into_iter().map(|t| (t.role, t.content)).collect())
}

#[test]
fn text_parts_are_joined_and_pictures_refused() {
    let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    assert_eq!(read(json!([{"role": "user", "content": parts}])).expect("turns"), [("user", "a\nb".into())]);
    let picture = json!([{"type": "image_url", "image_url": {"url": "x"}}]);
    assert!(read(json!([{"role": "user", "content": picture}])).is_err());
    assert!(read(json!([{"role": "oracle", "content": "x"}])).is_err());
}

#[test]
fn tool_calls_and_results_become_text() {
    let turns = read(json!([
        {"role": "developer", "content": "s"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "read", "arguments": "{\"path\":\"a\"}"}},
            {"id": "2", "type": "function", "function": {"name": "list", "arguments": {"n": 1}}}]},
        {"role": "tool", "tool_call_id": "1", "content": "one"},
        {"role": "tool", "tool_call_id": "2", "content": "two"},
        {"role": "user", "content": "go on"},
    ]))
    .expect("turns");
    let call = "<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\":\"a\"}}\n</tool_call>\n\
                <tool_call>\n{\"name\": \"list\", \"arguments\": {\"n\":1}}\n</tool_call>";
    let results = "<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>";
    let expected = [("system", "s"), ("assistant", call), ("user", results), ("user", "go on")];
    assert_eq!(turns, expected.map(|(role, text)| (role, text.to_owned())));
}

#[test]
fn control_texts_in_content_stay_plain() {
    let control = ControlTexts::new(vec!["<|im|>".into(), "<|im|>x".into(), String::new()]);
    let hidden = control.hide("a<|im|>xb<|im|>\u{fdd0}c");
    assert!(!hidden.contains("<|im|>"));
    let rendered = format!("<|im|>user {hidden}<|im|>");
    let expected = [
        Piece::Template("<|im|>user a"),
        Piece::Plain("<|im|>x"),
        Piece::Template("b"),
        Piece::Plain("<|im|>"),
        Piece::Template("c<|im|>"),
    ];
    assert_eq!(control.pieces(&rendered), expected);
    assert_eq!(control.pieces("plain"), [Piece::Template("plain")]);
}

fn shown(out: &mut TextOut, piece: &str) -> String {
    match out.push(piece.as_bytes()) {
        Pushed::Text(text) => text,
        Pushed::Stopped(text) => panic!("stopped after {text:?}"),
    }
}

#[test]
fn a_character_split_over_tokens_comes_out_whole() {
    let mut out = TextOut::new(vec![]);
    let bytes = "a€b".as_bytes();
    assert_eq!(out.push(&bytes[..2]), Pushed::Text("a".into()));
    assert_eq!(out.push(&bytes[2..3]), Pushed::Text(String::new()));
    assert_eq!(out.push(&bytes[3..]), Pushed::Text("€b".into()));
}

#[test]
fn broken_bytes_become_a_replacement_character() {
    let mut out = TextOut::new(vec![]);
    assert_eq!(out.push(b"a\xffb"), Pushed::Text("a\u{fffd}b".into()));
    assert_eq!(out.push(b"\xe2\x82"), Pushed::Text(String::new()));
    assert_eq!(out.finish(), "\u{fffd}");
}

#[test]
fn a_stop_string_over_several_tokens_is_never_shown() {
    let mut out = TextOut::new(vec!["\nEND".into(), String::new()]);
    assert_eq!(shown(&mut out, "one\n"), "one");
    assert_eq!(shown(&mut out, "E"), "");
    assert_eq!(shown(&mut out, "x\nEN"), "\nEx");
    assert_eq!(out.push(b"D more"), Pushed::Stopped(String::new()));
}

#[test]
fn the_earliest_stop_wins_and_a_held_beginning_is_given_back() {
    let mut out = TextOut::new(vec!["zz".into(), "b".into()]);
    assert_eq!(out.push(b"abzz"), Pushed::Stopped("a".into()));
    let mut out = TextOut::new(vec!["zz".into()]);
    assert_eq!(shown(&mut out, "az"), "a");
    assert_eq!(out.finish(), "z");
}
