//! How a run reads: job events to lines. Pure, so that show, run and watch look the same.

use std::collections::{HashMap, HashSet};

use posse_core::clock::Millis;
use posse_core::events::JobEvent;
use posse_core::job::{Job, JobState, Output};
use posse_core::model::{CallRequest, Finish, ToolCalling};
use posse_core::run::journal::{CallOutcome, EndStatus, Entry, Opening, Turn};
use posse_core::run::{finish, phase};
use serde_json::Value;

use crate::output::Paint;
use crate::output::text::{self, because, columns, duration, one_line, plural, truncate, visible, wrap};

const RESULT_LINES: usize = 4;

const INDENT: &str = "     ";

pub struct Renderer {
    paint: Paint,
    width: usize,
    full: bool,
    /// Whether a model, by its configured name, costs nothing.
    free: Box<dyn Fn(&str) -> bool + Send>,
    calls: HashMap<String, String>,
    /// Those of them that a program made.
    of_programs: HashSet<String>,
    calls_run: u64,
    turns: u32,
    model: Option<String>,
    claimed_at: Option<Millis>,
    /// Why the model gave no answer last, so that the end of the attempt need not say it again.
    failure: Option<String>,
    /// What was said above of why the job waits.
    told: Option<String>,
}

impl Renderer {
    pub fn new(paint: Paint, width: usize, full: bool, free: Box<dyn Fn(&str) -> bool + Send>) -> Renderer {
        let (calls, of_programs) = Default::default();
        let (model, failure, told) = (None, None, None);
        let (calls_run, turns, claimed_at) = (0, 0, None);
        Renderer { paint, width, full, free, calls, of_programs, calls_run, turns, model, claimed_at, failure, told }
    }

    /// The same where it was said above why the job waits; it is not said again.
    pub fn below(mut self, told: Option<String>) -> Renderer {
        self.told = told;
        self
    }

    pub fn heading(&self, job: &Job) -> Vec<String> {
        let title = format!("job {}", job.id);
        let used = columns(&title) + columns(&job.role) + 4;
        let goal = one_line(&job.payload.goal, self.width.saturating_sub(used).max(20));
        vec![format!("{}  {}  {goal}", self.paint.bold(title), self.paint.cyan(&job.role))]
    }

    pub fn lines(&mut self, event: &JobEvent) -> Vec<String> {
        match event {
            JobEvent::Claimed { attempt, max_attempts, worker, at, .. } => {
                self.claimed_at.get_or_insert(*at);
                let worker = one_line(worker, 60);
                vec![self.paint.dim(format!("  ▸  attempt {attempt} of {max_attempts}, claimed by {worker}"))]
            }
            JobEvent::Entry { recorded, .. } => self.entry(&recorded.entry),
            JobEvent::AttemptEnded { attempt, outcome, reason, at, next_at, .. } => {
                let next = next_at.map(|next| format!("; next attempt in {}", duration(next - at)));
                let is_told =
                    |reason: &str| [&self.failure, &self.told].iter().any(|told| told.as_deref() == Some(reason));
                let untold = reason.as_deref().filter(|reason| !is_told(reason));
                let reason = untold.map(|reason| one_line(reason, 400)).unwrap_or_default();
                let words = because(&outcome.replace('_', " "), &reason);
                let text = format!("attempt {attempt} {words}{}", next.unwrap_or_default());
                let bad = matches!(outcome.as_str(), "failed" | "worker_lost" | "gave_up");
                self.marked(if bad { "✗" } else { "▪" }, &text, |p, t| if bad { p.red(t) } else { p.yellow(t) })
            }
            JobEvent::Ended { job } => self.ended(job),
        }
    }

