//! `posse chat`: a conversation with an agent, over standard input and output.

use std::sync::Arc;

use posse_app::Code;
use posse_app::sessions::{Talk, Which, find_or_begin};
use posse_core::job::enqueue::{EnqueueRequest, accept};
use posse_core::session::Session;

use super::prelude::*;
use super::work::EndpointArgs;
use crate::chat::{Chat, Conversation};
use crate::fleet::{Plan, WorkerProcess};
use crate::output::text::plural;
use crate::output::{Unwritten, before_change};
use crate::process::Signals;
use crate::settings::Overrides;
use crate::wire::{self, Project};

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

pub async fn chat(cx: &Context, args: ChatArgs) -> Result<Exit> {
    let ChatArgs { role, session, new, model, endpoint } = args;
    let endpoint = endpoint.checked()?;
    let settings = cx.settings(Overrides { model: model.clone(), endpoint, ..Overrides::default() })?;
    let mut signals = Signals::listen()?;
    let (project, personas, team) = Project::gather_for(&cx.out, &settings, &role, model.as_deref()).await?;
    let wanted = session.as_deref().map(Which::parse).transpose()?;
    before_change()?;
    let store = project.open(&settings)?;
    let (session, is_new) = find_or_begin(&*store, &role, wanted, new, wire::now()).await?;
    // A queue of the session's own: a chat that is taken up again works what the last one left, and
    // any posse work does too.
    let queue = format!("chat-{}", session.id);
    let persona = personas.first().map(|file| file.persona.clone()).unwrap_or_default();
    let request = store.queue(queue.clone()).await?.defaults.fill(EnqueueRequest {
        role: role.clone(),
        goal: "hello".into(),
        queue: queue.clone(),
        priority_step_ms: settings.priority_step.as_millis() as i64,
        max_crashes: persona.limits.max_crashes.or(settings.max_crashes),
        retry: persona.retry,
        model,
        ..EnqueueRequest::default()
    });
    // Everything but the goal is checked here, before the first prompt.
    accept(request.clone(), &project.personas.roles())?;
    greet(cx, &session, is_new)?;
    let slots = if team.len() == 1 { 1 } else { settings.slots };
    let plan = Plan { queues: vec![queue], slots, watched: true };
    let mut process = WorkerProcess::start(&store, &settings, team, plan).await?;
    let conversation = Conversation {
        talk: Talk { store, session, request, roles: project.personas.roles() },
        models: Arc::clone(&project.models),
        // A file of what is said would undo the sealing.
        folder: (!settings.keys.seals()).then(|| settings.beside_database("sessions")),
    };
    let ended = match Chat::new(cx.out, conversation, process.heard()).await {
        Ok(chat) => chat.talk(&mut signals).await,
        Err(error) => Err(error),
    };
    process.shut_down(&cx.out, settings.grace, &mut signals).await?;
    ended.map_err(|error| match error.downcast::<Unwritten>() {
        Ok(unwritten) => {
            let way_on = format!("what was said last is kept: posse chat {role} goes on with it");
            fail(Code::Failed, format!("{unwritten}; {way_on}"))
        }
        Err(error) => error,
    })
}

fn greet(cx: &Context, session: &Session, is_new: bool) -> Result<()> {
    if cx.out.json {
        return cx.out.json_line(&serde_json::json!({"type": "session", "session": session, "is_new": is_new}));
    }
    let turns = if is_new { "new".into() } else { plural(session.exchanges, "turn") };
    let how = match is_new {
        true => String::new(),
        false => format!(" · posse chat {} --new begins another", session.role),
    };
    let text = format!("session {}, {turns}{how} · end of input or Ctrl-C ends it", session.label());
    cx.out.hint(text);
    Ok(())
}
