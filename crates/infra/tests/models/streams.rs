//! Streams: their grammar, the pieces they come in, how they end, and which call a piece belongs to.

use super::*;
use posse_core::model::{Delta, Extra, Finish, ModelErrorKind, Usage};
use proptest::prelude::*;
use std::sync::Mutex;

const FILES: [&str; 6] = [
    "B00-final.sse",
    "B01-no-index-signature.sse",
    "B03-empty-choices-no-delta.sse",
    "B05-truncated-but-tool_calls.sse",
    "B07-eof-no-finish.sse",
    "B15-reasoning-roundtrip.sse",
];

fn file(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/fixtures/llm/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(path).expect("a file of the tests")
}

/// A model that is given one answer after the other.
struct Reader {
    model: OpenAiModel,
    _server: ModelServer,
    next: std::sync::Arc<Mutex<Option<Answer>>>,
}

impl Reader {
    async fn new() -> Reader {
        let next: std::sync::Arc<Mutex<Option<Answer>>> = std::sync::Arc::default();
        let answer = next.clone();
        let server =
            ModelServer::start(None, move |_| answer.lock().expect("not poisoned").take().expect("an answer")).await;
        let model = model(OpenAiConfig { retries: 0, ..config(&server) });
        Reader { model, _server: server, next }
    }

    /// What is shown of this answer, and what comes of it.
    async fn read(&self, answer: Answer) -> (Vec<Delta>, Result<ModelReply, (ModelErrorKind, String)>) {
        *self.next.lock().expect("not poisoned") = Some(answer);
        let deltas = Mutex::new(Vec::new());
        let sink = |delta| deltas.lock().expect("not poisoned").push(delta);
        let reply = self.model.complete(&request(), &sink, &Stop::never()).await;
        (deltas.into_inner().expect("not poisoned"), reply.map_err(|error| (error.kind, error.message)))
    }
}

async fn text_of(reader: &Reader, bytes: &[u8], sizes: &[usize]) -> String {
    reader.read(streamed(bytes).in_pieces(sizes)).await.1.expect("a whole reply").text
}

/// The same text however the stream is cut.
async fn check(reader: &Reader, stream: &str, text: &str) {
    for size in 1..=stream.len() {
        assert_eq!(text_of(reader, stream.as_bytes(), &[size]).await, text, "pieces of {size} bytes: {stream:?}");
    }
}

fn said(text: &str) -> String {
    json!({"choices": [{"delta": {"content": text}}]}).to_string()
}

#[tokio::test]
async fn the_grammar() {
    let reader = Reader::new().await;
    let (a, b) = (said("a"), said("größe 🦆"));
    let done = "data: [DONE]";
    for (stream, text) in [
        (format!("data: {a}\n\ndata: {b}\n\n{done}\n\n"), "agröße 🦆"),
        (format!("data: {a}\r\n\r\ndata: {b}\r\n\r\n{done}\r\n\r\n"), "agröße 🦆"),
        (format!("data: {a}\r\rdata: {b}\r\r{done}\r\r"), "agröße 🦆"),
        (format!("\u{feff}data:{a}\n\n{done}\n\n"), "a"),
        (format!("data:  {a}\n\n{done}\n\n"), "a"),
        ("data: {\"choices\":\ndata: [{\"delta\":{\"content\":\"two\"}}]}\n\ndata: [DONE]\n\n".to_owned(), "two"),
        (format!(": keep\n\n\n:\n\nid: 7\nretry: 10\ndata: {a}\n\n{done}\n\n"), "a"),
        (format!("event: ping\n\ndata: {a}\n\n{done}\n\n"), "a"),
        (format!("event: keepalive\ndata: {{}}\n\ndata: {a}\n\n{done}\n\n"), "a"),
        // What servers get wrong: the last blank line, and those between events.
        (format!("data: {a}\n\n{done}"), "a"),
        (format!("data: {a}\n\n{done}\n"), "a"),
        (format!("data: {a}\ndata: {a}\n{done}\n\n"), "aa"),
    ] {
        check(&reader, &stream, text).await;
    }
}

#[tokio::test]
async fn an_error_without_a_field_is_read_in_any_pieces() {
    let reader = Reader::new().await;
    let stream = event(&said("a")) + "{\"error\":\"x: y\"}\n";
    for size in 1..=stream.len() {
        let (_, outcome) = reader.read(streamed(stream.clone()).in_pieces(&[size])).await;
        assert!(outcome.is_err_and(|(_, message)| message.contains("x: y")), "pieces of {size} bytes");
    }
}

#[tokio::test]
async fn a_line_without_end_is_refused() {
    let error = outcome(streamed(vec![b'x'; 9 << 20])).await.expect_err("nine mebibytes on one line");
    assert!(error.message.contains("beyond all bounds"), "{}", error.message);
}

