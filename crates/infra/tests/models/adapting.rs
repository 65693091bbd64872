//! What a refused request teaches: the next one is sent in another way, and stays so.

use super::*;
use posse_core::model::conversation::ReasoningBack;

/// A request in which every field is set that a server may refuse.
fn full() -> ModelRequest {
    ModelRequest {
        messages: vec![user("u"), says("a"), user("v")].into(),
        schema: Some(json!({"type": "object"})),
        max_tokens: Some(1),
        temperature: Some(0.0),
        ..ModelRequest::default()
    }
}

/// What is sent first, and after an answer with this status and body; nothing more if that taught nothing.
async fn learned(
    status: u16,
    body: &str,
    request: &ModelRequest,
    set: impl FnOnce(&mut OpenAiConfig),
) -> (Value, Option<Value>) {
    let refusal = Answer::new(status, "application/json", body);
    let server = ModelServer::play(vec![refusal, Answer::file("B00-final.sse")]).await;
    let mut config = OpenAiConfig { retries: 0, ..config(&server) };
    set(&mut config);
    let _ = ask(&model(config), request).await;
    let mut chats = server.chats().into_iter();
    (chats.next().expect("a request"), chats.next())
}

#[tokio::test]
async fn each_field_that_may_be_refused() {
    for (body, field, value) in [
        (
            r#"{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","param":"max_tokens","code":"unsupported_parameter"}}"#,
            "max_completion_tokens",
            json!(1),
        ),
        (
            r#"{"error":{"message":"Unsupported value: 'temperature' does not support 0.2 with this model.","param":"temperature","code":"unsupported_value"}}"#,
            "temperature",
            Value::Null,
        ),
        (r#"{"detail":[{"msg":"stream_options: Extra inputs are not permitted"}]}"#, "stream_options", Value::Null),
        (
            r#"{"error":{"message":"Invalid schema for response_format 'step'","param":"response_format"}}"#,
            "response_format",
            json!({"type": "json_schema", "json_schema": {"name": "step", "schema": {"type": "object"}}}),
        ),
    ] {
        let (first, second) = learned(400, body, &full(), |_| {}).await;
        let second = second.unwrap_or_else(|| panic!("{body} taught nothing"));
        assert_eq!(second[field], value, "{body}");
        let mut changed = first.as_object().expect("an object").keys().filter(|key| first[*key] != second[*key]);
        assert!(changed.all(|key| key == field || key == "max_tokens"), "{body}: {second}");
    }
}

#[tokio::test]
async fn a_wrong_value_teaches_nothing() {
    for body in [
        r#"{"error":{"message":"max_tokens is too large: 20000","param":"max_tokens"}}"#,
        r#"{"error":{"message":"temperature must be at most 1"}}"#,
        r#"{"error":"this model is restricted"}"#,
        r#"{"error":"Unexpected role 'tool' after role 'user'"}"#,
        r#"{"error":{"message":"messages: must not be empty"}}"#,
        // What is asked of the model once, to see whether it makes calls, is not sent for a job.
        r#"{"error":"tool_choice must be auto"}"#,
    ] {
        assert_eq!(learned(400, body, &full(), |_| {}).await.1, None, "{body}");
    }
}

#[tokio::test]
async fn an_order_of_roles_is_learned_from_a_refusal_and_from_a_template_that_stumbles() {
    let roles = |body: Option<Value>| -> Vec<String> {
        let body = body.expect("it is asked again");
        body["messages"].as_array().expect("messages").iter().map(|m| m["role"].to_string()).collect()
    };
    let call = CallRequest { id: "aaaaaaaa1".into(), name: "f".into(), arguments: "{}".into(), extra: None };
    let calling = Message::Assistant { text: String::new(), reasoning: None, calls: vec![call] };
    let result = Message::Tool { call_id: "aaaaaaaa1".into(), name: "f".into(), text: "r".into() };
    let after_tool = ModelRequest { messages: vec![user("u"), calling, result, user("v")].into(), ..full() };
    let body = r#"{"object":"error","message":"Unexpected role 'user' after role 'tool'","code":"3230"}"#;
    let sent = roles(learned(400, body, &after_tool, |_| {}).await.1);
    assert_eq!(sent, ["\"user\"", "\"assistant\"", "\"tool\"", "\"assistant\"", "\"user\""]);

    let twice = ModelRequest { messages: vec![user("u"), user("v")].into(), ..full() };
    let words = r#"{"error":"After the optional system message, conversation roles must alternate user/assistant"}"#;
    for status in [400, 500] {
        assert_eq!(roles(learned(status, words, &twice, |_| {}).await.1), ["\"user\""], "{status}");
    }
    let field = r#"{"error":"temperature is not supported"}"#;
    assert_eq!(learned(500, field, &twice, |_| {}).await.1, None, "no field is refused by a 500");
}

#[tokio::test]
async fn nothing_is_switched_back_and_forth() {
    let refused = r#"{"error":"unsupported: max_tokens max_completion_tokens response_format temperature stream_options tool_choice reasoning_content"}"#;
    let server = ModelServer::play(vec![Answer::new(400, "application/json", refused)]).await;
    let error = ask(&model(config(&server)), &full()).await.expect_err("nothing helps");
    let chats = server.chats();
    assert_eq!((chats.len(), error.failed_tries.len()), (9, 9), "eight lessons");
    let last = chats.last().expect("a request");
    for field in ["max_tokens", "max_completion_tokens", "response_format", "temperature", "stream_options"] {
        assert_eq!(last.get(field), None, "{field}");
    }
}

#[tokio::test]
async fn a_second_system_message_is_given_up_where_it_was_sent() {
    let system = |text: &str| Message::System { text: text.to_owned() };
    let request = ModelRequest { messages: vec![system("a"), system("b"), user("u")].into(), ..full() };
    for words in [
        "System message must be at the beginning.",
        "Only one system message is allowed",
        "multiple system messages are not supported",
    ] {
        let body = json!({"error": {"message": words}}).to_string();
        let (first, second) = learned(400, &body, &request, |config| config.several_systems = Some(true)).await;
        assert_eq!(first["messages"].as_array().map(Vec::len), Some(3), "{words}");
        assert_eq!(second.expect("asked again")["messages"].as_array().map(Vec::len), Some(2), "{words}");
        assert_eq!(learned(400, &body, &request, |_| {}).await.1, None, "there was one: {words}");
    }
    let other = r#"{"error":{"message":"the system is overloaded"}}"#;
    assert_eq!(learned(400, other, &request, |config| config.several_systems = Some(true)).await.1, None);
}

#[tokio::test]
async fn reasoning_is_switched_by_what_the_server_says() {
    use ReasoningBack::*;
    let server = ModelServer::play(vec![Answer::file("B15-reasoning-roundtrip.sse")]).await;
    let reply = ask(&model(config(&server)), &request()).await.expect("a reply");
    let mut next = followed(&request(), &reply);
    let has_reasoning = |body: &Value| {
        body["messages"].as_array().expect("messages").iter().any(|message| message.get("reasoning_content").is_some())
    };
    let missing = [
        "reasoning_content is missing",
        "The `reasoning_content` of an assistant turn has to be sent back.",
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2",
    ];
    let refused = "reasoning_content: Extra inputs are not permitted";
    // The first reply is of another author here, so a placeholder or nothing is sent for its thoughts.
    for (back, words, sent) in
        missing.map(|words| (Forbidden, words, true)).into_iter().chain([(Required, refused, false)])
    {
        let body = json!({"error": {"message": words}}).to_string();
        let (first, second) = learned(400, &body, &next, |config| config.reasoning = Some(back)).await;
        let second = second.unwrap_or_else(|| panic!("{words} taught nothing"));
        assert_eq!((has_reasoning(&first), has_reasoning(&second)), (!sent, sent), "{back:?}: {words}");
    }
    // Where it may be sent and may be left out, there is none of another's; the lesson is that it must be there.
    for (words, sent) in [(missing[0], true), (refused, false)] {
        let body = json!({"error": {"message": words}}).to_string();
        let (_, second) = learned(400, &body, &next, |config| config.reasoning = Some(Optional)).await;
        assert_eq!(has_reasoning(&second.expect("asked again")), sent, "{words}");
    }
    next.messages = vec![user("u")].into();
    let body = json!({"error": {"message": missing[0]}}).to_string();
    assert_eq!(learned(400, &body, &next, |_| {}).await.1, None, "nothing was said yet that could be sent back");
}
