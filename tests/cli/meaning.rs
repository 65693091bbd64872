//! What people find by its meaning, with an embedder behind an endpoint; and what is left of it when a process is killed.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::support::wait::until;
use crate::support::{ModelServer, Project, Running};
use serde_json::{Value, json};

/// A server that makes vectors: two words that mean the same have one number of it. It falls silent at a request.
struct EmbeddingServer {
    base_url: String,
    requests: Arc<AtomicUsize>,
    silent_from: Arc<AtomicUsize>,
}

impl EmbeddingServer {
    fn start() -> EmbeddingServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let base_url = format!("http://{}/v1", listener.local_addr().expect("bound"));
        let (requests, silent_from) = (Arc::<AtomicUsize>::default(), Arc::new(AtomicUsize::new(usize::MAX)));
        let (seen, silent) = (Arc::clone(&requests), Arc::clone(&silent_from));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, silent) = (Arc::clone(&seen), Arc::clone(&silent));
                std::thread::spawn(move || answer(stream, &seen, &silent));
            }
        });
        EmbeddingServer { base_url, requests, silent_from }
    }

    fn settings(&self, model: &str) -> String {
        format!("[embedder]\nbase_url = '{}'\nmodel = '{model}'\nretries = 0\n", self.base_url)
    }
}

/// Answers the requests of a connection; nothing more once it is not understood.
fn answer(stream: TcpStream, seen: &AtomicUsize, silent_from: &AtomicUsize) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut stream = stream;
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let body: Value = serde_json::from_slice(&body).ok()?;
        if seen.fetch_add(1, SeqCst) >= silent_from.load(SeqCst) {
            std::thread::sleep(std::time::Duration::from_secs(60));
            return None;
        }
        let dimension = body["dimensions"].as_u64().unwrap_or(16) as usize;
        let vector = |text: &str| {
            let mut vector = vec![0.0; dimension];
            for word in text.split_whitespace() {
                let same = match word {
                    "car" | "automobile" => "car",
                    "doctor" | "physician" => "doctor",
                    other => other,
                };
                vector[same.bytes().map(usize::from).sum::<usize>() % dimension] += 1.0;
            }
            vector
        };
        let texts = body["input"].as_array()?.iter().enumerate();
        let data: Vec<_> =
            texts.map(|(at, text)| json!({"index": at, "embedding": vector(text.as_str().unwrap_or(""))})).collect();
        let reply = json!({"data": data}).to_string();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{reply}",
            reply.len()
        )
        .ok()?;
    }
}

fn finding(project: &Project) -> Value {
    let found = project.posse(&["doctor", "--json"]).json();
    let all = found["findings"].as_array().expect("findings").clone();
    all.into_iter().find(|one| one["check"] == "memory").expect("is looked at")
}

fn search(project: &Project, text: &str) -> Value {
    project.posse(&["memory", "search", text, "--json"]).ok().json()
}

