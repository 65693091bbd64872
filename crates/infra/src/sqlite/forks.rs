//! Forks: jobs whose journal begins as a copy of another one's.

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::JobId;
use posse_core::journal::ledger_changes;
use posse_core::question::QuestionState;
use posse_core::usecase::fork::Fork;

use super::fault::{Outcome, unusable};
use super::journal::Sheet;
use super::schema::{asks, steps};
use super::writer::Transaction;
use super::{jobs, journal, ledger};

/// A fork with what has to be written out anew.
pub(super) struct Prepared {
    fork: Fork,
    batch: jobs::Batch,
    edited: Vec<(u64, Sheet)>,
}

impl Prepared {
    /// Writes out what differs from the source, outside of the transaction.
    pub fn new(fork: Fork, now: Millis) -> Result<Prepared, serde_json::Error> {
        let batch = jobs::Batch::new(vec![fork.job.clone()], now)?;
        let edited = fork.journal.iter().filter(|recorded| fork.edited.contains(&recorded.seq));
        let edited = edited.map(|recorded| Ok((recorded.seq, Sheet::new(&recorded.entry)?)));
        let edited = edited.collect::<Result<_, serde_json::Error>>()?;
        Ok(Prepared { fork, batch, edited })
    }

    /// Roughly what it will take.
    pub fn bytes(&self) -> usize {
        self.batch.bytes()
            + self.edited.iter().map(|(_, sheet)| sheet.bytes()).sum::<usize>()
            + 300 * self.fork.journal.len()
    }
}

/// Stores a fork.
pub(super) fn fork(tx: &mut Transaction<'_>, prepared: &Prepared, now: Millis) -> Outcome<JobId> {
    let Prepared { fork, batch, edited } = prepared;
    let id = jobs::enqueue(tx, batch, None)?.pop().ok_or_else(|| unusable("a fork is one job"))?.id;
    let copied = copy_steps(tx.connection, fork, id)?;
    if copied + edited.len() != fork.journal.len() {
        return Err(unusable(format!("the journal of job {} is not what it was; nothing was saved", fork.source)));
    }
    for (seq, sheet) in edited {
        let at = fork.journal.iter().find(|recorded| recorded.seq == *seq).map_or(now, |recorded| recorded.at);
        journal::insert_at(tx.connection, id, *seq, sheet, at)?;
    }
    // Effect keys hold the job's number: these calls have others than those of the source.
    for recorded in &fork.journal {
        for (position, change) in (0..).zip(&ledger_changes(&recorded.entry)) {
            let seq = i64::try_from(recorded.seq).unwrap_or(i64::MAX);
            ledger::apply(tx.connection, id, seq, position, change, recorded.at)?;
        }
    }
    copy_questions(tx.connection, fork, id, now)?;
    Ok(id)
}

/// Copies the entries that are the same, their blobs shared, and tells how many there were.
fn copy_steps(connection: &mut SqliteConnection, fork: &Fork, id: JobId) -> QueryResult<usize> {
    let place = |seq: &u64| i64::try_from(*seq).unwrap_or(i64::MAX);
    let end = i64::try_from(fork.journal.len()).unwrap_or(i64::MAX);
    let same = steps::table
        .filter(steps::job_id.eq(fork.source.0))
        .filter(steps::seq.lt(end))
        .filter(steps::seq.ne_all(fork.edited.iter().map(place).collect::<Vec<_>>()))
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
}

/// Stores the questions of a fork's journal. Those that are open there are closed until the fork
/// waits for them.
fn copy_questions(connection: &mut SqliteConnection, fork: &Fork, id: JobId, now: Millis) -> QueryResult<()> {
    for question in fork.questions() {
        let (state, answer) = match &question.settled {
            None => (QuestionState::Closed, None),
            Some(None) => (QuestionState::Expired, None),
            Some(Some(answer)) => (QuestionState::Answered, Some(answer)),
        };
        let expires_at = question.open_ms.map(|ms| now.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX / 2)));
        diesel::insert_into(asks::table)
            .values((
                asks::job_id.eq(id.0),
                asks::seq.eq(i64::try_from(question.seq).unwrap_or(i64::MAX)),
                asks::position.eq(i32::try_from(question.position).unwrap_or(i32::MAX)),
                asks::kind.eq("question"),
                asks::text.eq(&question.text),
                asks::state.eq(state.as_str()),
                asks::answer.eq(answer),
                asks::created_at.eq(now),
                asks::expires_at.eq(expires_at),
                asks::settled_at.eq(now),
            ))
            .execute(connection)?;
    }
    Ok(())
}
