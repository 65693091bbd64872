//! What a run asked of its models, made again from its journal.

use schemars::JsonSchema;
use serde::Serialize;
use std::cmp::Reverse;

use crate::clock::Millis;
use crate::job::Attempt;
use crate::job::transition::Event;
use crate::model::{Message, ModelRequest};
use crate::run::Run;
use crate::run::compaction::{SUMMARY_TOKENS, Summariser, SummaryRoom};
use crate::run::journal::{Entry, Recorded};
use crate::run::machine::{Effect, Input, ToSummarise, step};
use crate::text::is_default;

/// What a request was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The next step.
    Turn,
    /// A summary.
    Summary,
    /// Before the run begins: what its model can do.
    Abilities,
}

/// A request that a run made.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Made {
    /// The position in the journal of what came of it, or would have.
    pub seq: u64,
    /// When that was committed; absent where nothing came of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered_at: Option<Millis>,
    /// What it was for.
    #[serde(rename = "for")]
    pub reason: Reason,
    /// The model that answered, where one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How often it had been made before, to no avail.
    #[serde(skip_serializing_if = "is_default")]
    pub failed_tries: usize,
    /// The request, before it was fitted to its provider; absent where nothing of it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<ModelRequest>,
    /// What of it the journal does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// Every request that a journal knows of, in order, and those that attempts which were cut short may have made.
///
/// Requests for a turn are as they were. Of those for a summary, the notes that earlier parts gave
/// are not in the journal, nor is the window of a model of its own. A request leaves nothing before it is answered: where
/// an attempt was cut short and its model was next, that one may have been sent, in vain.
pub fn requests(journal: &[Recorded], attempts: &[Attempt]) -> Vec<Made> {
    let mut run = Run::default();
    let mut all = Vec::new();
    let mut cut: Vec<_> = attempts.iter().filter_map(cut_short).collect();
    cut.sort_by_key(|(at, _)| Reverse(*at));
    for recorded in journal {
        while let Some((_, how)) = cut.pop_if(|(at, _)| *at <= recorded.at) {
            all.extend(unanswered(&run, how));
        }
        let made = |reason| Made {
            seq: recorded.seq,
            answered_at: Some(recorded.at),
            reason,
            model: None,
            failed_tries: 0,
            request: None,
            missing: None,
        };
        match &recorded.entry {
            Entry::Turn(turn) => all.push(Made {
                model: Some(turn.model.clone()),
                failed_tries: turn.failed_tries.len(),
                request: Some(run.request()),
                ..made(Reason::Turn)
            }),
            Entry::TurnFailed { failed_tries, .. } if run.opening().is_none() => all.push(Made {
                failed_tries: failed_tries.len().saturating_sub(1),
                missing: Some("which words its model was asked in, to find out what it can do".to_owned()),
                ..made(Reason::Abilities)
            }),
            Entry::TurnFailed { failed_tries, .. } => all.push(Made {
                // The last of them is the one that is told here.
                failed_tries: failed_tries.len().saturating_sub(1),
                request: Some(run.request()),
                ..made(Reason::Turn)
            }),
            Entry::Summarised { part, model, failure, .. } => {
                let model = Some(model.clone()).filter(|model| !model.is_empty());
                let summary = Made { model, ..made(Reason::Summary) };
                all.extend(of_summary(&run, *part, failure.as_deref(), &summary));
            }
            _ => {}
        }
        run.apply(&recorded.entry);
    }
    all.extend(cut.into_iter().rev().filter_map(|(_, how)| unanswered(&run, how)));
    all
}

/// When and how an attempt ended, if its end came from outside.
fn cut_short(attempt: &Attempt) -> Option<(Millis, &'static str)> {
    let ends = [
        (Event::LeaseExpired, "its worker was lost"),
        (Event::Interrupt, "its worker was stopped"),
        (Event::Cancel, "its job was cancelled"),
    ];
    let (_, how) = ends.into_iter().find(|(event, _)| attempt.outcome.as_deref() == Some(event.as_str()))?;
    Some((attempt.ended_at?, how))
}

/// What the model was about to be asked when the attempt ended, if that is what was next.
fn unanswered(run: &Run, how: &str) -> Option<Made> {
    // A call that was at work comes before the model.
    if run.opening().is_none() || !run.open_calls().is_empty() {
        return None;
    }
    let (reason, request) = match step(&mut run.clone(), Input::PickedUp).effect {
        Effect::AskModel | Effect::Count(_) => (Reason::Turn, Some(run.request())),
        Effect::Summarise(what) => (Reason::Summary, parts(run, &what).into_iter().next()),
        _ => return None,
    };
    let missing = Some(format!("whether it was sent at all: {how} before there was an answer"));
    Some(Made { seq: run.next_seq(), answered_at: None, reason, model: None, failed_tries: 0, request, missing })
}

/// The request for that part of a summary; those for all of them where it was not noted for which.
fn of_summary(run: &Run, only: Option<u32>, failure: Option<&str>, made: &Made) -> Vec<Made> {
    let Effect::Summarise(what) = step(&mut run.clone(), Input::PickedUp).effect else {
        let missing = "it summed up what the session said before, in other jobs".to_owned();
        return vec![Made { missing: Some(missing), ..made.clone() }];
    };
    let own_model = run.opening().is_some_and(|opening| opening.persona.context.summary_model.is_some());
    let mut all = Vec::new();
    for (part, request) in (0..).zip(parts(run, &what)).filter(|(part, _)| only.is_none_or(|only| only == *part)) {
        let mut missing = Vec::new();
        if own_model {
            missing.push("the window of the model that sums up, which decides how many parts there are".to_owned());
        }
        if part > 0 {
            missing.push("the notes that the parts before gave".to_owned());
        }
        if let Some(failure) = failure {
            let which = if only.is_some() { "it" } else { "one of them" };
            missing.push(format!("whether it was made at all, for {which} failed: {failure}"));
        }
        let missing = Some(missing.join("; ")).filter(|missing| !missing.is_empty());
        all.push(Made { request: Some(request), missing, ..made.clone() });
    }
    all
}

fn parts(run: &Run, what: &ToSummarise) -> Vec<ModelRequest> {
    let count = |message: &Message| run.count(message);
    let room = SummaryRoom { window: run.window(), reply: SUMMARY_TOKENS };
    let mut summariser = Summariser::new(&what.task, &what.messages, what.purpose.clone(), room, &count);
    let mut requests = Vec::new();
    while let Some(request) = summariser.request() {
        requests.push(request);
        summariser.replied(NOTES, &count);
    }
    requests
}

/// Stands for the notes of earlier parts.
const NOTES: &str = "(what the model noted of the parts before is not in the journal)";
