//! What a worker process does, one line for each thing: for many jobs at once.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;
use posse_app::events::WorkEvent;
use posse_app::json;
use posse_core::job::{JobId, JobState};
use posse_core::run::journal::{Call, CallOutcome, EndStatus, Entry, Turn};
use posse_core::run::phase::AGENT_STEP;
use posse_core::worker::Progress;
use posse_infra::model::outage::Outages;
use tokio::sync::broadcast;

use super::render::is_bookkeeping;
use crate::output::stream::stdout;
use crate::output::text::{because, columns, duration, one_line, plural, tokens};
use crate::output::{Out, Paint};

/// Shows what happens in this process until nobody speaks any more. Of jobs that merely wait because an
/// endpoint is out nothing is said: that it is out, and for how long it was, is told once for all of them.
pub async fn show(out: &Out, mut progress: broadcast::Receiver<Progress>, outages: Arc<Outages>) -> Result<()> {
    let mut feed = Feed {
        paint: out.note_paint,
        width: out.width,
        roles: HashMap::new(),
        calls: HashMap::new(),
        held: HashMap::new(),
        outages,
    };
    let mut is_unread = false;
    loop {
        match progress.recv().await {
            Ok(heard) if out.json => {
                // Work goes on whoever reads of it.
                if let Some(line) = WorkEvent::of(&heard)
                    && !stdout().send(json::line(&line)? + "\n")
                    && !std::mem::replace(&mut is_unread, true)
                {
                    out.warn("nobody reads standard output any more; work goes on, and tells nothing there");
                }
            }
            Ok(heard) => feed.lines(&heard).into_iter().for_each(|line| out.note(line)),
            Err(broadcast::error::RecvError::Lagged(missed)) => {
                out.note(format!("… {} left out", plural(missed, "line")))
            }
            Err(broadcast::error::RecvError::Closed) => return Ok(()),
        }
    }
}

struct Feed {
    paint: Paint,
    width: usize,
    roles: HashMap<JobId, String>,
    calls: HashMap<(JobId, String), String>,
    /// That these were claimed is not told yet: perhaps all they can do is wait.
    held: HashMap<JobId, String>,
    outages: Arc<Outages>,
}

impl Feed {
    fn lines(&mut self, heard: &Progress) -> Vec<String> {
        let (job, waits) = match heard {
            Progress::Recorded { job, recorded } => {
                let failed = match &recorded.entry {
                    Entry::TurnFailed { reason, .. } => Some(reason),
                    _ => None,
                };
                (*job, failed.is_some_and(|reason| self.outages.concern(reason)))
            }
            Progress::Ended { job, state, reason } => {
                let goes_on = matches!(state, JobState::Scheduled | JobState::Retryable);
                (*job, goes_on && reason.as_deref().is_some_and(|reason| self.outages.concern(reason)))
            }
            Progress::Claimed { job } => (job.id, false),
            Progress::LeaseLost { job } => (*job, false),
            Progress::AskingModel { .. } | Progress::Delta { .. } => return Vec::new(),
        };
        let Some(line) = self.line(heard) else { return Vec::new() };
        if matches!(heard, Progress::Claimed { .. }) && self.outages.any() {
            self.held.insert(job, line);
            return Vec::new();
        }
        let claimed = self.held.remove(&job);
        if waits { Vec::new() } else { claimed.into_iter().chain([line]).collect() }
    }

    fn line(&mut self, heard: &Progress) -> Option<String> {
        let p = self.paint;
        match heard {
            Progress::Claimed { job } => {
                self.roles.insert(job.id, job.role.clone());
                let text = format!("▸ attempt {} of {}  {}", job.attempt, job.max_attempts, job.payload.goal);
                Some(self.of(job.id, &text, |t| p.bold(t)))
            }
            Progress::Recorded { job, recorded } => self.entry(*job, &recorded.entry),
            Progress::Ended { job, state, reason } => {
                let text = because(state.as_str(), reason.as_deref().unwrap_or_default());
                let line = self.of(*job, &format!("■ {text}"), |t| p.state(*state, t));
                self.roles.remove(job);
                self.calls.retain(|(of, _), _| of != job);
                Some(line)
            }
            Progress::LeaseLost { job } => {
                Some(self.of(*job, "■ lost the lease; the job is another worker's now", |t| p.yellow(t)))
            }
            Progress::AskingModel { .. } | Progress::Delta { .. } => None,
        }
    }

