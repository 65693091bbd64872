//! Forks: jobs whose journal begins as a copy of another one's.

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::JobId;
use posse_core::job::question::QuestionState;
use posse_core::run::fork::Fork;
use posse_core::run::journal::ledger_changes;

use super::fault::{Outcome, unusable};
use super::journal::Sheet;
use super::schema::{asks, steps};
use super::sealed_text::Text;
use super::writer::Transaction;
use super::{jobs, journal, ledger};
use posse_core::store::seal::{Keys, Place};

/// A fork with what has to be written out anew.
pub(super) struct Prepared {
    fork: Fork,
    batch: jobs::Batch,
    /// The entries that differ, or all where each is sealed for its place.
    anew: Vec<(u64, Millis, Sheet)>,
}

impl Prepared {
    /// Writes out what differs from the source, outside of the transaction.
    pub fn new(fork: Fork, keys: &Keys, now: Millis) -> Result<Prepared, serde_json::Error> {
        let batch = jobs::Batch::new(vec![fork.job.clone()], now)?;
        let differs = |seq| keys.seals() || fork.edited.contains(seq);
        let anew = fork.journal.iter().filter(|recorded| differs(&recorded.seq));
        let anew = anew.map(|recorded| Ok((recorded.seq, recorded.at, Sheet::new(&recorded.entry)?)));
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

/// Stores a fork.
pub(super) fn fork(tx: &mut Transaction<'_>, prepared: &Prepared, now: Millis) -> Outcome<JobId> {
    let Prepared { fork, batch, anew } = prepared;
    let id = jobs::enqueue(tx, batch, None)?.pop().ok_or_else(|| unusable("a fork is one job"))?.id;
    if anew.len() < fork.journal.len() {
        copy_steps(&mut tx.db.0, prepared, id)?;
    }
    if entries_of_source(&mut tx.db.0, fork)? != fork.journal.len() {
        return Err(unusable(format!("the journal of job {} is not what it was; nothing was saved", fork.source)));
    }
    for (seq, at, sheet) in anew {
        journal::insert_at(tx, id, *seq, sheet, *at)?;
    }
    // Effect keys hold the job's number: these calls have others than those of the source.
    for recorded in &fork.journal {
        for (position, change) in (0..).zip(&ledger_changes(&recorded.entry)) {
            let seq = i64::try_from(recorded.seq).unwrap_or(i64::MAX);
            ledger::apply(tx, id, seq, position, change, recorded.at)?;
        }
    }
    copy_questions(tx, fork, id, now)?;
    Ok(id)
}

/// How many of the entries that the fork was made of its source still has.
fn entries_of_source(connection: &mut SqliteConnection, fork: &Fork) -> QueryResult<usize> {
    let end = i64::try_from(fork.journal.len()).unwrap_or(i64::MAX);
    let entries = steps::table.filter(steps::job_id.eq(fork.source.0)).filter(steps::seq.lt(end));
    entries.count().get_result(connection).map(|count: i64| usize::try_from(count).unwrap_or(0))
}

/// Copies the entries that are the same, their blobs shared.
fn copy_steps(connection: &mut SqliteConnection, Prepared { fork, anew, .. }: &Prepared, id: JobId) -> QueryResult<()> {
    let place = |(seq, ..): &(u64, Millis, Sheet)| i64::try_from(*seq).unwrap_or(i64::MAX);
    let end = i64::try_from(fork.journal.len()).unwrap_or(i64::MAX);
    let same = steps::table
        .filter(steps::job_id.eq(fork.source.0))
        .filter(steps::seq.lt(end))
        .filter(steps::seq.ne_all(anew.iter().map(place).collect::<Vec<_>>()))
        .select((
            id.0.into_sql::<diesel::sql_types::BigInt>(),
            steps::seq,
            steps::kind,
            steps::data,
            steps::blob_hash,
            steps::created_at,
        ));
    diesel::insert_into(steps::table)
        .values(same)
        .into_columns((steps::job_id, steps::seq, steps::kind, steps::data, steps::blob_hash, steps::created_at))
        .execute(connection)
        .map(drop)
}

/// Stores the questions of a fork's journal. Those that are open there are closed until the fork
/// waits for them.
fn copy_questions(tx: &mut Transaction<'_>, fork: &Fork, id: JobId, now: Millis) -> QueryResult<()> {
    for question in fork.questions() {
        let (state, answer) = match &question.settled {
            None => (QuestionState::Closed, None),
            Some(None) => (QuestionState::Expired, None),
            Some(Some(answer)) => (QuestionState::Answered, Some(answer)),
        };
        let seq = i64::try_from(question.seq).unwrap_or(i64::MAX);
        let position = i32::try_from(question.position).unwrap_or(i32::MAX);
        let answer = answer.map(|answer| tx.keys.seal(Place::answer(id.0, seq, position), answer.as_str()));
        let expires_at = question.open_ms.map(|ms| now.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX / 2)));
        diesel::insert_into(asks::table)
            .values((
                asks::job_id.eq(id.0),
                asks::seq.eq(seq),
                asks::position.eq(position),
                asks::kind.eq("question"),
                asks::text.eq(Text(tx.keys.seal(Place::question(id.0, seq, position), question.text.as_str()))),
                asks::state.eq(state.as_str()),
                asks::answer.eq(answer.map(Text)),
                asks::created_at.eq(now),
                asks::expires_at.eq(expires_at),
                asks::settled_at.eq(now),
            ))
            .execute(&mut tx.db.0)?;
    }
    Ok(())
}
