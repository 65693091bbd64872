//! Sessions: which jobs are turns of one conversation, and summaries of what was said.

use std::borrow::Cow;

use diesel::dsl::{count_star, max};
use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::{JobId, Output, Payload};
use posse_core::port::RepositoryError;
use posse_core::session::{NewSession, Session, SessionId, SessionTurn, Stretch};

use super::fault::{Fault, Outcome};
use super::jobs::state;
use super::literal::update;
use super::schema::{job_data, jobs, session_jobs, session_summaries, sessions};
use super::seal::{Keys, Place, Sealed};
use super::writer::Transaction;

type Row = (i64, Option<String>, String, Option<i64>, Option<i64>, i64, i64);

fn session(connection: &mut SqliteConnection, row: Row) -> Outcome<Session> {
    let (id, name, role, previous, through, created_at, used_at) = row;
    let turns: i64 =
        session_jobs::table.filter(session_jobs::session_id.eq(id)).select(count_star()).first(connection)?;
    let previous = previous.zip(through);
    let previous = previous.map(|(session, through)| Stretch { session: SessionId(session), through: JobId(through) });
    let turns = turns.unsigned_abs();
    Ok(Session { id: SessionId(id), name, role, previous, created_at, used_at, turns })
}

/// One session.
pub(super) fn one(connection: &mut SqliteConnection, id: SessionId) -> Outcome<Option<Session>> {
    let row: Option<Row> = sessions::table.find(id.0).first(connection).optional()?;
    row.map(|row| session(connection, row)).transpose()
}

/// The session of that name.
pub(super) fn named(connection: &mut SqliteConnection, name: &str) -> Outcome<Option<Session>> {
    let row: Option<Row> = sessions::table.filter(sessions::name.eq(name)).first(connection).optional()?;
    row.map(|row| session(connection, row)).transpose()
}

/// Sessions of one role or of all, those used last first.
pub(super) fn list(connection: &mut SqliteConnection, role: Option<&str>, limit: u32) -> Outcome<Vec<Session>> {
    let mut query =
        sessions::table.order((sessions::used_at.desc(), sessions::id.desc())).limit(i64::from(limit)).into_boxed();
    if let Some(role) = role {
        query = query.filter(sessions::role.eq(role));
    }
    let rows: Vec<Row> = query.load(connection)?;
    rows.into_iter().map(|row| session(connection, row)).collect()
}

/// Begins a session, or finds the one that has its name.
pub(super) fn begin(tx: &mut Transaction<'_>, new: &NewSession, now: Millis) -> Outcome<(Session, bool)> {
    if let Some(name) = &new.name
        && let Some(found) = named(tx.connection, name)?
    {
        return Ok((found, false));
    }
    let previous = list(tx.connection, Some(&new.role), 1)?.pop();
    let through: Option<i64> = match &previous {
        Some(previous) => session_jobs::table
            .filter(session_jobs::session_id.eq(previous.id.0))
            .select(max(session_jobs::job_id))
            .first(tx.connection)?,
        None => None,
    };
    // One in which nothing was said hands on what it remembers itself.
    let remembered = match (&previous, through) {
        (Some(previous), Some(through)) => Some((previous.id.0, through)),
        (Some(previous), None) => previous.previous.map(|stretch| (stretch.session.0, stretch.through.0)),
        (None, _) => None,
    };
    let id: i64 = diesel::insert_into(sessions::table)
        .values((
            sessions::name.eq(&new.name),
            sessions::role.eq(&new.role),
            sessions::previous_id.eq(remembered.map(|(id, _)| id)),
            sessions::previous_job.eq(remembered.map(|(_, job)| job)),
            sessions::created_at.eq(now),
            sessions::used_at.eq(now),
        ))
        .returning(sessions::id)
        .get_result(tx.connection)?;
    let begun = one(tx.connection, SessionId(id))?;
    Ok((begun.ok_or_else(|| no_such(SessionId(id)))?, true))
}

