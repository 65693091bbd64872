//! A session: a conversation between a person and an agent, over many jobs.
//!
//! Each thing the person says is a job. What was said is a projection of those jobs, their goals
//! and their answers: what tools did stays in the jobs' journals. What is shown no more is
//! remembered too, turn by turn, where a search finds it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clock::Millis;
pub use crate::id::SessionId;
use crate::job::{JobId, JobState};
use crate::model::Message;
use crate::text::{folded, is_default, plural};

pub mod turns;

/// Most bytes of a session's name.
pub const MAX_NAME_BYTES: usize = 64;

/// A session as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Session {
    /// Its number.
    pub id: SessionId,
    /// Its name, if it was given one.
    pub name: Option<String>,
    /// The role of the agent.
    pub role: String,
    /// What it remembers of the session before it.
    pub previous: Option<Stretch>,
    /// When it began.
    pub created_at: Millis,
    /// When something was last said in it, or when it began.
    pub used_at: Millis,
    /// How many things the person has said in it.
    #[serde(rename = "turns")]
    pub exchanges: u64,
}

impl Session {
    /// What it is called: its name, else its number.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.id.to_string())
    }
}

/// A session from its beginning through one of its jobs. It never changes, so a summary of it is
/// made once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stretch {
    /// The session.
    pub session: SessionId,
    /// The last job that belongs to it.
    pub through: JobId,
}

/// A session about to be begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSession {
    /// Its name; see [`check_name`].
    pub name: Option<String>,
    /// The role of the agent.
    pub role: String,
}

/// A question that the agent asked in the middle of its work, and what it was told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Asked {
    /// What it asked.
    pub question: String,
    /// The answer, if somebody gave one.
    pub answer: Option<String>,
    /// Whether an answer may still come.
    #[serde(default)]
    pub is_open: bool,
}

impl Asked {
    /// The person's side of it, in words.
    pub fn told(&self) -> &str {
        match (&self.answer, self.is_open) {
            (Some(answer), _) => answer,
            (None, true) => "(no answer yet)",
            (None, false) => "(nobody answered)",
        }
    }
}

/// Something the person said, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Exchange {
    /// The job.
    pub job: JobId,
    /// Where it is in its life.
    pub state: JobState,
    /// What the person said.
    pub goal: String,
    /// What the agent asked on the way, and was told, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<Asked>,
    /// What the agent said, as far as it came.
    pub text: Option<String>,
    /// Why the job is where it is.
    pub reason: Option<String>,
    /// When the person said it.
    pub said_at: Millis,
    /// When the job ended, if it has.
    pub ended_at: Option<Millis>,
    /// Whether the agent had read what others wrote, so that nobody vouches for its side.
    #[serde(default, skip_serializing_if = "is_default")]
    pub untrusted: bool,
}

impl Exchange {
    /// The agent's side of it, in words; never blank.
    pub fn reply(&self) -> String {
        let text = self.text.as_deref().map(str::trim).filter(|text| !text.is_empty());
        let marked = |mark: String| match text {
            Some(text) => format!("{mark}\n{text}"),
            None => mark,
        };
        match self.state {
            JobState::Completed => text.unwrap_or("(no answer)").to_owned(),
            JobState::Cancelled => match self.reason.as_deref() {
                Some(reason) if reason.starts_with(SUPERSEDED) => marked("(left for what was said next)".into()),
                _ => marked("(interrupted)".into()),
            },
            JobState::Discarded => {
                let why = self.reason.as_deref().map(|reason| format!(": {}", begin(reason, 300))).unwrap_or_default();
                marked(format!("(not finished{why})"))
            }
            _ => "(no answer yet)".into(),
        }
    }
}

/// What the reason of an exchange begins with that ended because something newer was said.
const SUPERSEDED: &str = "superseded by job ";

/// Why an exchange ends when something newer is said, which is `job`.
pub fn superseded_by(job: JobId) -> String {
    format!("{SUPERSEDED}{job}, which was said after it")
}

