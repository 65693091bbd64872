//! The end of a run that has an answer: taken, or held back once where the tools do not bear it out.

use super::Recorder;
use super::reply::calls_in;
use crate::model::{Message, ModelReply, ToolCalling};
use crate::run::Run;
use crate::run::claims::{Doubt, End, Seen};
use crate::run::finish::{self, Finishing};
use crate::run::journal::{EndStatus, Entry};
use crate::run::limits::Reached;
use crate::run::phase::{self, AGENT_STEP, Content, WorkStatus};
use crate::run::tasks;

impl Run {
    /// The files that it is of interest whether they are there, should this reply end the run.
    pub fn files_of(&self, reply: &ModelReply) -> Vec<String> {
        let answer = if self.depth() == 0 { self.answer_in(reply) } else { None };
        answer.and_then(|answer| Some(self.end_with(&answer)?.files())).unwrap_or_default()
    }

    fn answer_in(&self, reply: &ModelReply) -> Option<String> {
        let structured = match self.calling() {
            ToolCalling::Structured => Some(calls_in(self, &reply.text).ok()?),
            ToolCalling::Native => None,
        };
        match &structured.as_ref().unwrap_or(&reply.calls)[..] {
            [] => Some(reply.text.clone()),
            [call] if call.name == AGENT_STEP && self.is_phased() => {
                match phase::parse(&call.arguments).ok()?.content {
                    Content::End { status: WorkStatus::Solved, message } => Some(message),
                    _ => None,
                }
            }
            [call] if call.name == finish::FINISH => match finish::read(&call.arguments).ok()? {
                Finishing::Answer(answer) => Some(answer),
                _ => None,
            },
            _ => None,
        }
    }

    fn end_with<'a>(&'a self, answer: &'a str) -> Option<End<'a>> {
        let cycle = self.cycles.first()?;
        let told = match cycle.history.messages()[..cycle.history.head()].last() {
            Some(Message::User { text }) => text,
            _ => "",
        };
        Some(End { goal: &cycle.task, told, opening: self.opening.as_deref()?, work: &self.work, answer })
    }
}

impl Recorder<'_> {
    /// Ends the conversation at work with its answer. The run's own is held against what its tools did: its model is told
    /// once what they do not bear out, and if that stands, or there is no turn left, the answer counts in part.
    pub(super) fn answered(&mut self, call_id: Option<String>, answer: String, seen: &Seen) {
        if self.held_for_tasks(call_id.as_deref(), &answer, seen) {
            return;
        }
        let end = if self.run.depth() == 0 { self.run.end_with(&answer) } else { None };
        let faults = end.as_ref().and_then(|end| Some((end.faults(seen)?, end)));
        let Some((faults, end)) = faults else { return self.end(EndStatus::Completed, answer, None) };
        let (why, text) = (faults.why(), faults.told(end));
        if self.run.work.doubt.is_some() || self.run.limit().is_some() {
            return self.end_run(EndStatus::Partial, answer, Some(why));
        }
        let call = call_id.as_ref().and_then(|call_id| self.run.open_call(call_id));
        let text = match call.map(|call| call.asked().clone()) {
            Some(asked) => self.told(&asked, text),
            None => text,
        };
        self.record(Entry::Doubted { call_id, answer, why, text });
    }

    /// Holds the run's end back while tasks that it gave have not ended; where it has no turn left to wait for them, it ends
    /// with what it has. Tells whether anything was done.
    pub(super) fn held_for_tasks(&mut self, call_id: Option<&str>, answer: &str, seen: &Seen) -> bool {
        let open = &seen.open_tasks;
        if open.is_empty() || self.run.depth() > 0 {
            return false;
        }
        if self.run.limit().is_some() {
            self.end_run(EndStatus::Partial, answer.to_owned(), Some(tasks::had_not_ended(open)));
            return true;
        }
        let why = tasks::not_ended(open);
        match call_id.and_then(|id| Some((id.to_owned(), self.run.open_call(id)?.asked().clone()))) {
            Some((call_id, asked)) => {
                let text = self.told(&asked, why);
                self.refuse(call_id, text);
            }
            None => self.record(Entry::Note { text: why }),
        }
        true
    }

    /// Ends the run at a limit.
    pub(super) fn end_at(&mut self, limit: Reached) {
        let text = limit.text(&self.run.said());
        self.end_run_without(limit.status, text, limit.reason);
    }

    /// Ends the run, which comes to no answer.
    pub(super) fn end_run_without(&mut self, status: EndStatus, text: String, reason: String) {
        match self.run.work.doubt.clone() {
            // One that was held back is better than none.
            Some(Doubt { answer, why }) => {
                self.end_run(EndStatus::Partial, answer, Some(format!("{why}; then {reason}")))
            }
            None => self.end_run(status, text, Some(reason)),
        }
    }

    /// Ends the conversation at work, which comes to no answer.
    pub(super) fn end_without(&mut self, status: EndStatus, text: String, reason: String) {
        match self.run.depth() {
            0 => self.end_run_without(status, text, reason),
            _ => self.end(status, text, Some(reason)),
        }
    }
}
