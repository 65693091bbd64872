//! What a model thought is told from what it said, wherever its server puts it.

use super::*;
use posse_core::model::conversation::ReasoningBack;
use posse_core::model::{Delta, Finish};
use proptest::prelude::*;
use std::sync::Mutex;

#[tokio::test]
async fn b15_reasoning_is_sent_to_who_wants_it_and_no_other() {
    let wanted = "The user wants alpha.txt. I should read it first.";
    let sent = |body: &Value| {
        let messages = body["messages"].as_array().cloned().unwrap_or_default();
        messages.iter().find_map(|m| Some(m.get("reasoning_content")?.as_str()?.to_owned()))
    };
    for demanded in [true, false] {
        let server = ModelServer::start(None, move |body| {
            let is_first = body["messages"].as_array().map_or(0, Vec::len) == 2;
            match (is_first, sent(body)) {
                (true, _) => Answer::file("B15-reasoning-roundtrip.sse"),
                (_, Some(words)) if demanded && words == wanted => Answer::file("B00-final.sse"),
                (_, None) if !demanded => Answer::file("B00-final.sse"),
                (_, None) => Answer::file("B15-then-400.json").status(400),
                _ => refused(400, "messages.2.reasoning_content: Extra inputs are not permitted"),
            }
        })
        .await;
        for configured in [Some(ReasoningBack::Required), Some(ReasoningBack::Forbidden), None] {
            let mut config = config(&server);
            config.reasoning = configured;
            let model = model(config);
            let before = server.chats().len();
            let reply = ask(&model, &request()).await.expect("a reply");
            assert_eq!(reply.reasoning.as_ref().map(|reasoning| reasoning.text.as_str()), Some(wanted));
            let next = followed(&request(), &reply);
            assert_eq!(ask(&model, &next).await.expect("a reply").text, "FINAL-OK");
            let lessons = usize::from((configured == Some(ReasoningBack::Required)) != demanded);
            assert_eq!(server.chats().len() - before, 2 + lessons);
            assert!(ask(&model, &next).await.expect("a reply").failed_tries.is_empty(), "learned");
        }
    }
}

