//! Two models as one.

use posse_core::model::*;
use posse_core::stop::Stop;
use posse_infra::model::fallback::FallbackModel;
use posse_testing::scripted::{Play, ScriptedModel, text_reply};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn request() -> ModelRequest {
    ModelRequest { messages: vec![Message::User { text: "hi".to_owned() }].into(), ..ModelRequest::default() }
}

async fn ask(model: &dyn Model) -> Result<ModelReply, ModelError> {
    model.complete(&request(), &|_| {}, &Stop::never()).await
}

fn failing(kind: ModelErrorKind, tries: &[&str]) -> ScriptedModel {
    let failed_try = |reason: &&str| FailedTry {
        model: "first".to_owned(),
        reason: (*reason).to_owned(),
        usage: Usage { input: 7, ..Usage::default() },
    };
    ScriptedModel::new().play(Play::Fail(ModelError {
        kind,
        message: "the first failed".to_owned(),
        retry_after: Some(Duration::from_secs(9)),
        context_window: None,
        failed_tries: tries.iter().map(failed_try).collect(),
    }))
}

fn pair(primary: ScriptedModel, fallback: ScriptedModel) -> (FallbackModel, Arc<ScriptedModel>) {
    let fallback = Arc::new(fallback);
    (FallbackModel::new(Arc::new(primary), fallback.clone()), fallback)
}

fn profiled(tool_calling: ToolCalling, context_window: Option<u32>) -> ScriptedModel {
    ScriptedModel::new().with_profile(ModelProfile {
        name: "n".to_owned(),
        model: "m".to_owned(),
        tool_calling,
        context_window,
    })
}

#[tokio::test]
async fn the_fallback_answers_where_the_first_cannot() {
    use ModelErrorKind::*;
    for kind in [Transient, RateLimited, Unauthorized, Rejected] {
        let (model, fallback) = pair(failing(kind, &["one", "two"]), ScriptedModel::new().say("second"));
        let deltas = Mutex::new(Vec::new());
        let sink = |delta| deltas.lock().expect("not poisoned").push(delta);
        let reply = model.complete(&request(), &sink, &Stop::never()).await.expect("a reply");
        assert_eq!(reply.text, "second");
        let reasons: Vec<_> = reply.failed_tries.iter().map(|f| f.reason.as_str()).collect();
        assert_eq!(reasons, ["one", "two"], "what the first cost is kept");
        let deltas = deltas.into_inner().expect("not poisoned");
        assert!(matches!(&deltas[0], Delta::Restarted(failed) if failed.reason == "two"));
        fallback.assert_clean();
    }
}

#[tokio::test]
async fn what_no_other_model_helps_with_stays() {
    use ModelErrorKind::*;
    for kind in [ContextOverflow, InvalidToolCall, Stopped] {
        let (model, fallback) = pair(failing(kind, &["one"]), ScriptedModel::new());
        assert_eq!(ask(&model).await.expect_err("an error").kind, kind);
        assert_eq!(fallback.asked(), 0);
    }
    let refusal = ModelReply { refusal: Some("no".to_owned()), ..text_reply("") };
    let (model, fallback) = pair(ScriptedModel::new().reply(refusal), ScriptedModel::new());
    assert_eq!(ask(&model).await.expect("a reply").refusal.as_deref(), Some("no"));
    assert_eq!(fallback.asked(), 0);
}

#[tokio::test]
async fn when_both_fail_the_way_forward_is_told() {
    use ModelErrorKind::*;
    for (first, second, expected) in [
        (RateLimited, Unauthorized, RateLimited),
        (Unauthorized, Transient, Transient),
        (Unauthorized, Rejected, Rejected),
        (Transient, ContextOverflow, ContextOverflow),
        (Transient, Stopped, Stopped),
    ] {
        let (model, _) = pair(failing(first, &["one"]), ScriptedModel::new().fail(second, "so did this"));
        let error = ask(&model).await.expect_err("an error");
        assert_eq!(error.kind, expected, "{first:?} {second:?}");
        assert_eq!(error.message, "the first failed; its fallback failed too: so did this");
        assert_eq!(error.retry_after, Some(Duration::from_secs(9)));
        assert_eq!(error.failed_tries.len(), 1);
    }
}

#[tokio::test]
async fn a_pair_asks_for_tools_in_the_way_both_know() {
    use ToolCalling::*;
    for (first, second, expected) in
        [(Native, Native, Native), (Native, Structured, Structured), (Structured, Structured, Structured)]
    {
        let (model, _) = pair(profiled(first, Some(8000)), profiled(second, Some(4000)));
        let profile = model.profile().await.expect("a profile");
        assert_eq!((profile.tool_calling, profile.context_window), (expected, Some(4000)));
    }
}
