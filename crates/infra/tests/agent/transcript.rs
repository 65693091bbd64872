//! What a model was sent, in a form that people can read and compare.

use std::fmt::Write;
use std::path::Path;

use posse_core::model::{Message, ModelRequest};

/// All of the requests; what one begins with like an earlier one is named and not written again.
pub fn transcript(requests: &[ModelRequest]) -> String {
    let mut out = String::new();
    for (n, request) in requests.iter().enumerate() {
        let _ = writeln!(out, "=== request {} ===", n + 1);
        let like = |earlier: &ModelRequest| {
            let pairs = earlier.messages.iter().zip(&request.messages);
            pairs.take_while(|(a, b)| a == b).count()
        };
        let known = requests[..n].iter().enumerate().map(|(at, earlier)| (like(earlier), at)).max();
        let (shown, at) = known.unwrap_or((0, 0));
        let same_tools = requests[..n].iter().position(|earlier| earlier.tools == request.tools);
        match same_tools {
            Some(earlier) => {
                let _ = writeln!(out, "tools: those of request {}", earlier + 1);
            }
            None => {
                let _ = writeln!(out, "tools:");
                for tool in &request.tools {
                    let _ = writeln!(out, "  {}: {}\n    {}", tool.name, tool.description, tool.parameters);
                }
            }
        }
        if let Some(schema) = &request.schema {
            let _ = writeln!(out, "schema: {schema}");
        }
        let _ = writeln!(out, "most tokens: {:?}, temperature: {:?}\n", request.max_tokens, request.temperature);
        if shown > 0 {
            let _ = writeln!(out, "--- the first {shown} messages of request {} ---\n", at + 1);
        }
        request.messages[shown..].iter().for_each(|message| push(&mut out, message));
        if let Some(tail) = &request.tail {
            let _ = writeln!(out, "[user, in this request alone]\n{tail}\n");
        }
    }
    without_times(&out)
}

fn push(out: &mut String, message: &Message) {
    let _ = match message {
        Message::System { text } => writeln!(out, "[system]\n{text}\n"),
        Message::User { text } => writeln!(out, "[user]\n{text}\n"),
        Message::Tool { call_id, name, text } => writeln!(out, "[tool {name} {call_id}]\n{text}\n"),
        Message::Assistant { text, calls, .. } => {
            let _ = writeln!(out, "[assistant]");
            if !text.is_empty() {
                let _ = writeln!(out, "{text}");
            }
            for call in calls {
                let _ = writeln!(out, "-> {} {} {}", call.name, call.id, call.arguments);
            }
            writeln!(out)
        }
    };
}

/// How long a tool took is another number each time.
fn without_times(text: &str) -> String {
    let line = |line: &str| match line.trim_start().strip_prefix("Duration: ") {
        Some(rest) if rest.ends_with("ms") => "    Duration: (some)ms".to_owned(),
        _ => line.to_owned(),
    };
    text.lines().map(|l| line(l) + "\n").collect()
}

/// Compares `text` with the stored snapshot; `POSSE_UPDATE_SNAPSHOTS=1` writes it anew.
pub fn check_snapshot(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agent/snapshots").join(name);
    if std::env::var_os("POSSE_UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, text).expect("the snapshot can be written");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = stored.lines().zip(text.lines()).position(|(a, b)| a != b);
    assert!(
        stored == text,
        "tests/agent/snapshots/{name} is stale from line {:?} on; if that is right, POSSE_UPDATE_SNAPSHOTS=1",
        differs.map(|at| at + 1)
    );
}
