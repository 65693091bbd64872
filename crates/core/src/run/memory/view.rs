//! The view of a working memory.
//!
//! Only the frame begins a line at its left edge: what agents and tools wrote is folded into one
//! line or stands indented, so that no text can pass for a section.

use std::fmt::Write;
use std::ops::Range;

use super::{ErrorRecord, Plan, StepRecord, SubTaskStatus, WorkingMemory};
use crate::model::tokens;
use crate::text::{folded, plural};

const HEADER: &str = "--- Agent Working Memory ---\n\n";
const FOOTER: &str = "--- End Agent Working Memory ---";

/// Widest title, in characters, that the remarks after titles are lined up with.
const MAX_ALIGNED: usize = 60;

/// Most bytes of an error's message and of its resolution. The whole message is the step's result.
const MAX_ERROR_BYTES: usize = 300;

/// The view, in at most `max_bytes` if there is one so small.
pub(super) fn render(memory: &WorkingMemory, signals: &str, max_bytes: usize) -> String {
    let before = before_steps(memory);
    let after = after_steps(memory, signals);
    let steps = Steps::render(&memory.steps);
    let room = max_bytes.saturating_sub(before.len() + after.len());
    let mut out = String::with_capacity(before.len() + after.len() + steps.text.len().min(room));
    out.push_str(&before);
    steps.push_within(room, &mut out);
    out.push_str(&after);
    out
}

/// The tokens of steps, measured as they come, so that a view can be measured without being written.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::run) struct StepTokens {
    sizes: Vec<Size>,
    /// Tokens of each step, whole and with its result cut.
    tokens: Vec<[u64; 2]>,
}

impl StepTokens {
    /// Takes in the next step.
    pub fn push(&mut self, step: &StepRecord) {
        // With the line break before it in place of its own: that is one token with what it indents.
        let mut text = "\n".to_owned();
        let Span { size, result, cut } = push_step(&mut text, step);
        text.pop();
        let whole = tokens::text(&text);
        let shorter = cut.map_or(whole, |mark| {
            text.replace_range(result, &mark);
            tokens::text(&text)
        });
        self.sizes.push(size);
        self.tokens.push([whole, shorter]);
    }

    /// Tokens of the view in at most `max_bytes`: never less than it has, and about one more for two steps.
    pub fn of_view(&self, memory: &WorkingMemory, signals: &str, max_bytes: usize) -> u64 {
        let (before, after) = (before_steps(memory), after_steps(memory, signals));
        let room = max_bytes.saturating_sub(before.len() + after.len());
        let mut sum = tokens::text(&before) + tokens::text(&after);
        if !self.sizes.is_empty() {
            let Fitting { cut, left_out } = Fitting::into(room, &self.sizes);
            sum += tokens::text(STEPS) + tokens::text("\n\n");
            if left_out > 0 {
                sum += tokens::text(&line_for(&self.sizes[..left_out]));
            }
            let shown = self.tokens.iter().enumerate().skip(left_out);
            sum += shown.map(|(at, [whole, shorter])| if at < cut { shorter } else { whole }).sum::<u64>();
        }
        sum
    }
}

fn before_steps(memory: &WorkingMemory) -> String {
    let mut out = HEADER.to_owned();
    if let Some(plan) = &memory.plan {
        push_plan(&mut out, plan);
    }
    if !memory.key_facts.is_empty() {
        out.push_str("[Key Facts]\n");
        for fact in &memory.key_facts {
            let _ = writeln!(out, "  • {}  [step {}]", folded(&fact.fact), fact.source_step);
        }
        out.push('\n');
    }
    out
}