    fn entry(&mut self, job: JobId, entry: &Entry) -> Option<String> {
        let p = self.paint;
        match entry {
            Entry::Turn(turn) => {
                for call in &turn.calls {
                    let runs = call.runs();
                    self.calls.insert((job, runs.id), runs.name);
                }
                let stats = format!("{} · {}", duration(turn.ms as i64), tokens(&turn.usage));
                Some(self.of(job, &format!("{}  ({stats})", said(turn)), str::to_owned))
            }
            Entry::CallMade { call, .. } => {
                self.calls.insert((job, call.request.id.clone()), call.request.name.clone());
                None
            }
            Entry::CallEnded { call_id, outcome, text, ms, .. } => {
                let name = self.calls.remove(&(job, call_id.clone())).unwrap_or_default();
                if is_bookkeeping(&name) && *outcome == CallOutcome::Done {
                    return None;
                }
                let took = duration(*ms as i64);
                let (text, bad) = match outcome {
                    CallOutcome::Done => {
                        (format!("← {name}  {}, {took}", plural(text.lines().count() as u64, "line")), false)
                    }
                    CallOutcome::Failed { .. } => (format!("✗ {name}: {text}"), true),
                    CallOutcome::Refused => (format!("✗ {name} was not run: {text}"), true),
                    CallOutcome::Unknown => (format!("? {name}: whether it took effect is not known"), true),
                };
                Some(self.of(job, &text, |t| if bad { p.yellow(t) } else { p.dim(t) }))
            }
            Entry::TurnFailed { reason, .. } => {
                Some(self.of(job, &format!("✗ the model gave no answer: {reason}"), |t| p.red(t)))
            }
            Entry::Note { text } => Some(self.of(job, &format!("! told the model: {text}"), |t| p.yellow(t))),
            Entry::Doubted { why, .. } => {
                Some(self.of(job, &format!("! not taken as the answer yet: {why}"), |t| p.yellow(t)))
            }
            Entry::Ended { status: EndStatus::Partial, text, reason: Some(why) } => {
                Some(self.of(job, &format!("✓ in part ({why}): {text}"), |t| p.yellow(t)))
            }
            Entry::Ended { text, .. } => Some(self.of(job, &format!("✓ {text}"), str::to_owned)),
            Entry::Asked { questions, .. } => {
                Some(self.of(job, &format!("? {}", questions.join(" ? ")), |t| p.yellow(t)))
            }
            Entry::Answered { answer, .. } => {
                let answer = answer.as_deref().unwrap_or("nobody answered in time");
                Some(self.of(job, &format!("✎ {answer}"), |t| p.cyan(t)))
            }
            Entry::FellBack { call_id, text, to, .. } => {
                let name = to.request.name.clone();
                let is_same = self.calls.get(&(job, call_id.clone())) == Some(&name);
                let when = if is_same { "again" } else { "instead" };
                let line = self.of(job, &format!("! {name} is tried {when}: {text}"), |t| p.yellow(t));
                self.calls.insert((job, to.request.id.clone()), name);
                Some(line)
            }
            Entry::Replanned { reason, .. } => Some(self.of(job, &format!("↻ begins anew: {reason}"), |t| p.yellow(t))),
            Entry::Compacted { cut, .. } => Some(self.of(
                job,
                &format!("≡ {} summed up", plural((cut.to - cut.from) as u64, "older message")),
                |t| p.dim(t),
            )),
            Entry::Began { .. }
            | Entry::CallStarted { .. }
            | Entry::SkillBegan { .. }
            | Entry::ProgramBegan { .. }
            | Entry::Shortened { .. }
            | Entry::Counted { .. }
            | Entry::Summarised { .. }
            | Entry::Reopened
            | Entry::Restarted => None,
        }
    }

    fn of(&self, job: JobId, text: &str, paint: impl Fn(&str) -> String) -> String {
        let role = self.roles.get(&job).map(String::as_str).unwrap_or("job");
        let head = format!("{role} {job}");
        let room = self.width.saturating_sub(columns(&head) + 2);
        format!("{}  {}", self.paint.cyan(&head), paint(&one_line(text, room)))
    }
}

fn said(turn: &Turn) -> String {
    let runs = turn.calls.iter().map(Call::runs).filter(|call| call.name != AGENT_STEP);
    let calls: Vec<_> = runs.map(|call| format!("→ {} {}", call.name, one_line(&call.arguments, 60))).collect();
    if calls.is_empty() { turn.said() } else { calls.join("  ") }
}
