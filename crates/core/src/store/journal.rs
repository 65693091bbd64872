//! The journal: entries are appended with what they change elsewhere, and read.

use super::driver::{AskInsert, Driver, LastStep, StepInsert, StepRow};
use super::fault::misused;
use super::seal::{Keys, Place};
use super::{Done, Outcome, Tx, annotations, ledger};
use crate::annotation::NewAnnotation;
use crate::clock::Millis;
use crate::job::JobId;
use crate::job::question::QuestionState;
use crate::run::journal::{Entry, Recorded};

mod sheet;

pub use sheet::Sheet;

/// Appends entries from place `seq` on, which must be the next one, with what they change in the
/// ledger and the annotations they bring, written by `author`.
pub fn append<D: Driver>(
    tx: &mut Tx<'_, D>,
    job: JobId,
    author: &str,
    seq: u64,
    sheets: &[Sheet],
    now: Millis,
) -> Outcome<()> {
    let next = next_seq(tx.db, job)?;
    if i64::try_from(seq) != Ok(next) {
        return Err(misused(format!(
            "the journal of job {job} goes on at place {next}, and an entry for place {seq} was offered; nothing was \
             saved"
        )));
    }
    for (seq, sheet) in (next..).zip(sheets) {
        insert(tx, job, seq, sheet, now)?;
        for (position, change) in (0..).zip(&sheet.ledger) {
            ledger::apply(tx, job, seq, position, change, now)?;
        }
        for annotation in &sheet.annotations {
            annotations::add(tx, job, author, annotation, now)?;
        }
        if let Some((texts, open_ms)) = &sheet.asked {
            ask(tx, job, seq, texts, *open_ms, now)?;
            annotations::add(tx, job, author, &NewAnnotation::clarification(job, texts), now)?;
        }
    }
    Ok(())
}

/// The place of a job's next entry.
pub(super) fn next_seq<D: Driver>(db: &mut D, job: JobId) -> Done<i64> {
    Ok(db.last_step(job)?.map_or(0, |last| last.seq + 1))
}

/// Saves the questions that the entry at `seq` asks.
fn ask<D: Driver>(
    tx: &mut Tx<'_, D>,
    job: JobId,
    seq: i64,
    questions: &[String],
    open_ms: Option<u64>,
    now: Millis,
) -> Outcome<()> {
    for (position, text) in (0..).zip(questions) {
        let text = tx.keys.seal(Place::question(job.0, seq, position), text.as_str());
        let expires_at = open_ms.map(|ms| expiry(ms, now));
        let (state, answer, settled_at) = (QuestionState::Open, None, None);
        let ask = AskInsert { seq, position, text, state, answer, created_at: now, expires_at, settled_at };
        tx.db.ask(job, ask)?;
    }
    Ok(())
}

/// Until when a question is open that is asked now.
pub(super) fn expiry(open_ms: u64, now: Millis) -> Millis {
    now.saturating_add(i64::try_from(open_ms).unwrap_or(i64::MAX / 2))
}

/// Appends [`Entry::Reopened`] if the run had ended.
pub fn reopen<D: Driver>(tx: &mut Tx<'_, D>, job: JobId, now: Millis) -> Outcome<()> {
    match tx.db.last_step(job)? {
        Some(LastStep { seq, kind, .. }) if kind == "ended" => {
            insert(tx, job, seq + 1, &Sheet::new(&Entry::Reopened)?, now)
        }
        _ => Ok(()),
    }
}

/// Appends an entry that is not a worker's: the job is in nobody's hands.
pub fn append_unleased<D: Driver>(tx: &mut Tx<'_, D>, job: JobId, entry: &Entry, now: Millis) -> Outcome<()> {
    let seq = next_seq(tx.db, job)?;
    insert(tx, job, seq, &Sheet::new(entry)?, now)
}

/// Stores an entry at its place, with its blob, and changes nothing else.
pub fn insert<D: Driver>(tx: &mut Tx<'_, D>, job: JobId, seq: i64, sheet: &Sheet, at: Millis) -> Outcome<()> {
    let keys = tx.keys;
    let data = keys.seal(Place::entry(job.0, seq), sheet.data.as_str());
    let blob = sheet.blob.as_ref();
    let blob = blob.map(|blob| (&*blob.hash, keys.seal_bytes(Place::blob(&blob.hash), &blob.bytes)));
    Ok(tx.db.append(job, StepInsert { seq, kind: sheet.kind, data, blob, at })?)
}

/// Has a run that has begun begin again; whether it had.
pub fn restart<D: Driver>(
    tx: &mut Tx<'_, D>,
    installation: &str,
    job: JobId,
    author: &str,
    now: Millis,
) -> Outcome<bool> {
    let next = next_seq(tx.db, job)?;
    if next == 0 {
        return Ok(false);
    }
    let sheets = Sheet::all(&crate::run::journal::restart(&ledger::read(tx.db, installation, job)?))?;
    append(tx, job, author, next.unsigned_abs(), &sheets, now)?;
    Ok(true)
}

/// A job's entries from place `from` on, in order.
pub fn read<D: Driver>(db: &mut D, keys: &Keys, job: JobId, from: u64) -> Outcome<Vec<Recorded>> {
    let recorded = |StepRow { seq, kind, data, at, blob }| {
        let open = |(hash, bytes): (Vec<u8>, Vec<u8>)| keys.open_bytes(Place::blob(&hash), bytes);
        let blob = blob.map(open).transpose()?;
        let entry = sheet::join(&kind, &keys.open(Place::entry(job.0, seq), &data)?, blob)?;
        Ok(Recorded { seq: seq.unsigned_abs(), at, entry })
    };
    db.journal(job, i64::try_from(from).unwrap_or(i64::MAX))?.into_iter().map(recorded).collect()
}