/// Whether a text can be a session's name, and if not, why, with one that could.
///
/// Names become folders and arguments, on any file system: letters, digits, `.`, `_` and `-`, the first no dot and no
/// dash, the last no dot, not digits alone, which would be a number, and no name of a device. Case does not tell two
/// names apart.
pub fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let only_digits = name.chars().all(|c| c.is_ascii_digit());
    let why = if name.is_empty() {
        "is empty"
    } else if only_digits {
        "is a number, and sessions have numbers of their own"
    } else if name.len() > MAX_NAME_BYTES {
        "is longer than 64 bytes"
    } else if name.starts_with(['.', '-']) {
        "begins with a dot or a dash"
    } else if !name.chars().all(fits) {
        "may have only letters, digits, '.', '_' and '-'"
    } else if name.ends_with('.') {
        "ends with a dot, which some file systems leave out"
    } else if is_device(name) {
        "is what Windows calls a device"
    } else {
        return Ok(());
    };
    let mut safe: String = name.chars().map(|c| if fits(c) { c } else { '-' }).collect();
    while safe.contains("--") {
        safe = safe.replace("--", "-");
    }
    safe.truncate(MAX_NAME_BYTES - 8);
    let mut safe = safe.trim_matches(['.', '-']).to_owned();
    if safe.is_empty() || safe.chars().all(|c| c.is_ascii_digit()) || is_device(&safe) {
        safe = format!("session{}{safe}", if safe.is_empty() { "" } else { "-" });
    }
    Err(format!("{why}; {safe} would do"))
}

/// Whether Windows would open a device instead of a file of this name.
fn is_device(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let numbered =
        |port: &str| stem.strip_prefix(port).is_some_and(|n| n.len() == 1 && n.as_bytes()[0].is_ascii_digit());
    matches!(stem.as_str(), "con" | "prn" | "aux" | "nul") || numbered("com") || numbered("lpt")
}

/// Of what was said in a session, the exchanges that a new request shows: from the given place on.
///
/// `sizes` are the exchanges' tokens, oldest first. As long as all fit `budget`, all are shown; when one
/// more does not, the oldest go until half of the budget is free. So the first exchange shown stays the
/// same for many exchanges, and with it the bytes of the prompt. The newest is always shown.
pub fn first_shown(sizes: &[u64], budget: u64) -> usize {
    let (mut first, mut shown) = (0, 0);
    for (at, size) in sizes.iter().enumerate() {
        shown += size;
        if shown > budget {
            while first < at && shown > budget / 2 {
                shown -= sizes[first];
                first += 1;
            }
        }
    }
    first
}

/// The same exchanges as messages of a record, for whoever sums them up.
pub fn record(exchanges: &[Exchange]) -> Vec<Message> {
    let agent = |text: String| Message::Assistant { text, reasoning: None, calls: Vec::new() };
    let mut messages = Vec::new();
    for exchange in exchanges {
        messages.push(Message::User { text: exchange.goal.clone() });
        for asked in &exchange.asked {
            messages.extend([agent(asked.question.clone()), Message::User { text: asked.told().to_owned() }]);
        }
        messages.push(agent(exchange.reply()));
    }
    messages
}

/// Exchanges that stand in a summary made without a model.
const LISTED: usize = 8;

/// A summary made without a model: the beginnings of what was said last.
pub fn without_model(exchanges: &[Exchange]) -> String {
    let left_out = exchanges.len().saturating_sub(LISTED);
    let mut lines = Vec::new();
    if left_out > 0 {
        let are = if left_out == 1 { "is" } else { "are" };
        lines.push(format!("({} {are} left out.)", plural(left_out as u64, "earlier turn")));
    }
    for exchange in &exchanges[left_out..] {
        let (said, answered) = (begin(&exchange.goal, 200), begin(&exchange.reply(), 200));
        lines.push(format!("- The person said: {said}"));
        for asked in &exchange.asked {
            let (question, told) = (begin(&asked.question, 200), begin(asked.told(), 200));
            lines.push(format!("  The agent asked: {question}\n  The person said: {told}"));
        }
        lines.push(format!("  The agent answered: {answered}"));
    }
    lines.join("\n")
}

/// The beginning of a text on one line, of at most `most` characters.
fn begin(text: &str, most: usize) -> String {
    let line = folded(text);
    match line.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// The system message that tells of what was said before and is not shown.
pub fn memory(previous: Option<&str>, earlier: Option<&str>) -> Option<String> {
    let part = |title: &str, text: Option<&str>| {
        let text = text?.trim();
        (!text.is_empty()).then(|| format!("## {title}\n{text}"))
    };
    let parts = [part("Previous Session Summary", previous), part("Earlier in This Session", earlier)];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("# Memory\n{}", parts.join("\n\n")))
}
