//! `posse chat`: a conversation with an agent, over standard input and output.

use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use posse_app::Code;
use posse_core::job::enqueue::{Ask, accept};
use posse_core::session::{NewSession, Session, SessionId, check_name};

use super::Context;
use super::endpoint::EndpointArgs;
use crate::chat::{Chat, Conversation};
use crate::exit::{Exit, fail, not_found, usage};
use crate::fleet::{Crew, Plan, Post, Signals};
use crate::output::text::{one_line, plural};
use crate::output::{Unwritten, before_change};
use crate::records::RunFiles;
use crate::settings::Overrides;
use crate::wire::{self, Kit, Workshop};

/// With whom, and in which session
#[derive(Args)]
pub struct ChatArgs {
    /// The role of the agent (posse persona list)
    #[arg(value_parser = super::role)]
    role: String,
    /// The session to go on with, by name or number; a new name begins one. The one used last when absent
    #[arg(long, short, value_name = "NAME|ID")]
    session: Option<String>,
    /// Begin a new session; it remembers a summary of the one before
    #[arg(long)]
    new: bool,
    /// The model to use instead of the persona's (posse model list)
    #[arg(long, short, value_name = "NAME")]
    model: Option<String>,
    #[command(flatten)]
    endpoint: EndpointArgs,
}

/// Talks until the end of input.
pub async fn chat(cx: &Context, args: ChatArgs) -> Result<Exit> {
    let ChatArgs { role, session, new, model, endpoint } = args;
    let endpoint = endpoint.checked()?;
    let settings = cx.settings(Overrides { model: model.clone(), endpoint, ..Overrides::default() })?;
    let mut signals = Signals::listen()?;
    let (kit, persona, executor) = Kit::gather_for(&cx.out, &settings, &role, model.as_deref()).await?;
    let wanted = session.as_deref().map(parse).transpose()?;
    before_change()?;
    let shop = Workshop::open(&settings, &kit)?;
    let (session, is_new) = find_or_begin(&shop, &role, wanted, new).await?;
    // A queue of the session's own: a chat that is taken up again works what the last one left, and
    // any posse work does too.
    let queue = format!("chat-{}", session.id);
    let ask = Ask {
        role: role.clone(),
        goal: "hello".into(),
        queue: queue.clone(),
        priority_step_ms: settings.priority_step.as_millis() as i64,
        max_crashes: persona.persona.limits.max_crashes.or(settings.max_crashes),
        retry: persona.persona.retry,
        model,
        ..Ask::default()
    };
    // Everything but the goal is checked here, before the first prompt.
    accept(ask.clone(), &kit.personas.roles())?;
    greet(cx, &session, is_new)?;
    let post = Post { role: role.clone(), executor };
    let (lease, retention) = (settings.lease, settings.retention.clone());
    let (files, sessions) = (RunFiles::of(&settings), wire::sessions_folder(&settings));
    let plan = Plan { queues: vec![queue], slots: 1, lease, retention, sessions, watched: true, files };
    let mut crew = Crew::start(&shop, vec![post], plan).await?;
    let conversation = Conversation {
        jobs: Arc::clone(&shop.jobs),
        relations: Arc::clone(&shop.relations),
        queries: Arc::clone(&shop.queries),
        models: Arc::clone(&kit.models),
        session,
        // A file of what is said would undo the sealing.
        folder: (!settings.keys.seals()).then(|| wire::sessions_folder(&settings)),
        ask,
        roles: kit.personas.roles(),
    };
    let ended = match Chat::new(cx.out, conversation, crew.heard()).await {
        Ok(chat) => chat.talk(&mut signals).await,
        Err(error) => Err(error),
    };
    crew.stand_down(&cx.out, settings.grace, &mut signals).await?;
    ended.map_err(|error| match error.downcast::<Unwritten>() {
        Ok(unwritten) => {
            let way_on = format!("what was said last is kept: posse chat {role} goes on with it");
            fail(Code::Failed, format!("{unwritten}; {way_on}"))
        }
        Err(error) => error,
    })
}

/// A session by number or by name.
pub enum Which {
    /// By number.
    Id(SessionId),
    /// By name, a good one.
    Name(String),
}

/// Reads a session's number or name.
pub fn parse(text: &str) -> Result<Which> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let id = text.parse().map_err(|_| usage(format!("there is no session with so large a number: {text}")))?;
        return Ok(Which::Id(SessionId(id)));
    }
    let shown = one_line(text, 80);
    check_name(text).map_err(|why| usage(format!("the name '{}' {why}", shown.escape_debug())))?;
    Ok(Which::Name(text.to_owned()))
}

async fn find_or_begin(shop: &Workshop, role: &str, wanted: Option<Which>, new: bool) -> Result<(Session, bool)> {
    let begin = |name| async move {
        let new = NewSession { name, role: role.to_owned() };
        shop.jobs.begin_session(new, wire::now()).await
    };
    let (session, is_new) = match wanted {
        Some(Which::Id(id)) if new => {
            return Err(usage(format!("session {id} has its number already; give the new one a name, or none")));
        }
        Some(Which::Id(id)) => {
            let found = shop.queries.session(id).await?;
            let missing = || not_found(format!("there is no session {id}; posse session list shows those there are"));
            (found.ok_or_else(missing)?, false)
        }
        Some(Which::Name(name)) => match begin(Some(name)).await? {
            (session, false) if new => {
                let way_out = "leave out --new to go on with it, or give another name";
                return Err(fail(Code::Conflict, format!("there is a session {} already; {way_out}", session.label())));
            }
            found => found,
        },
        None if new => begin(None).await?,
        None => match shop.queries.sessions(Some(role.to_owned()), 1).await?.pop() {
            Some(last) => (last, false),
            None => begin(None).await?,
        },
    };
    if session.role != role {
        let (label, has) = (session.label(), &session.role);
        return Err(fail(
            Code::Conflict,
            format!("session {label} is with {has}: posse chat {has} --session {label} goes on with it"),
        ));
    }
    Ok((session, is_new))
}

fn greet(cx: &Context, session: &Session, is_new: bool) -> Result<()> {
    if cx.out.json {
        return cx.out.json_line(&serde_json::json!({"type": "session", "session": session, "is_new": is_new}));
    }
    let turns = if is_new { "new".into() } else { plural(session.turns, "turn") };
    let how = match is_new {
        true => String::new(),
        false => format!(" · posse chat {} --new begins another", session.role),
    };
    let text = format!("session {}, {turns}{how} · end of input or Ctrl-C ends it", session.label());
    cx.out.note(cx.out.note_paint.dim(text));
    Ok(())
}
