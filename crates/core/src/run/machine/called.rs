//! What follows from the calls of a program: which of them it made before, and which may run.

use super::{MAX_TOGETHER, Recorder, Verdict, reply};
use crate::clock::Millis;
use crate::model::CallRequest;
use crate::run::Program;
use crate::run::code;
use crate::run::journal::{Call, CallOutcome, Entry};
use crate::run::machine::Effect;
use crate::run::program::Differs;
use crate::text::plural;
use crate::tool::ToolErrorCategory;
use crate::tool::calls::MAX_PROGRAM_CALLS;

impl Recorder<'_> {
    pub(super) fn program_begins(&mut self, call_id: String, at: Millis) -> Effect {
        if self.run.program().is_none_or(|program| program.call_id != call_id) {
            self.record(Entry::ProgramBegan { call_id, at });
        }
        Effect::Wait
    }

    /// Calls that were made before are the same, or nothing more of the program is run. None begins before all that were
    /// made have been made again.
    pub(super) fn called(
        &mut self,
        from: usize,
        calls: Vec<CallRequest>,
        check: &dyn Fn(&CallRequest) -> Verdict,
    ) -> Effect {
        let Some(by) = self.run.program().map(|program| program.call_id.clone()) else { return Effect::Wait };
        let until = from + calls.len();
        if until > MAX_PROGRAM_CALLS {
            return Effect::StopProgram(format!("it made more than {}", plural(MAX_PROGRAM_CALLS as u64, "call")));
        }
        for (number, mut request) in (from..).zip(calls) {
            match self.run.program().and_then(|program| program.compare(number, &request)) {
                Some(Ok(())) => continue,
                Some(Err(Differs(why))) => return Effect::StopProgram(why),
                None => {}
            }
            request.id = reply::call_id(self.run.calls_made);
            let verdict = self.may_call(&request, check);
            let (call_id, effect) = (request.id.clone(), verdict.as_ref().ok().copied());
            self.record(Entry::CallMade { by: by.clone(), number: number as u32, call: Call { request, effect } });
            if let Err(why) = verdict {
                self.refuse(call_id, why);
            }
        }
        match self.run.program().is_some_and(|program| until >= program.made()) {
            true => self.next_of_program(),
            false => Effect::Wait,
        }
    }

    fn may_call(&self, request: &CallRequest, check: &dyn Fn(&CallRequest) -> Verdict) -> Verdict {
        let functions = code::functions(self.run.tools());
        if !functions.iter().any(|function| function.tool == request.name) {
            let names: Vec<_> = functions.iter().map(|function| function.name.as_str()).collect();
            return Err(format!("A program cannot call '{}'. Its functions are: {}.", request.name, names.join(", ")));
        }
        check(request)
    }

    /// Begins those calls of the program that may begin now.
    pub(super) fn next_of_program(&mut self) -> Effect {
        let mut next = self.run.program().map(|program| program.next(MAX_TOGETHER)).unwrap_or_default();
        self.begin_calls(&mut next);
        let open = self.run.program().into_iter().flat_map(Program::open);
        let running: Vec<_> = open.filter(|call| call.started).cloned().collect();
        if running.is_empty() { Effect::Wait } else { Effect::RunCalls(running) }
    }

    /// Nothing begins any more for a program that has ended.
    pub(super) fn program_stopped(&mut self) -> Effect {
        let of_program = self.run.program().into_iter().flat_map(Program::open);
        let waiting: Vec<_> = of_program.filter(|call| !call.started).map(|call| call.request.id.clone()).collect();
        for call_id in waiting {
            self.refuse(call_id, PROGRAM_ENDED.into());
        }
        Effect::Wait
    }

    /// The same, and those that run are not waited for.
    pub(super) fn leave_program(&mut self) {
        self.program_stopped();
        let of_program = self.run.program().into_iter().flat_map(Program::open);
        let running: Vec<_> = of_program.map(|call| call.request.id.clone()).collect();
        for call_id in running {
            let category = ToolErrorCategory::Stopped;
            self.answer(call_id, CallOutcome::Failed { category }, PROGRAM_ENDED.into());
        }
    }
}

const PROGRAM_ENDED: &str = "The program ended before this call did.";
