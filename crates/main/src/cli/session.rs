//! `posse session`: conversations and what was said in them.

use std::sync::Arc;

use clap::{Args, Subcommand, ValueEnum};
use posse_app::sessions::{self, SessionDocument, Which, no_such};
use posse_core::port::{JobQueries, Store};
use posse_core::session::{Exchange, Session};

use super::lists::SkipArgs;
use super::prelude::*;
use crate::output::before_change;
use crate::output::table::plain;
use crate::output::text::{ago, excerpt, moment, plural, visible, wrap};
use crate::session_files::{remove_files, write_whole};
use crate::settings::Settings;
use crate::{records, wire};

#[derive(Subcommand)]
pub enum SessionCommand {
    /// Sessions, those used last first
    List(ListArgs),
    /// What was said in a session
    Show {
        /// Its name or number
        session: String,
        /// Everything that was said, however long it is
        #[arg(long)]
        full: bool,
    },
    /// A session as a file for others
    Export(ExportArgs),
    /// Delete sessions with all that was said in them, their jobs and their files
    Delete {
        /// Their names or numbers
        #[arg(required = true)]
        sessions: Vec<String>,
    },
}

#[derive(Args)]
pub struct ListArgs {
    /// Only with this role
    #[arg(long, short, value_name = "ROLE", value_parser = super::role)]
    role: Option<String>,
    /// At most so many
    #[arg(long, short = 'n', default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    #[command(flatten)]
    skip: SkipArgs,
}

#[derive(Args)]
pub struct ExportArgs {
    /// Its name or number
    session: String,
    /// What each turn becomes
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: Format,
    /// Write its events.jsonl again from the journals, and print where it is
    #[arg(long, conflicts_with = "format")]
    events: bool,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Format {
    // One line of JSON for each thing said.
    #[default]
    Jsonl,
    Markdown,
}

pub async fn dispatch(cx: &Context, command: SessionCommand) -> Result<Exit> {
    match command {
        SessionCommand::List(args) => list(cx, args).await,
        SessionCommand::Show { session, full } => show(cx, &session, full).await,
        SessionCommand::Export(args) => export(cx, args).await,
        SessionCommand::Delete { sessions } => delete(cx, sessions).await,
    }
}

async fn list(cx: &Context, args: ListArgs) -> Result<Exit> {
    let mut sessions = cx.read(async |store| store.sessions(args.role, args.skip.most(args.limit)).await).await?;
    let next = args.skip.cut(args.limit, &mut sessions);
    let now = wire::now();
    let none = "no sessions; posse chat researcher begins one";
    let titles = ["ID", "NAME", "ROLE", "TURNS", "USED"];
    cx.out.page(("sessions", false), &sessions, next, none, &titles, |session| {
        vec![
            plain(session.id.to_string()),
            plain(session.name.as_deref().unwrap_or("-")),
            plain(&session.role),
            plain(session.exchanges.to_string()),
            plain(ago(session.used_at, now)),
        ]
    })
}

async fn show(cx: &Context, called: &str, full: bool) -> Result<Exit> {
    let (store, session) = found(&cx.plain_settings()?, called).await?;
    let shown = SessionDocument::read(&*store, session).await?;
    if cx.out.json {
        return cx.out.document(&shown);
    }
    let SessionDocument { session, remembers, exchanges } = shown;
    let paint = cx.out.paint;
    let now = wire::now();
    cx.out.line(format!(
        "{}  {}  {}",
        paint.bold(format!("session {}", session.label())),
        paint.cyan(&session.role),
        paint.dim(format!("begun {}, last used {}", moment(session.created_at), ago(session.used_at, now)))
    ))?;
    if let Some(remembers) = remembers {
        cx.out.line(paint.dim("  remembers of the session before:"))?;
        for line in wrap(&visible(remembers.trim()), cx.out.width.saturating_sub(4)) {
            cx.out.line(paint.dim(format!("    {line}")))?;
        }
    }
    for exchange in &exchanges {
        cx.out.line("")?;
        said(cx, "you", &exchange.goal, &format!("job {}", exchange.job), full)?;
        for asked in &exchange.asked {
            said(cx, &session.role, &asked.question, "asked", full)?;
            said(cx, "you", asked.told(), "", full)?;
        }
        said(cx, &session.role, &exchange.reply(), "", full)?;
    }
    Ok(Exit::Ok)
}

/// Lines of one thing said that are shown unless all are asked for.
const SAID_LINES: usize = 60;

fn said(cx: &Context, who: &str, text: &str, beside: &str, full: bool) -> Result<()> {
    let paint = cx.out.paint;
    cx.out.line(format!("{}  {}", paint.bold(who), paint.dim(beside)).trim_end())?;
    for line in excerpt(text, cx.out.width.saturating_sub(2), SAID_LINES, full).lines() {
        cx.out.line(format!("  {line}"))?;
    }
    Ok(())
}

async fn export(cx: &Context, args: ExportArgs) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let (store, session) = found(&settings, &args.session).await?;
    if args.events {
        let queries: Arc<dyn JobQueries> = store;
        before_change()?;
        let path = write_whole(&queries, &settings.beside_database("sessions"), &session).await?;
        return cx.out.say(&json!({"session": session.id, "events": path}), path.display().to_string());
    }
    let exchanges = store.exchanges(session.id, None).await?;
    match args.format {
        Format::Jsonl => exchanges.iter().try_for_each(|exchange| jsonl(cx, exchange))?,
        Format::Markdown => cx.out.raw(&markdown(&session, &exchanges))?,
    }
    Ok(Exit::Ok)
}

