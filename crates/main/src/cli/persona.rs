//! `posse persona`: the kinds of agents there are.

use posse_app::Code;
use posse_app::personas::{self, Draft, Offer, PersonaView, Sources};
use posse_core::job::retry::{RetryPolicy, Strategy};
use posse_core::persona::{
    ContextRules, PersonaFile, PersonaFileProblem, PersonaTemplate, Personas, RunLimits, Severity, is_placeholder,
};
use posse_core::run::compaction;

use super::enqueue::read_goal;
use super::lists::FullArgs;
use super::prelude::*;
use crate::faults::{mark, warn_of_personas};
use crate::output::table::{painted, plain};
use crate::output::text::{count, one_line, plural, visible, wrap};
use crate::settings::Settings;

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

pub fn dispatch(cx: &Context, command: PersonaCommand) -> Result<Exit> {
    if let PersonaCommand::Schema = command {
        return cx.out.document(&schema());
    }
    let settings = cx.plain_settings()?;
    let sources = wire::sources(&settings);
    let (offer, loaded) = sources.look()?;
    match command {
        PersonaCommand::List(args) => list(cx, &loaded, args),
        PersonaCommand::Show { role } => show(cx, personas::find(&loaded, &role)?, &offer),
        PersonaCommand::Check => check(cx, &settings, &loaded),
        PersonaCommand::New(args) => new(cx, &sources, &offer, &loaded, args),
        PersonaCommand::Schema => Ok(Exit::Ok),
    }
}

/// The JSON Schema of a persona's file. `config/personas.schema.json` is this; a test compares them.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(PersonaTemplate).to_value()
}

fn list(cx: &Context, loaded: &Personas, args: FullArgs) -> Result<Exit> {
    warn_of_personas(&cx.out, loaded);
    let personas: Vec<_> = loaded.personas.iter().map(PersonaView::from).collect();
    let none = "no personas; posse persona new ROLE writes one";
    let (paint, titles) = (cx.out.paint, ["ROLE", "MODEL", "TURNS", "GOAL"]);
    cx.out.list_or_table(("personas", args.full), &personas, none, &titles, |PersonaView { persona: p, .. }| {
        vec![
            painted(&p.role, move |t| paint.cyan(t)),
            plain(p.model.clone().unwrap_or_else(|| "default".into())),
            plain(p.limits.max_turns.to_string()),
            plain(one_line(&p.goal, 300)),
        ]
    })
}

fn show(cx: &Context, found: &PersonaFile, offer: &Offer) -> Result<Exit> {
    let PersonaFile { file, persona: p } = found;
    if cx.out.json {
        return cx.out.document(&PersonaView::from(found));
    }
    let paint = cx.out.paint;
    cx.out.line(format!("{}  {}", paint.bold(paint.cyan(&p.role)), paint.dim(visible(&file.display().to_string()))))?;
    let tools: Vec<_> = offer.tools.resolve(&p.tools)?.iter().map(|tool| tool.spec().name.clone()).collect();
    let skills: Vec<_> = offer.skills.resolve(&p.skills)?.into_iter().map(|skill| skill.name).collect();
    let fallbacks: Vec<_> = p.fallback_tools.iter().map(|(tool, spare)| format!("{spare} for {tool}")).collect();
    let retry = |RetryPolicy { strategy, base_seconds, max_seconds, .. }| match strategy {
        Strategy::Exponential => format!("after {base_seconds} s, growing to {max_seconds} s"),
        Strategy::Fixed => format!("every {base_seconds} s"),
        Strategy::None => "never".into(),
    };
    let fields = [
        ("goal", Some(p.goal.clone())),
        ("backstory", Some(p.backstory.clone())),
        ("tools", Some(if tools.is_empty() { "none".into() } else { tools.join(", ") })),
        ("skills", Some(skills.join(", "))),
        ("hooks", Some(p.hooks.join(", "))),
        ("delegates", Some(p.may_delegate_to.join(", "))),
        ("fallback", Some(fallbacks.join(", "))),
        ("style", Some(p.style.as_str().into())),
        ("model", Some(p.model.clone().unwrap_or_else(|| "the default one".into()))),
        ("temperature", p.temperature.map(|temperature| temperature.to_string())),
        ("limits", Some(limits_in_words(p))),
        ("context", Some(context_in_words(&p.context))),
        ("retry", p.retry.map(retry)),
    ];
    let width = cx.out.width.saturating_sub(14);
    cx.out.fields(fields.map(|(name, text)| {
        (name, text.filter(|text| !text.is_empty()).map(|text| wrap(&visible(&text), width).join("\n")))
    }))?;
    Ok(Exit::Ok)
}

fn limits_in_words(persona: &PersonaTemplate) -> String {
    let RunLimits { max_turns, max_tokens, max_seconds, max_tool_rounds, .. } = persona.limits;
    let RunLimits { max_crashes, max_wait_seconds, max_open_tasks, max_tasks, max_task_depth, .. } = persona.limits;
    let limits = [
        Some(plural(max_turns.into(), "turn")),
        max_tool_rounds.map(|n| plural(n.into(), "tool round")),
        max_crashes.map(|n| format!("{} of its worker in a row", plural(n.into(), "death"))),
        max_tokens.map(|n| plural(n, "token")),
        persona.max_reply_tokens.map(|n| format!("{} in one reply", plural(n.into(), "token"))),
        max_seconds.map(|n| format!("{} s of work", count(n))),
        max_wait_seconds.map(|n| format!("{} s for an answer to a question", count(n))),
        max_open_tasks.map(|n| format!("{} open at once", plural(n.into(), "task"))),
        max_tasks.map(|n| format!("{} in all", plural(n.into(), "task"))),
        max_task_depth.map(|n| format!("tasks of tasks {} deep", plural(n.into(), "level"))),
    ];
    limits.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn context_in_words(rules: &ContextRules) -> String {
    let ContextRules { max_messages, chunk, budget_share, keep_last, summary_model } = rules;
    let usual = u64::from(compaction::USUAL_MESSAGES);
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

fn check(cx: &Context, settings: &Settings, loaded: &Personas) -> Result<Exit> {
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
        let mark = mark(paint, problem.severity);
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

fn new(cx: &Context, sources: &Sources, offer: &Offer, loaded: &Personas, args: NewArgs) -> Result<Exit> {
    let NewArgs { role, goal, backstory, tools } = args;
    let goal = goal.map(|goal| read_goal(vec![goal])).transpose()?;
    let (persona, file) = sources.draft(Draft { role, goal, backstory, tools }, offer, loaded)?;
    crate::output::before_change()?;
    sources.personas.add(&persona).map_err(|why| fail(Code::Failed, why))?;
    if cx.out.json {
        return cx.out.document(&json!({"role": persona.role, "file": file}));
    }
    cx.out.line(visible(&file.display().to_string()))?;
    let first = if is_placeholder(&persona.goal) { "say in it what its goal is" } else { "edit it" };
    cx.out.hint(format!("{first}, then posse persona check, then posse run --role {} \"<goal>\"", persona.role));
    Ok(Exit::Ok)
}
