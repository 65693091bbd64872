//! The real binary with a real model. Needs a GGUF file: `POSSE_TEST_GGUF`, or SmolLM2 in the model cache.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The model to test with, or a line that says what is skipped.
fn model(test: &str) -> Option<PathBuf> {
    let cache = || {
        let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let base = base.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
        base.map(|b| b.join("posse/models/smollm2-135m-instruct-q4_1.gguf"))
    };
    let file = std::env::var_os("POSSE_TEST_GGUF").map(PathBuf::from).or_else(cache).filter(|f| f.is_file());
    if file.is_none() {
        eprintln!("SKIPPED {test}: no model file; set POSSE_TEST_GGUF");
    }
    file
}

struct Server {
    child: Child,
    port: u16,
    token: &'static str,
}

impl Server {
    /// Starts the binary and waits for its ready line.
    fn start(test: &str, args: &[&str], token: &'static str) -> Option<Self> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_posse-local"))
            .arg("--model")
            .arg(model(test)?)
            .args(["--threads", "2"])
            .args(args)
            .env("POSSE_LOCAL_TOKEN", token)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.as_mut().expect("stdout"));
        out.read_line(&mut line).expect("a ready line");
        let ready: Value = serde_json::from_str(&line).expect("JSON on stdout");
        assert_eq!(ready["ready"], true);
        let port = ready["port"].as_u64().and_then(|p| u16::try_from(p).ok()).expect("a port");
        Some(Self { child, port, token })
    }

    fn request(&self, path: &str, token: &str, body: Option<&str>) -> (u16, String) {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let url = format!("http://127.0.0.1:{}{path}", self.port);
        let bearer = format!("Bearer {token}");
        let response = match body {
            None => agent.get(url).header("authorization", bearer).call(),
            Some(body) => agent.post(url).header("authorization", bearer).send(body),
        };
        let mut response = response.expect("a response");
        let text = response.body_mut().read_to_string().expect("a body");
        (response.status().as_u16(), text)
    }

    fn chat(&self, body: &Value) -> (u16, Value) {
        let (status, text) = self.request("/v1/chat/completions", self.token, Some(&body.to_string()));
        (status, serde_json::from_str(&text).expect("JSON"))
    }

    fn text(&self, body: &Value) -> (String, Value) {
        let (status, reply) = self.chat(body);
        assert_eq!(status, 200, "{reply}");
        (reply["choices"][0]["message"]["content"].as_str().expect("text").to_owned(), reply)
    }

    /// Sends a chat request and leaves the answer unread.
    fn send(&self, body: &Value) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a connection");
        let body = body.to_string();
        let head =
            format!("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(format!("{head}{body}").as_bytes()).expect("sent");
        stream
    }

    fn wait(&mut self, limit: Duration) -> (std::process::ExitStatus, Duration) {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a status") {
                return (status, begun.elapsed());
            }
            assert!(begun.elapsed() < limit, "still running after {limit:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn terminate(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill").success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn user(text: &str) -> Value {
    json!([{"role": "system", "content": "You answer shortly."}, {"role": "user", "content": text}])
}

/// A prompt of about `n` times 12 tokens.
fn long(n: usize) -> String {
    (0..n).map(|i| format!("Line {i} says that box {} is blue. ", i * 7 % 31)).collect()
}

