//! Tokens counted by the server that runs a model, against a real server on loopback, and by a file.

use crate::support::model_server::{self, Answer, ModelServer};
use async_trait::async_trait;
use posse_core::model::{Model, TokenCounter};
use posse_infra::model::openai::{OpenAiConfig, OpenAiModel, TokenizerChoice, ToolCallingChoice};
use posse_infra::model::secret::Secret;
use posse_infra::model::tokenizer::{PATIENCE, PatientCounter, Tokenizer};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

async fn server() -> ModelServer {
    ModelServer::play(vec![Answer::file("B00-final.sse")]).await
}

fn config(base_url: &str) -> OpenAiConfig {
    OpenAiConfig {
        tokenizer: TokenizerChoice::Server,
        tool_calling: ToolCallingChoice::Native,
        api_key: Some(Secret::new("canary-key")),
        ..OpenAiConfig::new("default", base_url, "mock-1")
    }
}

fn tokenizer(config: OpenAiConfig) -> Arc<dyn TokenCounter> {
    OpenAiModel::new(config).expect("a usable configuration").tokenizer().expect("it has one")
}

fn words(body: &Value, key: &str) -> usize {
    body[key].as_str().expect("a text").split_whitespace().count()
}

#[tokio::test]
async fn each_servers_form_is_understood() {
    type Form = fn(&Value) -> Value;
    let forms: [Form; 3] = [
        // llama.cpp, with and without the texts of its tokens.
        |body| json!({"tokens": vec![7; words(body, "content")]}),
        |body| json!({"tokens": vec![json!({"id": 7, "piece": "x"}); words(body, "content")]}),
        // vLLM, which begins a text with a special token unless it is told not to.
        |body| {
            let special = usize::from(body["add_special_tokens"] != false);
            assert_eq!(body["model"], "mock-1");
            json!({"count": words(body, "prompt") + special, "max_model_len": 4096, "tokens": [1, 2]})
        },
    ];
    for form in forms {
        let server = server().await;
        server.tokenize(move |body| Answer::json(200, form(body)));
        let counter = tokenizer(config(&server.base_url()));
        assert_eq!(counter.count(&["one two", "", "three"]).await, Some(vec![2, 0, 1]));
        assert_eq!(counter.count(&["three", "four five six", "three"]).await, Some(vec![1, 3, 1]));
        let asked: Vec<_> = server.tokenized().into_iter().map(|body| body["content"].clone()).collect();
        assert_eq!(asked.len(), 3, "each text once: {asked:?}");
        let with_key = |r: &model_server::Received| r.headers["authorization"] == "Bearer canary-key";
        assert!(server.received().iter().all(with_key));
    }
}

#[tokio::test]
async fn it_stands_beside_v1() {
    let server = server().await;
    server.tokenize(|_| Answer::json(200, json!({"count": 3})));
    let root = server.base_url().trim_end_matches("/v1").to_owned();
    for base in [root.clone(), format!("{root}/v1"), format!("{root}/v1/")] {
        assert_eq!(tokenizer(config(&base)).count(&["a b c"]).await, Some(vec![3]), "{base}");
    }
    let path = format!("{root}/llm/v1?key=1");
    assert_eq!(tokenizer(config(&path)).count(&["a"]).await, None, "there is nothing");
    assert_eq!(server.received().last().expect("asked").line, "POST /llm/tokenize?key=1 HTTP/1.1");
}

#[tokio::test]
async fn one_that_does_not_answer_is_no_error_and_is_left_alone() {
    let answers: [fn() -> Answer; 5] = [
        || Answer::json(404, json!({"detail": "Not Found"})),
        || Answer::json(500, json!({"error": "canary-key"})),
        || Answer::json(200, json!({"length": 3})),
        || Answer::json(200, json!([1, 2])),
        || Answer::json(200, json!({})).holding(),
    ];
    for answer in answers {
        let server = server().await;
        server.tokenize(move |_| answer());
        let counter = tokenizer(config(&server.base_url()));
        assert_eq!(counter.count(&["one"]).await, None);
        assert_eq!(counter.count(&["two"]).await, None);
        assert_eq!(server.tokenized().len(), 1, "it rests");
    }
    let nobody = tokenizer(config("http://127.0.0.1:1/v1"));
    assert_eq!(nobody.count(&["one"]).await, None);
}

#[test]
fn without_being_told_there_is_none() {
    let plain = OpenAiConfig { tokenizer: TokenizerChoice::None, ..config("http://127.0.0.1:1/v1") };
    assert!(OpenAiModel::new(plain).expect("a usable configuration").tokenizer().is_none());
}

/// Three words and their letters, as a file that a model would be published with.
const FILE: &str = r#"{
  "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
  "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\s+(?!\\S)|\\w+|."}, "behavior": "Isolated", "invert": false},
  "post_processor": null, "decoder": null,
  "model": {
    "type": "BPE", "dropout": null, "unk_token": "?", "continuing_subword_prefix": null, "end_of_word_suffix": null,
    "fuse_unk": false, "byte_fallback": false,
    "vocab": {"?": 0, "a": 1, "s": 2, "h": 3, "i": 4, "p": 5, " ": 6, "sh": 7, "ip": 8, "ship": 9},
    "merges": [["s", "h"], ["i", "p"], ["sh", "ip"]]
  }
}"#;