fn push_plan(out: &mut String, plan: &Plan) {
    let _ = writeln!(out, "[PLAN v{}]  Goal: {}", plan.plan_version, folded(&plan.goal));
    let titles: Vec<_> = plan.sub_tasks.iter().map(|sub_task| folded(&sub_task.title)).collect();
    let lengths = titles.iter().map(|title| title.chars().count());
    let width = lengths.filter(|length| *length <= MAX_ALIGNED).max().unwrap_or(0);
    for (sub_task, title) in plan.sub_tasks.iter().zip(titles) {
        let current = plan.current_sub_task == Some(sub_task.id);
        let mark = match sub_task.status {
            SubTaskStatus::Done => "✓",
            SubTaskStatus::Failed => "✗",
            SubTaskStatus::Pending if !current => "○",
            SubTaskStatus::Pending | SubTaskStatus::InProgress => "→",
        };
        let remark = match sub_task.status {
            _ if current => "← CURRENT".to_owned(),
            SubTaskStatus::Pending if !sub_task.depends_on.is_empty() => {
                let needs: Vec<_> = sub_task.depends_on.iter().map(u32::to_string).collect();
                format!("(needs: {})", needs.join(", "))
            }
            _ => String::new(),
        };
        let line = format!("  {mark} Sub-task {}: {title:width$}  {remark}", sub_task.id);
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out.push('\n');
}

fn after_steps(memory: &WorkingMemory, signals: &str) -> String {
    let mut out = String::from("[Errors]\n");
    if memory.error_register.is_empty() {
        out.push_str("  (none)\n");
    }
    for error in &memory.error_register {
        push_error(&mut out, error);
    }
    out.push('\n');
    if !signals.is_empty() {
        out.push_str("[Context Signals]\n");
        for line in signals.lines() {
            let _ = writeln!(out, "  {line}");
        }
        out.push('\n');
    }
    out.push_str(FOOTER);
    out
}

fn push_error(out: &mut String, error: &ErrorRecord) {
    let state = if error.resolution.is_some() { "resolved" } else { "unresolved" };
    let tool = error.tool.as_ref().map(|tool| format!("{tool}, ")).unwrap_or_default();
    let _ = writeln!(out, "  [Step {}] {tool}{state}: {}", error.step, shortened(&error.message));
    if let Some(resolution) = &error.resolution {
        let _ = writeln!(out, "    Resolution: {}", shortened(resolution));
    }
}

/// The title of the section of steps.
const STEPS: &str = "[Steps]";

/// How large a step is in a view.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Size {
    step: u32,
    /// Bytes of its lines.
    bytes: usize,
    /// Bytes fewer when its result is cut.
    saved: usize,
}

/// What becomes of steps so that their section has at most so many bytes, or as few as there can be.
struct Fitting {
    /// How many of the oldest have their results cut.
    cut: usize,
    /// How many of the oldest become one line; if any do, all others are cut.
    left_out: usize,
}

impl Fitting {
    fn into(room: usize, sizes: &[Size]) -> Fitting {
        // The title has a line break, and one stands behind the section.
        let mut size = STEPS.len() + 2 + sizes.iter().map(|step| step.bytes).sum::<usize>();
        let mut cut = 0;
        while size > room && cut < sizes.len() {
            size -= sizes[cut].saved;
            cut += 1;
        }
        let left_out = if size > room { Self::fewest_left_out(size, room, sizes) } else { 0 };
        Fitting { cut, left_out }
    }

    /// How many of the oldest steps become one line, when every output is cut and the section still
    /// has `size` bytes: as few as fit into `room`, else as many as make it smallest.
    fn fewest_left_out(mut size: usize, room: usize, sizes: &[Size]) -> usize {
        let (mut best, mut bytes) = ((size, 0), 0);
        for (at, step) in sizes.iter().enumerate() {
            size -= step.bytes - step.saved;
            bytes += step.bytes;
            best = best.min((size + left_out(bytes, sizes[0].step, step.step).len(), at + 1));
            if best.0 <= room {
                break;
            }
        }
        best.1
    }
}

/// The line in place of steps.
fn line_for(steps: &[Size]) -> String {
    let numbers = steps.first().zip(steps.last()).map_or((0, 0), |(first, last)| (first.step, last.step));
    left_out(steps.iter().map(|step| step.bytes).sum(), numbers.0, numbers.1)
}

