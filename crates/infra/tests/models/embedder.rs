//! An embedder behind an endpoint, against a real server on loopback.

use crate::support::model_server::{Answer, ModelServer, Received};
use posse_core::model::embedder::{Again, Embedder as _};
use posse_infra::model::embedder::{EmbedderOptions, EndpointEmbedder};
use posse_infra::model::openai::OpenAiConfig;
use posse_infra::model::secret::Secret;
use serde_json::{Value, json};
use std::time::Duration;

fn config(server: &ModelServer) -> OpenAiConfig {
    OpenAiConfig {
        api_key: Some(Secret::new("canary-key")),
        backoff: Duration::from_millis(1),
        retries: 2,
        ..OpenAiConfig::new("embedder", server.base_url(), "mock-embedding")
    }
}

fn embedder(server: &ModelServer, options: EmbedderOptions) -> EndpointEmbedder {
    EndpointEmbedder::new(config(server), options).expect("a usable configuration")
}

fn inputs(body: &Value) -> Vec<String> {
    serde_json::from_value(body["input"].clone()).expect("a list of texts")
}

/// For each text a vector that tells how long it is, the last one first.
fn by_length(body: &Value) -> Answer {
    let item = |(at, text): (usize, &String)| json!({"index": at, "embedding": [text.len(), 0, text.len()], "object": "embedding"});
    let data: Vec<_> = inputs(body).iter().enumerate().map(item).rev().collect();
    Answer::json(200, json!({"object": "list", "model": "mock", "data": data, "usage": {"prompt_tokens": 3}}))
}

async fn server(script: impl FnMut(&Value) -> Answer + Send + 'static) -> ModelServer {
    let server = ModelServer::play(vec![Answer::json(500, json!({}))]).await;
    server.embed(script);
    server
}

const HALF: f32 = std::f32::consts::FRAC_1_SQRT_2;

#[tokio::test]
async fn texts_go_in_batches_and_come_back_in_order_as_unit_vectors() {
    let server = server(by_length).await;
    let embedder = embedder(&server, EmbedderOptions { batch: 2, ..EmbedderOptions::default() });
    let vectors = embedder.embed(&["one", "", "three"]).await.expect("vectors");
    assert_eq!(vectors.len(), 3);
    assert!(vectors.iter().all(|v| (v[0] - HALF).abs() < 1e-6 && v[1] == 0.0), "{vectors:?}");
    let asked: Vec<_> = server.embedded().iter().map(inputs).collect();
    // No provider takes an empty text.
    assert_eq!(asked, [vec!["one", " "], vec!["three"]]);
    let profile = embedder.profile().await.expect("known by now");
    assert_eq!((&profile.space.model[..], profile.space.dimension), ("mock-embedding", 3));
    assert_eq!(server.embedded().len(), 2, "it was not asked again");
    assert!(server.received().iter().all(|r: &Received| r.headers["authorization"] == "Bearer canary-key"));
    assert!(embedder.embed(&[]).await.expect("nothing").is_empty());
}

#[tokio::test]
async fn a_dimension_is_asked_for_and_held_to() {
    let server = server(by_length).await;
    let options = EmbedderOptions { dimension: Some(4), ..EmbedderOptions::default() };
    let error = embedder(&server, options).embed(&["text"]).await.expect_err("of another length");
    assert_eq!((server.embedded()[0]["dimensions"].clone(), error.again), (json!(4), Again::Mended));
    assert!(error.message.contains("vectors of 3 numbers where there were 4"), "{error}");
}

