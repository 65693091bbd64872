//! Forking: a new job that goes on from the middle of another one's run.

use crate::job::enqueue::{MAX_GOAL_BYTES, Refused};
use crate::job::question::check_answer;
use crate::job::{ForkedFrom, Job, JobId, NewJob, Payload};
use crate::run::journal::{Entry, Recorded};
use crate::text::{check_nul, has_too_many};

/// Most bytes of an edited text.
pub const MAX_EDIT_BYTES: usize = 256 * 1024;

/// What a person asks of a fork.
#[derive(Debug, Clone, Default)]
pub struct Cut {
    /// The position of the last entry that the fork has.
    pub at_step: u64,
    /// What that entry shall say instead.
    pub edit: Option<String>,
    /// What shall be asked for instead.
    pub goal: Option<String>,
}

/// A fork, checked, as repositories store it.
#[derive(Debug, Clone)]
pub struct Fork {
    /// The job to make.
    pub job: NewJob,
    /// The job that its journal is copied from.
    pub source: JobId,
    /// The entries that it begins with.
    pub journal: Vec<Recorded>,
    /// Positions in the journal that differ from the source's.
    pub edited: Vec<u64>,
}

/// A question of a fork's journal, as far as the journal settles it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkedQuestion {
    /// The entry that asks it.
    pub seq: u64,
    /// Its position among those of that entry.
    pub position: u32,
    /// What it asks.
    pub text: String,
    /// How long such questions stay open, in milliseconds; for ever when absent.
    pub open_ms: Option<u64>,
    /// What became of it: absent while it is open, else the answer, if somebody gave one.
    pub settled: Option<Option<String>>,
}

/// Makes a fork of `source`, running or not, whose journal begins with `journal`.
pub fn fork(source: &Job, mut journal: Vec<Recorded>, cut: Cut) -> Result<Fork, Refused> {
    let refuse = |field, message: String| Err(Refused { field, message });
    if let Some(why) = &source.damage {
        return refuse("job", format!("{} is damaged, so a fork would lack what it has lost: {why}", source.id));
    }
    let Some(last) = journal.last().map(|recorded| recorded.seq) else {
        return refuse(
            "job",
            format!("{} has not begun, so there is nothing to go on from; enqueue another", source.id),
        );
    };
    let at = cut.at_step;
    if at > last {
        return refuse("step", format!("{at} is not there: the steps of job {} go from 0 to {last}", source.id));
    }
    journal.retain(|recorded| recorded.seq <= at);
    let Some(at_cut) = journal.last_mut() else { return refuse("step", format!("{at} is not there")) };
    if matches!(at_cut.entry, Entry::Ended { .. }) {
        let before = at.saturating_sub(1);
        return refuse("step", format!("{at} ends the run, and nothing can follow it; fork at {before} or before"));
    }
    let mut edited = Vec::new();
    if let Some(text) = cut.edit {
        edit(at_cut, text)?;
        edited.push(at);
    }
    let mut payload = source.payload.clone();
    if let Some(goal) = cut.goal {
        check_text("goal", &goal, MAX_GOAL_BYTES)?;
        // The goal is an entry's too, unless all there is comes before the beginning.
        for Recorded { seq, entry, .. } in &mut journal {
            if let Entry::Began { goal: begun, .. } = entry {
                begun.clone_from(&goal);
                edited.push(*seq);
                break;
            }
        }
        payload.goal = goal;
    }
    let forked_from = Some(ForkedFrom { job: source.id, step: at });
    // What a fork says was never said in the session, and a unique key is the source's.
    let payload = Payload { session: None, forked_from, ..payload };
    let job = NewJob {
        queue: source.queue.clone(),
        role: source.role.clone(),
        priority: source.priority,
        max_attempts: source.max_attempts,
        retry: source.retry,
        concurrency_key: source.concurrency_key.clone(),
        payload,
        ..NewJob::default()
    };
    Ok(Fork { job, source: source.id, journal, edited })
}

fn edit(recorded: &mut Recorded, new: String) -> Result<(), Refused> {
    let text = match &mut recorded.entry {
        Entry::CallEnded { text, .. } | Entry::Note { text } | Entry::Doubted { text, .. } => text,
        Entry::Answered { answer, .. } => {
            check_answer(&new).map_err(|message| Refused { field: "edit", message })?;
            answer.insert(String::new())
        }
        other => {
            let (seq, kind) = (recorded.seq, other.kind());
            let message = format!(
                "does not apply: step {seq} is of kind '{kind}', and only a tool's result (call_ended), an answer \
                 (answered) or a note can be edited"
            );
            return Err(Refused { field: "edit", message });
        }
    };
    check_text("edit", &new, MAX_EDIT_BYTES)?;
    *text = new;
    Ok(())
}

fn check_text(field: &'static str, text: &str, most: usize) -> Result<(), Refused> {
    let refuse = |message: String| Err(Refused { field, message });
    if text.trim().is_empty() {
        return refuse("is empty".into());
    }
    if text.len() > most {
        return refuse(has_too_many(text.len(), "byte", most));
    }
    check_nul(text).or_else(refuse)
}

impl Fork {
    /// The questions that its journal asks.
    pub fn questions(&self) -> Vec<ForkedQuestion> {
        let mut all: Vec<ForkedQuestion> = Vec::new();
        let mut asked_last = 0;
        for Recorded { seq, entry, .. } in &self.journal {
            match entry {
                Entry::Asked { questions, open_ms, .. } => {
                    asked_last = all.len();
                    let (seq, open_ms) = (*seq, *open_ms);
                    let asked = (0..).zip(questions);
                    all.extend(asked.map(|(position, text)| ForkedQuestion {
                        seq,
                        position,
                        text: text.clone(),
                        open_ms,
                        settled: None,
                    }));
                }
                Entry::Answered { question, answer } => {
                    if let Some(asked) = all.get_mut(asked_last + *question as usize) {
                        asked.settled.get_or_insert_with(|| answer.clone());
                    }
                }
                _ => {}
            }
        }
        all
    }
}