    fn entry(&mut self, entry: &Entry) -> Vec<String> {
        match entry {
            Entry::Began { opening, .. } => self.began(opening),
            Entry::Turn(turn) => self.turn(turn),
            Entry::TurnFailed { reason, failed_tries, ms, .. } => {
                let tries = if failed_tries.len() > 1 {
                    format!("{}, ", plural(failed_tries.len() as u64, "try"))
                } else {
                    String::new()
                };
                let text = format!("the model gave no answer ({tries}{}): {reason}", duration(*ms as i64));
                self.failure = Some(reason.clone());
                self.marked("✗", &text, Paint::red)
            }
            Entry::CallStarted { .. } => Vec::new(),
            Entry::CallEnded { call_id, outcome, text, annotations, ms } => {
                let mut lines = self.call_ended(call_id, *outcome, text, *ms);
                if self.of_programs.contains(call_id) {
                    lines = below(lines);
                }
                for note in annotations {
                    let tags =
                        if note.tags.is_empty() { String::new() } else { format!(" [{}]", note.tags.join(", ")) };
                    lines.extend(self.marked("✎", &format!("{}{tags}", note.text), |p, t| p.cyan(t)));
                }
                lines
            }
            Entry::ProgramBegan { .. } => Vec::new(),
            Entry::CallMade { call, .. } => {
                let runs = call.runs();
                self.calls.insert(runs.id.clone(), runs.name.clone());
                self.of_programs.insert(runs.id.clone());
                below(self.call(&runs))
            }
            Entry::SkillBegan { call_id } => {
                let name = self.calls.get(call_id).cloned().unwrap_or_else(|| "a skill".into());
                self.marked("▾", &format!("skill {name}"), Paint::cyan)
            }
            Entry::FellBack { call_id, text, to, .. } => {
                let failed = self.calls.get(call_id).cloned().unwrap_or_else(|| "a call".into());
                let name = &to.request.name;
                self.calls.insert(to.request.id.clone(), name.clone());
                let text = one_line(text, 200);
                let told = match *name == failed {
                    true => format!("{failed} was not run ({text}); it is tried again"),
                    false => format!("{failed} failed ({text}); {name} is tried instead"),
                };
                self.marked("!", &told, Paint::yellow)
            }
            Entry::Asked { questions, .. } => {
                let asked = |question: &String| self.marked("?", question, |p, t| p.yellow(p.bold(t)));
                questions.iter().flat_map(asked).collect()
            }
            Entry::Answered { answer, .. } => match answer {
                Some(answer) => self.marked("✎", &format!("answered: {answer}"), Paint::cyan),
                None => self.marked("!", "nobody answered in time; it goes on without", Paint::yellow),
            },
            Entry::Replanned { reason, summary } => {
                let text = format!("begins anew with another plan: {reason}\nWhat it learned: {summary}");
                self.marked("↻", &text, Paint::yellow)
            }
            Entry::Compacted { cut, summary } => {
                let many = plural((cut.to - cut.from) as u64, "older message");
                self.marked("≡", &format!("{many} summed up: {}", one_line(summary, 200)), |p, t| p.dim(t))
            }
            Entry::Shortened { shortenings } => {
                let many = plural(shortenings.len() as u64, "message");
                self.marked("≡", &format!("{many} shortened to fit the model's window"), |p, t| p.dim(t))
            }
            // Of no interest to whoever watches; `--json` has it.
            Entry::Counted { .. } => Vec::new(),
            Entry::Summarised { usage, failure, ms, .. } => match failure {
                Some(why) => self.marked("!", &format!("no summary was written: {why}"), Paint::yellow),
                None => {
                    let text = format!("wrote a summary  {} · {}", duration(*ms as i64), text::tokens(usage));
                    self.marked("≡", &text, |p, t| p.dim(t))
                }
            },
            Entry::Note { text } => self.marked("!", &format!("told the model: {text}"), Paint::yellow),
            Entry::Doubted { why, .. } => {
                self.marked("!", &format!("not taken as the answer yet: {why}"), Paint::yellow)
            }
            Entry::Ended { status, text, reason } => self.run_ended(*status, text, reason.as_deref()),
            Entry::Restarted => {
                self.marked("↻", "what is asked for was changed by hand; the run begins again", Paint::yellow)
            }
            Entry::Reopened => self.marked("↻", "re-run by hand; the run goes on from here", Paint::yellow),
        }
    }

    fn began(&mut self, opening: &Opening) -> Vec<String> {
        self.model = Some(opening.model.clone());
        let calling = if opening.calling == ToolCalling::Structured { "structured" } else { "native" };
        let tools: Vec<_> = opening.tools.iter().map(|t| t.spec.name.as_str()).collect();
        let tools = if tools.is_empty() { "no tools".into() } else { tools.join(", ") };
        let text = format!("  ▸  model {} ({calling} tool calls), tools: {tools}", one_line(&opening.model, 60));
        let mut lines = vec![self.paint.dim(truncate(&text, self.width, false))];
        if let Some(told) = &opening.results {
            let text = format!("  ▸  told what the jobs before it ({}) came to", told.standing);
            lines.push(self.paint.dim(truncate(&text, self.width, false)));
            if self.full {
                lines.extend(self.paragraph(&visible(&told.text), usize::MAX));
            }
        }
        lines
    }

