//! What a reply says to the person who asked, out of the pieces in which it comes: plain words, and the answer inside of

use posse_core::model::{Delta, ToolCalling};
use posse_core::run::spoken::*;

const SAID: &str = "Say \"hé\" to 😀\nand \\ go\u{7f}\tat/once";

/// The same JSON with every character of a string escaped that can be.
fn escaped(json: &str) -> String {
    json.replace('é', "\\u00e9").replace('😀', "\\ud83d\\ude00").replace("/", "\\/")
}

fn in_pieces(of: &str, size: usize, piece: impl Fn(String) -> Delta, spoken: &mut Spoken) -> String {
    let chars: Vec<char> = of.chars().collect();
    chars.chunks(size).map(|some| spoken.take(&piece(some.iter().collect()))).collect()
}

#[test]
fn an_answer_comes_whole_however_it_is_cut() {
    let arguments = serde_json::json!({"clarifying_questions": [], "final_summary": SAID, "request_replan": false});
    let step = serde_json::json!({
        "thinking": "I \"finish\" now: {\"final_summary\": \"no\"}", "tool": "finish", "arguments": arguments
    });
    let late = serde_json::json!({"arguments": {"final_summary": SAID}, "thinking": "t", "tool": "finish"});
    let end = serde_json::json!({"thinking": "t", "phase": "end", "end_status": "solved", "end_message": SAID});
    for size in 1..60 {
        for json in [&step, &late, &end] {
            for text in [json.to_string(), escaped(&json.to_string()), format!("{json:#}")] {
                let mut spoken = Spoken::new(ToolCalling::Structured);
                assert_eq!(in_pieces(&text, size, Delta::Text, &mut spoken), SAID, "{text} in pieces of {size}");
                assert_eq!(spoken.answer(), SAID);
            }
        }
        let call = |name: &'static str| move |arguments| Delta::Call { at: 0, name: name.into(), arguments };
        for (name, json) in [("finish", &arguments), ("agent_step", &end)] {
            let mut spoken = Spoken::new(ToolCalling::Native);
            assert_eq!(spoken.take(&Delta::Text("I am done.".into())), "I am done.");
            let got = in_pieces(&escaped(&json.to_string()), size, call(name), &mut spoken);
            assert_eq!((got, spoken.answer()), (format!("\n{SAID}"), SAID), "{name} in pieces of {size}");
        }
    }
}

#[test]
fn what_is_no_answer_gives_nothing() {
    let mut spoken = Spoken::new(ToolCalling::Native);
    let call = |name: &str, arguments: &str| Delta::Call { at: 0, name: name.into(), arguments: arguments.into() };
    assert_eq!(spoken.take(&call("create_file", r#"{"final_summary": "x"}"#)), "");
    for step in [
        r#"{"thinking": "final_summary", "tool": "read_file", "arguments": {"final_summary": "x"}}"#,
        r#"{"tool": "finish", "arguments": {"deeper": {"final_summary": "x"}}, "final_summary": "x"}"#,
        r#"{"tool": "finish", "arguments": [{"final_summary": "x"}]}"#,
        r#"{"tool": "other", "arguments": {"tool": "finish", "final_summary": "x"}}"#,
        r#"{"phase": "ending", "end_message": "x"}"#,
        r#"{"phase": "act", "end_message": "x""#,
        r#"{"tool": "fin"#,
        "}}}]]\"\"",
    ] {
        assert_eq!(Spoken::new(ToolCalling::Structured).take(&Delta::Text(step.into())), "", "{step}");
    }
}

#[test]
fn broken_escapes_break_nothing_else() {
    for (json, wanted) in [
        (r#"{"final_summary": "a\ud83d b"#, "a\u{fffd} b"),
        (r#"{"final_summary": "a\ud83d\n"#, "a\u{fffd}\n"),
        (r#"{"final_summary": "a\ud83d\ud83d\ude00"#, "a\u{fffd}😀"),
        (r#"{"final_summary": "a\ude00b"#, "a\u{fffd}b"),
        (r#"{"final_summary": "a\u12zb"#, "a\u{fffd}zb"),
        (r#"{"final_summary": "a\qb"#, "aqb"),
        (r#"{"final_summary": "a\ud83d"}"#, "a\u{fffd}"),
    ] {
        let mut whole = Spoken::new(ToolCalling::Native);
        let call = |arguments| Delta::Call { at: 0, name: "finish".into(), arguments };
        assert_eq!(whole.take(&call(json.to_owned())), wanted, "{json}");
        let mut cut = Spoken::new(ToolCalling::Native);
        assert_eq!(in_pieces(json, 1, call, &mut cut), wanted, "{json}");
    }
}