#[tokio::test]
async fn thoughts_in_the_text_are_no_answer_however_they_come() {
    let piece = |content: Value, finish: Value| {
        format!(
            "data: {}\n\n",
            json!({"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": finish}]})
        )
    };
    let streamed = |pieces: &[&str], finish: &str| {
        let mut body: String = pieces.iter().map(|text| piece(json!(text), Value::Null)).collect();
        body += &piece(json!(""), json!(finish));
        Answer::new(200, "text/event-stream", body + "data: [DONE]\n\n")
    };
    let whole = |content: Value| {
        Answer::json(200, json!({"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}))
    };
    for (answer, thought, text) in [
        (streamed(&["<thi", "nk>Ge", "ese?</th", "ink>\n", "\nSeven."], "stop"), "Geese?", "Seven."),
        (streamed(&["Geese", "?\n</thi", "nk>\n\nSev", "en."], "stop"), "Geese?", "Seven."),
        (streamed(&["<think>", "Geese?", " Or "], "length"), "Geese? Or", ""),
        (streamed(&["Use `<think>", "` and `</think>`."], "stop"), "", "Use `<think>` and `</think>`."),
        (whole(json!("◁think▷Geese?◁/think▷Seven.")), "Geese?", "Seven."),
        (
            whole(json!([{"type": "text", "text": "<think>Geese?</think>"}, {"type": "text", "text": "Seven."}])),
            "Geese?",
            "Seven.",
        ),
        (
            whole(
                json!([{"type": "thinking", "thinking": [{"type": "text", "text": "Geese?"}]}, {"type": "text", "text": "Seven."}]),
            ),
            "Geese?",
            "Seven.",
        ),
    ] {
        let server = ModelServer::play(vec![answer]).await;
        let reply = ask(&model(config(&server)), &request()).await.expect("a reply");
        let thoughts = reply.reasoning.map(|reasoning| reasoning.text).unwrap_or_default();
        assert_eq!((thoughts.as_str(), reply.text.as_str()), (thought, text));
    }
}

/// How thoughts begin and end, by maker.
const PAIRS: &[(&str, &str)] = &[
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<thoughts>", "</thoughts>"),
    ("<reasoning>", "</reasoning>"),
    ("<reason>", "</reason>"),
    ("<antthinking>", "</antthinking>"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("◁think▷", "◁/think▷"),
    ("[think]", "[/think]"),
    ("<|think|>", "<|/think|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|start_thinking|>", "<|end_thinking|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<unused94>", "<unused95>"),
    ("<|channel>thought", "<channel|>"),
];

async fn split(raw: &str, finish: &str) -> (String, String) {
    let reply = outcome(whole(json!({"content": raw}), json!(finish))).await.expect("a reply");
    (thoughts(&reply).to_owned(), reply.text)
}

async fn check(raw: &str, thought: &str, text: &str) {
    assert_eq!(split(raw, "stop").await, (thought.to_owned(), text.to_owned()), "{raw:?}");
}

async fn untouched(raw: &str) {
    check(raw, "", raw).await;
}

#[tokio::test]
async fn thoughts_in_front_by_every_maker() {
    for (open, close) in PAIRS {
        check(&format!("{open}\nGeese?\n{close}\n\nSeven."), "Geese?", "Seven.").await;
        check(&format!("  \n{open}Geese?{close}Seven."), "Geese?", "Seven.").await;
        check(&format!("{open}Geese?{close}"), "Geese?", "").await;
        check(&format!("{open}Never closed"), "Never closed", "").await;
        check(&format!("{open}a{close}{open}b{close} c"), "a\n\nb", "c").await;
    }
    check("<THINK>Geese?</Think>Seven.", "Geese?", "Seven.").await;
    check("<think duration=\"3\">Geese?</think>Seven.", "Geese?", "Seven.").await;
    check("<think></think>\n\nSeven.", "", "Seven.").await;
    check("<think>Write `</think>` they say</think>Seven.", "Write `</think>` they say", "Seven.").await;
    check("<think>a</think>\n<answer>\nSeven.\n</answer>", "a", "Seven.").await;
}

#[tokio::test]
async fn the_template_had_opened_them() {
    for (raw, thought, text) in [
        ("Geese, I think.\n</think>\n\nSeven.", "Geese, I think.", "Seven."),
        ("Geese.</think>Seven.", "Geese.", "Seven."),
        ("Geese.\n◁/think▷Seven.", "Geese.", "Seven."),
        ("Say \"seven\"</think>\"Seven,\" said the fox.", "Say \"seven\"", "\"Seven,\" said the fox."),
        ("only thoughts\n</think>", "only thoughts", ""),
        ("We count.<|end|><|start|>assistant<|channel|>final<|message|>Seven.<|return|>", "We count.", "Seven."),
    ] {
        check(raw, thought, text).await;
    }
}

#[tokio::test]
async fn thoughts_between_words() {
    check("I look.\n<think>\nGeese?\n</think>\nSeven.", "Geese?", "I look.\nSeven.").await;
    untouched("I look.\n<think>\nGeese?").await;
    assert_eq!(split("I look.\n<think>\nGeese?", "length").await, ("Geese?".to_owned(), "I look.".to_owned()));
}

#[tokio::test]
async fn channels_of_harmony() {
    let call = "<|channel|>commentary to=functions.look <|constrain|>json<|message|>{}";
    for (raw, thought, text) in [
        (
            "<|channel|>analysis<|message|>Geese?<|end|><|start|>assistant<|channel|>final<|message|>Seven.<|return|>",
            "Geese?",
            "Seven.",
        ),
        ("<|channel|>analysis<|message|>Geese?", "Geese?", ""),
        ("<|channel|>final<|message|>Seven.", "", "Seven."),
        ("<|start|>assistant<|channel|>analysis<|message|>a<|end|>", "a", ""),
        ("analysisGeese? Count.assistantfinalSeven.", "Geese? Count.", "Seven."),
        ("Here is my thought process: a\n\nHere is my response: b", "a", "b"),
    ] {
        check(raw, thought, text).await;
    }
    let raw = format!("<|channel|>analysis<|message|>a<|end|><|start|>assistant{call}<|call|>");
    check(&raw, "a", call).await;
    untouched("analysis of the geese: assistantfinal is a word").await;
}

#[tokio::test]
async fn an_answer_that_speaks_of_tags_is_an_answer() {
    for answer in [
        "Seven geese.",
        "",
        "Wrap it in `<think>` and `</think>`.",
        "`</think>` ends it.",
        "The tag <think> opens and </think> closes.",
        "Use this:\n\n```\n<think>\nGeese?\n</think>\n```\n\nDone.",
        "```xml\n</think>\n```",
        "~~~\n<think>a</think>\n~~~",
        "    <think>a</think>\n",
        "text = text.split(\"</think>\")[-1]",
        "re.sub(r\"<think>.*?</think>\", \"\", text)",
        "{\"thinking\": \"a\", \"text\": \"<think>a</think>\\nb\"}",
        "<thinker>a</thinker>",
        "a < b",
    ] {
        untouched(answer).await;
    }
    check("<think>a</think>Use `<think>b</think>`.", "a", "Use `<think>b</think>`.").await;
    check("<think>a</think>```\n<think>b</think>\n```", "a", "```\n<think>b</think>\n```").await;
}

#[tokio::test]
async fn a_stream_shows_thoughts_as_thoughts() {
    for (pieces, thought, text) in [
        ("<think>Geese?</think>\n\nSeven.", "Geese?", "Seven."),
        ("◁think▷Geese?◁/think▷Seven.", "Geese?", "Seven."),
        (
            "<|channel|>analysis<|message|>Geese?<|end|><|start|>assistant<|channel|>final<|message|>Seven.",
            "Geese?",
            "Seven.",
        ),
        ("<b>", "", "<b>"),
    ] {
        let events: String = pieces.chars().map(|c| piece(json!({"content": c.to_string()}), Value::Null)).collect();
        let server = ModelServer::play(vec![streamed(events + &piece(json!({}), json!("stop")))]).await;
        let shown = Mutex::new((String::new(), Vec::new()));
        let sink = |delta| match delta {
            Delta::Text(text) => shown.lock().expect("not poisoned").1.push(text),
            Delta::Reasoning(text) => shown.lock().expect("not poisoned").0.push_str(&text),
            Delta::Call { .. } | Delta::Restarted(_) => {}
        };
        model(config(&server)).complete(&request(), &sink, &Stop::never()).await.expect("a reply");
        let shown = shown.into_inner().expect("not poisoned");
        assert_eq!((shown.0.as_str(), shown.1.concat().trim()), (thought, text), "{pieces}");
        if text == "<b>" {
            assert_eq!(shown.1[0], "<b", "what may become a tag is held back until it cannot");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever comes: it ends, and nothing is made up.
    #[test]
    fn any_text(pieces in prop::collection::vec(prop::sample::select(&[
        "<think>", "</think>", "◁think▷", "◁/think▷", "<|channel|>", "final", "analysis", "<|message|>", "<|end|>", "`", "```\n",
        "\n", "ä", " ", "\"", "<answer>", "</answer>", "word", "[THINK]", "[/THINK]", "{", "}",
    ][..]), 0..24), is_cut in any::<bool>()) {
        let raw = pieces.concat();
        let finish = if is_cut { "length" } else { "stop" };
        let events: String = pieces.iter().map(|text| piece(json!({"content": text}), Value::Null)).collect();
        tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
            let reply = outcome(streamed(events + &piece(json!({"content": ""}), json!(finish)))).await.expect("a reply");
            assert!(reply.text.len() + thoughts(&reply).len() <= raw.len() + 2 * pieces.len());
            assert_eq!(reply.finish, if is_cut { Finish::Length } else { Finish::Stop });
        });
    }
}