    fn turn(&mut self, turn: &Turn) -> Vec<String> {
        self.turns += 1;
        let mut lines = Vec::new();
        for failed in &turn.failed_tries {
            let text = format!("{} gave no answer, tried again: {}", failed.model, one_line(&failed.reason, 300));
            lines.extend(self.marked("!", &text, Paint::yellow));
        }
        let said = turn.said();
        let thought = turn.reasoning.as_ref().map(|reasoning| reasoning.text.clone());
        let thinking = if said.trim().is_empty() { thought.unwrap_or_default() } else { said };
        let stats = format!("{} · {}", duration(turn.ms as i64), text::tokens(&turn.usage));
        let mut body = self.paragraph(&visible(thinking.trim()), 6);
        if body.is_empty() {
            body.push(self.paint.dim(&stats));
        } else {
            let last = body.len() - 1;
            // On the same line where it fits, else below.
            if columns(&body[last]) + columns(&stats) + columns(INDENT) + 2 <= self.width {
                body[last] = format!("{}  {}", body[last], self.paint.dim(&stats));
            } else {
                body.push(self.paint.dim(&stats));
            }
        }
        for (i, line) in body.into_iter().enumerate() {
            let mark = if i == 0 { format!("{:>3}  ", self.turns) } else { INDENT.into() };
            lines.push(format!("{}{line}", self.paint.bold(mark)));
        }
        for call in &turn.calls {
            let runs = call.runs();
            self.calls.insert(runs.id.clone(), runs.name.clone());
            if !is_bookkeeping(&runs.name) {
                lines.extend(self.call(&runs));
            }
        }
        for cut in &turn.cut_calls {
            let why = match turn.finish {
                Finish::Length => "was cut off by the token limit and not run",
                _ => "came in a reply that does not count and was not run",
            };
            let text = format!("a call of {} {why}", one_line(&cut.name, 64));
            lines.extend(self.marked("!", &text, Paint::yellow));
        }
        lines
    }

    fn call(&self, call: &CallRequest) -> Vec<String> {
        let name = one_line(&call.name, 64);
        let arguments = arguments(&call.arguments, if self.full { usize::MAX } else { 60 });
        let room = self.width.saturating_sub(columns(INDENT) + columns(&name) + 4);
        let head = format!("{INDENT}{} {}", self.paint.cyan("→"), self.paint.cyan(&name));
        if !self.full {
            return vec![format!("{head} {}", truncate(&arguments, room, false))];
        }
        let mut lines = vec![head];
        lines.extend(wrap(&arguments, room).into_iter().map(|line| format!("{INDENT}  {line}")));
        lines
    }

    fn call_ended(&mut self, call_id: &str, outcome: CallOutcome, result: &str, ms: u64) -> Vec<String> {
        let name = self.calls.get(call_id).cloned().unwrap_or_else(|| "call".into());
        let is_acknowledged = is_bookkeeping(&name) && outcome == CallOutcome::Done;
        if outcome != CallOutcome::Refused && !is_acknowledged {
            self.calls_run += 1;
        }
        if is_acknowledged {
            return Vec::new();
        }
        let name = one_line(&name, 64);
        let took = duration(ms as i64);
        let lines = result.lines().count() as u64;
        let size = text::bytes(result.len() as u64);
        let head = match outcome {
            CallOutcome::Done => self.paint.dim(format!("← {name}  {}, {size}, {took}", plural(lines, "line"))),
            CallOutcome::Failed { category } => {
                let category = serde_json::to_value(category).ok();
                let category = category.as_ref().and_then(Value::as_str).unwrap_or("failed").replace('_', " ");
                format!("{} {}", self.paint.red(format!("✗ {name}: {category}")), self.paint.dim(took))
            }
            CallOutcome::Refused => self.paint.yellow(format!("✗ {name} was not run")),
            CallOutcome::Unknown => {
                self.paint.yellow(format!("? {name}: cut off in the middle; whether it took effect is not known"))
            }
        };
        let mut out = vec![format!("{INDENT}{head}")];
        // An error is read, a result is looked at.
        let shown = if outcome == CallOutcome::Done {
            self.excerpt(&visible(result))
        } else {
            self.paragraph(&visible(result), 3)
        };
        out.extend(shown.into_iter().map(|line| format!("{INDENT}  {}", self.paint.dim(line))));
        out
    }

    fn run_ended(&self, status: EndStatus, answer: &str, reason: Option<&str>) -> Vec<String> {
        let mut lines = vec![String::new()];
        if matches!(status, EndStatus::Completed | EndStatus::Partial) {
            let title = if status == EndStatus::Partial { "✓  answer, in part" } else { "✓  answer" };
            lines.push(format!("  {}", self.paint.green(self.paint.bold(title))));
            lines.extend(reason.into_iter().flat_map(|why| self.marked("!", why, Paint::yellow)));
        } else {
            let words = because(&status.as_str().replace('_', " "), &visible(reason.unwrap_or_default()));
            lines.extend(self.marked("✗", &words, Paint::red));
            if reason.is_some_and(|reason| reason.strip_prefix("stuck: ") == Some(answer)) {
                // The agent's own words, and told.
                return lines;
            }
            if !answer.trim().is_empty() {
                lines.push(format!("{INDENT}{}", self.paint.dim("until then it said:")));
            }
        }
        let body = wrap(&visible(answer.trim()), self.width.saturating_sub(columns(INDENT)));
        lines.extend(body.into_iter().map(|line| format!("{INDENT}{line}")));
        lines.push(String::new());
        lines
    }

