//! What a run asked of its models, made again from its journal.

use serde::Serialize;

use crate::clock::Millis;
use crate::journal::{Entry, Recorded};
use crate::model::{Message, ModelRequest};
use crate::run::Run;
use crate::run::compaction::{SUMMARY_TOKENS, Summariser, SummaryRoom};
use crate::run::machine::{Effect, Input, ToSummarise, step};

/// What a request was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The next step.
    Turn,
    /// A summary.
    Summary,
}

/// A request that a run made.
#[derive(Debug, Clone, Serialize)]
pub struct Made {
    /// The place in the journal of what came of it.
    pub seq: u64,
    /// When that was committed.
    pub answered_at: Millis,
    /// What it was for.
    #[serde(rename = "for")]
    pub reason: Reason,
    /// The model that answered, where one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How often it had been made before, to no avail.
    #[serde(skip_serializing_if = "is_none_at_all")]
    pub failed_tries: usize,
    /// The request, before it was fitted to its provider; absent where nothing of it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<ModelRequest>,
    /// What of it the journal does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// Every request that a journal knows of, in order.
///
/// Requests for a turn are as they were. Of those for a summary, the notes that earlier parts gave
/// are not in the journal, nor is the window of a model of its own. What was asked and never answered
/// for a crash has left nothing.
pub fn requests(journal: &[Recorded]) -> Vec<Made> {
    let mut run = Run::default();
    let mut all = Vec::new();
    for recorded in journal {
        let made = |reason| Made {
            seq: recorded.seq,
            answered_at: recorded.at,
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
            Entry::TurnFailed { failed_tries, .. } => all.push(Made {
                // The last of them is the one that is told here.
                failed_tries: failed_tries.len().saturating_sub(1),
                request: Some(run.request()),
                ..made(Reason::Turn)
            }),
            Entry::Summarised { model, failure, .. } => {
                let model = Some(model.clone()).filter(|model| !model.is_empty());
                let summary = Made { model, ..made(Reason::Summary) };
                all.extend(of_summary(&run, failure.as_deref(), &summary));
            }
            _ => {}
        }
        run.apply(&recorded.entry);
    }
    all
}

fn of_summary(run: &Run, failure: Option<&str>, made: &Made) -> Vec<Made> {
    let Effect::Summarise(what) = step(&mut run.clone(), Input::PickedUp).effect else {
        let missing = "it summed up what the session said before, in other jobs".to_owned();
        return vec![Made { missing: Some(missing), ..made.clone() }];
    };
    let own_model = run.opening().is_some_and(|opening| opening.persona.context.summary_model.is_some());
    let mut all = Vec::new();
    for (part, request) in parts(run, &what).into_iter().enumerate() {
        let mut missing = Vec::new();
        if own_model {
            missing.push("the window of the model that sums up, which decides how many parts there are".to_owned());
        }
        if part > 0 {
            missing.push("the notes that the parts before gave".to_owned());
        }
        if let Some(failure) = failure {
            missing.push(format!("whether it was made at all, for one of them failed: {failure}"));
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

fn is_none_at_all(n: &usize) -> bool {
    *n == 0
}
