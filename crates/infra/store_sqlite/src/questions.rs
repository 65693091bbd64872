//! Questions to people: made by a journal entry, settled by another.

use std::borrow::Cow;

use diesel::dsl::{count_star, min};
use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::question::{Answered, Question, QuestionId, QuestionState};
use posse_core::job::transition::{Event, transition};
use posse_core::job::{JobId, JobState};
use posse_core::port::QuestionFilter;
use posse_core::run::journal::Entry;

use super::fault::{Outcome, unusable};
use super::journal;
use super::literal::{IsOpenAsk, update};
use super::schema::{asks, jobs, steps};
use super::sealed_text::Text;
use super::writer::Transaction;
use posse_core::store::driver::{JobRow, JobRows as _};
use posse_core::store::jobs::{set_reason, store};
use posse_core::store::seal::{Keys, Place, Sealed};

/// Questions settled in one transaction.
const EXPIRED_AT_ONCE: i64 = 500;

#[derive(Queryable, Selectable)]
#[diesel(table_name = asks)]
struct Row {
    id: i64,
    job_id: i64,
    seq: i64,
    position: i32,
    text: Sealed,
    state: String,
    answer: Option<Sealed>,
    settled_by: Option<String>,
    created_at: i64,
    expires_at: Option<i64>,
    settled_at: Option<i64>,
    #[diesel(select_expression = jobs::role, select_expression_type = jobs::role)]
    role: String,
}

fn question(keys: &Keys, row: Row) -> Outcome<Question> {
    let Row { id, job_id, seq, position, text, state, answer, settled_by, created_at, expires_at, settled_at, role } =
        row;
    let known = QuestionState::ALL.into_iter().find(|known| known.as_str() == state);
    let state = known.ok_or_else(|| unusable(format!("question {id} has the unknown state '{state}'")))?;
    let text = keys.show(Place::question(job_id, seq, position), &text);
    let answer = answer.map(|answer| keys.show(Place::answer(job_id, seq, position), &answer));
    let (id, job) = (QuestionId(id), JobId(job_id));
    Ok(Question { id, job, role, text, state, answer, settled_by, created_at, expires_at, settled_at })
}

/// One question.
pub(super) fn one(connection: &mut SqliteConnection, keys: &Keys, id: QuestionId) -> Outcome<Option<Question>> {
    let row: Option<Row> = asks::table
        .inner_join(jobs::table)
        .filter(asks::id.eq(id.0))
        .select(Row::as_select())
        .first(connection)
        .optional()?;
    row.map(|row| question(keys, row)).transpose()
}

/// Questions by filter, oldest first.
pub(super) fn list(connection: &mut SqliteConnection, keys: &Keys, filter: &QuestionFilter) -> Outcome<Vec<Question>> {
    let mut query = asks::table
        .inner_join(jobs::table)
        .select(Row::as_select())
        .order(asks::id)
        .limit(i64::from(filter.limit))
        .into_boxed();
    if !filter.settled {
        query = query.filter(IsOpenAsk);
    }
    if let Some(job) = filter.job {
        query = query.filter(asks::job_id.eq(job.0));
    }
    query.load(connection)?.into_iter().map(|row| question(keys, row)).collect()
}

/// The earliest time at which an open question expires.
pub(super) fn next_expiry(connection: &mut SqliteConnection) -> Outcome<Option<Millis>> {
    let open = asks::table.filter(IsOpenAsk);
    Ok(open.filter(asks::expires_at.is_not_null()).select(min(asks::expires_at)).first(connection)?)
}

/// Saves the questions that the entry at `seq` asks.
pub(super) fn ask(
    tx: &mut Transaction<'_>,
    job: JobId,
    seq: i64,
    questions: &[String],
    open_ms: Option<u64>,
    now: Millis,
) -> QueryResult<()> {
    let expires_at = open_ms.map(|ms| now.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX / 2)));
    for (position, text) in (0..).zip(questions) {
        diesel::insert_into(asks::table)
            .values((
                asks::job_id.eq(job.0),
                asks::seq.eq(seq),
                asks::position.eq(position),
                asks::kind.eq("question"),
                asks::text.eq(Text(tx.keys.seal(Place::question(job.0, seq, position), text.as_str()))),
                asks::state.eq(QuestionState::Open.as_str()),
                asks::created_at.eq(now),
                asks::expires_at.eq(expires_at),
            ))
            .execute(&mut tx.db.0)?;
    }
    Ok(())
}

/// Saves an answer, unless the question is settled.
pub(super) fn answer(
    tx: &mut Transaction<'_>,
    id: QuestionId,
    answer: &str,
    by: &str,
    now: Millis,
) -> Outcome<Option<Answered>> {
    let Some(found) = one(&mut tx.db.0, tx.keys, id)? else { return Ok(None) };
    if found.state != QuestionState::Open {
        return Ok(Some(Answered::Settled { question: found }));
    }
    let open = settle(tx, id, found.job, Some((answer, by)), now)?;
    Ok(Some(Answered::Accepted { job: found.job, open }))
}

/// Settles questions whose time is over.
pub(super) fn expire(tx: &mut Transaction<'_>, now: Millis) -> Outcome<u32> {
    let over: Vec<(i64, i64)> = asks::table
        .filter(IsOpenAsk)
        .filter(asks::expires_at.le(now))
        .order(asks::id)
        .limit(EXPIRED_AT_ONCE)
        .select((asks::id, asks::job_id))
        .load(&mut tx.db.0)?;
    for (id, job) in &over {
        settle(tx, QuestionId(*id), JobId(*job), None, now)?;
    }
    Ok(u32::try_from(over.len()).unwrap_or(u32::MAX))
}

