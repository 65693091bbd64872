//! Sessions: which jobs are turns of one conversation, and summaries of what was said.

use std::borrow::Cow;
use std::collections::HashMap;

use diesel::dsl::{count_star, exists, max, not, sql};
use diesel::prelude::*;
use diesel::sql_types::{Bool, Text};
use posse_core::clock::Millis;
use posse_core::job::question::QuestionState;
use posse_core::job::{JobId, JobState, Output, Payload};
use posse_core::port::{Reach, RepositoryError};
use posse_core::session::{Asked, NewSession, Session, SessionId, SessionTurn, Stretch, superseded_by};

use super::fault::{Fault, Outcome};
use super::literal::update;
use super::relations;
use super::rows::state;
use super::schema::{asks, job_data, jobs, memory_items, session_jobs, session_summaries, sessions};
use super::sealed_text;
use super::writer::Transaction;
use posse_core::store::seal::{Keys, Place, Sealed};

type Row = (i64, Option<String>, String, Option<i64>, Option<i64>, i64, i64);

/// The columns of a [`Row`], of sessions that are somebody's.
macro_rules! there {
    () => {
        sessions::table.filter(sessions::deleted_at.is_null()).select((
            sessions::id,
            sessions::name,
            sessions::role,
            sessions::previous_id,
            sessions::previous_job,
            sessions::created_at,
            sessions::used_at,
        ))
    };
}

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
    let row: Option<Row> = there!().filter(sessions::id.eq(id.0)).first(connection).optional()?;
    row.map(|row| session(connection, row)).transpose()
}

/// The session of that name. Case tells sessions apart only where there are two already: names become folders, and
/// not every file system tells them apart.
pub(super) fn named(connection: &mut SqliteConnection, name: &str) -> Outcome<Option<Session>> {
    let exact: Option<Row> = there!().filter(sessions::name.eq(name)).first(connection).optional()?;
    let row = match exact {
        Some(row) => Some(row),
        None => {
            let alike = sql::<Bool>("lower(name) = lower(").bind::<Text, _>(name).sql(")");
            there!()
                .filter(sessions::name.is_not_null())
                .filter(alike)
                .order(sessions::id)
                .first(connection)
                .optional()?
        }
    };
    row.map(|row| session(connection, row)).transpose()
}

/// Sessions of one role or of all, those used last first.
pub(super) fn list(connection: &mut SqliteConnection, role: Option<&str>, limit: u32) -> Outcome<Vec<Session>> {
    let mut query =
        there!().order((sessions::used_at.desc(), sessions::id.desc())).limit(i64::from(limit)).into_boxed();
    if let Some(role) = role {
        query = query.filter(sessions::role.eq(role));
    }
    let rows: Vec<Row> = query.load(connection)?;
    rows.into_iter().map(|row| session(connection, row)).collect()
}