/// Runs what a property asks of a stream.
fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().expect("a runtime").block_on(work)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn pieces_do_not_matter(
        which in 0..FILES.len(),
        sizes in proptest::collection::vec(1usize..300, 1..12),
        crlf in any::<bool>(),
    ) {
        let mut bytes = file(FILES[which]);
        if crlf {
            bytes = String::from_utf8_lossy(&bytes).replace('\n', "\r\n").into_bytes();
        }
        block_on(async {
            let reader = Reader::new().await;
            let whole = reader.read(streamed(bytes.clone()).in_pieces(&[bytes.len()])).await;
            assert_eq!(reader.read(streamed(bytes).in_pieces(&sizes)).await, whole);
        });
    }

    #[test]
    fn pieces_of_anything_do_not_matter(
        bytes in proptest::collection::vec(
            prop_oneof![Just(b'\n'), Just(b'\r'), Just(b':'), Just(b' '), Just(b'd'), any::<u8>()],
            1..200,
        ),
        events in any::<bool>(),
        cut in 1usize..50,
    ) {
        // Whatever stands before it, what follows is read as it is.
        let rest = if events { format!("\n\ndata: {}\n\ndata: [DONE]\n\n", said("a")) } else { String::new() };
        let bytes = [bytes, rest.into_bytes()].concat();
        block_on(async {
            let reader = Reader::new().await;
            let whole = reader.read(streamed(bytes.clone()).in_pieces(&[bytes.len()])).await;
            assert_eq!(reader.read(streamed(bytes).in_pieces(&[cut])).await, whole);
        });
    }
}

#[tokio::test]
async fn cut_anywhere_it_is_whole_or_nothing() {
    let reader = Reader::new().await;
    for name in FILES.iter().filter(|name| !name.starts_with("B07")) {
        let bytes = file(name);
        let full = reader.read(streamed(bytes.clone())).await.1.expect("a whole reply");
        for end in 0..bytes.len() {
            if let Ok(reply) = reader.read(streamed(&bytes[..end])).await.1 {
                // The count of tokens may be lost with the last piece; nothing else may.
                assert_eq!(ModelReply { usage: full.usage, ..reply }, full, "{name} cut at {end}");
            }
        }
    }
}

#[tokio::test]
async fn each_piece_of_text_is_shown_as_it_comes() {
    let (deltas, reply) = Reader::new().await.read(Answer::file("B00-final.sse").in_pieces(&[7])).await;
    assert_eq!(deltas, [Delta::Text("FINAL".to_owned()), Delta::Text("-OK".to_owned())]);
    let reply = reply.expect("a whole reply");
    assert_eq!((reply.text.as_str(), &reply.finish, reply.model.as_str()), ("FINAL-OK", &Finish::Stop, "mock-1"));
    assert_eq!(reply.usage, Usage { input: 40, output: 2, cached: 0, estimated: false });
}

#[tokio::test]
async fn b01_no_index_and_a_late_signature() {
    let server = ModelServer::play(vec![Answer::file("B01-no-index-signature.sse")]).await;
    let provider = server.base_url().trim_start_matches("http://").trim_end_matches("/v1").to_owned();
    let reply = ask(&model(config(&server)), &request()).await.expect("a reply");
    let call = |id: &str, path: &str, signature: &str| {
        let value = json!({"google": {"thought_signature": signature}});
        CallRequest {
            id: id.to_owned(),
            name: "files_read".to_owned(),
            arguments: format!("{{\"path\":\"{path}\"}}"),
            extra: Some(Extra { value, provider: provider.clone() }),
        }
    };
    assert_eq!(reply.calls, [call("fc-a1", "alpha.txt", "U0lHLUE="), call("fc-b2", "beta.txt", "U0lHLUIy")]);
}

#[tokio::test]
async fn b05_and_b15_cut_arguments_stay_as_they_are_and_reasoning_is_kept_apart() {
    let cut = outcome(Answer::file("B05-truncated-but-tool_calls.sse")).await.expect("a reply");
    assert_eq!(cut.finish, Finish::ToolCalls);
    assert_eq!(cut.calls[0].arguments, "{\"path\":\"notes.md\",\"content\":\"line 1\\nline 2\\nli");
    let thought = outcome(Answer::file("B15-reasoning-roundtrip.sse")).await.expect("a reply");
    assert_eq!(thoughts(&thought), "The user wants alpha.txt. I should read it first.");
    assert_eq!((thought.text.as_str(), thought.calls.len()), ("", 1));
}

/// The calls of a stream of `tool_calls` deltas are these: id, name and arguments.
async fn check_calls(pieces: &[Value], expected: &[(&str, &str, &str)]) {
    let events: String = pieces.iter().map(|calls| piece(json!({"tool_calls": calls}), Value::Null)).collect();
    let reply = outcome(streamed(events + &piece(json!({}), json!("tool_calls")))).await.expect("a whole reply");
    let calls = reply.calls.iter().map(|call| (call.id.as_str(), call.name.as_str(), call.arguments.as_str()));
    assert_eq!(calls.collect::<Vec<_>>(), expected, "{pieces:?}");
}