    fn ended(&self, job: &Job) -> Vec<String> {
        let mut lines = Vec::new();
        // A run that ended has told its reason; a job that never got so far has only this.
        let untold = job.state != JobState::Completed && job.output.as_ref().is_none_or(|o| o.status == "unfinished");
        let untold = untold && self.failure != job.reason;
        if let (true, Some(reason)) = (untold, &job.reason) {
            lines.push(String::new());
            lines.extend(self.marked("✗", reason, Paint::red));
        }
        lines.push(self.summary(job));
        lines
    }

    pub fn summary(&self, job: &Job) -> String {
        let judged = job.output.as_ref().filter(|_| job.state.is_final()).and_then(judged);
        let words =
            judged.map_or_else(|| job.state.to_string(), |status| format!("{} ({})", job.state, visible(&status)));
        let state = self.paint.state(job.state, self.paint.bold(words));
        let mut parts = Vec::new();
        if let Some(output) = &job.output {
            parts.extend(self.totals(output));
        }
        if let (Some(from), Some(to)) = (self.claimed_at, job.finalized_at) {
            parts.push(duration(to - from));
        }
        let line = parts.iter().map(|part| format!(" · {part}")).collect::<String>();
        format!("  {state}{}", self.paint.dim(line))
    }

    fn totals(&self, output: &Output) -> Vec<String> {
        let free = self.model.as_deref().is_some_and(|model| (self.free)(model));
        let calls = match (self.calls_run, output.tools_used.is_empty()) {
            (0, true) => "no tool calls".to_owned(),
            (n, _) => format!("{} ({})", plural(n, "tool call"), output.tools_used.join(", ")),
        };
        vec![
            plural(output.turns.into(), "turn"),
            calls,
            text::tokens(&output.usage),
            text::cost(output.cost_microusd, free),
        ]
    }

    fn marked(&self, mark: &str, text: &str, paint: impl Fn(Paint, String) -> String) -> Vec<String> {
        let body = self.paragraph(&visible(text.trim()), 8);
        let first = |i: usize| if i == 0 { format!("  {mark}  ") } else { INDENT.into() };
        body.into_iter().enumerate().map(|(i, line)| paint(self.paint, format!("{}{line}", first(i)))).collect()
    }

    fn paragraph(&self, text: &str, most: usize) -> Vec<String> {
        let width = self.width.saturating_sub(columns(INDENT) + 2);
        if self.full {
            return wrap(text, width);
        }
        let head: String = text.chars().take(most * width).collect();
        let mut lines = wrap(&head, width);
        if lines.len() > most || head.len() < text.len() {
            lines.truncate(most);
            lines.push("…".into());
        }
        lines
    }

    fn excerpt(&self, text: &str) -> Vec<String> {
        let width = self.width.saturating_sub(columns(INDENT) + 2);
        if self.full {
            return wrap(text, width);
        }
        // Blank lines tell nothing in so short a view.
        let mut filled = text.lines().filter(|line| !line.trim().is_empty());
        let mut lines: Vec<_> = filled.by_ref().take(RESULT_LINES).map(|line| truncate(line, width, false)).collect();
        let more = filled.count();
        if more > 0 {
            lines.push(format!("… {}", plural(more as u64, "more line")));
        }
        lines
    }
}

/// What there is to say of a run beside its job's state: how its agent judges the work, or else what ended it.
pub fn judged(output: &Output) -> Option<String> {
    let ended = Some(output.status.as_str()).filter(|status| !["", "completed", "unfinished"].contains(status));
    output.end_status.as_deref().or(ended).map(str::to_owned)
}

/// Lines of what a program did, below the call that runs it.
fn below(lines: Vec<String>) -> Vec<String> {
    lines.into_iter().map(|line| format!("  {line}")).collect()
}

/// Calls that no tool runs: what they say is told in other lines.
pub(super) fn is_bookkeeping(name: &str) -> bool {
    name == finish::FINISH || name == phase::AGENT_STEP
}

fn arguments(raw: &str, most: usize) -> String {
    let most = most.min(1_000_000);
    let Ok(Value::Object(object)) = serde_json::from_str::<Value>(raw) else { return one_line(raw, most.max(80)) };
    let value = |value: &Value| match value {
        Value::String(text) => format!("\"{}\"", one_line(text, most)),
        other => one_line(&other.to_string(), most),
    };
    object.iter().map(|(name, v)| format!("{}={}", one_line(name, 64), value(v))).collect::<Vec<_>>().join(" ")
}