fn jsonl(cx: &Context, exchange: &Exchange) -> Result<()> {
    let Exchange { job, goal, asked, said_at, ended_at, state, .. } = exchange;
    cx.out.json_line(&json!({"role": "user", "text": goal, "job": job, "at": said_at}))?;
    for asked in asked {
        cx.out.json_line(&json!({"role": "agent", "text": asked.question, "job": job, "is_question": true}))?;
        cx.out.json_line(&json!({"role": "user", "text": asked.told(), "job": job, "is_answer": true}))?;
    }
    cx.out.json_line(&json!({"role": "agent", "text": exchange.reply(), "job": job, "at": ended_at, "state": state}))
}

fn markdown(session: &Session, exchanges: &[Exchange]) -> String {
    let mut out = format!("# Session {} with {}\n", session.label(), session.role);
    for exchange in exchanges {
        out.push_str(&format!("\n## You, {}\n\n{}\n", moment(exchange.said_at), exchange.goal.trim()));
        for asked in &exchange.asked {
            let (question, told) = (asked.question.trim(), asked.told().trim());
            out.push_str(&format!("\n## {} asks\n\n{question}\n\n## You\n\n{told}\n", session.role));
        }
        out.push_str(&format!("\n## {}\n\n{}\n", session.role, exchange.reply()));
    }
    out
}

async fn delete(cx: &Context, called: Vec<String>) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let mut all = Vec::new();
    for text in &called {
        let session = found(&settings, text).await?.1;
        if !all.contains(&session) {
            all.push(session);
        }
    }
    let store = wire::open_store(&settings)?;
    let mut deleted = Vec::new();
    for session in all {
        let label = session.label();
        let (exchanges, jobs) = sessions::delete(&*store, &session, wire::now()).await?;
        remove_files(&settings.beside_database("sessions"), &label)?;
        jobs.into_iter().try_for_each(|job| records::remove(&settings, job))?;
        if !cx.out.json {
            cx.out.line(format!("deleted session {label}, {}", plural(exchanges, "turn")))?;
        }
        deleted.push(json!({"session": session.id, "name": session.name, "turns": exchanges}));
    }
    if cx.out.json {
        cx.out.document(&json!({"deleted": deleted}))?;
    }
    Ok(Exit::Ok)
}

async fn found(settings: &Settings, called: &str) -> Result<(Arc<dyn Store>, Session)> {
    Which::parse(called)?;
    let store = wire::open_reader(settings)?.ok_or_else(|| no_such(called))?;
    let session = sessions::find(&*store, called).await?;
    Ok((store, session))
}
