//! The model that plays a script.

use posse_core::model::*;
use posse_core::stop::{Stop, StopReason, stop_pair};
use posse_testing::scripted::{Play, ScriptedModel, text_reply};
use serde_json::json;

fn request() -> ModelRequest {
    ModelRequest { messages: vec![Message::User { text: "hi".to_owned() }].into(), ..ModelRequest::default() }
}

async fn ask(model: &dyn Model) -> Result<ModelReply, ModelError> {
    model.complete(&request(), &|_| {}, &Stop::never()).await
}

#[tokio::test]
async fn a_script_is_played_and_remembered() {
    let model = ScriptedModel::new()
        .call(&[("files_read", json!({"path": "a"})), ("files_read", json!({"path": "b"}))])
        .respond(|request| Play::Reply(text_reply(&format!("{} messages", request.messages.len()))))
        .forever(|_| Play::Reply(text_reply("again")));
    let reply = ask(&model).await.expect("a reply");
    assert_eq!(reply.finish, Finish::ToolCalls);
    assert_ne!(reply.calls[0].id, reply.calls[1].id);
    for expected in ["1 messages", "again", "again"] {
        assert_eq!(ask(&model).await.expect("a reply").text, expected);
    }
    assert_eq!((model.asked(), model.requests().len()), (4, 4));
    model.assert_clean();
}

#[tokio::test]
async fn a_script_hangs_until_it_is_stopped() {
    let model = ScriptedModel::new().hang();
    let (stopper, stop) = stop_pair();
    let request = request();
    let (ended, ()) = tokio::join!(model.complete(&request, &|_| {}, &stop), async {
        tokio::task::yield_now().await;
        stopper.stop(StopReason::Shutdown);
    });
    assert_eq!(ended.expect_err("stopped").kind, ModelErrorKind::Stopped);
}

#[tokio::test]
async fn a_bad_request_is_refused_and_remembered() {
    let model = ScriptedModel::new().say("never said");
    let orphan = Message::Tool { call_id: "x".to_owned(), name: "f".to_owned(), text: "r".to_owned() };
    let request = ModelRequest { messages: vec![orphan].into(), ..ModelRequest::default() };
    let error = model.complete(&request, &|_| {}, &Stop::never()).await.expect_err("refused");
    assert_eq!(error.kind, ModelErrorKind::Rejected);
    assert_eq!(model.violations(), [r#"request 1, message 0: the result for "x" answers no open call"#]);
}

#[tokio::test]
#[should_panic(expected = "nobody looked")]
async fn a_bad_request_nobody_looked_at_fails_the_test() {
    let model = ScriptedModel::new();
    let _ = ask(&model).await;
}
