//! A run as it stood at a place in its journal, for whoever wants to look at it or keep it.

use schemars::JsonSchema;
use serde::Serialize;

use crate::clock::Millis;
use crate::job::{JobId, Output};
use crate::model::Message;
use crate::run::journal::Recorded;
use crate::run::{Program, Run};

/// The state of a run. What it says follows from the journal alone, so it is the same whenever it is made.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Checkpoint {
    /// The job.
    pub job: JobId,
    /// The last step of the journal that it has taken in; `posse job fork --at-step` goes on from there.
    pub step: u64,
    /// When that was committed.
    pub at: Millis,
    /// The role that works.
    pub role: String,
    /// The model it works with.
    pub model: String,
    /// How far it is and what it has come to, as the job's output would say.
    pub state: Output,
    /// Skills at work inside each other.
    pub depth: usize,
    /// Calls that have been asked for and have not ended, by name.
    pub open_calls: Vec<String>,
    /// Questions that wait for people.
    pub open_questions: Vec<String>,
    /// What it knows of itself, where it works by phases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_memory: Option<String>,
    /// The conversation at work, as the next request would show it.
    pub messages: Vec<Message>,
}

/// The run as it stood after the last of these entries; none where it had not begun.
pub fn checkpoint(job: JobId, journal: &[Recorded]) -> Option<Checkpoint> {
    let last = journal.last()?;
    let run = Run::replay(journal);
    let opening = run.opening()?;
    let open = run.asked().map(|asked| asked.questions.iter().filter(|(_, settled)| settled.is_none()));
    let of_program = run.program().into_iter().flat_map(Program::open);
    Some(Checkpoint {
        job,
        step: last.seq,
        at: last.at,
        role: opening.persona.role.clone(),
        model: opening.model.clone(),
        state: run.output(),
        depth: run.depth(),
        open_calls: run.open_calls().iter().chain(of_program).map(|call| call.request.name.clone()).collect(),
        open_questions: open.into_iter().flatten().map(|(question, _)| question.clone()).collect(),
        working_memory: run.request().tail,
        messages: run.messages().to_vec(),
    })
}
