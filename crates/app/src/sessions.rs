//! Sessions: which one is meant, what is said in one, and how its exchanges go.

use std::sync::Arc;

use posse_core::clock::Millis;
use posse_core::job::JobId;
use posse_core::job::change::{Change, Edit};
use posse_core::job::enqueue::{EnqueueRequest, accept};
use posse_core::job::question::{Answered, Question, check_answer};
use posse_core::port::{QuestionFilter, RepositoryError, Store};
use posse_core::session::{Exchange, NewSession, Session, SessionId, check_name};
use posse_core::text::head;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{Code, Error, Result};

/// Who answers and stops in a conversation.
const PERSON: &str = "person";

/// A session by number or by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// By number.
    Id(SessionId),
    /// By name, a good one.
    Name(String),
}

impl Which {
    /// Reads a session's number or name.
    pub fn parse(text: &str) -> Result<Which> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            let too_large = |_| Error::invalid(format!("there is no session with so large a number: {text}"));
            return Ok(Which::Id(SessionId(text.parse().map_err(too_large)?)));
        }
        let shown = if text.len() > 80 { format!("{}…", head(text, 79)) } else { text.to_owned() };
        check_name(text).map_err(|why| Error::invalid(format!("the name '{}' {why}", shown.escape_debug())))?;
        Ok(Which::Name(text.to_owned()))
    }
}

/// That a session is not there, by what it was called.
pub fn no_such(called: &str) -> Error {
    let what = format!("there is no session '{}'; posse session list shows those there are", called.escape_debug());
    Error::new(Code::SessionNotFound, what)
}

/// The session that is called so.
pub async fn find(store: &dyn Store, called: &str) -> Result<Session> {
    let found = match Which::parse(called)? {
        Which::Id(id) => store.session(id).await?,
        Which::Name(name) => store.session_named(name).await?,
    };
    found.ok_or_else(|| no_such(called))
}

/// The session to talk in with `role`: the one that is wanted, else the one used last, else a new one; with whether it is
/// new. A new one alone will do where it is to be `new`.
pub async fn find_or_begin(
    store: &dyn Store,
    role: &str,
    wanted: Option<Which>,
    new: bool,
    now: Millis,
) -> Result<(Session, bool)> {
    let begin = |name| store.begin_session(NewSession { name, role: role.to_owned() }, now);
    let (session, is_new) = match wanted {
        Some(Which::Id(id)) if new => {
            let why = format!("session {id} has its number already; give the new one a name, or none");
            return Err(Error::invalid(why));
        }
        Some(Which::Id(id)) => {
            let missing = || {
                let what = format!("there is no session {id}; posse session list shows those there are");
                Error::new(Code::SessionNotFound, what)
            };
            (store.session(id).await?.ok_or_else(missing)?, false)
        }
        Some(Which::Name(name)) => match begin(Some(name)).await? {
            (session, false) if new => {
                let way_out = "leave out --new to go on with it, or give another name";
                let why = format!("there is a session {} already; {way_out}", session.label());
                return Err(Error::new(Code::SessionExists, why));
            }
            found => found,
        },
        None if new => begin(None).await?,
        None => match store.sessions(Some(role.to_owned()), 1).await?.pop() {
            Some(last) => (last, false),
            None => begin(None).await?,
        },
    };
    if session.role != role {
        let (label, has) = (session.label(), &session.role);
        let why = format!("session {label} is with {has}: posse chat {has} --session {label} goes on with it");
        return Err(Error::new(Code::Conflict, why));
    }
    Ok((session, is_new))
}

/// A session with what was said in it: the document of `posse session show --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SessionDocument {
    /// The session.
    pub session: Session,
    /// What it remembers of the one before it, in words.
    pub remembers: Option<String>,
    /// What was said, oldest first.
    #[serde(rename = "turns")]
    pub exchanges: Vec<Exchange>,
}