#[tokio::test]
async fn what_is_too_long_is_sent_again_with_less_of_it() {
    let server = server(|body| match inputs(body).iter().any(|text| text.len() > 100) {
        true => Answer::json(
            400,
            json!({"error": {"message": "This model's maximum context length is 100 tokens",
            "type": "invalid_request_error", "code": "context_length_exceeded"}}),
        ),
        false => by_length(body),
    })
    .await;
    let long = "word ".repeat(60);
    let vectors = embedder(&server, EmbedderOptions::default()).embed(&["short", &long]).await.expect("vectors");
    assert_eq!(vectors.len(), 2);
    let lengths: Vec<Vec<usize>> =
        server.embedded().iter().map(|body| inputs(body).iter().map(String::len).collect()).collect();
    assert_eq!(lengths, [[5, 300], [5, 150], [5, 75]]);
}

#[tokio::test]
async fn a_failure_says_whether_to_try_again() {
    let said = |status: u16, message: &'static str| {
        Answer::json(status, json!({"error": {"message": message, "type": "x"}})).header("retry-after", "0")
    };
    // What the server answers each time, how often it is asked, and what is said at the end.
    type Expected = fn(Again) -> bool;
    let cases: [(Answer, usize, Expected); 5] = [
        (said(503, "busy"), 3, |again| matches!(again, Again::Later { .. })),
        (said(429, "slow down"), 3, |again| again == Again::Later { after: Some(Duration::ZERO) }),
        (said(401, "the key canary-key is wrong"), 1, |again| again == Again::Mended),
        (said(404, "no such model"), 1, |again| again == Again::Mended),
        (said(400, "input is not allowed"), 1, |again| again == Again::Never),
    ];
    for (answer, tries, is_expected) in cases {
        let server = server(move |_| answer.clone()).await;
        let error =
            embedder(&server, EmbedderOptions::default()).embed(&["secret diary"]).await.expect_err("a failure");
        assert!(is_expected(error.again), "{error:?}");
        assert_eq!(server.embedded().len(), tries, "{error}");
        assert!(error.message.starts_with("model mock-embedding at http://127.0.0.1:"), "{error}");
        assert!(!error.message.contains("canary-key") && !error.message.contains("diary"), "{error}");
    }
}

#[tokio::test]
async fn an_answer_of_another_form_is_no_answer() {
    let of = |data: Value| Answer::json(200, json!({ "data": data }));
    let cases = [
        (of(json!([])), "answered with 0 vectors where 2 were to come"),
        (of(json!([{"index": 0, "embedding": [1]}, {"index": 0, "embedding": [1]}])), "answered with 2 vectors where"),
        (of(json!([{"index": 0, "embedding": [1]}, {"index": 9, "embedding": [1]}])), "answered with 2 vectors where"),
        (of(json!([{"embedding": [0.0]}, {"embedding": [1.0]}])), "a vector of nothing but zeros"),
        (Answer::json(200, json!({"vectors": [[1, 2]]})), "its answer has no list of embeddings"),
        (Answer::json(200, json!({"error": {"message": "out of memory"}})), "out of memory"),
        (Answer::new(200, "text/html", "<html>moved</html>"), "moved"),
    ];
    for (answer, words) in cases {
        let server = server(move |_| answer.clone()).await;
        let error = embedder(&server, EmbedderOptions::default()).embed(&["a", "b"]).await.expect_err("a failure");
        assert!(error.message.contains(words) && matches!(error.again, Again::Later { .. }), "{error:?}");
    }
    // One without indices is in order.
    let server = server(move |_| of(json!([{"embedding": [0, 2]}, {"embedding": [3, 0]}]))).await;
    let vectors = embedder(&server, EmbedderOptions::default()).embed(&["a", "b"]).await.expect("vectors");
    assert_eq!(vectors, [[0.0, 1.0], [1.0, 0.0]]);
}

#[tokio::test]
async fn only_an_address_can_be_asked() {
    let config = OpenAiConfig::new("embedder", "ftp://example.org/v1", "m");
    let error = EndpointEmbedder::new(config, EmbedderOptions::default()).err().expect("no address");
    assert_eq!(error.again, Again::Mended);
    assert!(error.message.contains("neither http nor https"), "{error}");
}
