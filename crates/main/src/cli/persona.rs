//! `posse persona`: the kinds of agents there are.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use posse_app::Code;
use posse_app::json::listed;
use posse_core::job::retry::{RetryPolicy, Strategy};
use posse_core::persona::{ContextRules, PersonaTemplate, RunLimits, is_placeholder, placeholder_goal};
use posse_core::run::compaction;
use posse_core::tool::Tools as _;
use posse_infra::persona::{Loaded, PersonaFile, PersonaFileProblem, Severity};
use posse_infra::tool::ToolRegistry;
use serde::Serialize;
use serde_json::json;

use super::Context;
use super::enqueue::read_goal;
use super::lists::FullArgs;
use crate::catalog::{self, Offer};
use crate::exit::{Exit, fail, usage};
use crate::output::table::{painted, plain, render};
use crate::output::text::{count, one_line, plural, visible, wrap};
use crate::settings::Settings;

/// Personas
#[derive(Subcommand)]
pub enum PersonaCommand {
    /// All personas
    List(FullArgs),
    /// One persona, and the tools it has
    Show {
        /// The role
        #[arg(value_parser = super::role)]
        role: String,
    },
    /// Check every file; names file, field and fix
    Check,
    /// Write a new persona to begin with
    New(NewArgs),
    /// Print the JSON Schema of a persona's file, for editors
    Schema,
}

/// The persona to write
#[derive(Args)]
pub struct NewArgs {
    /// The role: lower-case letters, digits, `-` and `_`
    #[arg(value_parser = super::role)]
    role: String,
    /// What it is for, in one sentence; `-` reads it from standard input
    #[arg(long, value_name = "TEXT")]
    goal: Option<String>,
    /// Who it is and how it works
    #[arg(long, value_name = "TEXT")]
    backstory: Option<String>,
    /// A tool or a pack of tools (posse tool list); may be given more than once
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    tools: Vec<String>,
}

/// Does what was asked.
pub fn dispatch(cx: &Context, command: PersonaCommand) -> Result<Exit> {
    if let PersonaCommand::Schema = command {
        cx.out.document(&schema())?;
        return Ok(Exit::Ok);
    }
    let settings = cx.plain_settings()?;
    let offer = catalog::Offer::gather(&settings);
    let loaded = catalog::personas(&settings, &offer)?;
    match command {
        PersonaCommand::List(args) => list(cx, &loaded, args),
        PersonaCommand::Show { role } => show(cx, catalog::persona(&loaded, &role)?, &offer),
        PersonaCommand::Check => check(cx, &settings, &loaded),
        PersonaCommand::New(args) => new(cx, &settings, &loaded, &offer.tools, args),
        PersonaCommand::Schema => Ok(Exit::Ok),
    }
}

/// The JSON Schema of a persona's file. `config/personas.schema.json` is this; a test compares them.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(PersonaTemplate).to_value()
}

#[derive(Serialize)]
struct Listed<'a> {
    file: &'a PathBuf,
    #[serde(flatten)]
    persona: &'a PersonaTemplate,
}

fn list(cx: &Context, loaded: &Loaded, args: FullArgs) -> Result<Exit> {
    catalog::warn_of_problems(&cx.out, loaded);
    if cx.out.json {
        let all = loaded.personas.iter().map(|p| Listed { file: &p.file, persona: &p.persona });
        cx.out.list("personas", listed(all, args.full)?, None)?;
        return Ok(Exit::Ok);
    }
    if loaded.personas.is_empty() {
        cx.out.note("no personas; posse persona new ROLE writes one");
        return Ok(Exit::Ok);
    }
    let paint = cx.out.paint;
    let rows = loaded.personas.iter().map(|PersonaFile { persona: p, .. }| {
        vec![
            painted(&p.role, move |t| paint.cyan(t)),
            plain(p.model.clone().unwrap_or_else(|| "default".into())),
            plain(p.limits.max_turns.to_string()),
            plain(one_line(&p.goal, 300)),
        ]
    });
    for line in render(&["ROLE", "MODEL", "TURNS", "GOAL"], rows.collect(), cx.out.width, |t| paint.dim(t)) {
        cx.out.line(line)?;
    }
    Ok(Exit::Ok)
}

fn show(cx: &Context, found: &PersonaFile, offer: &Offer) -> Result<Exit> {
    let PersonaFile { file, persona: p } = found;
    if cx.out.json {
        cx.out.document(&Listed { file, persona: p })?;
        return Ok(Exit::Ok);
    }
    let paint = cx.out.paint;
    cx.out.line(format!("{}  {}", paint.bold(paint.cyan(&p.role)), paint.dim(visible(&file.display().to_string()))))?;
    let field =
        |name: &str, text: &str| cx.out.field(name, wrap(&visible(text), cx.out.width.saturating_sub(14)).join("\n"));
    field("goal", &p.goal)?;
    field("backstory", &p.backstory)?;
    let tools: Vec<_> = offer.tools.resolve(&p.tools)?.iter().map(|tool| tool.spec().name.clone()).collect();
    field("tools", if tools.is_empty() { "none" } else { "" })?;
    field("tools", &tools.join(", "))?;
    let skills: Vec<_> = offer.skills.resolve(&p.skills)?.into_iter().map(|skill| skill.name).collect();
    field("skills", &skills.join(", "))?;
    field("hooks", &p.hooks.join(", "))?;
    let fallbacks: Vec<_> = p.fallback_tools.iter().map(|(tool, spare)| format!("{spare} for {tool}")).collect();
    field("fallback", &fallbacks.join(", "))?;
    field("style", p.style.as_str())?;
    field("model", p.model.as_deref().unwrap_or("the default one"))?;
    if let Some(temperature) = p.temperature {
        field("temperature", &temperature.to_string())?;
    }
    field("limits", &limits_in_words(p))?;
    field("context", &context_in_words(&p.context))?;
    if let Some(RetryPolicy { strategy, base_seconds, max_seconds, .. }) = p.retry {
        let words = match strategy {
            Strategy::Exponential => format!("after {base_seconds} s, growing to {max_seconds} s"),
            Strategy::Fixed => format!("every {base_seconds} s"),
            Strategy::None => "never".into(),
        };
        field("retry", &words)?;
    }
    Ok(Exit::Ok)
}