/// Makes a job that was just stored a turn of its session.
pub(super) fn join(connection: &mut SqliteConnection, id: SessionId, job: i64, role: &str, now: Millis) -> Outcome<()> {
    let session = one(connection, id)?.ok_or_else(|| no_such(id))?;
    if session.role != role {
        let has = &session.role;
        return Err(refused(format!(
            "session {id} is with {has}, not with {role}; begin one (posse chat {role} --new)"
        )));
    }
    diesel::insert_into(session_jobs::table)
        .values((session_jobs::session_id.eq(id.0), session_jobs::job_id.eq(job)))
        .execute(connection)?;
    update(sessions::table, sessions::id.eq(id.0), sessions::used_at.eq(now)).execute(connection)?;
    Ok(())
}

/// What was said in a session, oldest first.
pub(super) fn turns(
    connection: &mut SqliteConnection,
    keys: &Keys,
    id: SessionId,
    before: Option<JobId>,
) -> Outcome<Vec<SessionTurn>> {
    type TurnRow = (i64, String, i64, Option<i64>, Sealed, Option<Sealed>, Option<Sealed>);
    let rows: Vec<TurnRow> = session_jobs::table
        .inner_join(jobs::table.inner_join(job_data::table))
        .filter(session_jobs::session_id.eq(id.0))
        .filter(session_jobs::job_id.lt(before.map_or(i64::MAX, |job| job.0)))
        .order(session_jobs::job_id)
        .select((
            jobs::id,
            jobs::state,
            jobs::created_at,
            jobs::finalized_at,
            job_data::payload,
            jobs::output,
            jobs::reason,
        ))
        .load(connection)?;
    let turn = |(job, name, said_at, ended_at, payload, output, reason): TurnRow| {
        // One turn that cannot be read must not end the conversation.
        let lost = |_| "(this cannot be read any more)".to_owned();
        let goal = match keys.open(Place::payload(job), &payload) {
            Ok(text) => serde_json::from_str(&text).map_or_else(lost, |payload: Payload| payload.goal),
            Err(closed) => format!("({closed})"),
        };
        let read = |output: Sealed| match keys.open(Place::output(job), &output) {
            Ok(text) => serde_json::from_str(&text).map_or_else(lost, |output: Output| output.text),
            Err(closed) => format!("({closed})"),
        };
        let text = output.map(read);
        let reason = reason.map(|reason| keys.show(Place::reason(job), &reason));
        let (job, state) = (JobId(job), state(&name)?);
        Ok(SessionTurn { job, state, goal, text, reason, said_at, ended_at })
    };
    rows.into_iter().map(turn).collect()
}

/// The summary that is kept of a part of a session.
pub(super) fn summary(connection: &mut SqliteConnection, keys: &Keys, of: Stretch) -> Outcome<Option<String>> {
    let row = session_summaries::table.find((of.session.0, of.through.0));
    let text: Option<Sealed> = row.select(session_summaries::text).first(connection).optional()?;
    Ok(text.map(|text| keys.open(place(of), &text).map(Cow::into_owned)).transpose()?)
}

fn place(of: Stretch) -> Place<'static> {
    Place::summary(of.session.0, of.through.0)
}

/// Keeps a summary unless there is one, and gives the one that is kept.
pub(super) fn keep_summary(tx: &mut Transaction<'_>, of: Stretch, text: &str, now: Millis) -> Outcome<String> {
    one(tx.connection, of.session)?.ok_or_else(|| no_such(of.session))?;
    diesel::insert_or_ignore_into(session_summaries::table)
        .values((
            session_summaries::session_id.eq(of.session.0),
            session_summaries::through_job.eq(of.through.0),
            session_summaries::text.eq(tx.keys.seal(place(of), text)),
            session_summaries::created_at.eq(now),
        ))
        .execute(tx.connection)?;
    Ok(summary(tx.connection, tx.keys, of)?.unwrap_or_default())
}

fn no_such(id: SessionId) -> Fault {
    refused(format!("there is no session {id}; posse session list shows those there are"))
}

fn refused(message: String) -> Fault {
    Fault::Refused(RepositoryError::Refused(message))
}
