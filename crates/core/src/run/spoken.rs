//! What a reply says to the person who asked, out of the pieces in which it comes: plain words, and the answer inside of
//! JSON, be that the arguments of a call or a whole step.

use std::collections::BTreeMap;

use super::finish::FINISH;
use super::phase::AGENT_STEP;
use crate::model::{Delta, ToolCalling};

mod json;

use json::Strings;

/// The words for the person in one reply, as far as it has come.
#[derive(Debug)]
pub struct Spoken {
    calling: ToolCalling,
    step: Answer,
    calls: BTreeMap<usize, Answer>,
    plain: String,
    answer: String,
}

impl Spoken {
    /// Before anything is said, by a model that is asked for tools in this way.
    pub fn new(calling: ToolCalling) -> Spoken {
        Spoken { calling, step: Answer::of_step(), calls: BTreeMap::new(), plain: String::new(), answer: String::new() }
    }

    /// Takes in a piece, and gives what it adds for the person. Nothing may be given of a reply that is asked for again.
    pub fn take(&mut self, piece: &Delta) -> String {
        match piece {
            Delta::Text(text) if self.calling == ToolCalling::Native => {
                self.plain.push_str(text);
                text.clone()
            }
            Delta::Text(text) => {
                let more = self.step.take(text);
                self.answered(more)
            }
            Delta::Call { at, name, arguments } => {
                let answer = match name.as_str() {
                    FINISH => self.calls.entry(*at).or_insert_with(Answer::of_finish),
                    AGENT_STEP => self.calls.entry(*at).or_insert_with(Answer::of_phase),
                    _ => return String::new(),
                };
                let more = answer.take(arguments);
                self.answered(more)
            }
            Delta::Restarted(_) => {
                *self = Spoken::new(self.calling);
                String::new()
            }
            Delta::Reasoning(_) => String::new(),
        }
    }

    fn answered(&mut self, more: String) -> String {
        // Words beside a call are no part of the answer.
        let begins = self.answer.is_empty() && !more.is_empty();
        let apart = begins && !self.plain.is_empty() && !self.plain.ends_with('\n');
        self.answer.push_str(&more);
        if apart { format!("\n{more}") } else { more }
    }

    /// The answer as far as it came; words beside nothing are one.
    pub fn answer(&self) -> &str {
        if self.answer.is_empty() { &self.plain } else { &self.answer }
    }

    /// Everything that was given.
    pub fn all(&self) -> String {
        match (self.plain.trim(), self.answer.trim()) {
            ("", answer) => answer.to_owned(),
            (plain, "") => plain.to_owned(),
            (plain, answer) => format!("{plain}\n{answer}"),
        }
    }
}

/// The answer in JSON of which the beginning is there: the text of one string, where other strings say that it is one.
#[derive(Debug)]
struct Answer {
    strings: Strings,
    /// Where the text is, and what must be said elsewhere for it to be the answer.
    ways: &'static [Way],
    /// What was said at the places that decide, as far as it came.
    said: BTreeMap<String, String>,
    /// Text that came before it was known whether it is the answer, by way.
    held: Vec<String>,
    /// Whether anything was given, and of which way.
    given: Option<usize>,
}

#[derive(Debug)]
struct Way {
    text: &'static str,
    /// A place, and what has to stand there.
    when: Option<(&'static str, &'static str)>,
}

const OF_FINISH: &[Way] = &[Way { text: "final_summary", when: None }];
const OF_PHASE: &[Way] = &[Way { text: "end_message", when: Some(("phase", "end")) }];
const OF_STEP: &[Way] = &[
    Way { text: "arguments.final_summary", when: Some(("tool", FINISH)) },
    Way { text: "end_message", when: Some(("phase", "end")) },
];

impl Answer {
    fn of(ways: &'static [Way]) -> Answer {
        let held = ways.iter().map(|_| String::new()).collect();
        Answer { strings: Strings::default(), ways, said: BTreeMap::new(), held, given: None }
    }

    fn of_finish() -> Answer {
        Answer::of(OF_FINISH)
    }

    fn of_phase() -> Answer {
        Answer::of(OF_PHASE)
    }

    fn of_step() -> Answer {
        Answer::of(OF_STEP)
    }

    fn take(&mut self, json: &str) -> String {
        let Answer { strings, ways, said, held, given } = self;
        strings.take(json, &mut |place, piece, is_whole| {
            for (way, held) in ways.iter().zip(held.iter_mut()) {
                if place == way.text {
                    held.push_str(piece);
                }
                if way.when.is_some_and(|(decides, _)| decides == place) {
                    // What is not whole may still become anything.
                    let so_far = said.entry(place.to_owned()).or_default();
                    so_far.push_str(piece);
                    if is_whole {
                        so_far.push('\0');
                    }
                }
            }
        });
        for (at, way) in ways.iter().enumerate() {
            let is_said =
                |(place, word): (&str, &str)| said.get(place).is_some_and(|said| said.strip_suffix('\0') == Some(word));
            if way.when.is_none_or(is_said) && given.is_none_or(|given| given == at) && !held[at].is_empty() {
                *given = Some(at);
                return std::mem::take(&mut held[at]);
            }
        }
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