#[tokio::test]
async fn a_file_counts_where_the_program_can_read_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, FILE).expect("written");
    let at = |path| OpenAiConfig { tokenizer: TokenizerChoice::File(path), ..config("http://127.0.0.1:1/v1") };
    if !cfg!(feature = "tokenizer-files") {
        let refused = OpenAiModel::new(at(path)).expect_err("it cannot").message;
        assert!(refused.contains("tokenizer.json; build it with cargo build"), "{refused}");
        return;
    }
    let counter = tokenizer(at(path.clone()));
    assert_eq!(counter.count(&["a ship", "ships", "ha", "é"]).await, Some(vec![3, 2, 2, 1]));

    let gone = OpenAiModel::new(at(folder.path().join("gone.json"))).expect_err("no file").message;
    assert!(gone.contains("gone.json is no file; write \"server\" or the path"), "{gone}");
    std::fs::write(&path, "{}").expect("written");
    let damaged = tokenizer(at(path));
    assert_eq!(damaged.count(&["a ship"]).await, None, "estimates have to do");
}

/// How long one that failed is left alone.
const REST: Duration = Duration::from_secs(60);

/// Most bytes that are counted as one text.
const MAX_BYTES: usize = 256 << 10;

/// Counts words; fails, or says nothing, at the words that say so.
#[derive(Clone, Default)]
struct Words(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl Tokenizer for Words {
    async fn count(&self, text: &str) -> Result<u64, String> {
        self.0.lock().expect("not poisoned").push(text.to_owned());
        match text {
            "fail" => Err("it is away".into()),
            "hang" => std::future::pending().await,
            text => Ok(text.split_whitespace().count() as u64),
        }
    }
}

impl Words {
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("not poisoned"))
    }
}

fn patient() -> (PatientCounter<Words>, Words) {
    let words = Words::default();
    (PatientCounter::new(words.clone(), "m", PATIENCE), words)
}

#[tokio::test(start_paused = true)]
async fn only_new_texts_are_asked_for() {
    let (counter, words) = patient();
    assert_eq!(counter.count(&["one two", "", "three"]).await, Some(vec![2, 0, 1]));
    assert_eq!(words.asked().len(), 2, "nothing is asked of an empty text");
    assert_eq!(counter.count(&["three", "four five six", "one two"]).await, Some(vec![1, 3, 2]));
    assert_eq!(words.asked(), ["four five six"]);
}

#[tokio::test(start_paused = true)]
async fn one_that_fails_is_left_alone_for_a_while() {
    let (counter, words) = patient();
    assert_eq!(counter.count(&["one"]).await, Some(vec![1]));
    assert_eq!(counter.count(&["one", "fail"]).await, None);
    words.asked();
    assert_eq!(counter.count(&["two"]).await, None, "it rests");
    assert_eq!(counter.count(&["one"]).await, Some(vec![1]), "what is known is known");
    assert_eq!(words.asked(), Vec::<String>::new());
    tokio::time::advance(REST).await;
    assert_eq!(counter.count(&["two"]).await, Some(vec![1]));
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_long_and_what_came_in_time_is_kept() {
    let (counter, words) = patient();
    let begun = Instant::now();
    assert_eq!(counter.count(&["one", "hang", "two"]).await, None);
    assert_eq!(begun.elapsed(), PATIENCE);
    words.asked();
    tokio::time::advance(REST).await;
    assert_eq!(counter.count(&["two", "one"]).await, Some(vec![1, 1]));
    assert_eq!(words.asked(), Vec::<String>::new());
}

#[tokio::test]
async fn a_long_text_is_counted_in_pieces() {
    struct Pieces(Arc<AtomicUsize>);
    #[async_trait]
    impl Tokenizer for Pieces {
        async fn count(&self, text: &str) -> Result<u64, String> {
            assert!(text.len() <= MAX_BYTES);
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(text.chars().count() as u64)
        }
    }
    // Characters of three bytes: none is cut.
    let text = "港".repeat(MAX_BYTES);
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = PatientCounter::new(Pieces(Arc::clone(&asked)), "m", PATIENCE);
    assert_eq!(counter.count(&[&text]).await, Some(vec![MAX_BYTES as u64]));
    assert!(asked.load(Ordering::Relaxed) <= 2, "the same piece is asked for once");
}

#[tokio::test(start_paused = true)]
async fn what_was_counted_long_ago_is_asked_for_again() {
    let (counter, words) = patient();
    let texts: Vec<String> = (0..3 * 4096).map(|n| n.to_string()).collect();
    for text in &texts {
        assert_eq!(counter.count(&[text]).await, Some(vec![1]));
    }
    words.asked();
    let (first, last) = (texts[0].as_str(), texts[texts.len() - 1].as_str());
    assert_eq!(counter.count(&[first, last]).await, Some(vec![1, 1]));
    assert_eq!(words.asked(), [first]);
}
