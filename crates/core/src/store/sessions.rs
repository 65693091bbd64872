//! Sessions: which jobs are exchanges of one conversation, and summaries of what was said.

use std::borrow::Cow;
use std::collections::HashMap;

use super::driver::{AskRow, AsksOf, Driver, Forgets, IdsOf, JobRow, JobsOf, SessionsOf, StoredJob, SummaryRow};
use super::fault::refused;
use super::seal::{Keys, Place, Sealed};
use super::{Done, Outcome, Tx, cancel, turns};
use crate::clock::Millis;
use crate::job::question::QuestionState;
use crate::job::{JobId, JobState, Output, Payload};
use crate::port::Reach;
use crate::session::{Asked, Exchange, NewSession, Session, SessionId, Stretch, superseded_by};

/// Begins a session, or finds the one that has its name.
pub fn begin<D: Driver>(tx: &mut Tx<'_, D>, new: &NewSession, now: Millis) -> Outcome<(Session, bool)> {
    if let Some(name) = &new.name
        && let Some(found) = named(tx.db, name)?
    {
        return Ok((found, false));
    }
    let remembered = match tx.db.sessions(SessionsOf::Latest(Some(&new.role), 1))?.pop() {
        // One in which nothing was said hands on what it remembers itself.
        Some(Session { id: session, previous, .. }) => {
            let last = tx.db.ids(IdsOf::LastExchange(session))?.pop();
            last.map(|through| Stretch { session, through }).or(previous)
        }
        None => None,
    };
    let id = tx.db.begin_session(new.name.as_deref(), &new.role, remembered, now)?;
    Ok((existing(tx.db, id)?, true))
}

/// A session, unless it was deleted.
pub fn one<D: Driver>(db: &mut D, id: SessionId) -> Done<Option<Session>> {
    Ok(db.sessions(SessionsOf::One(id))?.pop())
}

fn existing<D: Driver>(db: &mut D, id: SessionId) -> Outcome<Session> {
    one(db, id)?.ok_or_else(|| refused(format!("there is no session {id}; posse session list shows those there are")))
}

/// The session of that name. Case tells sessions apart only where there are two already: names become folders, and not
/// every file system tells case apart.
pub fn named<D: Driver>(db: &mut D, name: &str) -> Done<Option<Session>> {
    match db.sessions(SessionsOf::Named(name))?.pop() {
        Some(found) => Ok(Some(found)),
        None => Ok(db.sessions(SessionsOf::Alike(name))?.pop()),
    }
}

/// Has a session be nobody's because a person said so: then nothing of it is kept, not even what outlives jobs. Its
/// jobs are deleted a few at a time, by whoever comes. Refused while an exchange is open. Gives how many exchanges it had;
/// none if there is no such session.
pub fn delete_by_hand<D: Driver>(tx: &mut Tx<'_, D>, id: SessionId, now: Millis) -> Outcome<Option<u64>> {
    let Some(session) = one(tx.db, id)? else { return Ok(None) };
    let busy = tx.db.jobs(JobsOf::BusyExchanges(id))?;
    if let Some(JobRow { id: job, .. }) = busy.iter().find(|row| !row.standing.state.is_final()) {
        return Err(refused(format!("job {job} of it has not ended; posse job cancel {job} ends it")));
    }
    if let Some(JobRow { id: job, .. }) = busy.first() {
        return Err(refused(format!(
            "others wait for job {job} of it; posse show {job} tells who. Cancel those first"
        )));
    }
    tx.db.drop_archived(id)?;
    delete(tx, &session, now)?;
    tx.db.drop_empty_sessions()?;
    Ok(Some(session.exchanges))
}

/// Has a session be nobody's, and its turns be remembered no more: they are what it was.
pub(super) fn delete<D: Driver>(tx: &mut Tx<'_, D>, session: &Session, now: Millis) -> Done<()> {
    turns::forget(tx.db, session, None)?;
    tx.db.delete_session(session.id, now)
}

/// Has an exchange that is about to be deleted be in no summary, and its turns be remembered no more.
pub(super) fn leave<D: Driver>(tx: &mut Tx<'_, D>, job: JobId) -> Done<()> {
    if let Some(session) = tx.db.sessions(SessionsOf::With(job))?.pop() {
        turns::forget(tx.db, &session, Some(job))?;
    }
    Forgets::<SummaryRow>::forget(tx.db, job).map(drop)
}

