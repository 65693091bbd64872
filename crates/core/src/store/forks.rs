//! Forks: jobs whose journal begins as a copy of another one's.

use super::driver::{AskInsert, Driver};
use super::enqueue::{Batch, enqueue};
use super::fault::unusable;
use super::journal::{self, Sheet};
use super::seal::{Keys, Place};
use super::{Done, Outcome, Tx, ledger};
use crate::clock::Millis;
use crate::job::JobId;
use crate::job::question::QuestionState;
use crate::run::fork::Fork;
use crate::run::journal::ledger_changes;

/// A fork with what has to be written out anew.
pub struct Prepared {
    fork: Fork,
    batch: Batch,
    /// The entries that differ, or all where each is sealed for its place.
    anew: Vec<(i64, Millis, Sheet)>,
}

impl Prepared {
    /// Writes out what differs from the source, outside of the transaction.
    pub fn new(fork: Fork, keys: &Keys, now: Millis) -> Result<Prepared, serde_json::Error> {
        let batch = Batch::new(vec![fork.job.clone()], now)?;
        let differs = |seq| keys.seals() || fork.edited.contains(seq);
        let anew = fork.journal.iter().filter(|recorded| differs(&recorded.seq));
        let anew = anew.map(|recorded| Ok((place(recorded.seq), recorded.at, Sheet::new(&recorded.entry)?)));
        let anew = anew.collect::<Result<_, serde_json::Error>>()?;
        Ok(Prepared { fork, batch, anew })
    }

    /// Roughly what it will take.
    pub fn bytes(&self) -> usize {
        self.batch.bytes()
            + self.anew.iter().map(|(.., sheet)| sheet.bytes()).sum::<usize>()
            + 300 * self.fork.journal.len()
    }
}

fn place(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}

/// Stores a fork.
pub fn fork<D: Driver>(tx: &mut Tx<'_, D>, prepared: &Prepared, now: Millis) -> Outcome<JobId> {
    let Prepared { fork, batch, anew } = prepared;
    let id = enqueue(tx, batch, None)?.pop().ok_or_else(|| unusable("a fork is one job"))?.id;
    let entries = fork.journal.len() as u64;
    if anew.len() < fork.journal.len() {
        // What is the same is copied, its blobs shared.
        let but: Vec<_> = anew.iter().map(|(seq, ..)| *seq).collect();
        tx.db.copy_steps(fork.source, id, place(entries), &but)?;
    }
    if journal::next_seq(tx.db, fork.source)? < place(entries) {
        return Err(unusable(format!("the journal of job {} is not what it was; nothing was saved", fork.source)));
    }
    for (seq, at, sheet) in anew {
        journal::insert(tx, id, *seq, sheet, *at)?;
    }
    // Effect keys hold the job's number: these calls have others than those of the source.
    for recorded in &fork.journal {
        for (position, change) in (0..).zip(&ledger_changes(&recorded.entry)) {
            ledger::apply(tx, id, place(recorded.seq), position, change, recorded.at)?;
        }
    }
    Ok(copy_questions(tx, fork, id, now)?)
}

/// Stores the questions of a fork's journal. Those that are open there are closed until the fork
/// waits for them. Gives the fork.
fn copy_questions<D: Driver>(tx: &mut Tx<'_, D>, fork: &Fork, id: JobId, now: Millis) -> Done<JobId> {
    for question in fork.questions() {
        let (state, answer) = match &question.settled {
            None => (QuestionState::Closed, None),
            Some(None) => (QuestionState::Expired, None),
            Some(Some(answer)) => (QuestionState::Answered, Some(answer)),
        };
        let seq = place(question.seq);
        let position = i32::try_from(question.position).unwrap_or(i32::MAX);
        let answer = answer.map(|answer| tx.keys.seal(Place::answer(id.0, seq, position), answer.as_str()));
        let text = tx.keys.seal(Place::question(id.0, seq, position), question.text.as_str());
        let expires_at = question.open_ms.map(|ms| journal::expiry(ms, now));
        let (created_at, settled_at) = (now, Some(now));
        tx.db.ask(id, AskInsert { seq, position, text, state, answer, created_at, expires_at, settled_at })?;
    }
    Ok(id)
}
