//! What failures mean: their kind, the words for people, and what a person is told to do.

use super::*;
use posse_core::model::ModelErrorKind;
use posse_infra::model::secret::Secret;

#[tokio::test]
async fn b09_an_error_in_a_200_is_an_error() {
    let server = ModelServer::play(vec![Answer::file("B09-error-in-200.json"), Answer::file("B00-final.json")]).await;
    let mut config = config(&server);
    config.stream = false;
    config.retries = 0;
    let error = ask(&model(config.clone()), &request()).await.expect_err("no retries");
    assert_eq!(error.kind, ModelErrorKind::RateLimited);
    assert_eq!(error.retry_after, Some(Duration::from_secs(2)));
    assert!(error.message.contains("Quota for this minute is used up"), "{}", error.message);
    assert_eq!(error.failed_tries[0].usage.total(), 0, "a refusal costs nothing");

    let reply = ask(&model(config), &request()).await.expect("the second answer is a reply");
    assert_eq!(reply.text, "FINAL-OK");
}

#[tokio::test]
async fn b11_a_failed_tool_call_is_its_own_kind_and_not_retried() {
    let server = ModelServer::play(vec![Answer::file("B11-tool_use_failed.json").status(400)]).await;
    let error = ask(&model(config(&server)), &request()).await.expect_err("an error");
    assert_eq!(error.kind, ModelErrorKind::InvalidToolCall);
    assert!(error.message.contains("<function=files_read"), "{}", error.message);
    assert_eq!(server.chats().len(), 1);
}

#[tokio::test]
async fn b19_a_refused_id_is_not_retried() {
    let server = ModelServer::play(vec![Answer::file("B19-id-shape-400.json").status(400)]).await;
    let error = ask(&model(config(&server)), &request()).await.expect_err("an error");
    assert_eq!(error.kind, ModelErrorKind::Rejected);
    assert!(error.message.contains("ids here are exactly 9 letters or digits"), "{}", error.message);
    assert_eq!(server.chats().len(), 1);
}