/// Makes a job that was just stored an exchange of its session. It supersedes what was said before and has no answer yet:
/// whoever says something else waits for that. An exchange that is only planned for later is left alone.
pub(super) fn join<D: Driver>(
    tx: &mut Tx<'_, D>,
    id: SessionId,
    (job, began): (JobId, JobState),
    role: &str,
    now: Millis,
) -> Outcome<()> {
    let session = existing(tx.db, id)?;
    if session.role != role {
        let has = &session.role;
        return Err(refused(format!(
            "session {id} is with {has}, not with {role}; begin one (posse chat {role} --new)"
        )));
    }
    tx.db.join_session(id, job, now)?;
    if began == JobState::Scheduled {
        return Ok(());
    }
    let is_planned = |row: &JobRow| row.standing.state == JobState::Scheduled && row.lease_token == 0;
    for row in tx.db.jobs(JobsOf::BusyExchanges(id))? {
        let ends = row.standing.state.is_final() || row.standing.cancel_requested;
        if row.id != job && !ends && !is_planned(&row) {
            cancel::cancel_within(tx, row.id, Reach::Beneath, &superseded_by(job), now)?;
        }
    }
    Ok(())
}

/// What was said in a session before an exchange or until now, oldest first.
pub fn exchanges<D: Driver>(db: &mut D, keys: &Keys, id: SessionId, before: Option<JobId>) -> Outcome<Vec<Exchange>> {
    let ids = db.ids(IdsOf::Exchanges(id, before.unwrap_or(JobId(i64::MAX)), u32::MAX))?;
    let rows = db.whole_jobs(&ids)?;
    let mut asked = asked(db, keys, id)?;
    let exchange = |(JobRow { id: job, standing, created_at, finalized_at, output, reason, .. }, data): StoredJob| {
        // One exchange that cannot be read must not end the conversation.
        let lost = |_| "(this cannot be read any more)".to_owned();
        let goal = match keys.open(Place::payload(job.0), &data.payload) {
            Ok(text) => serde_json::from_str(&text).map_or_else(lost, |payload: Payload| payload.goal),
            Err(closed) => format!("({closed})"),
        };
        let asked = asked.remove(&job).unwrap_or_default();
        // What was not noted may have been read; and who ended without an answer has said what it asked.
        let mut untrusted = !asked.is_empty();
        let mut read = |output: Sealed| match keys.open(Place::output(job.0), &output) {
            Ok(text) => serde_json::from_str(&text).map_or_else(lost, |output: Output| {
                untrusted = output.heard.is_none_or(|heard| !heard.is_empty());
                output.text
            }),
            Err(closed) => format!("({closed})"),
        };
        let text = output.map(&mut read);
        Exchange {
            job,
            state: standing.state,
            goal,
            asked,
            text,
            reason: reason.map(|reason| keys.show(Place::reason(job.0), &reason)),
            said_at: created_at,
            ended_at: finalized_at,
            untrusted,
        }
    };
    Ok(rows.into_iter().map(exchange).collect())
}

/// What people were asked in a session, by job, in order.
fn asked<D: Driver>(db: &mut D, keys: &Keys, id: SessionId) -> Outcome<HashMap<JobId, Vec<Asked>>> {
    let mut asked: HashMap<JobId, Vec<Asked>> = HashMap::new();
    for AskRow { job, seq, position, text, state, answer, .. } in db.asks(AsksOf::Session(id))? {
        let question = keys.show(Place::question(job.0, seq, position), &text);
        let answer = answer.map(|answer| keys.show(Place::answer(job.0, seq, position), &answer));
        asked.entry(job).or_default().push(Asked { question, answer, is_open: state == QuestionState::Open });
    }
    Ok(asked)
}

/// The summary that is kept of a part of a session.
pub fn summary<D: Driver>(db: &mut D, keys: &Keys, of: Stretch) -> Outcome<Option<String>> {
    let row: Option<SummaryRow> = db.kept(of)?.pop();
    Ok(row.map(|row| keys.open(place(of), &row.text).map(Cow::into_owned)).transpose()?)
}

fn place(of: Stretch) -> Place<'static> {
    Place::summary(of.session.0, of.through.0)
}

/// Keeps a summary unless there is one, and gives the one that is kept. With it the turns that it stands for are
/// remembered, so that a search finds what the summary has not.
pub fn keep_summary<D: Driver>(tx: &mut Tx<'_, D>, of: Stretch, text: &str, now: Millis) -> Outcome<String> {
    let session = existing(tx.db, of.session)?;
    let told = exchanges(tx.db, tx.keys, of.session, Some(JobId(of.through.0.saturating_add(1))))?;
    turns::remember(tx, &session, &told, now)?;
    tx.db.keep(&SummaryRow { of, text: tx.keys.seal(place(of), text), created_at: now })?;
    Ok(summary(tx.db, tx.keys, of)?.unwrap_or_default())
}