#[tokio::test]
async fn which_call_a_piece_belongs_to() {
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
    )
    .await;
    // Index always 0, ids differ.
    check_calls(
        &[json!([start(json!(0), json!("a"), "f", "{}")]), json!([start(json!(0), json!("b"), "f", "{\"x\":1}")])],
        &[("a", "f", "{}"), ("b", "f", "{\"x\":1}")],
    )
    .await;
    // Index always 0, no ids.
    check_calls(
        &[
            json!([start(json!(0), none.clone(), "f", "{\"x\":1}")]),
            json!([start(json!(0), none.clone(), "f", "{\"x\":2}")]),
        ],
        &[("", "f", "{\"x\":1}"), ("", "f", "{\"x\":2}")],
    )
    .await;
    // No index, no ids, all in one piece, with calls that take no arguments.
    check_calls(
        &[json!([
            start(none.clone(), none.clone(), "f", ""),
            start(none.clone(), none.clone(), "f", ""),
            start(none.clone(), none.clone(), "g", "{}"),
        ])],
        &[("", "f", "{}"), ("", "f", "{}"), ("", "g", "{}")],
    )
    .await;
    // The name in every piece.
    check_calls(
        &[
            json!([start(json!(0), json!("a"), "f", "{\"x\"")]),
            json!([start(json!(0), json!("a"), "f", ":1}")]),
            json!([start(json!(0), json!("a"), "f", "")]),
        ],
        &[("a", "f", "{\"x\":1}")],
    )
    .await;
    // A new id with every piece of one call.
    check_calls(
        &[
            json!([start(json!(0), json!("a"), "f", "{\"x\"")]),
            json!([{"index": 0, "id": "zz", "function": {"arguments": ":1}"}}]),
        ],
        &[("a", "f", "{\"x\":1}")],
    )
    .await;
    // One id for two calls, as in B13.
    check_calls(
        &[
            json!([start(none.clone(), json!("a"), "f", "{\"x\":1}")]),
            json!([start(none, json!("a"), "f", "{\"x\":2}")]),
        ],
        &[("a", "f", "{\"x\":1}"), ("a", "f", "{\"x\":2}")],
    )
    .await;
    // The index only from the second piece on; arguments as an object.
    check_calls(
        &[
            json!([{"id": "a", "function": {"name": "f"}}]),
            json!([{"index": 0, "id": "a", "function": {"arguments": {"x": 1}}}]),
        ],
        &[("a", "f", "{\"x\":1}")],
    )
    .await;
}

#[tokio::test]
async fn done_alone_ends_a_complete_reply() {
    let ended = |delta: Value| outcome(streamed(piece(delta, Value::Null) + &event("[DONE]")));
    let call =
        |arguments: &str| json!({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": arguments}}]});
    assert!(ended(json!({"content": "hi"})).await.is_ok());
    assert!(ended(json!({"content": ""})).await.is_err());
    assert_eq!(ended(call("{}")).await.expect("whole").finish, Finish::ToolCalls);
    assert!(ended(call("{\"x\":")).await.is_err());
    assert!(ended(call("")).await.is_err());
}

#[tokio::test]
async fn errors_inside_a_stream() {
    let half = piece(json!({"content": "half"}), Value::Null);
    for error in [
        event(r#"{"error":{"message":"m","code":502}}"#),
        format!("event: error\n{}", event(r#"{"message":"m","code":"502"}"#)),
        event(r#"{"choices":[{"delta":{"content":""},"finish_reason":"error","error":{"code":502,"message":"m"}}]}"#),
    ] {
        let failed = outcome(streamed(format!("{half}{error}"))).await.expect_err("an error");
        assert_eq!(failed.kind, ModelErrorKind::Transient);
        assert!(failed.message.ends_with("reported an error inside its reply: m"), "{error}: {}", failed.message);
    }
    for cut in [
        event(r#"{"choices":[{"finish_reason":"error"}]}"#),
        // A piece that cannot be read is never skipped: it may have been a call.
        event("{\"choices\":[{") + &event("[DONE]"),
    ] {
        let failed = outcome(streamed(format!("{half}{cut}"))).await.expect_err("cut");
        assert_eq!(failed.kind, ModelErrorKind::Transient, "{cut}");
    }
}

#[tokio::test]
async fn a_body_without_a_choice_is_no_reply() {
    let nothing = json!({"choices": [], "usage": {"prompt_tokens": 1}});
    let failed = outcome(Answer::json(200, nothing)).await.expect_err("no reply");
    assert!(failed.message.contains("no choice in it"), "{}", failed.message);
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