impl SessionDocument {
    /// Reads it.
    pub async fn read(store: &dyn Store, session: Session) -> Result<SessionDocument> {
        let exchanges = store.exchanges(session.id, None).await?;
        let remembers = match session.previous {
            Some(stretch) => store.session_summary(stretch).await?,
            None => None,
        };
        Ok(SessionDocument { session, remembers, exchanges })
    }
}

/// Deletes a session with all that was said in it; gives how many exchanges there were, and their jobs. It is gone all
/// the same where somebody else was first.
pub async fn delete(store: &dyn Store, session: &Session, now: Millis) -> Result<(u64, Vec<JobId>)> {
    let exchanges = store.exchanges(session.id, None).await?;
    let deleted = store.delete_session(session.id, now).await.map_err(|error| match error {
        RepositoryError::Refused(why) => {
            Error::new(Code::Conflict, format!("session {} is not deleted: {why}", session.label()))
        }
        error => error.into(),
    });
    Ok((deleted?.unwrap_or(0), exchanges.into_iter().map(|exchange| exchange.job).collect()))
}

/// A conversation that goes on: what the person says becomes jobs of its session.
pub struct Talk {
    /// Where its jobs are.
    pub store: Arc<dyn Store>,
    /// The session.
    pub session: Session,
    /// What every job of it has, its goal aside.
    pub request: EnqueueRequest,
    /// The roles that some persona plays.
    pub roles: Vec<String>,
}

impl Talk {
    /// What was said and not answered when the session was left. Somebody is here now, so what waits for a provider is
    /// tried at once.
    pub async fn unfinished(&self, now: Millis) -> Result<Vec<Exchange>> {
        let exchanges = self.store.exchanges(self.session.id, None).await?;
        let open: Vec<_> = exchanges.into_iter().filter(|exchange| !exchange.state.is_final()).collect();
        let at_once = Change::Edit(Edit { run_at: Some(now), ..Edit::default() });
        self.store.change(open.iter().map(|exchange| exchange.job).collect(), at_once, now).await?;
        Ok(open)
    }

    /// Makes a job of what was said, which supersedes what is at work.
    pub async fn say(&self, text: String, now: Millis) -> Result<JobId> {
        let mut job = accept(EnqueueRequest { goal: text, ..self.request.clone() }, &self.roles)?;
        job.payload.session = Some(self.session.id);
        Ok(self.store.enqueue(vec![job], now).await?[0].id)
    }

    /// Has a job end; true if that was asked for already: whoever asks again wants to leave.
    pub async fn interrupt(&self, job: JobId, now: Millis) -> Result<bool> {
        if matches!(self.store.job(job).await, Ok(Some(job)) if job.cancel_requested) {
            return Ok(true);
        }
        self.store.cancel(job, format!("interrupted by the {PERSON}"), now).await?;
        Ok(false)
    }

    /// What a job asks first, of what is open.
    pub async fn next_question(&self, job: JobId) -> Result<Option<Question>> {
        let filter = QuestionFilter { settled: false, job: Some(job), limit: 1 };
        Ok(self.store.questions(filter).await?.pop())
    }

    /// Saves an answer; false if it was settled elsewhere in the meantime.
    pub async fn answer(&self, question: &Question, text: String, now: Millis) -> Result<bool> {
        check_answer(&text).map_err(|why| Error::invalid(format!("the answer {why}")))?;
        let answered = self.store.answer(question.id, text, PERSON.into(), now).await?;
        Ok(!matches!(answered, Some(Answered::Settled { .. })))
    }

    /// What the person said lately in sessions with this role, oldest first, from so many sessions and exchanges at most.
    pub async fn history(&self, sessions: u32, exchanges: usize) -> Result<Vec<String>> {
        let mut said = Vec::new();
        for session in self.store.sessions(Some(self.session.role.clone()), sessions).await?.iter().rev() {
            said.extend(self.store.exchanges(session.id, None).await?.into_iter().map(|exchange| exchange.goal));
        }
        Ok(said.split_off(said.len().saturating_sub(exchanges)))
    }
}
