//! A model on loopback that appends numbered lines and checks before it repeats anything.

use super::memory;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What an agent runs that may do its work in one program. It looks before it writes again what may have been written.
const PROGRAM: &str = r#"
    const seen = [];
    for (let n = 1; n <= STEPS; n++) {
        const line = `step-${n};\n`;
        seen.push(Math.random(), Date.now());
        try {
            await tools.append_file({ path: "FILE", text: line });
        } catch (error) {
            if (error.name !== "OutcomeUnknown") throw error;
            const text = await tools.read_file({ path: "FILE" }).catch(() => "");
            if (!text.includes(line.trim())) await tools.append_file({ path: "FILE", text: line });
        }
        if (seen.at(-2) < 0.5) await Promise.all([1, 2, 3].map(() => tools.read_file({ path: "FILE" })));
    }
    return seen.length;
"#;

/// When a worker is to be killed.
#[derive(Debug, Clone, Copy)]
pub struct KillPoint {
    /// At the arrival of this request of the job, from 1.
    pub request: u64,
    /// When then.
    pub then: Moment,
}

/// A moment after a request came in.
#[derive(Debug, Clone, Copy)]
pub enum Moment {
    /// So many microseconds later.
    After(u64),
    /// As soon as the tool's effect can be seen: its result is not committed yet, most times.
    AtEffect,
}

#[derive(Default)]
struct Shared {
    /// Requests of each file's job since it was armed.
    requests: Mutex<HashMap<String, u64>>,
    came: Condvar,
}

/// The model, serving until the test ends.
pub struct StubModel {
    address: String,
    shared: Arc<Shared>,
}

impl StubModel {
    pub fn start() -> StubModel {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let shared = Arc::new(Shared::default());
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&serving);
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        StubModel { address, shared }
    }

    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Counts the requests of `file`'s job afresh.
    pub fn arm(&self, file: &str) {
        self.shared.requests.lock().unwrap_or_else(PoisonError::into_inner).insert(file.to_owned(), 0);
    }

    /// Waits until the job has made so many requests since it was armed. False if it is not going
    /// to: fewer were left to make.
    pub fn wait_for_request(&self, file: &str, request: u64, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut requests = self.shared.requests.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let seen = requests.get(file).copied().unwrap_or(0);
            if seen >= request {
                return true;
            }
            let quiet = Duration::from_millis(if seen == 0 { 5000 } else { 300 });
            if Instant::now() >= deadline {
                return false;
            }
            let (guard, timeout) =
                self.shared.came.wait_timeout(requests, quiet).unwrap_or_else(PoisonError::into_inner);
            requests = guard;
            if timeout.timed_out() && requests.get(file).copied().unwrap_or(0) == seen {
                return false;
            }
        }
    }
}

