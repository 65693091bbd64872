//! The view of a working memory.
//!
//! Only the frame begins a line at its left edge: what agents and tools wrote is folded into one
//! line or stands indented, so that no text can pass for a section.

use std::fmt::Write;

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
    let (mut out, after) = (before_steps(memory), after_steps(memory, signals));
    let room = max_bytes.saturating_sub(out.len() + after.len());
    push_steps(&mut out, &memory.steps, room);
    out + &after
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
        let tokens = |lines: &String| tokens::text(&format!("\n{}", lines.trim_end_matches('\n')));
        let Lines { whole, cut, size } = Lines::of(step);
        self.sizes.push(size);
        self.tokens.push([tokens(&whole), tokens(cut.as_ref().unwrap_or(&whole))]);
    }

    /// Tokens of the view in at most `max_bytes`: never less than it has, and about one more for two steps.
    pub fn of_view(&self, memory: &WorkingMemory, signals: &str, max_bytes: usize) -> u64 {
        let (before, after) = (before_steps(memory), after_steps(memory, signals));
        let room = max_bytes.saturating_sub(before.len() + after.len());
        let mut sum = tokens::text(&before) + tokens::text(&after);
        if !self.sizes.is_empty() {
            let (cut, left_out) = cut_and_left_out(room, &self.sizes);
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

/// How many of the oldest steps have their results cut, and how many become one line, so that the section has at most
/// `room` bytes, or as few as there can be. If any become one line, all others are cut.
fn cut_and_left_out(room: usize, sizes: &[Size]) -> (usize, usize) {
    // The title has a line break, and one stands behind the section.
    let mut size = STEPS.len() + 2 + sizes.iter().map(|step| step.bytes).sum::<usize>();
    let mut cut = 0;
    while size > room && cut < sizes.len() {
        size -= sizes[cut].saved;
        cut += 1;
    }
    (cut, if size > room { fewest_left_out(size, room, sizes) } else { 0 })
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

/// Writes the section of steps, if there are any, in at most `room` bytes, or as few as there can be.
fn push_steps(out: &mut String, steps: &[StepRecord], room: usize) {
    if steps.is_empty() {
        return;
    }
    let steps: Vec<_> = steps.iter().map(Lines::of).collect();
    let sizes: Vec<_> = steps.iter().map(|step| step.size).collect();
    let (cut, left_out) = cut_and_left_out(room, &sizes);
    let _ = writeln!(out, "{STEPS}");
    if left_out > 0 {
        out.push_str(&line_for(&sizes[..left_out]));
    }
    for (at, step) in steps.iter().enumerate().skip(left_out) {
        out.push_str(step.cut.as_ref().filter(|_| at < cut).unwrap_or(&step.whole));
    }
    out.push('\n');
}

/// What a view shows of a step.
struct Lines {
    whole: String,
    /// The same with a mark in place of the result; none where that would save nothing.
    cut: Option<String>,
    size: Size,
}

impl Lines {
    fn of(step: &StepRecord) -> Lines {
        let (number, phase) = (step.step, step.phase.as_str().to_uppercase());
        let mut whole = format!("  [Step {number}] {phase}: {}\n", folded(&step.summary));
        let mut cut = None;
        if let Some(call) = &step.call {
            let _ = writeln!(whole, "    Tool: {}", folded(&call.tool));
            whole.push_str(if call.failed { "    Result (failed):" } else { "    Result:" });
            let begin = whole.len();
            push_output(&mut whole, &call.output);
            let mark = format!(" [… {} left out; step {number}]", plural(call.output.len() as u64, "byte"));
            let behind = call.ms.map_or("\n".into(), |ms| format!("\n    Duration: {ms}ms\n"));
            cut = (mark.len() < whole.len() - begin).then(|| format!("{}{mark}{behind}", &whole[..begin]));
            whole.push_str(&behind);
        }
        let saved = cut.as_ref().map_or(0, |cut| whole.len() - cut.len());
        Lines { size: Size { step: number, bytes: whole.len(), saved }, whole, cut }
    }
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