#[tokio::test]
async fn an_empty_account_is_not_retried() {
    let body = json!({"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}});
    let server = ModelServer::play(vec![Answer::json(429, body)]).await;
    let error = ask(&model(config(&server)), &request()).await.expect_err("an error");
    assert_eq!(error.kind, ModelErrorKind::OutOfCredit);
    assert!(error.message.contains("billing"), "{}", error.message);
    assert_eq!(server.chats().len(), 1);
}

#[tokio::test]
async fn a_conversation_that_is_too_long_says_the_window() {
    let body = json!({"error": {"code": 400, "type": "exceed_context_size_error",
        "message": "the request exceeds the available context size", "n_ctx": 4096}});
    let server = ModelServer::play(vec![Answer::json(400, body)]).await;
    let error = ask(&model(config(&server)), &request()).await.expect_err("an error");
    assert_eq!((error.kind, error.context_window), (ModelErrorKind::ContextOverflow, Some(4096)));
    assert_eq!(server.chats().len(), 1);
}

#[tokio::test]
async fn a_key_is_shown_nowhere() {
    let echo = refused(401, "Incorrect API key provided: sk-canary-123. Header canary-header-9.");
    let server = ModelServer::play(vec![echo]).await;
    let mut config = config(&server);
    config.api_key = Some(Secret::new("sk-canary-123"));
    config.headers = vec![("x-key".to_owned(), Secret::new("canary-header-9"))];
    let model = model(config);
    let error = ask(&model, &request()).await.expect_err("an error");
    assert_eq!(error.kind, ModelErrorKind::Unauthorized);
    assert!(error.message.contains("OPENAI_API_KEY"), "{}", error.message);
    let shown = format!("{model:?} {error:?} {error}");
    assert!(!shown.contains("canary"), "{shown}");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = ModelServer::play(vec![Answer::file("B00-final.sse")]).await;
    let target = format!("{}/chat/completions", elsewhere.base_url());
    let moved = Answer::new(307, "text/html", "moved").header("location", &target);
    let server = ModelServer::play(vec![moved]).await;
    let mut config = config(&server);
    config.api_key = Some(Secret::new("sk-canary-123"));
    let error = ask(&model(config), &request()).await.expect_err("an error");
    assert_eq!(error.kind, ModelErrorKind::WorkerUnfit);
    assert!(error.message.contains(&target), "{}", error.message);
    assert!(elsewhere.received().is_empty(), "the key stays here");
}

#[tokio::test]
async fn an_endpoint_that_is_not_there_is_said_to_be_unreachable() {
    let server = ModelServer::play(vec![Answer::file("B00-final.sse")]).await;
    let mut config = config(&server);
    drop(server);
    config.retries = 1;
    let error = ask(&model(config), &request()).await.expect_err("an error");
    assert_eq!((error.kind, error.failed_tries.len()), (ModelErrorKind::Unreachable, 2));
    assert!(error.message.contains("could not be reached"), "{}", error.message);
}

#[test]
fn a_configuration_that_cannot_work_is_refused_at_once() {
    for (url, header) in [("not a url", "x-ok"), ("ftp://127.0.0.1/v1", "x-ok"), ("http://127.0.0.1/v1", "not ok")] {
        let mut config = OpenAiConfig::new("default", url, "m");
        config.headers = vec![(header.to_owned(), Secret::new("v"))];
        let error = OpenAiModel::new(config).expect_err("refused");
        assert_eq!(error.kind, ModelErrorKind::WorkerUnfit);
        assert!(error.message.contains("model default cannot be used"), "{}", error.message);
    }
}

#[tokio::test]
async fn the_table() {
    use ModelErrorKind::*;
    for (status, body, kind) in [
        (401, r#"{"error":{"message":"Incorrect API key","code":"invalid_api_key"}}"#, Unauthorized),
        (403, "", Unauthorized),
        (402, "", OutOfCredit),
        (404, r#"{"error":{"message":"no such model","code":"model_not_found"}}"#, WorkerUnfit),
        (404, "<html>Not Found</html>", WorkerUnfit),
        (404, r#"{"error":{"message":"No endpoints found that support tool use","code":404}}"#, Rejected),
        (400, r#"{"error":{"message":"x/y is not a valid model ID","code":400}}"#, WorkerUnfit),
        (403, r#"{"error":{"message":"Insufficient balance"}}"#, OutOfCredit),
        (408, "", Transient),
        (409, "", Transient),
        (425, "", Transient),
        (429, "slow down", RateLimited),
        (429, r#"{"error":{"message":"x","code":"insufficient_quota"}}"#, OutOfCredit),
        (429, r#"{"error":{"message":"You exceeded your current quota, please check"}}"#, OutOfCredit),
        (429, r#"{"error":{"message":"You exceeded your current quota. Please retry in 34s."}}"#, RateLimited),
        (500, "<html>oops</html>", Transient),
        (503, r#"{"error":{"message":"Loading model","code":503}}"#, Transient),
        (529, r#"{"error":{"type":"overloaded_error","message":"Overloaded"}}"#, Transient),
        (400, r#"{"error":{"message":"bad","code":400}}"#, Rejected),
        (400, r#"{"error":{"message":"Could not","code":"tool_use_failed"}}"#, InvalidToolCall),
        (400, r#"{"message":"Too many tokens, please wait before trying again."}"#, RateLimited),
        (422, r#"{"detail":[{"msg":"field required"}]}"#, Rejected),
        (413, r#"{"error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#, Rejected),
        (
            400,
            r#"{"object":"error","message":"bad tool call id 'call_x': ids here are exactly 9 letters or digits","type":"invalid_function_call","code":"3280"}"#,
            Rejected,
        ),
        (302, "", WorkerUnfit),
    ] {
        assert_eq!(failure(status, body).await.kind, kind, "{status} {body}");
    }
}

#[tokio::test]
async fn errors_inside_a_200() {
    use ModelErrorKind::*;
    for (body, kind) in [
        (r#"{"error":{"message":"m","type":"rate_limit","code":"429"}}"#, RateLimited),
        (r#"{"error":{"message":"m","code":502}}"#, Transient),
        (r#"{"error":{"message":"m","type":"server_error"}}"#, Transient),
        (r#"{"error":{"message":"m","type":"invalid_request_error"}}"#, Rejected),
        (r#"{"error":{"message":"m","code":"tool_use_failed"}}"#, InvalidToolCall),
        (r#"{"error":{"message":"m","code":"context_length_exceeded"}}"#, ContextOverflow),
        (r#"{"error":"try again in 2s"}"#, RateLimited),
        (r#"{"error":"connection reset"}"#, Transient),
    ] {
        assert_eq!(failure(200, body).await.kind, kind, "{body}");
    }
}

#[tokio::test]
async fn every_shape_of_an_error_is_read() {
    for (body, message) in [
        (r#"{"error":{"message":"m","type":"t","code":"c"}}"#, "m"),
        (r#"{"error":{"message":"m","type":"t","code":400}}"#, "m"),
        (r#"{"error":"text"}"#, "text"),
        (r#"{"object":"error","message":"m","type":"t","code":"3280"}"#, "m"),
        (r#"{"detail":"not found"}"#, "not found"),
        (r#"{"detail":[{"loc":["body","x"],"msg":"a","type":"b"}]}"#, "a"),
        (r#"[{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}}]"#, "m"),
        (r#"{"message":"m"}"#, "m"),
        (r#"{"error":{"message":"m","code":502,"metadata":{"raw":"up"}}}"#, "m (up)"),
        (r#"{"error":{"odd":1}}"#, r#"{"odd":1}"#),
        ("<html><style>p {x: y}</style><h1>502 Bad</h1><p>Gateway</p></html>", "502 Bad Gateway"),
        ("upstream down", "upstream down"),
    ] {
        let said = failure(422, body).await.message;
        assert!(said.ends_with(&format!("answered 422: {message}")), "{body}: {said}");
    }
    let said = failure(422, "").await.message;
    assert!(said.ends_with("answered 422 with no explanation"), "{said}");
}

#[tokio::test]
async fn type_and_code_are_read_in_every_shape() {
    use ModelErrorKind::*;
    for (body, kind) in [
        (r#"{"error":{"message":"m","type":"insufficient_quota"}}"#, OutOfCredit),
        (r#"{"error":{"message":"m","code":"insufficient_quota"}}"#, OutOfCredit),
        (r#"{"object":"error","message":"m","type":"insufficient_quota","code":"3280"}"#, OutOfCredit),
        (r#"{"object":"error","message":"m","type":"t","code":"tool_use_failed"}"#, InvalidToolCall),
        (r#"[{"error":{"code":400,"message":"m","status":"RESOURCE_EXHAUSTED"}}]"#, RateLimited),
        (r#"{"detail":[{"loc":["body","x"],"msg":"a","type":"insufficient_quota"}]}"#, Rejected),
    ] {
        assert_eq!(failure(400, body).await.kind, kind, "{body}");
    }
    // In place of the status that should have been sent.
    assert_eq!(failure(200, r#"{"error":{"message":"m","code":400}}"#).await.kind, Rejected);
}

#[tokio::test]
async fn a_reply_is_not_an_error() {
    for body in [
        r#"{"choices":[{"message":{"content":"hi"}}],"error":null}"#,
        r#"{"choices":[{"message":{"content":"hi"}}],"error":{}}"#,
        r#"{"choices":[{"message":{"content":"hi"}}],"detail":"x"}"#,
    ] {
        let reply = outcome(Answer::new(200, "application/json", body)).await.expect("a reply");
        assert_eq!(reply.text, "hi", "{body}");
    }
    let said = failure(200, r#"{"choices":[],"usage":{}}"#).await.message;
    assert!(said.ends_with("no choice in it"), "no fault, and no reply: {said}");
}

#[tokio::test]
async fn a_sentence_says_what_to_do_and_is_short() {
    let server = ModelServer::play(vec![refused(401, "Incorrect API key")]).await;
    let error = ask(&model(config(&server)), &request()).await.expect_err("an error");
    assert_eq!(
        error.message,
        format!(
            "model mock-1 at {} answered 401: Incorrect API key (set OPENAI_API_KEY, or api_key_env for this model in \
             config/posse.toml, to a valid key)",
            server.base_url()
        )
    );
    assert!(failure(500, "ä".repeat(5000)).await.message.chars().count() < 750);
}

#[test]
fn nothing_secret_is_shown() {
    let mut config = OpenAiConfig::new("n", "https://u:canary@host/v1/?k=canary", "m");
    assert_eq!(config.endpoint(), "https://host/v1");
    config.base_url = "https://host/v1".to_owned();
    config.api_key = Some(Secret::new("canary"));
    config.headers = vec![("x-key".to_owned(), Secret::new("canary"))];
    assert!(!format!("{config:?}").contains("canary"));

    let secret = Secret::new(" sk-canary-1\n");
    assert_eq!(secret.expose(), "sk-canary-1");
    assert_eq!(format!("{secret:?} {:#?}", Some(&secret)).matches("canary").count(), 0);
    assert_eq!(secret.strike("bad key sk-canary-1!"), "bad key [secret]!");
    assert_eq!(Secret::new("a").strike("a b a"), "a b a");
}
