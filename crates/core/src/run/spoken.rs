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
        Spoken {
            calling,
            step: Answer::of(OF_STEP),
            calls: BTreeMap::new(),
            plain: String::new(),
            answer: String::new(),
        }
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
                let ways = match name.as_str() {
                    FINISH => OF_FINISH,
                    AGENT_STEP => OF_PHASE,
                    _ => return String::new(),
                };
                let more = self.calls.entry(*at).or_insert_with(|| Answer::of(ways)).take(arguments);
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
    /// The path of the text, and what must be said elsewhere for it to be the answer.
    ways: &'static [Way],
    /// What was said at the paths that decide, as far as it came.
    said: BTreeMap<String, String>,
    /// Text that came before it was known whether it is the answer, by way.
    held: Vec<String>,
    /// Whether anything was given, and of which way.
    given: Option<usize>,
}

#[derive(Debug)]
struct Way {
    text: &'static str,
    /// A path, and what has to stand there.
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

    fn take(&mut self, json: &str) -> String {
        let Answer { strings, ways, said, held, given } = self;
        strings.take(json, &mut |path, piece, is_whole| {
            for (way, held) in ways.iter().zip(held.iter_mut()) {
                if path == way.text {
                    held.push_str(piece);
                }
                if way.when.is_some_and(|(decides, _)| decides == path) {
                    // What is not whole may still become anything.
                    let so_far = said.entry(path.to_owned()).or_default();
                    so_far.push_str(piece);
                    if is_whole {
                        so_far.push('\0');
                    }
                }
            }
        });
        for (at, way) in ways.iter().enumerate() {
            let is_said =
                |(path, word): (&str, &str)| said.get(path).is_some_and(|said| said.strip_suffix('\0') == Some(word));
            if way.when.is_none_or(is_said) && given.is_none_or(|given| given == at) && !held[at].is_empty() {
                *given = Some(at);
                return std::mem::take(&mut held[at]);
            }
        }
        String::new()
    }
}