/// Begins a session, or finds the one that has its name.
pub(super) fn begin(tx: &mut Transaction<'_>, new: &NewSession, now: Millis) -> Outcome<(Session, bool)> {
    if let Some(name) = &new.name
        && let Some(found) = named(&mut tx.db.0, name)?
    {
        return Ok((found, false));
    }
    let previous = list(&mut tx.db.0, Some(&new.role), 1)?.pop();
    let through: Option<i64> = match &previous {
        Some(previous) => session_jobs::table
            .filter(session_jobs::session_id.eq(previous.id.0))
            .select(max(session_jobs::job_id))
            .first(&mut tx.db.0)?,
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
        .get_result(&mut tx.db.0)?;
    let begun = one(&mut tx.db.0, SessionId(id))?;
    Ok((begun.ok_or_else(|| no_such(SessionId(id)))?, true))
}

/// Has a session be nobody's from now on: it is not found any more, its name is free, and nobody remembers it. Its
/// jobs are deleted a few at a time, by whoever comes; see [`super::prune`].
pub(super) fn delete(connection: &mut SqliteConnection, id: i64, now: Millis) -> QueryResult<()> {
    diesel::update(sessions::table.find(id))
        .set((
            sessions::deleted_at.eq(now),
            sessions::name.eq(None::<String>),
            sessions::previous_id.eq(None::<i64>),
            sessions::previous_job.eq(None::<i64>),
        ))
        .execute(connection)?;
    diesel::update(sessions::table.filter(sessions::previous_id.eq(id)))
        .set((sessions::previous_id.eq(None::<i64>), sessions::previous_job.eq(None::<i64>)))
        .execute(connection)?;
    diesel::delete(session_summaries::table.filter(session_summaries::session_id.eq(id))).execute(connection)?;
    Ok(())
}

/// The same because a person said so: then nothing of it is kept, not even what outlives jobs. Refused while a turn
/// is open. Gives how many turns it had; none if there is no such session.
pub(super) fn delete_by_hand(tx: &mut Transaction<'_>, id: SessionId, now: Millis) -> Outcome<Option<u64>> {
    let Some(session) = one(&mut tx.db.0, id)? else { return Ok(None) };
    let of_session = session_jobs::table.filter(session_jobs::session_id.eq(id.0));
    let turns = of_session.inner_join(jobs::table);
    let open: Option<i64> =
        turns.filter(jobs::finalized_at.is_null()).select(jobs::id).first(&mut tx.db.0).optional()?;
    if let Some(job) = open {
        return Err(refused(format!("job {job} of it has not ended; posse job cancel {job} ends it")));
    }
    let awaited: Option<i64> = turns.filter(jobs::awaited.eq(true)).select(jobs::id).first(&mut tx.db.0).optional()?;
    if let Some(job) = awaited {
        return Err(refused(format!(
            "others wait for job {job} of it; posse show {job} tells who. Cancel those first"
        )));
    }
    let of_jobs = memory_items::job_id.eq_any(of_session.select(session_jobs::job_id.nullable()));
    diesel::delete(memory_items::table.filter(of_jobs)).execute(&mut tx.db.0)?;
    delete(&mut tx.db.0, id.0, now)?;
    drop_empty(&mut tx.db.0)?;
    Ok(Some(session.turns))
}

/// Deletes the rows of sessions that are nobody's and have no jobs any more.
pub(super) fn drop_empty(connection: &mut SqliteConnection) -> QueryResult<()> {
    let has_jobs = exists(session_jobs::table.filter(session_jobs::session_id.eq(sessions::id)));
    let done = sessions::deleted_at.is_not_null().and(not(has_jobs));
    diesel::delete(sessions::table.filter(done)).execute(connection)?;
    Ok(())
}

/// Summaries that tell of a turn which is about to be deleted by itself.
pub(super) fn forget_summaries_of(connection: &mut SqliteConnection, job: JobId) -> QueryResult<()> {
    let of: Option<i64> = session_jobs::table
        .filter(session_jobs::job_id.eq(job.0))
        .select(session_jobs::session_id)
        .first(connection)
        .optional()?;
    if let Some(session) = of {
        let tells = session_summaries::session_id.eq(session).and(session_summaries::through_job.ge(job.0));
        diesel::delete(session_summaries::table.filter(tells)).execute(connection)?;
    }
    Ok(())
}

/// Makes a job that was just stored a turn of its session. It supersedes what was said before and has no answer yet:
/// whoever says something else waits for that. A turn that is only planned for later is left alone.
pub(super) fn join(tx: &mut Transaction<'_>, id: SessionId, job: i64, role: &str, now: Millis) -> Outcome<()> {
    let session = one(&mut tx.db.0, id)?.ok_or_else(|| no_such(id))?;
    if session.role != role {
        let has = &session.role;
        return Err(refused(format!(
            "session {id} is with {has}, not with {role}; begin one (posse chat {role} --new)"
        )));
    }
    diesel::insert_into(session_jobs::table)
        .values((session_jobs::session_id.eq(id.0), session_jobs::job_id.eq(job)))
        .execute(&mut tx.db.0)?;
    update(sessions::table, sessions::id.eq(id.0), sessions::used_at.eq(now)).execute(&mut tx.db.0)?;
    let planned = || jobs::state.eq(JobState::Scheduled.as_str()).and(jobs::lease_token.eq(0));
    if diesel::select(exists(jobs::table.filter(jobs::id.eq(job)).filter(planned()))).get_result(&mut tx.db.0)? {
        return Ok(());
    }
    let open: Vec<i64> = session_jobs::table
        .inner_join(jobs::table)
        .filter(session_jobs::session_id.eq(id.0))
        .filter(jobs::id.ne(job))
        .filter(jobs::finalized_at.is_null())
        .filter(jobs::cancel_requested.eq(false))
        .filter(not(planned()))
        .order(session_jobs::job_id)
        .select(jobs::id)
        .load(&mut tx.db.0)?;
    for open in open {
        relations::cancel_within(tx, JobId(open), Reach::Beneath, &superseded_by(JobId(job)), now)?;
    }
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
    let mut asked = asked(connection, keys, id)?;
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
        let asked = asked.remove(&job.0).unwrap_or_default();
        Ok(SessionTurn { job, state, goal, asked, text, reason, said_at, ended_at })
    };
    rows.into_iter().map(turn).collect()
}

/// What people were asked in a session, by job, in order.
fn asked(connection: &mut SqliteConnection, keys: &Keys, id: SessionId) -> Outcome<HashMap<i64, Vec<Asked>>> {
    type AskRow = (i64, i64, i32, Sealed, String, Option<Sealed>);
    let of_session = session_jobs::table.filter(session_jobs::session_id.eq(id.0)).select(session_jobs::job_id);
    let rows: Vec<AskRow> = asks::table
        .filter(asks::job_id.eq_any(of_session))
        .order((asks::job_id, asks::seq, asks::position))
        .select((asks::job_id, asks::seq, asks::position, asks::text, asks::state, asks::answer))
        .load(connection)?;
    let mut asked: HashMap<i64, Vec<Asked>> = HashMap::new();
    for (job, seq, position, text, state, answer) in rows {
        let question = keys.show(Place::question(job, seq, position), &text);
        let answer = answer.map(|answer| keys.show(Place::answer(job, seq, position), &answer));
        let is_open = state == QuestionState::Open.as_str();
        asked.entry(job).or_default().push(Asked { question, answer, is_open });
    }
    Ok(asked)
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
    one(&mut tx.db.0, of.session)?.ok_or_else(|| no_such(of.session))?;
    diesel::insert_or_ignore_into(session_summaries::table)
        .values((
            session_summaries::session_id.eq(of.session.0),
            session_summaries::through_job.eq(of.through.0),
            session_summaries::text.eq(sealed_text::Text(tx.keys.seal(place(of), text))),
            session_summaries::created_at.eq(now),
        ))
        .execute(&mut tx.db.0)?;
    Ok(summary(&mut tx.db.0, tx.keys, of)?.unwrap_or_default())
}

fn no_such(id: SessionId) -> Fault {
    refused(format!("there is no session {id}; posse session list shows those there are"))
}

fn refused(message: String) -> Fault {
    Fault::Refused(RepositoryError::Refused(message))
}
