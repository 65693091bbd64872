//! Conversations at a terminal: a line to edit, words above it as they come, a newer message in the place of an older one.

mod screen;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crate::support::{Project, task_in, until};
use screen::Terminal;
use serde_json::{Value, json};

/// A model that says its pieces one by one, each when it may: of its replies the first to who asks first, and the last to
/// all who come later. A piece that is nothing breaks the reply off.
#[derive(Clone)]
struct Slow {
    base_url: String,
    may_say: Arc<Mutex<usize>>,
    asked: Arc<Mutex<Vec<Value>>>,
}

impl Slow {
    fn start(pieces: Vec<Value>) -> Slow {
        Slow::start_with(vec![pieces])
    }

    fn start_with(replies: Vec<Vec<Value>>) -> Slow {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let base_url = format!("http://{}/v1", listener.local_addr().expect("bound"));
        let slow = Slow { base_url, may_say: Arc::default(), asked: Arc::default() };
        let model = slow.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (model, replies) = (model.clone(), replies.clone());
                std::thread::spawn(move || model.answer(stream, &replies));
            }
        });
        slow
    }

    /// Lets so many pieces of each reply be said.
    fn let_say(&self, pieces: usize) {
        *self.may_say.lock().expect("a number") = pieces;
    }

    fn asked(&self) -> Vec<Value> {
        self.asked.lock().expect("requests").clone()
    }

    fn answer(&self, mut stream: TcpStream, replies: &[Vec<Value>]) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        let (mut line, mut length, mut is_chat) = (String::new(), 0, false);
        while reader.read_line(&mut line).ok()? > 2 {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            is_chat |= line.contains("/chat/completions ");
            line.clear();
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        if !is_chat {
            return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").ok();
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n").ok()?;
        let before = {
            let mut asked = self.asked.lock().expect("requests");
            asked.push(serde_json::from_slice(&body).ok()?);
            asked.len() - 1
        };
        for (n, delta) in replies.get(before).or(replies.last())?.iter().enumerate() {
            until("somebody lets it speak", || *self.may_say.lock().expect("a number") > n);
            if delta.is_null() {
                return None;
            }
            let piece = json!({"model": "mock", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
            stream.write_all(format!("data: {piece}\n\n").as_bytes()).ok()?;
        }
        let end = json!({"model": "mock", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 10}});
        stream.write_all(format!("data: {end}\n\ndata: [DONE]\n\n").as_bytes()).ok()
    }

    fn project(&self, calling: &str) -> Project {
        let project = Project::begun();
        let model = format!("base_url = \"{}\"\nmodel = \"mock\"\ntool_calling = \"{calling}\"\n", self.base_url);
        project.write("config/posse.toml", format!("grace_seconds = 0\n[models.mock]\n{model}"));
        project
    }
}

fn words(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

/// The beginning of a call, with words beside it.
fn call(text: &str, name: &str) -> Value {
    let function = json!({"name": name, "arguments": ""});
    let call = json!({"index": 0, "id": "a", "type": "function", "function": function});
    json!({"role": "assistant", "content": text, "tool_calls": [call]})
}

fn arguments(text: &str) -> Value {
    json!({"tool_calls": [{"index": 0, "function": {"arguments": text}}]})
}

fn chat(project: &Project, columns: u16) -> Terminal {
    let terminal = Terminal::start(project.command(&["chat", "researcher"]), columns);
    terminal.until("the prompt", |rows| rows.last().is_some_and(|row| row == ">"));
    terminal
}

fn is_at(rows: &[String], last: &[&str]) -> bool {
    rows.len() >= last.len() && rows[rows.len() - last.len()..].iter().eq(last.iter())
}

fn goal(project: &Project, job: &str) -> Value {
    project.posse(&["show", job, "--json"]).ok().json()["job"].clone()
}

#[test]
fn an_answer_comes_above_what_is_typed() {
    let first = json!({"role": "assistant", "tool_calls": [{"index": 0, "id": "a", "type": "function",
        "function": {"name": "finish", "arguments": ""}}]});
    let model = Slow::start(vec![
        first,
        arguments("{\"final_summary\": \"It is fo"),
        arguments("ur \\ud83d"),
        arguments("\\ude00, and the long ship Aurora sai"),
        arguments("ls on.\"}"),
    ]);
    let project = model.project("native");
    let mut terminal = chat(&project, 30);
    terminal.type_in("How many?\r");
    terminal.until("a sign of life", |rows| rows.iter().any(|row| row.contains("· thinking, ")));
    model.let_say(2);
    terminal.until("the beginning", |rows| is_at(rows, &["> How many?", "It is fo", ">"]));
    // What is typed and not sent stays where it is, whatever is said.
    terminal.type_in("and no");
    terminal.until("what is typed", |rows| is_at(rows, &["It is fo", "> and no"]));
    model.let_say(4);
    let rows = ["> How many?", "It is four 😀, and the long", "ship Aurora sai", "> and no"];
    terminal.until("whole words", |rows_| is_at(rows_, &rows));
    terminal.type_in("w?");
    model.let_say(5);
    terminal.until("the answer", |rows| is_at(rows, &["ship Aurora sails on.", "> and now?"]));
    project.wait_for_state(1, "completed");

    terminal.type_in("\r");
    terminal.until("the second answer", |rows| {
        is_at(rows, &["> and now?", "It is four 😀, and the long", "ship Aurora sails on.", ">"])
    });
    project.wait_for_state(2, "completed");
    assert_eq!(goal(&project, "2")["payload"]["goal"], "and now?");
    // The line has a history: of this chat, and of those before it.
    terminal.type_in("\u{1b}[A\u{1b}[A");
    terminal.until("what was said", |rows| is_at(rows, &["> How many?"]));
    terminal.type_in("\u{15}\u{4}");
    assert_eq!(terminal.wait(), 0);
    assert!(terminal.echoes(), "the terminal is as it was");
    assert!(!terminal.rows().iter().any(|row| row.contains("thinking")), "{:?}", terminal.rows());
    let mut again = chat(&project, 30);
    again.type_in("\u{1b}[A");
    again.until("what was said", |rows| is_at(rows, &["> and now?"]));
    again.type_in("\u{3}");
    again.wait();
    assert!(again.echoes());
}

#[test]
fn a_newer_message_supersedes_what_is_at_work() {
    let model = Slow::start(vec![words("It is fo"), words("ur.")]);
    let project = model.project("native");
    let mut terminal = chat(&project, 80);
    terminal.type_in("How many suppliers?\r");
    model.let_say(1);
    terminal.until("the beginning", |rows| is_at(rows, &["It is fo", ">"]));
    terminal.type_in("No, how many ships?\r");
    // What was said before stays above what was typed.
    terminal.until("what was typed", |rows| rows.windows(2).any(|two| two == ["It is fo", "> No, how many ships?"]));
    terminal.until("the end of the first", |rows| {
        rows.iter().any(|row| row.contains("(cancelled") && row.contains("superseded by job 2"))
    });
    model.let_say(2);
    project.wait_for_state(2, "completed");
    terminal.until("the answer", |rows| is_at(rows, &["It is four.", ">"]));
    let first = goal(&project, "1");
    assert_eq!((&first["state"], &first["output"]["text"]), (&json!("cancelled"), &json!("It is fo")));
    assert!(first["reason"].as_str().is_some_and(|why| why.starts_with("superseded by job 2")), "{first}");
    // What it had said so far is in the record that the next run is told.
    let asked = model.asked();
    let texts = asked[1]["messages"].as_array().expect("messages").iter().filter_map(|m| m["content"].as_str());
    let told: Vec<_> = texts.map(|text| task_in(text).unwrap_or(text)).collect();
    let wanted = [
        "Your task:\nHow many suppliers?",
        "(left for what was said next)\nIt is fo",
        "Your task:\nNo, how many ships?",
    ];
    assert_eq!(told[told.len() - 3..], wanted);
    terminal.type_in("\u{4}");
    assert_eq!(terminal.wait(), 0);
}

#[test]
fn ctrl_c_stops_the_run_first_and_sigterm_leaves_the_terminal_whole() {
    let model = Slow::start(vec![words("It is fo"), words("ur.")]);
    let project = model.project("native");
    let mut terminal = chat(&project, 80);
    terminal.type_in("How many?\r");
    model.let_say(1);
    terminal.until("the beginning", |rows| is_at(rows, &["It is fo", ">"]));
    terminal.type_in("\u{3}");
    project.wait_for_state(1, "cancelled");
    terminal.until("its end", |rows| rows.iter().any(|row| row.contains("interrupted by the person")));
    terminal.type_in("A line \\\rof two\r");
    terminal.until("the beginning", |rows| is_at(rows, &["It is fo", ">"]));
    assert_eq!(goal(&project, "2")["payload"]["goal"], "A line \nof two");
    terminal.terminate();
    assert_eq!(terminal.wait(), 130);
    assert!(terminal.echoes(), "the terminal is as it was");
}

#[test]
fn a_structured_answer_is_shown_as_it_comes() {
    let step = [r#"{"thinking": "t", "tool": "fin"#, r#"ish", "arguments": {"final_summary": "It is fo"#, r#"ur."}}"#];
    let model = Slow::start(step.into_iter().map(words).collect());
    let project = model.project("structured");
    let mut terminal = chat(&project, 80);
    terminal.type_in("How many?\r");
    model.let_say(2);
    terminal.until("the beginning", |rows| is_at(rows, &["It is fo", ">"]));
    model.let_say(3);
    terminal.until("the answer", |rows| is_at(rows, &["It is four.", ">"]));
    terminal.type_in("\u{4}");
    assert_eq!(terminal.wait(), 0);
    assert_eq!(terminal.rows().iter().filter(|row| row.contains("It is four.")).count(), 1, "once");
}

#[test]
fn a_reply_that_breaks_off_is_said_anew_and_words_beside_an_answer_stay() {
    let again =
        vec![call("Done.\u{1b}", "finish"), arguments("{\"final_summary\": \"It is \\ud83d"), arguments("\\ude00.\"}")];
    let model = Slow::start_with(vec![vec![words("Half"), Value::Null], again]);
    model.let_say(3);
    let project = model.project("native");
    let mut terminal = chat(&project, 60);
    terminal.type_in("How many?\r");
    let rows = terminal.until("the answer", |rows| is_at(rows, &["Done.␛", "It is 😀.", ">"]));
    let at = |what: &str| rows.iter().position(|row| row.starts_with(what)).expect(what);
    assert!(at("Half") < at("  ! starting over: ") && at("  ! starting over: ") < at("Done."), "{rows:?}");
    terminal.type_in("\u{4}");
    assert_eq!(terminal.wait(), 0);
    assert_eq!(terminal.rows().iter().filter(|row| row.contains("It is 😀.")).count(), 1, "once");
}

#[test]
fn what_a_skill_says_is_not_for_the_person() {
    let finish = |summary: &str| arguments(&json!({"final_summary": summary}).to_string());
    let model = Slow::start_with(vec![
        vec![call("I look.", "summarise-files"), arguments("{\"task\": \"all\"}")],
        vec![call("For the agent alone.", "finish"), finish("Its result.")],
        vec![words("Four.")],
    ]);
    model.let_say(2);
    let project = model.project("native");
    let mut terminal = Terminal::start(project.command(&["chat", "scribe"]), 60);
    terminal.until("the prompt", |rows| rows.last().is_some_and(|row| row == ">"));
    terminal.type_in("How many?\r");
    let rows = terminal.until("the answer", |rows| is_at(rows, &["Four.", ">"]));
    assert!(
        rows.iter().any(|row| row == "I look.") && rows.iter().any(|row| row.contains("▾ summarise-files")),
        "{rows:?}"
    );
    assert!(!rows.iter().any(|row| row.contains("For the agent alone.")), "{rows:?}");
    terminal.type_in("\u{4}");
    assert_eq!(terminal.wait(), 0);
}

#[test]
fn words_are_whole_however_they_come() {
    let text = "The long ship Aurora sails on and on.\n\n  let x = 1 + 2 + 3 + 4;\n\
        Supercalifragilisticexpialidocious 日本語日本語日本語日本語 e\u{301}\n";
    let chars: Vec<char> = text.chars().collect();
    for size in [1, 7, chars.len()] {
        let pieces: Vec<_> = chars.chunks(size).map(|piece| words(&piece.iter().collect::<String>())).collect();
        let model = Slow::start(pieces);
        model.let_say(chars.len());
        let project = model.project("native");
        // A row has a column less than the terminal.
        let mut terminal = chat(&project, 21);
        terminal.type_in("Tell\r");
        let wanted = [
            "> Tell",
            "The long ship",
            "Aurora sails on and",
            "on.",
            "  let x = 1 + 2 + 3",
            "+ 4;",
            "Supercalifragilistic",
            "expialidocious",
            "日本語日本語日本語日",
            "本語 e\u{301}",
            ">",
        ];
        terminal.until(&format!("the text in pieces of {size}"), |rows| is_at(rows, &wanted));
        terminal.type_in("\u{4}");
        assert_eq!(terminal.wait(), 0);
    }
}
