//! How a model is asked for tools and how large its window is: found out from the cheapest source that knows.

use super::*;
use posse_core::model::{ModelErrorKind, ToolCalling};

#[tokio::test]
async fn the_profile_is_asked_of_the_list_first() {
    let models = json!({"data": [{"id": "mock-1", "context_window": 4096,
        "posse": {"tool_calling": "structured"}}]});
    let server = ModelServer::start(Some(models), |_| Answer::file("B00-final.sse")).await;
    let model = model(OpenAiConfig { tool_calling: ToolCallingChoice::Auto, ..config(&server) });
    for _ in 0..2 {
        let profile = model.profile().await.expect("a profile");
        assert_eq!(profile.tool_calling, ToolCalling::Structured);
        assert_eq!(profile.context_window, Some(4096));
    }
    assert_eq!(server.received().len(), 1, "asked once, and no chat");
}

#[tokio::test]
async fn the_profile_is_asked_of_the_model_last() {
    let call = json!({"choices": [{"message": {"tool_calls": [{"id": "x", "type": "function",
        "function": {"name": "report_ready", "arguments": "{\"ready\":true}"}}]}, "finish_reason": "tool_calls"}]});
    let prose = json!({"choices": [{"message": {"content": "I am ready."}, "finish_reason": "stop"}]});
    for (answer, expected) in [
        (Answer::json(200, call), ToolCalling::Native),
        (Answer::json(200, prose), ToolCalling::Structured),
        (refused(400, "this server knows no tools"), ToolCalling::Structured),
        (Answer::file("B11-tool_use_failed.json").status(400), ToolCalling::Structured),
    ] {
        let server = ModelServer::start(None, move |body| match body["tool_choice"].as_str() {
            Some("auto") => answer.clone(),
            _ => refused(400, "tool_choice must be auto"),
        })
        .await;
        let model = model(OpenAiConfig { tool_calling: ToolCallingChoice::Auto, ..config(&server) });
        assert_eq!(model.profile().await.expect("a profile").tool_calling, expected);
        let asked = server.received().len();
        model.profile().await.expect("a profile");
        assert_eq!(server.received().len(), asked, "kept");
    }
}

#[tokio::test]
async fn a_profile_that_cannot_be_asked_for_is_an_error_and_not_kept() {
    let mut first = true;
    let server = ModelServer::start(None, move |_| {
        if std::mem::take(&mut first) { refused(401, "no key") } else { Answer::file("B00-final.json") }
    })
    .await;
    let model = model(OpenAiConfig { tool_calling: ToolCallingChoice::Auto, ..config(&server) });
    let error = model.profile().await.expect_err("no key");
    assert_eq!(error.kind, ModelErrorKind::Unauthorized);
    let profile = model.profile().await.expect("a profile");
    assert_eq!(profile.tool_calling, ToolCalling::Structured);
}

#[tokio::test]
async fn what_a_list_of_models_tells_of_each() {
    let list = json!({"data": [
        {"id": "a", "max_model_len": 4096},
        {"id": "b", "context_window": 8192, "posse": {"tool_calling": "structured"}},
        {"id": "c", "meta": {"n_ctx_train": 131_072}},
        7,
    ]});
    let server = ModelServer::start(Some(list), |_| Answer::file("B00-final.json")).await;
    for (name, choice, window, calling) in [
        ("a", ToolCallingChoice::Native, Some(4096), ToolCalling::Native),
        ("b", ToolCallingChoice::Auto, Some(8192), ToolCalling::Structured),
        ("b", ToolCallingChoice::Native, Some(8192), ToolCalling::Native),
        ("c", ToolCallingChoice::Native, None, ToolCalling::Native),
        ("d", ToolCallingChoice::Native, None, ToolCalling::Native),
        // It says nothing of tools, so it is asked, and makes no call.
        ("a", ToolCallingChoice::Auto, Some(4096), ToolCalling::Structured),
    ] {
        let config = OpenAiConfig { model: name.to_owned(), tool_calling: choice, ..config(&server) };
        let profile = model(config).profile().await.expect("a profile");
        assert_eq!((profile.context_window, profile.tool_calling), (window, calling), "{name} {choice:?}");
    }
}

#[tokio::test]
async fn what_is_known_of_a_host_is_not_asked() {
    let known = OpenAiConfig { context_window: Some(1), ..OpenAiConfig::new("n", "https://API.openai.com/v1", "m") };
    assert_eq!(model(known).profile().await.expect("no request").tool_calling, ToolCalling::Native);
}
