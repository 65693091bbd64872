use super::*;
use proptest::prelude::*;

fn check(raw: &str, thoughts: &str, text: &str) {
    let parts = split(raw, false);
    assert_eq!((parts.thoughts.as_str(), parts.text.as_str()), (thoughts, text), "{raw:?}");
}

fn untouched(raw: &str) {
    check(raw, "", raw);
}

#[test]
fn thoughts_in_front_by_every_maker() {
    for (open, close) in PAIRS.iter().filter(|pair| pair.1 != "<|end|>") {
        check(&format!("{open}\nGeese?\n{close}\n\nSeven."), "Geese?", "Seven.");
        check(&format!("  \n{open}Geese?{close}Seven."), "Geese?", "Seven.");
        check(&format!("{open}Geese?{close}"), "Geese?", "");
        check(&format!("{open}Never closed"), "Never closed", "");
        check(&format!("{open}a{close}{open}b{close} c"), "a\n\nb", "c");
    }
    check("<THINK>Geese?</Think>Seven.", "Geese?", "Seven.");
    check("<think duration=\"3\">Geese?</think>Seven.", "Geese?", "Seven.");
    check("<think></think>\n\nSeven.", "", "Seven.");
    check("<think>Write `</think>` they say</think>Seven.", "Write `</think>` they say", "Seven.");
    check("<think>a</think>\n<answer>\nSeven.\n</answer>", "a", "Seven.");
}

#[test]
fn the_template_had_opened_them() {
    check("Geese, I think.\n</think>\n\nSeven.", "Geese, I think.", "Seven.");
    check("Geese.</think>Seven.", "Geese.", "Seven.");
    check("Geese.\n◁/think▷Seven.", "Geese.", "Seven.");
    check("Say \"seven\"</think>\"Seven,\" said the fox.", "Say \"seven\"", "\"Seven,\" said the fox.");
    check("only thoughts\n</think>", "only thoughts", "");
    check("We count.<|end|><|start|>assistant<|channel|>final<|message|>Seven.<|return|>", "We count.", "Seven.");
}

#[test]
fn thoughts_between_words() {
    check("I look.\n<think>\nGeese?\n</think>\nSeven.", "Geese?", "I look.\nSeven.");
    untouched("I look.\n<think>\nGeese?");
    let parts = split("I look.\n<think>\nGeese?", true);
    assert_eq!((parts.thoughts.as_str(), parts.text.as_str()), ("Geese?", "I look."));
}

#[test]
fn channels_of_harmony() {
    let call = "<|channel|>commentary to=functions.look <|constrain|>json<|message|>{}";
    for (raw, thoughts, text) in [
        (
            "<|channel|>analysis<|message|>Geese?<|end|><|start|>assistant<|channel|>final<|message|>Seven.<|return|>",
            "Geese?",
            "Seven.",
        ),
        ("<|channel|>analysis<|message|>Geese?", "Geese?", ""),
        ("<|channel|>final<|message|>Seven.", "", "Seven."),
        ("<|start|>assistant<|channel|>analysis<|message|>a<|end|>", "a", ""),
        ("analysisGeese? Count.assistantfinalSeven.", "Geese? Count.", "Seven."),
    ] {
        check(raw, thoughts, text);
    }
    let raw = format!("<|channel|>analysis<|message|>a<|end|><|start|>assistant{call}<|call|>");
    check(&raw, "a", call);
    untouched("analysis of the geese: assistantfinal is a word");
    check("Here is my thought process: a\n\nHere is my response: b", "a", "b");
}

#[test]
fn an_answer_that_speaks_of_tags_is_an_answer() {
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
        untouched(answer);
    }
    check("<think>a</think>Use `<think>b</think>`.", "a", "Use `<think>b</think>`.");
    check("<think>a</think>```\n<think>b</think>\n```", "a", "```\n<think>b</think>\n```");
}

#[test]
fn a_stream_shows_thoughts_as_thoughts() {
    for raw in [
        "<think>Geese?</think>\n\nSeven.",
        "◁think▷Geese?◁/think▷Seven.",
        "<|channel|>analysis<|message|>Geese?<|end|><|start|>assistant<|channel|>final<|message|>Seven.",
    ] {
        let mut leading = Leading::default();
        let mut shown = (String::new(), String::new());
        for c in raw.chars() {
            for delta in leading.push(&c.to_string()) {
                match delta {
                    Delta::Text(text) => shown.1.push_str(&text),
                    Delta::Reasoning(text) => shown.0.push_str(&text),
                    Delta::Call { .. } | Delta::Restarted(_) => {}
                }
            }
        }
        assert_eq!((shown.0.as_str(), shown.1.trim()), ("Geese?", "Seven."), "{raw}");
    }
    let mut leading = Leading::default();
    assert_eq!(leading.push("<"), []);
    assert_eq!(leading.push("b>"), [Delta::Text("<b>".to_owned())]);
}

proptest! {
    /// Whatever comes: it ends, and nothing is made up.
    #[test]
    fn any_text(pieces in prop::collection::vec(prop::sample::select(&[
        "<think>", "</think>", "◁think▷", "◁/think▷", "<|channel|>", "final", "analysis", "<|message|>", "<|end|>", "`", "```\n",
        "\n", "ä", " ", "\"", "<answer>", "</answer>", "word", "[THINK]", "[/THINK]", "{", "}",
    ][..]), 0..24), is_cut in any::<bool>()) {
        let raw = pieces.concat();
        let parts = split(&raw, is_cut);
        prop_assert!(parts.text.len() + parts.thoughts.len() <= raw.len() + 2 * pieces.len());
        let mut leading = Leading::default();
        for piece in &pieces {
            leading.push(piece);
        }
    }
}