/// Settles an open question, tells the run, and lets the job go on if it was the last one. Gives how
/// many are still open.
fn settle(
    tx: &mut Transaction<'_>,
    id: QuestionId,
    job: JobId,
    answer: Option<(&str, &str)>,
    now: Millis,
) -> Outcome<u32> {
    let state = if answer.is_some() { QuestionState::Answered } else { QuestionState::Expired };
    let (text, by) = answer.unzip();
    let (seq, position): (i64, i32) = asks::table.find(id.0).select((asks::seq, asks::position)).first(&mut tx.db.0)?;
    let sealed = text.map(|text| tx.keys.seal(Place::answer(job.0, seq, position), text));
    diesel::update(asks::table.find(id.0))
        .set((
            asks::state.eq(state.as_str()),
            asks::answer.eq(sealed.map(Text)),
            asks::settled_by.eq(by),
            asks::settled_at.eq(now),
        ))
        .execute(&mut tx.db.0)?;
    let question = position.unsigned_abs();
    journal::append_unleased(tx, job, &Entry::Answered { question, answer: text.map(str::to_owned) }, now)?;
    let open: i64 =
        asks::table.filter(asks::job_id.eq(job.0)).filter(IsOpenAsk).select(count_star()).first(&mut tx.db.0)?;
    if open == 0 {
        go_on(tx, job, now)?;
    }
    Ok(u32::try_from(open).unwrap_or(u32::MAX))
}

/// Lets a job go on whose questions are all settled. One that ended without its answers is left as it is.
fn go_on(tx: &mut Transaction<'_>, job: JobId, now: Millis) -> Outcome<()> {
    let waits = |row: &JobRow| row.standing.state == JobState::Suspended;
    let Some(row) = tx.db.job(job)?.filter(waits) else { return Ok(()) };
    let change = transition(row.standing, Event::Decide, now)?;
    store(tx.db, job, &change, now)?;
    set_reason(tx, job, None)?;
    tx.ring();
    Ok(())
}

/// Tells a suspended run again what was answered, if its journal has lost that: it waits for answers
/// that were given, and nobody can give them twice.
pub(super) fn tell_again(tx: &mut Transaction<'_>, job: JobId, now: Millis) -> Outcome<()> {
    type Row = (i64, i32, String, Option<Sealed>);
    let all: Vec<Row> = asks::table
        .filter(asks::job_id.eq(job.0))
        .order((asks::seq.desc(), asks::position))
        .select((asks::seq, asks::position, asks::state, asks::answer))
        .load(&mut tx.db.0)?;
    let Some(asked_at) = all.first().map(|(seq, ..)| *seq) else { return Ok(()) };
    let last: Vec<_> = all.into_iter().take_while(|(seq, ..)| *seq == asked_at).collect();
    if last.iter().any(|(.., state, _)| state == QuestionState::Open.as_str()) {
        return Ok(());
    }
    let told: i64 = steps::table
        .filter(steps::job_id.eq(job.0).and(steps::seq.gt(asked_at)).and(steps::kind.eq("answered")))
        .select(count_star())
        .first(&mut tx.db.0)?;
    // What it was told in full and waits all the same, telling it once more would not change.
    if told >= i64::try_from(last.len()).unwrap_or(i64::MAX) {
        return Ok(());
    }
    for (seq, position, _, answer) in last {
        let open = |answer: Sealed| tx.keys.open(Place::answer(job.0, seq, position), &answer).map(Cow::into_owned);
        let answer = answer.map(open).transpose()?;
        journal::append_unleased(tx, job, &Entry::Answered { question: position.unsigned_abs(), answer }, now)?;
    }
    go_on(tx, job, now)
}

/// Closes what is open: the job no longer waits.
pub(super) fn close(connection: &mut SqliteConnection, job: JobId, now: Millis) -> QueryResult<()> {
    let closed = (asks::state.eq(QuestionState::Closed.as_str()), asks::settled_at.eq(now));
    update(asks::table, asks::job_id.eq(job.0).and(IsOpenAsk), closed).execute(connection).map(drop)
}

/// Settles for good what is open or closed: the run that asked was begun again, and asks anew if it
/// still wants to know.
pub(super) fn drop_all(connection: &mut SqliteConnection, job: JobId, now: Millis) -> QueryResult<()> {
    let waiting = [QuestionState::Open.as_str(), QuestionState::Closed.as_str()];
    diesel::update(asks::table)
        .filter(asks::job_id.eq(job.0))
        .filter(asks::state.eq_any(waiting))
        .set((asks::state.eq(QuestionState::Expired.as_str()), asks::settled_at.eq(now)))
        .execute(connection)
        .map(drop)
}

/// Opens again what was closed: the job was run again, and waits as before.
pub(super) fn reopen(connection: &mut SqliteConnection, job: JobId) -> QueryResult<()> {
    let closed = asks::job_id.eq(job.0).and(asks::state.eq(QuestionState::Closed.as_str()));
    let open = (asks::state.eq(QuestionState::Open.as_str()), asks::settled_at.eq(None::<i64>));
    update(asks::table, closed, open).execute(connection).map(drop)
}