fn serve(stream: TcpStream, shared: &Shared) {
    let mut writer = stream.try_clone().expect("a socket");
    let mut reader = BufReader::new(stream);
    loop {
        let mut length = 0;
        let mut line = String::new();
        let mut first = String::new();
        loop {
            line.clear();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if first.is_empty() {
                first.clone_from(&line);
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let answer = match serde_json::from_slice(&body) {
            Ok(request) if first.starts_with("POST") => answer(&request, shared),
            _ => json!({"object": "list", "data": [{"id": "stub"}]}),
        };
        let text = answer.to_string();
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", text.len());
        if writer.write_all(head.as_bytes()).and_then(|()| writer.write_all(text.as_bytes())).is_err() {
            return;
        }
    }
}

/// What the conversation says so far: the next step to append, and whether the last one is to be
/// looked for first.
fn standing(messages: &[Value], file: &str) -> (u32, bool) {
    let mut calls: HashMap<&str, &str> = HashMap::new();
    let (mut next, mut check) = (1, false);
    for message in messages {
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let name = call["function"]["name"].as_str().unwrap_or_default();
            calls.insert(call["id"].as_str().unwrap_or_default(), name);
        }
        if message["role"] != "tool" {
            continue;
        }
        let text = message["content"].as_str().unwrap_or_default();
        match calls.get(message["tool_call_id"].as_str().unwrap_or_default()) {
            Some(&"append_file") if text.contains("may or may not") => check = true,
            Some(&"append_file") => next += 1,
            Some(&"read_file") => {
                check = false;
                next += u32::from(text.contains(&format!("step-{next};")));
            }
            other => panic!("{file}: a result for {other:?}: {text}"),
        }
    }
    (next, check)
}

fn answer(request: &Value, shared: &Shared) -> Value {
    let messages = request["messages"].as_array().expect("messages");
    let goal = messages.iter().find(|m| m["role"] == "user").and_then(|m| m["content"].as_str()).unwrap_or_default();
    let word = |name: &str| goal.split_whitespace().find_map(|w| w.strip_prefix(name)).unwrap_or_default().to_owned();
    let (file, steps) = (word("FILE="), word("STEPS=").parse::<u32>().unwrap_or(0));
    let keeps = word("KEEP=");
    let (family, parts) = (word("FAMILY="), word("PARTS=").parse::<u32>().unwrap_or(0));
    {
        let mut requests = shared.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let of = [&keeps, &family].into_iter().find(|name| !name.is_empty()).unwrap_or(&file);
        *requests.entry(of.clone()).or_default() += 1;
        shared.came.notify_all();
    }
    let all = |calls: Vec<(&str, Value)>| {
        let call = |(n, (name, arguments)): (usize, (&str, Value))| {
            let function = json!({"name": name, "arguments": arguments.to_string()});
            json!({"id": format!("call_{n}"), "type": "function", "function": function})
        };
        let calls: Vec<_> = calls.into_iter().enumerate().map(call).collect();
        json!({"role": "assistant", "content": null, "tool_calls": calls})
    };
    let call = |name: &str, arguments: Value| all(vec![(name, arguments)]);
    let results = || messages.iter().filter(|m| m["role"] == "tool").map(|m| m["content"].as_str().unwrap_or_default());
    let is_program = !word("PROGRAM=").is_empty();
    let is_other = parts > 0 || is_program || !keeps.is_empty();
    let (next, check) = if is_other { (0, false) } else { standing(messages, &file) };
    let (message, finish) = if !keeps.is_empty() {
        match memory::next_call(&keeps, &results().collect::<Vec<_>>()) {
            Some((name, arguments)) => (call(name, arguments), "tool_calls"),
            None => (json!({"role": "assistant", "content": "done"}), "stop"),
        }
    } else if is_program {
        match messages.iter().rfind(|message| message["role"] == "tool") {
            None => {
                let code = PROGRAM.replace("STEPS", &steps.to_string()).replace("FILE", &file);
                (call("execute_code", json!({"code": code})), "tool_calls")
            }
            Some(result) => {
                let gave = result["content"].as_str().unwrap_or_default();
                (json!({"role": "assistant", "content": format!("it gave {gave}")}), "stop")
            }
        }
    } else if parts > 0 {
        match messages.iter().rfind(|message| message["role"] == "tool") {
            None => {
                let part = |n| json!({"role": "tester", "goal": format!("STEPS={steps} FILE={family}p{n}.txt FAMILY={family}")});
                let mut calls: Vec<_> = (1..=parts).map(|n| ("task_create", part(n))).collect();
                calls.push(("task_wait", json!({})));
                (all(calls), "tool_calls")
            }
            Some(result) => {
                let read = result["content"].as_str().unwrap_or_default().matches("| done").count();
                (json!({"role": "assistant", "content": format!("joined {read}")}), "stop")
            }
        }
    } else if check {
        (call("read_file", json!({"path": file})), "tool_calls")
    } else if next <= steps {
        (call("append_file", json!({"path": file, "text": format!("step-{next};\n")})), "tool_calls")
    } else {
        (json!({"role": "assistant", "content": "done"}), "stop")
    };
    json!({
        "id": "x", "object": "chat.completion", "created": 0, "model": "stub",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    })
}
