//! How many small jobs a model does right: one of each kind, in two worlds of files made for this, checked by facts and
//! never by wording. `scripts/efficacy` of the sources has the long form, with other worlds.

use std::collections::BTreeMap;

use posse_core::job::{Job, Output};
use posse_core::persona::{PersonaFile, PersonaTemplate};
use posse_core::tool::Tools;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Code, Error, Result};

/// Texts by their paths.
pub type Files = BTreeMap<String, String>;

/// The tasks, what they are about, and who does them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bench {
    /// Anybody with all tools for files, told nothing about tasks.
    pub persona: PersonaTemplate,
    worlds: BTreeMap<String, Files>,
    /// One of each kind.
    pub tasks: Vec<Task>,
}

impl Bench {
    /// The one that comes with Posse.
    pub fn built_in() -> Result<Bench> {
        let unread =
            |error| Error::new(Code::Failed, format!("the tasks that come with Posse cannot be read: {error}"));
        serde_json::from_str(include_str!("bench.json")).map_err(unread)
    }

    /// The files that a task is about, as they are before it.
    pub fn files(&self, task: &Task) -> Files {
        self.worlds.get(&task.world).cloned().unwrap_or_default()
    }
}

/// Something to be done, and the facts by which it is seen whether it was. In a fact, `|` stands between ways to say it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// What kind of work it is, in a word.
    pub kind: String,
    world: String,
    /// What is asked.
    pub goal: String,
    #[serde(default)]
    says: Vec<String>,
    #[serde(default)]
    lacks: Vec<String>,
    /// Whether the answer has to be that it is not there.
    #[serde(default)]
    absent: bool,
    /// Files that have to be so afterwards; all others must be as they were.
    #[serde(default)]
    files: BTreeMap<String, Wanted>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    #[serde(default)]
    has: Vec<String>,
    #[serde(default)]
    lacks: Vec<String>,
    is: Option<String>,
    json: Option<Value>,
}

/// Words by which people say that something is not there. One that something may as well be called ("an unknown error")
/// says it behind a verb alone.
const DENIALS: &str = "not|no|none|nothing|never|neither|nowhere|cannot|without|lack|lacks|is missing|are missing|is absent|\
     are absent|is unknown|are unknown|remains unknown|am unable|is unable|unable to";

impl Task {
    /// Why what was answered and what became of the files is wrong; none where it is right.
    pub fn wrong(&self, answer: &str, before: &Files, after: &Files) -> Option<String> {
        let told = words(answer);
        if told.is_empty() {
            return Some("there is no answer".into());
        }
        if let Some(why) = facts(&told, &self.says, &self.lacks) {
            return Some(format!("the answer {why}"));
        }
        let denies = says(&told, DENIALS) || answer.contains("n't") || answer.contains("n’t") || told == ["unknown"];
        if self.absent && !denies {
            return Some("the answer does not say that it is not there".into());
        }
        let wanted =
            self.files.iter().find_map(|(path, wanted)| Some(format!("{path} {}", wanted.wrong(after.get(path))?)));
        wanted.or_else(|| {
            let touched = |path: &&String| !self.files.contains_key(*path) && before.get(*path) != after.get(*path);
            let path = before.keys().chain(after.keys()).find(touched)?;
            let what = match (before.contains_key(path), after.contains_key(path)) {
                (false, _) => "made",
                (true, true) => "changed",
                (true, false) => "deleted",
            };
            Some(format!("{path} was {what}, which nobody asked for"))
        })
    }

    /// Whether an agent with these tools could do it.
    fn is_for(&self, tools: &[&str]) -> bool {
        tools.contains(&"read_file")
            && (self.files.is_empty() || ["create_file", "edit_file"].iter().all(|t| tools.contains(t)))
    }
}

impl Wanted {
    fn wrong(&self, text: Option<&String>) -> Option<String> {
        let Some(text) = text else { return Some("is not there".into()) };
        if let Some(why) = facts(&words(text), &self.has, &self.lacks) {
            return Some(why);
        }
        if self.is.as_ref().is_some_and(|is| is.trim_end() != text.trim_end()) {
            return Some("is not as it was to be".into());
        }
        match (&self.json, serde_json::from_str::<Value>(text)) {
            (Some(_), Err(error)) => Some(format!("is no JSON: {error}")),
            (Some(wanted), Ok(json)) if *wanted != json => Some("says something else".into()),
            _ => None,
        }
    }
}

fn facts(told: &[String], has: &[String], lacks: &[String]) -> Option<String> {
    let missing =
        has.iter().find(|fact| !says(told, fact)).map(|fact| format!("lacks '{}'", fact.replace('|', "' or '")));
    missing.or_else(|| lacks.iter().find(|fact| says(told, fact)).map(|fact| format!("has '{fact}'")))
}

fn says(told: &[String], fact: &str) -> bool {
    fact.split('|').map(words).any(|one| told.windows(one.len()).any(|part| part == one))
}