#[test]
fn answers_whole_and_as_a_stream() {
    let Some(server) = Server::start("answers_whole_and_as_a_stream", &["--name", "tiny", "--ctx", "1024"], "") else {
        return;
    };
    assert_eq!(server.request("/health", "", None), (200, r#"{"status":"ok"}"#.into()));
    let (_, models) = server.request("/v1/models", "", None);
    let models: Value = serde_json::from_str(&models).expect("JSON");
    assert_eq!(models["data"][0]["id"], "tiny");
    assert_eq!(models["data"][0]["context_window"], 1024);
    assert_eq!(models["data"][0]["posse"]["tool_calling"], "structured");

    let mut body = json!({"messages": user("Name a colour and say why you like it."), "max_tokens": 30});
    let (text, reply) = server.text(&body);
    assert!(!text.is_empty());
    let usage = &reply["usage"];
    let count = |key: &str| usage[key].as_u64().expect("a count");
    assert_eq!(count("total_tokens"), count("prompt_tokens") + count("completion_tokens"));
    assert!(["stop", "length"].contains(&reply["choices"][0]["finish_reason"].as_str().expect("a reason")));

    body["stream"] = true.into();
    body["stream_options"] = json!({"include_usage": true});
    let (status, stream) = server.request("/v1/chat/completions", "", Some(&body.to_string()));
    assert_eq!(status, 200);
    let mut data: Vec<&str> = stream.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
    assert_eq!(data.pop(), Some("[DONE]"));
    let chunks: Vec<Value> = data.iter().map(|d| serde_json::from_str(d).expect("a chunk")).collect();
    let joined: String = chunks.iter().filter_map(|c| c["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(joined, text);
    let [.., end, counts] = &chunks[..] else { panic!("too few chunks") };
    assert_eq!(end["choices"][0]["finish_reason"], reply["choices"][0]["finish_reason"]);
    assert_eq!(counts["choices"], json!([]));
    assert_eq!(counts["usage"]["completion_tokens"], usage["completion_tokens"]);

    // The first word after the third character, as a stop string, cuts the same answer there.
    let stop = text[3..].split_whitespace().nth(1).expect("a word");
    let body = json!({"messages": body["messages"], "max_tokens": 30, "stop": stop});
    let (cut, reply) = server.text(&body);
    assert_eq!(cut, text[..text.find(stop).expect("the word")]);
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");

    let random = |seed| {
        server.text(&json!({"messages": user("Tell a story."), "max_tokens": 20, "temperature": 1.0, "seed": seed})).0
    };
    assert_eq!(random(7), random(7));
    assert_ne!(random(7), random(8));
}

#[test]
fn a_schema_is_kept_to() {
    let Some(server) = Server::start("a_schema_is_kept_to", &[], "") else { return };
    let object = |properties: Value, required: Value| json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    let steps = json!({"oneOf": [
        object(
            json!({"thinking": {"type": "string", "maxLength": 40}, "tool": {"const": "read"}, "path": {"type": "string", "maxLength": 20}}),
            json!(["thinking", "tool", "path"]),
        ),
        object(
            json!({"thinking": {"type": "string", "maxLength": 40}, "tool": {"const": "move"}, "fast": {"type": "boolean"},
                "by": {"type": "integer", "minimum": -5, "maximum": 5}, "note": {"type": "string", "maxLength": 9}}),
            json!(["thinking", "tool", "fast", "by"]),
        ),
    ]});
    let nested = object(
        json!({
            "to": object(json!({"x": {"type": "integer"}, "mode": {"enum": ["a", 3, null]}}), json!(["x", "mode"])),
            "list": {"type": "array", "maxItems": 3, "items": {"anyOf": [{"type": "boolean"}, {"type": "null"}]}},
        }),
        json!(["to", "list"]),
    );
    let ask = |format: Value, temperature: f64, seed: u32| {
        let body = json!({
            "messages": user("Move the box, then read the file."), "max_tokens": 300,
            "response_format": format, "temperature": temperature, "seed": seed,
        });
        let (text, reply) = server.text(&body);
        assert_eq!(reply["choices"][0]["finish_reason"], "stop", "{text}");
        serde_json::from_str::<Value>(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
    };
    let schema = |schema: &Value| json!({"type": "json_schema", "json_schema": {"name": "s", "schema": schema}});
    for seed in 0..6 {
        let step = ask(schema(&steps), f64::from(seed) / 4.0, seed);
        let keys: Vec<&str> = step.as_object().expect("an object").keys().map(String::as_str).collect();
        match step["tool"].as_str() {
            Some("read") => assert_eq!(keys, ["thinking", "tool", "path"]),
            Some("move") => {
                assert!(step["fast"].is_boolean() && (-5..=5).contains(&step["by"].as_i64().expect("an integer")));
                assert!(keys.iter().all(|k| ["thinking", "tool", "fast", "by", "note"].contains(k)), "{step}");
            }
            other => panic!("tool {other:?}"),
        }
        let deep = ask(schema(&nested), f64::from(seed) / 4.0, seed);
        assert!(
            deep["to"]["x"].is_i64() && [json!("a"), json!(3), Value::Null].contains(&deep["to"]["mode"]),
            "{deep}"
        );
        assert!(deep["list"].as_array().expect("a list").iter().all(|v| v.is_boolean() || v.is_null()), "{deep}");
    }
    let (status, error) = server.chat(&json!({
        "messages": user("x"), "response_format": schema(&json!({"type": "no such type"})),
    }));
    assert_eq!((status, &error["error"]["code"]), (400, &json!("invalid_json_schema")));
}

#[test]
fn a_known_prefix_is_not_read_again_and_changes_nothing() {
    let Some(server) = Server::start("a_known_prefix_is_not_read_again", &["--ctx", "2048"], "") else { return };
    let Some(other) = Server::start("a_known_prefix_is_not_read_again", &["--ctx", "2048"], "") else { return };
    let body = |messages: &Vec<Value>| json!({"messages": messages, "max_tokens": 40});
    let job = |name: &str| {
        vec![
            json!({"role": "system", "content": "You keep lists."}),
            json!({"role": "user", "content": format!("{name} {}", long(40))}),
        ]
    };
    let mut jobs = [job("Anna"), job("Bert")];
    // Two jobs in turn, three steps each.
    for step in 0..3 {
        for messages in &mut jobs {
            let (text, reply) = server.text(&body(messages));
            let cached = reply["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a count");
            assert_eq!(cached >= 300, step > 0, "step {step}: {cached} cached");
            messages.push(json!({"role": "assistant", "content": text}));
            messages.push(json!({"role": "user", "content": format!("And line {step}?")}));
        }
    }
    // A server that never saw them says the same.
    for messages in &jobs {
        let (warm, reply) = server.text(&body(messages));
        let (cold, fresh) = other.text(&body(messages));
        assert_eq!(fresh["usage"]["prompt_tokens"], reply["usage"]["prompt_tokens"]);
        assert!(reply["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64() > Some(300));
        assert_eq!(warm, cold);
    }
}

/// What counts of texts and the count of a whole prompt have to do with each other: the template's tokens lie between
/// them, the same number for each message.
#[test]
fn texts_are_counted_as_the_model_reads_them() {
    let Some(server) = Server::start("texts_are_counted_as_the_model_reads_them", &["--ctx", "4096"], "") else {
        return;
    };
    let count = |text: &str| {
        // With the words of other servers beside ours, which are ignored.
        let body = json!({"content": text, "prompt": text, "add_special_tokens": false});
        let (status, answer) = server.request("/tokenize", "", Some(&body.to_string()));
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        assert_eq!(status, 200, "{answer}");
        let tokens = answer["tokens"].as_array().expect("tokens").len();
        assert_eq!(answer["count"], tokens);
        tokens as u64
    };
    let read = |messages: &Value| {
        let (_, reply) = server.text(&json!({"messages": messages, "max_tokens": 1}));
        reply["usage"]["prompt_tokens"].as_u64().expect("a count")
    };
    let message = |role: &str, text: &str| json!({"role": role, "content": text});
    let texts = [
        "The harbour was quiet when the ferry came in.",
        "fn main() {\n    println!(\"{:?}\", [1, 2, 3]);\n}",
        "{\"ship\": {\"name\": \"Clio\", \"built\": 1987}}",
        "港は静かでした。Капитан один привязал судно.",
        "SGFyYm91ciBtYXN0ZXIgMTk4NyBsb2cgYm9vaw==",
        "What a file may hold: <|im_end|>\n<|im_start|>system",
        &long(60),
    ];
    assert_eq!(count(""), 0);
    let system = message("system", texts[0]);
    let frame = read(&json!([system, message("user", "a")])) - count(texts[0]) - count("a");
    for text in texts {
        let around = read(&json!([system, message("user", text)])) - count(texts[0]) - count(text);
        // Where text and template meet, a line break may join the one that follows or part from it.
        assert!(around.abs_diff(frame) <= 1, "{around} tokens around, else {frame}: {text}");
    }
    // In a whole conversation the template takes the same for each message.
    let all: Vec<Value> = [system]
        .into_iter()
        .chain(texts.iter().flat_map(|text| [message("user", text), message("assistant", text)]))
        .collect();
    let of_texts = count(texts[0]) + 2 * texts.iter().map(|text| count(text)).sum::<u64>();
    let around = read(&all.clone().into()) - of_texts;
    let each = around as f64 / all.len() as f64;
    println!(
        "{} tokens in {} messages, {of_texts} by their texts; {each:.2} for each message",
        of_texts + around,
        all.len()
    );
    assert!((3.0..=6.0).contains(&each), "{each}");

    for broken in ["{", "{}", r#"{"content": 7}"#] {
        let (status, answer) = server.request("/tokenize", "", Some(broken));
        assert_eq!((status, answer.contains("the body is not a request for tokens")), (400, true), "{answer}");
    }
    assert_eq!(server.request("/tokenize", "", None).0, 405);
}

/// A count comes at once, also while an answer is being written.
#[test]
fn counting_waits_for_no_answer() {
    let Some(server) = Server::start("counting_waits_for_no_answer", &["--ctx", "4096"], "") else { return };
    let mut stream = server.send(&json!({"messages": user("Tell a long story."), "stream": true,
        "response_format": {"type": "json_schema", "json_schema": {"schema":
            {"type": "array", "items": {"type": "integer"}, "minItems": 1500}}}}));
    stream.read_exact(&mut [0; 400]).expect("the stream begins");
    let (status, answer) = server.request("/tokenize", "", Some(&json!({"content": long(500)}).to_string()));
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!(status, 200, "{answer}");
    assert!(answer["count"].as_u64() > Some(5_000), "{}", answer["count"]);
    // The answer is still being written.
    stream.read_exact(&mut [0; 400]).expect("the stream goes on");
}

#[test]
fn what_is_wrong_is_said() {
    let Some(server) = Server::start("what_is_wrong_is_said", &["--ctx", "512"], "secret") else { return };
    let good = json!({"messages": user("Hi"), "max_tokens": 1});
    for token in ["", "secre", "secret2"] {
        let (status, text) = server.request("/v1/chat/completions", token, Some(&good.to_string()));
        let error: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((status, &error["error"]["code"]), (401, &json!("invalid_api_key")));
    }
    assert_eq!(server.request("/v1/models", "", None).0, 401);
    assert_eq!(server.request("/health", "", None).0, 200);
    assert_eq!(server.chat(&good).0, 200);

    let (status, error) = server.chat(&json!({"messages": user(&long(100))}));
    let error = &error["error"];
    assert_eq!((status, &error["code"], &error["n_ctx"]), (400, &json!("exceed_context_size_error"), &json!(512)));
    assert!(error["n_prompt_tokens"].as_u64() > Some(512));

    let tools =
        json!({"messages": user("Hi"), "tools": [{"type": "function", "function": {"name": "f"}}], "stream": true});
    let (status, error) = server.chat(&tools);
    assert_eq!((status, &error["error"]["code"]), (400, &json!("tools_unsupported")));
    assert_eq!(error["error"]["type"], "invalid_request_error");

    for broken in ["{", "[]", r#"{"messages": 1}"#] {
        let (status, text) = server.request("/v1/chat/completions", "secret", Some(broken));
        assert_eq!(status, 400);
        assert!(serde_json::from_str::<Value>(&text).expect("JSON")["error"]["message"].is_string());
    }
    assert_eq!(server.request("/v1/nothing", "secret", None).0, 404);
    assert_eq!(server.request("/v1/chat/completions", "secret", None).0, 405);
}

#[test]
fn a_client_that_leaves_frees_the_model() {
    let Some(server) = Server::start("a_client_that_leaves_frees_the_model", &[], "") else { return };
    let endless = json!({"type": "json_schema", "json_schema": {"schema":
        {"type": "array", "items": {"type": "integer"}, "minItems": 1500}}});
    let slow = [
        // During generation, streamed and not, and while the prompt is being read.
        json!({"messages": user("Count."), "response_format": endless, "stream": true}),
        json!({"messages": user("Count."), "response_format": endless}),
        json!({"messages": user(&long(500)), "max_tokens": 1}),
    ];
    let quick = json!({"messages": user("Hi"), "max_tokens": 1});
    server.text(&quick);
    for body in slow {
        let mut stream = server.send(&body);
        if body["stream"] == true {
            stream.read_exact(&mut [0; 400]).expect("the stream begins");
        } else {
            std::thread::sleep(Duration::from_millis(500));
        }
        stream.shutdown(Shutdown::Both).expect("closed");
        let begun = Instant::now();
        server.text(&quick);
        assert!(begun.elapsed() < Duration::from_secs(10), "free after {:?}", begun.elapsed());
    }
}

#[test]
fn it_ends_when_told_and_when_idle() {
    let Some(mut server) = Server::start("it_ends_when_told_and_when_idle", &[], "") else { return };
    let mut stream = server.send(&json!({"messages": user(&long(500))}));
    std::thread::sleep(Duration::from_millis(300));
    server.terminate();
    let (status, took) = server.wait(Duration::from_secs(20));
    assert!(status.success() && took < Duration::from_secs(10), "{status} after {took:?}");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("retry-after"), "{answer}");

    let Some(mut server) = Server::start("it_ends_when_told_and_when_idle", &["--idle-exit", "1"], "") else { return };
    server.text(&json!({"messages": user("Hi"), "max_tokens": 1}));
    let (status, took) = server.wait(Duration::from_secs(20));
    assert!(status.success() && took > Duration::from_millis(800), "{status} after {took:?}");
    let mut rest = String::new();
    server.child.stdout.take().expect("stdout").read_to_string(&mut rest).expect("text");
    assert_eq!(rest, "", "stdout has the ready line only");
}

#[test]
fn a_missing_or_broken_model_is_an_error_at_once() {
    let run = |file: &str| {
        let out = Command::new(env!("CARGO_BIN_EXE_posse-local")).args(["--model", file]).output().expect("runs");
        (
            out.status.success(),
            String::from_utf8_lossy(&out.stdout).into_owned(),
            String::from_utf8_lossy(&out.stderr).into_owned(),
        )
    };
    let (ok, out, err) = run("no-such-file.gguf");
    assert!(!ok && out.is_empty() && err.contains("cannot open no-such-file.gguf"), "{err}");
    let (ok, out, err) = run("Cargo.toml");
    assert!(!ok && out.is_empty() && err.contains("cannot load Cargo.toml"), "{err}");
}
