//! Questions to people: made by a journal entry, settled by another.

use std::borrow::Cow;

use super::driver::{AskChange, AskRow, AskSet, AsksOf, Driver};
use super::seal::{Keys, Place, Sealed};
use super::{Done, Outcome, Tx, journal, waits};
use crate::clock::Millis;
use crate::job::JobId;
use crate::job::question::{Above, Answered, MAX_PATH, Question, QuestionId, QuestionState};
use crate::port::QuestionFilter;
use crate::run::journal::Entry;

/// Questions settled in one transaction.
const EXPIRED_AT_ONCE: u32 = 500;

fn question<D: Driver>(db: &mut D, keys: &Keys, row: AskRow) -> Outcome<Question> {
    let AskRow { id, job, seq, position, text, answer, .. } = row;
    let text = keys.show(Place::question(job.0, seq, position), &text);
    let answer = answer.map(|answer| keys.show(Place::answer(job.0, seq, position), &answer));
    let AskRow { role, state, settled_by, created_at, expires_at, settled_at, .. } = row;
    let path = above(db, job)?;
    Ok(Question { id, job, role, text, state, answer, settled_by, created_at, expires_at, settled_at, path })
}

/// The jobs above one, the root first, as far as they are there.
fn above<D: Driver>(db: &mut D, job: JobId) -> Done<Vec<Above>> {
    let mut path = Vec::new();
    let mut next = db.whole_jobs(&[job])?.pop().and_then(|(_, data)| data.parent);
    while let Some(parent) = next.filter(|_| path.len() < MAX_PATH) {
        let Some((row, data)) = db.whole_jobs(&[parent])?.pop() else { break };
        path.insert(0, Above { job: parent, role: row.role });
        next = data.parent;
    }
    Ok(path)
}

/// One question.
pub fn one<D: Driver>(db: &mut D, keys: &Keys, id: QuestionId) -> Outcome<Option<Question>> {
    let row = db.asks(AsksOf::One(id))?.pop();
    row.map(|row| question(db, keys, row)).transpose()
}

/// Questions by filter, oldest first.
pub fn list<D: Driver>(db: &mut D, keys: &Keys, filter: &QuestionFilter) -> Outcome<Vec<Question>> {
    let of = AsksOf::Listed { job: filter.job, settled: filter.settled, most: filter.limit };
    db.asks(of)?.into_iter().map(|row| question(db, keys, row)).collect()
}

/// Saves an answer, unless the question is settled.
pub fn answer<D: Driver>(
    tx: &mut Tx<'_, D>,
    id: QuestionId,
    answer: &str,
    by: &str,
    now: Millis,
) -> Outcome<Option<Answered>> {
    let Some(row) = tx.db.asks(AsksOf::One(id))?.pop() else { return Ok(None) };
    if row.state != QuestionState::Open {
        return Ok(Some(Answered::Settled { question: question(tx.db, tx.keys, row)? }));
    }
    let open = settle(tx, &row, Some((answer, by)), now)?;
    Ok(Some(Answered::Accepted { job: row.job, open }))
}

/// Settles questions whose time is over.
pub fn expire<D: Driver>(tx: &mut Tx<'_, D>, now: Millis) -> Outcome<u32> {
    let over = tx.db.asks(AsksOf::Overdue(now, EXPIRED_AT_ONCE))?;
    for row in &over {
        settle(tx, row, None, now)?;
    }
    Ok(u32::try_from(over.len()).unwrap_or(u32::MAX))
}

/// Settles an open question, tells the run, and lets the job go on if it was the last one. Gives how
/// many are still open.
fn settle<D: Driver>(tx: &mut Tx<'_, D>, ask: &AskRow, answer: Option<(&str, &str)>, now: Millis) -> Outcome<u32> {
    let state = if answer.is_some() { QuestionState::Answered } else { QuestionState::Expired };
    let (text, by) = answer.unzip();
    let sealed = text.map(|text| tx.keys.seal(Place::answer(ask.job.0, ask.seq, ask.position), text));
    let to = AskChange { state, answer: sealed, settled_by: by, settled_at: Some(now) };
    tx.db.change_asks(AskSet::One(ask.id), to)?;
    let question = ask.position.unsigned_abs();
    journal::append_unleased(tx, ask.job, &Entry::Answered { question, answer: text.map(str::to_owned) }, now)?;
    let open = tx.db.asks(AsksOf::Job(ask.job))?.iter().filter(|ask| ask.state == QuestionState::Open).count();
    if open == 0 {
        // One that ended without its answers is left as it is.
        waits::go_on(tx, ask.job, now)?;
    }
    Ok(u32::try_from(open).unwrap_or(u32::MAX))
}

/// Tells a suspended run again what was answered, if its journal has lost that: it waits for answers
/// that were given, and nobody can give them twice.
pub fn tell_again<D: Driver>(tx: &mut Tx<'_, D>, job: JobId, now: Millis) -> Outcome<()> {
    let mut last = tx.db.asks(AsksOf::Job(job))?;
    let Some(asked_at) = last.iter().map(|ask| ask.seq).max() else { return Ok(()) };
    last.retain(|ask| ask.seq == asked_at);
    if last.iter().any(|ask| ask.state == QuestionState::Open) {
        return Ok(());
    }
    let told = tx.db.journal(job, asked_at + 1)?.iter().filter(|step| step.kind == "answered").count();
    // What it was told in full and waits all the same, telling it once more would not change.
    if told >= last.len() {
        return Ok(());
    }
    for AskRow { seq, position, answer, .. } in last {
        let open = |answer: Sealed| tx.keys.open(Place::answer(job.0, seq, position), &answer).map(Cow::into_owned);
        let answer = answer.map(open).transpose()?;
        journal::append_unleased(tx, job, &Entry::Answered { question: position.unsigned_abs(), answer }, now)?;
    }
    waits::go_on(tx, job, now).map(drop)
}

/// Closes what is open: the job no longer waits.
pub fn close<D: Driver>(db: &mut D, job: JobId, now: Millis) -> Done<()> {
    shift(db, job, (QuestionState::Open, QuestionState::Closed), Some(now))
}

/// Settles for good what is open or closed: the run that asked was begun again, and asks anew if it
/// still wants to know.
pub fn drop_all<D: Driver>(db: &mut D, job: JobId, now: Millis) -> Done<()> {
    shift(db, job, (QuestionState::Open, QuestionState::Expired), Some(now))?;
    shift(db, job, (QuestionState::Closed, QuestionState::Expired), Some(now))
}

/// Opens again what was closed: the job was run again, and waits as before.
pub fn reopen<D: Driver>(db: &mut D, job: JobId) -> Done<()> {
    shift(db, job, (QuestionState::Closed, QuestionState::Open), None)
}

/// Moves the questions of a job that nobody has answered from one state to another.
fn shift<D: Driver>(
    db: &mut D,
    job: JobId,
    (from, state): (QuestionState, QuestionState),
    settled_at: Option<Millis>,
) -> Done<()> {
    db.change_asks(AskSet::OfJob(job, from), AskChange { state, answer: None, settled_by: None, settled_at })
}