/// The words of a text in lower case, and its numbers as they are written shortest: `1,250.50` is `1250.5`.
fn words(text: &str) -> Vec<String> {
    let text: Vec<char> = text.to_lowercase().chars().collect();
    let is_digit = |at: usize| text.get(at).is_some_and(char::is_ascii_digit);
    let (mut words, mut at) = (Vec::new(), 0);
    while at < text.len() {
        let mut word = String::new();
        if is_digit(at) {
            let mut has_point = false;
            loop {
                match text.get(at) {
                    Some(digit) if digit.is_ascii_digit() => word.push(*digit),
                    Some(',') if !has_point && (1..4).all(|n| is_digit(at + n)) && !is_digit(at + 4) => {}
                    Some('.') if !has_point && is_digit(at + 1) => {
                        has_point = true;
                        word.push('.');
                    }
                    _ => break,
                }
                at += 1;
            }
            if has_point {
                word.truncate(word.trim_end_matches('0').trim_end_matches('.').len());
            }
        } else {
            while let Some(letter) = text.get(at).filter(|letter| letter.is_alphanumeric()) {
                word.push(*letter);
                at += 1;
            }
            at += usize::from(word.is_empty());
        }
        words.extend(Some(word).filter(|word| !word.is_empty()));
    }
    words
}

/// How one task went: an item of [`BenchReport`].
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Tried {
    /// What kind of work it was.
    pub kind: String,
    /// Whether it was done right.
    pub right: bool,
    /// Why not.
    pub why: Option<String>,
    /// What was answered.
    pub answer: String,
    /// How the run ended: `completed`, or what ended it.
    pub ended: String,
    /// Replies of the model.
    pub turns: u32,
    /// Tokens read.
    pub input_tokens: u64,
    /// Of those, how many the provider had kept.
    pub cached_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// How long it took.
    pub ms: u64,
    /// How long it took until the model said its first word; null where it says a reply at once.
    pub first_word_ms: Option<u64>,
}

impl Tried {
    /// What an ended job came to.
    pub fn new(task: &Task, job: &Job, before: &Files, after: &Files, ms: u64, first_word_ms: Option<u64>) -> Tried {
        let Output { text: answer, status: ended, turns, usage, .. } = job.output.clone().unwrap_or_default();
        let ended = if ended.is_empty() { job.state.to_string() } else { ended };
        let why = task.wrong(&answer, before, after);
        let (right, kind) = (why.is_none(), task.kind.clone());
        let (input_tokens, cached_tokens, output_tokens) = (usage.input, usage.cached, usage.output);
        Tried { kind, right, why, answer, ended, turns, input_tokens, cached_tokens, output_tokens, ms, first_word_ms }
    }
}

/// How many of the tasks that a persona's tools are enough for were done right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Fit {
    /// Who.
    pub role: String,
    /// So many were right.
    pub right: usize,
    /// Of so many.
    pub of: usize,
}

/// The document of `posse model test --bench --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct BenchReport {
    /// The model's name here.
    pub name: String,
    /// Its name where it is asked.
    pub model: String,
    /// So many tasks were done right.
    pub right: usize,
    /// Of so many.
    pub of: usize,
    /// What that says of the share of such tasks, in percent, with 95 % confidence (Wilson).
    pub percent: (u32, u32),
    /// Each task.
    pub tasks: Vec<Tried>,
    /// For each persona here that reads files.
    pub personas: Vec<Fit>,
}

impl BenchReport {
    /// What the tasks of `bench` came to, one after the other, and what that means for `personas`.
    pub fn new(
        (name, model): (String, String),
        bench: &Bench,
        tried: Vec<Tried>,
        personas: &[PersonaFile],
        tools: &dyn Tools,
    ) -> BenchReport {
        let fit = |file: &PersonaFile| {
            let resolved = tools.resolve(&file.persona.tools).ok()?;
            let names: Vec<_> = resolved.iter().map(|tool| tool.spec().name.as_str()).collect();
            let own = bench.tasks.iter().zip(&tried).filter(|(task, _)| task.is_for(&names));
            let rights: Vec<_> = own.map(|(_, tried)| tried.right).collect();
            let (role, right) = (file.persona.role.clone(), rights.iter().filter(|right| **right).count());
            (!rights.is_empty()).then_some(Fit { role, right, of: rights.len() })
        };
        let personas = personas.iter().filter_map(fit).collect();
        let (right, of) = (tried.iter().filter(|tried| tried.right).count(), tried.len());
        BenchReport { name, model, right, of, percent: interval(right, of), tasks: tried, personas }
    }
}

fn interval(right: usize, of: usize) -> (u32, u32) {
    let (z, of) = (1.96_f64, of.max(1) as f64);
    let share = right as f64 / of;
    let middle = share + z * z / (2.0 * of);
    let half = z * (share * (1.0 - share) / of + z * z / (4.0 * of * of)).sqrt();
    let percent = |at: f64| (100.0 * at / (1.0 + z * z / of)).round().clamp(0.0, 100.0) as u32;
    (percent(middle - half), percent(middle + half))
}