fn limits_in_words(persona: &PersonaTemplate) -> String {
    let RunLimits { max_turns, max_tokens, max_seconds, max_tool_rounds, max_crashes, max_wait_seconds } =
        persona.limits;
    let limits = [
        Some(plural(max_turns.into(), "turn")),
        max_tool_rounds.map(|n| plural(n.into(), "tool round")),
        max_crashes.map(|n| format!("{} of its worker in a row", plural(n.into(), "death"))),
        max_tokens.map(|n| plural(n, "token")),
        persona.max_reply_tokens.map(|n| format!("{} in one reply", plural(n.into(), "token"))),
        max_seconds.map(|n| format!("{} s of work", count(n))),
        max_wait_seconds.map(|n| format!("{} s for an answer to a question", count(n))),
    ];
    limits.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn context_in_words(rules: &ContextRules) -> String {
    let ContextRules { max_messages, chunk, budget_share, keep_last, summary_model } = rules;
    let usual = compaction::Settings::default().max_messages as u64;
    let by_count = match max_messages.map(u64::from) {
        Some(0) => String::new(),
        Some(n) => format!(", or after {}, {chunk} at a time", plural(n, "message")),
        None => format!(", or after {}, {chunk} at a time, where it is not known", plural(usual, "message")),
    };
    let kept = match keep_last {
        0 => String::new(),
        n => format!("; never the last {}", plural(u64::from(*n), "turn")),
    };
    let by = summary_model.as_deref().unwrap_or("the same model");
    format!("summarised by {by} from {:.0} % of the window on{by_count}{kept}", budget_share * 100.0)
}

fn check(cx: &Context, settings: &Settings, loaded: &Loaded) -> Result<Exit> {
    let errors = loaded.problems.iter().filter(|p| p.severity == Severity::Error).count();
    let exit = if errors > 0 { Exit::Usage } else { Exit::Ok };
    if cx.out.json {
        cx.out.document(&json!({"roles": loaded.roles(), "problems": loaded.problems}))?;
        return Ok(exit);
    }
    let paint = cx.out.paint;
    for problem in &loaded.problems {
        let shorter = PersonaFileProblem {
            file: problem.file.strip_prefix(&settings.root).unwrap_or(&problem.file).into(),
            ..problem.clone()
        };
        let mark = match problem.severity {
            Severity::Error => paint.red("✗"),
            Severity::Warning => paint.yellow("!"),
            Severity::Note => paint.dim("·"),
        };
        cx.out.line(format!("{mark}  {}", visible(&shorter.to_string())))?;
    }
    for found in &loaded.personas {
        cx.out.line(format!("{}  {}", paint.green("✓"), found.persona.role))?;
    }
    if errors > 0 {
        let what = plural(loaded.personas.len() as u64, "persona");
        return Err(usage(format!("{}; {what} can be used", plural(errors as u64, "error"))));
    }
    Ok(exit)
}

fn new(cx: &Context, settings: &Settings, loaded: &Loaded, registry: &ToolRegistry, args: NewArgs) -> Result<Exit> {
    let tools = if args.tools.is_empty() {
        vec!["list_files".into(), "read_file".into(), "search_files".into()]
    } else {
        args.tools
    };
    let goal = args.goal.map(|goal| read_goal(vec![goal])).transpose()?;
    let goal = goal.unwrap_or_else(|| placeholder_goal(&args.role));
    let is_open = is_placeholder(&goal);
    let backstory = args.backstory.unwrap_or_else(|| {
        "You are careful and brief. List the files first, read what matters completely, and copy names and numbers exactly.".into()
    });
    let persona = PersonaTemplate {
        schema: Some("../personas.schema.json".into()),
        role: args.role,
        goal,
        backstory,
        tools,
        ..PersonaTemplate::default()
    };
    if let Some(problem) = persona.problems().iter().find(|problem| !(is_open && problem.field == "goal")) {
        return Err(usage(format!("{} {}", problem.field, problem.message)));
    }
    registry.resolve(&persona.tools).map_err(|unknown| usage(unknown.to_string()))?;
    let file = settings.personas.join(format!("{}.json", persona.role));
    let taken =
        loaded.get(&persona.role).map(|found| &found.file).filter(|found| found.starts_with(&settings.personas));
    if let Some(there) = taken.or(file.exists().then_some(&file)) {
        return Err(fail(
            Code::PersonaExists,
            format!("{} plays '{}' already; nothing was changed", there.display(), persona.role),
        ));
    }
    crate::output::before_change()?;
    std::fs::create_dir_all(&settings.personas)
        .with_context(|| format!("{} cannot be made", settings.personas.display()))?;
    let text = serde_json::to_string_pretty(&persona)? + "\n";
    std::fs::write(&file, text).with_context(|| format!("{} cannot be written", file.display()))?;
    if cx.out.json {
        cx.out.document(&json!({"role": persona.role, "file": file}))?;
        return Ok(Exit::Ok);
    }
    cx.out.line(visible(&file.display().to_string()))?;
    cx.out.note(cx.out.note_paint.dim(format!(
        "{}, then posse persona check, then posse run --role {} \"<goal>\"",
        if is_open { "say in it what its goal is" } else { "edit it" },
        persona.role
    )));
    Ok(Exit::Ok)
}