fn left_out(bytes: usize, first: u32, last: u32) -> String {
    let bytes = plural(bytes as u64, "byte");
    match first == last {
        true => format!("  [… {bytes} left out; step {first}]\n"),
        false => format!("  [… {bytes} left out; steps {first} to {last}]\n"),
    }
}

/// The section of steps, written whole, and where in it each output is.
struct Steps {
    /// Empty if there are no steps.
    text: String,
    spans: Vec<Span>,
}

struct Span {
    size: Size,
    /// What stands after `Result:`; empty in a step without a call.
    result: Range<usize>,
    /// What stands in place of the result when it is cut; none where that would save nothing.
    cut: Option<String>,
}

impl Steps {
    fn render(steps: &[StepRecord]) -> Steps {
        let mut text = String::new();
        if !steps.is_empty() {
            text.push_str(STEPS);
            text.push('\n');
        }
        let spans = steps.iter().map(|step| push_step(&mut text, step)).collect();
        if !steps.is_empty() {
            text.push('\n');
        }
        Steps { text, spans }
    }

    /// Writes the section in at most `room` bytes, or as few as there can be.
    fn push_within(&self, room: usize, out: &mut String) {
        if self.spans.is_empty() {
            return;
        }
        let sizes: Vec<_> = self.spans.iter().map(|span| span.size).collect();
        let Fitting { cut, left_out } = Fitting::into(room, &sizes);
        let mut at = STEPS.len() + 1;
        out.push_str(&self.text[..at]);
        if left_out > 0 {
            out.push_str(&line_for(&sizes[..left_out]));
            at += sizes[..left_out].iter().map(|step| step.bytes).sum::<usize>();
        }
        for span in self.spans.iter().take(cut).skip(left_out) {
            if let Some(mark) = &span.cut {
                out.push_str(&self.text[at..span.result.start]);
                out.push_str(mark);
                at = span.result.end;
            }
        }
        out.push_str(&self.text[at..]);
    }
}

fn push_step(out: &mut String, step: &StepRecord) -> Span {
    let start = out.len();
    let _ = writeln!(out, "  [Step {}] {}: {}", step.step, step.phase.as_str().to_uppercase(), folded(&step.summary));
    let mut result = out.len()..out.len();
    let mut cut = None;
    if let Some(call) = &step.call {
        let _ = writeln!(out, "    Tool: {}", folded(&call.tool));
        out.push_str(if call.failed { "    Result (failed):" } else { "    Result:" });
        let begin = out.len();
        push_output(out, &call.output);
        result = begin..out.len();
        let mark = format!(" [… {} left out; step {}]", plural(call.output.len() as u64, "byte"), step.step);
        cut = Some(mark).filter(|mark| mark.len() < result.len());
        out.push('\n');
        if let Some(ms) = call.ms {
            let _ = writeln!(out, "    Duration: {ms}ms");
        }
    }
    let saved = cut.as_ref().map_or(0, |mark| result.len() - mark.len());
    Span { size: Size { step: step.step, bytes: out.len() - start, saved }, result, cut }
}

/// An output of one line goes on where it is; one of several stands below, each line indented.
fn push_output(out: &mut String, output: &str) {
    let output = output.trim_end();
    if output.is_empty() {
        out.push_str(" (no output)");
    } else if !output.contains('\n') {
        out.push(' ');
        out.push_str(output);
    } else {
        for line in output.split('\n') {
            out.push_str(if line.is_empty() { "\n" } else { "\n      " });
            out.push_str(line);
        }
    }
}

/// Text on one line, with at most [`MAX_ERROR_BYTES`] of it.
fn shortened(text: &str) -> String {
    let mut out = folded(text);
    if out.len() > MAX_ERROR_BYTES {
        out.truncate(out.floor_char_boundary(MAX_ERROR_BYTES - '…'.len_utf8()));
        out.push('…');
    }
    out
}
