//! A program of an agent at work, and the calls that it has made.
//!
//! It is run again by every worker that takes it up, from its beginning, and is given the results that its calls had, in
//! the order in which they had come. So it makes the same calls again; one that does not is not gone on with.

use super::call::{OpenCall, fingerprint};
use super::journal::{Call, CallOutcome};
use crate::clock::Millis;
use crate::model::CallRequest;
use crate::text::head;
use crate::tool::EffectClass;
use crate::tool::calls::{CallResult, Came};

/// A program that has begun and not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// The call that runs it.
    pub call_id: String,
    /// What its clock says.
    pub at: Millis,
    calls: Vec<Made>,
    /// The calls that have ended, by number, in the order in which they did.
    ended: Vec<u32>,
}

#[derive(Debug, Clone, PartialEq)]
struct Made {
    call: OpenCall,
    result: Option<(CallOutcome, String)>,
}

/// A call that a program made before, when it now makes another, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Differs(pub String);

impl Program {
    pub(super) fn new(call_id: &str, at: Millis) -> Program {
        Program { call_id: call_id.to_owned(), at, calls: Vec::new(), ended: Vec::new() }
    }

    /// How many calls it has made, whichever worker had it.
    pub fn made(&self) -> usize {
        self.calls.len()
    }

    /// What it is given as its result number `at`, if there is one.
    pub fn result(&self, at: usize) -> Option<CallResult> {
        let number = *self.ended.get(at)?;
        let (outcome, text) = self.calls.get(number as usize)?.result.clone()?;
        let came = match outcome {
            CallOutcome::Done => Came::Done,
            CallOutcome::Failed { category } => Came::Failed(category),
            CallOutcome::Refused => Came::Refused,
            CallOutcome::Unknown => Came::Unknown,
        };
        Some(CallResult { number, came, text })
    }

    /// Why it cannot be gone on with, where all that it has made this time are `made` calls.
    pub fn left_out(&self, made: usize) -> Option<String> {
        let before = self.calls.get(made)?;
        Some(differently(made, &shown(before.call.asked()), "nothing"))
    }

    /// Whether the call of that id is one of its own that has not ended.
    pub(crate) fn has_open(&self, call_id: &str) -> bool {
        self.open().any(|call| call.request.id == call_id)
    }

    /// Whether the call number `number` is the one that it made before; none where it has not made it before.
    pub(super) fn compare(&self, number: usize, now: &CallRequest) -> Option<Result<(), Differs>> {
        let before = self.calls.get(number)?.call.asked();
        let is_same = fingerprint(before) == fingerprint(now);
        Some(if is_same { Ok(()) } else { Err(Differs(differently(number, &shown(before), &shown(now)))) })
    }

    /// Its calls that have not ended, in order.
    pub(super) fn open(&self) -> impl Iterator<Item = &OpenCall> {
        self.calls.iter().filter(|made| made.result.is_none()).map(|made| &made.call)
    }

    /// Those of them that may begin now, beside those that run: reading calls run side by side, any other alone, and none
    /// before one that was made earlier.
    pub(super) fn next(&self, most: usize) -> Vec<OpenCall> {
        let is_pure = |call: &OpenCall| call.effect == Some(EffectClass::Pure);
        let mut running: Vec<&OpenCall> = self.open().filter(|call| call.started).collect();
        let mut next = Vec::new();
        for call in self.open().filter(|call| !call.started) {
            let beside = is_pure(call) && running.iter().all(|call| is_pure(call)) && running.len() < most;
            if !running.is_empty() && !beside {
                break;
            }
            running.push(call);
            next.push(call.clone());
        }
        next
    }

    pub(super) fn make(&mut self, number: u32, call: &Call) {
        // Only a damaged journal lacks one.
        if number as usize == self.calls.len() {
            self.calls.push(Made { call: OpenCall::new(call), result: None });
        }
    }

    fn find(&mut self, call_id: &str) -> Option<(u32, &mut Made)> {
        (0..).zip(&mut self.calls).find(|(_, made)| made.result.is_none() && made.call.request.id == call_id)
    }

    pub(super) fn start(&mut self, call_id: &str) -> Option<&OpenCall> {
        let (_, made) = self.find(call_id)?;
        made.call.started = true;
        Some(&made.call)
    }

    pub(super) fn fall_back(&mut self, call_id: &str, to: &Call) -> bool {
        self.find(call_id).map(|(_, made)| made.call.fall_back(to)).is_some()
    }

    /// Ends a call of it; gives the call, if it is one.
    pub(super) fn end(&mut self, call_id: &str, outcome: CallOutcome, text: &str) -> Option<&OpenCall> {
        let (number, made) = self.find(call_id)?;
        made.result = Some((outcome, text.to_owned()));
        self.ended.push(number);
        Some(&self.calls[number as usize].call)
    }
}

fn shown(CallRequest { name, arguments, .. }: &CallRequest) -> String {
    const MOST: usize = 200;
    let more = if arguments.len() > MOST { "…" } else { "" };
    format!("{name} {}{more}", head(arguments, MOST))
}

fn differently(number: usize, before: &str, now: &str) -> String {
    format!(
        "The program was run again, and went another way: its call {} had been {before}, and was now {now}. Nothing more of \
         it was run; what its calls before had done stays done.",
        number + 1
    )
}