#[test]
fn what_has_a_vector_is_found_in_other_words_and_the_doctor_keeps_both_in_step() {
    let server = EmbeddingServer::start();
    let project = Project::begun();
    project.write("config/posse.toml", server.settings("one"));
    project.posse(&["memory", "add", "an automobile"]).ok();
    project.posse(&["memory", "add", "some physician"]).ok();
    let found = search(&project, "car");
    assert_eq!((&found["items"], &found["meaning"]["why_not"]), (&json!([]), &json!("no item has a vector yet")));
    assert_eq!(server.requests.load(SeqCst), 0, "nobody asks before there is something to compare");
    let done = project.posse(&["memory", "reindex", "--json"]).ok().json();
    assert_eq!(done["embedded"], 2);
    assert_eq!(done["space"], json!({"model": "one", "dimension": 16}));
    let found = search(&project, "car");
    assert_eq!(found["items"][0]["text"], "an automobile");
    assert!(found["items"][0]["likeness"].as_f64().expect("a number") > 0.5 && found["items"][0]["bm25"].is_null());
    assert_eq!(found["meaning"], json!({"model": "one", "weight": 0.3, "words_alone": 0}));
    let told = project.posse(&["memory", "search", "car"]).ok().out;
    assert!(told.contains("an automobile") && told.contains("alike"), "{told}");
    assert_eq!(finding(&project)["message"], "2 items remembered, with vectors of one");

    // Damage in both directions.
    posse_infra::sqlite::extension::register_from(None).expect("is there");
    let file = rusqlite::Connection::open(project.path().join(".posse/posse.db")).expect("opens");
    let damage = "DELETE FROM vss_memory_items WHERE id = 1;
        INSERT INTO vss_memory_items (id, scope, signs, vector) VALUES (77, 'shared', vec_bit(x'0000'), zeroblob(64))";
    file.execute_batch(damage).expect("works");
    let found = finding(&project);
    assert_eq!((&found["verdict"], &found["way_out"]), (&json!("warning"), &json!("posse memory reindex")));
    let message = found["message"].as_str().expect("words");
    let both = ["1 item cannot be found by their vectors", "vectors of 1 item are indexed"];
    assert!(both.iter().all(|part| message.contains(part)), "{message}");
    let asked = server.requests.load(SeqCst);
    project.posse(&["memory", "reindex"]).ok();
    assert_eq!(finding(&project)["verdict"], "ok");
    assert_eq!(server.requests.load(SeqCst), asked + 1, "its length is asked for, and no vector is made anew");
    assert_eq!(search(&project, "car")["items"][0]["text"], "an automobile");

    // An endpoint that is not there keeps nobody from finding words.
    project.write("config/posse.toml", "[embedder]\nbase_url = 'http://127.0.0.1:1/v1'\nmodel = 'one'\nretries = 0\n");
    let found = search(&project, "automobile");
    assert_eq!(found["items"][0]["text"], "an automobile");
    assert!(found["meaning"]["why_not"].as_str().is_some_and(|why| why.contains("127.0.0.1:1")), "{found}");
}

/// Cases M-3 and M-4: killed in the middle of another length.
#[test]
fn a_change_of_model_outlives_a_kill() {
    let server = EmbeddingServer::start();
    let project = Project::begun();
    project.write("config/posse.toml", server.settings("one") + "dimension = 384\n");
    let lines: String = (0..200).map(|n| format!("{{\"text\": \"automobile n{n}\"}}\n")).collect();
    project.posse_with(&["memory", "import", "-"], lines.as_bytes()).ok();
    assert_eq!(project.posse(&["memory", "reindex", "--json"]).ok().json()["embedded"], 200);
    project.write("config/posse.toml", server.settings("one") + "dimension = 256\n");
    server.silent_from.store(server.requests.load(SeqCst) + 3, SeqCst);
    let worker = Running::of(project.command(&["memory", "reindex"]));
    until("it is in the middle", || server.requests.load(SeqCst) > server.silent_from.load(SeqCst));
    drop(worker);
    server.silent_from.store(usize::MAX, SeqCst);
    let found = search(&project, "car");
    let left = found["meaning"]["words_alone"].as_u64().expect("a number");
    assert!((100..200).contains(&left), "{left}");
    assert_eq!(search(&project, "n77")["items"][0]["text"], "automobile n77", "words find all of them");
    let file = rusqlite::Connection::open(project.path().join(".posse/posse.db")).expect("opens");
    file.execute("DELETE FROM duties", []).expect("two minutes have passed");
    drop(file);
    let done = project.posse(&["memory", "reindex", "--json"]).ok().json();
    assert_eq!(
        (&done["embedded"], &done["without_vector"], &done["stray_vectors"]),
        (&json!(left), &json!(0), &json!(0))
    );
    project.write("config/posse.toml", server.settings("one") + "dimension = 384\n");
    assert_eq!(project.posse(&["memory", "reindex", "--json"]).ok().json()["embedded"], 200);
    assert_eq!(search(&project, "car")["meaning"]["words_alone"], 0);
    assert_eq!(finding(&project)["message"], "200 items remembered, with vectors of one");
}

/// A worker gives items their vectors while it is at work on something else, or on nothing.
#[test]
fn a_worker_gives_items_their_vectors_in_the_background() {
    let (server, model) = (EmbeddingServer::start(), ModelServer::start(Vec::new()));
    let project = Project::with_model(&model);
    project.write("config/posse.toml", server.settings("one"));
    let worker = project.start(&["work"]);
    project.posse(&["memory", "add", "an automobile"]).ok();
    until("it has a vector", || search(&project, "car")["items"][0]["text"] == "an automobile");
    worker.terminate();
    worker.wait();
}
