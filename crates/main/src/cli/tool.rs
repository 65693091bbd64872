//! `posse tool`: what personas may use.

use std::path::PathBuf;
use std::sync::Arc;

use posse_app::personas::{self, ToolView};
use posse_core::id::JobId;
use posse_core::run::journal::effect_key;
use posse_core::stop::{StopReason, stop_pair};
use posse_core::tool::web::{Method, WebRules};
use posse_core::tool::{Reader, ToolContext, ToolError, ToolErrorCategory, ToolOutput, Tools as _};
use posse_infra::tool::own::{OwnProblem, PACK};

use super::enqueue::read_words;
use super::lists::FullArgs;
use super::prelude::*;
use crate::output::table::{painted, plain};
use crate::output::text::{plural, visible, wrap};
use crate::process::Signals;
use crate::settings::Settings;
use crate::workspace;

/// Most bytes of a call's arguments.
const MAX_ARGUMENTS: usize = 1 << 20;

#[derive(Subcommand)]
pub enum ToolCommand {
    /// All tools, by pack
    List(FullArgs),
    /// One tool: what the model is told, and its arguments
    Show {
        /// The tool's name
        name: String,
    },
    /// Check the project's own tools (config/tools); names file, line and fix
    Check,
    /// Call a tool, as an agent would
    Run(RunArgs),
}

#[derive(Args)]
pub struct RunArgs {
    /// The tool's name
    name: String,
    /// Its arguments as JSON; `-` reads them from standard input
    #[arg(default_value = "{}", value_name = "JSON")]
    arguments: String,
    /// The folder it works in; the project's workspace when absent
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
}

pub async fn dispatch(cx: &Context, command: ToolCommand) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    match command {
        ToolCommand::List(args) => list(cx, &settings, args),
        ToolCommand::Show { name } => show(cx, &settings, &name),
        ToolCommand::Check => check(cx, &settings),
        ToolCommand::Run(args) => run(cx, &settings, args).await,
    }
}

fn list(cx: &Context, settings: &Settings, args: FullArgs) -> Result<Exit> {
    let (tools, problems) = wire::tools_and_problems(settings);
    problems.iter().for_each(|problem| cx.out.warn(visible(&problem.to_string())));
    let (tools, paint) = (personas::tools(&tools), cx.out.paint);
    let titles = ["PACK", "TOOL", "IF RUN TWICE", "WHAT IT DOES"];
    cx.out.list_or_table(("tools", args.full), &tools, "no tools", &titles, |ToolView { pack, effect, spec }| {
        let what = first_sentence(&spec.description);
        vec![plain(pack), painted(&spec.name, move |t| paint.cyan(t)), plain(effect.as_str()), plain(what)]
    })
}

fn show(cx: &Context, settings: &Settings, name: &str) -> Result<Exit> {
    let tool = personas::tool(personas::tools(&wire::tools(settings)), name)?;
    if cx.out.json {
        return cx.out.document(&tool);
    }
    let ToolView { pack, effect, spec } = tool;
    let paint = cx.out.paint;
    cx.out.line(format!("{}  pack {pack}, if run twice: {}", paint.bold(&spec.name), effect.as_str()))?;
    for line in wrap(&spec.description, cx.out.width - 2) {
        cx.out.line(format!("  {line}"))?;
    }
    cx.out.line(format!("\n{}", serde_json::to_string_pretty(&spec.parameters)?))?;
    Ok(Exit::Ok)
}

fn check(cx: &Context, settings: &Settings) -> Result<Exit> {
    let (tools, problems) = wire::tools_and_problems(settings);
    let own = tools.packs().get(PACK).cloned().unwrap_or_default();
    let exit = if problems.is_empty() { Exit::Ok } else { Exit::Usage };
    if cx.out.json {
        let told =
            |OwnProblem { file, line, message }: &OwnProblem| json!({"file": file, "line": line, "message": message});
        let problems: Vec<_> = problems.iter().map(told).collect();
        cx.out.document(&json!({"tools": own, "problems": problems}))?;
        return Ok(exit);
    }
    let paint = cx.out.paint;
    for problem in &problems {
        let file = problem.file.strip_prefix(&settings.root).unwrap_or(&problem.file).into();
        cx.out.line(format!("{}  {}", paint.red("✗"), visible(&OwnProblem { file, ..problem.clone() }.to_string())))?;
    }
    for name in &own {
        cx.out.line(format!("{}  {}", paint.green("✓"), visible(name)))?;
    }
    if !problems.is_empty() {
        let what = plural(own.len() as u64, "tool");
        return Err(usage(format!(
            "{} found; {what} of the project's own can be used",
            plural(problems.len() as u64, "problem")
        )));
    }
    if own.is_empty() {
        cx.out.note("the project has no tools of its own; a file config/tools/NAME.toml is one (see CONTRIBUTING.md)");
    }
    Ok(exit)
}

async fn run(cx: &Context, settings: &Settings, args: RunArgs) -> Result<Exit> {
    let registry = wire::tools(settings);
    let name = personas::tool(personas::tools(&registry), &args.name)?.spec.name;
    let Some(tool) = registry.get(&name) else { return Err(not_found(format!("there is no tool '{name}'"))) };
    let text = read_words("arguments", vec![args.arguments], MAX_ARGUMENTS)?;
    let arguments = registry.validate_args(tool.spec(), &text).map_err(|error| usage(error.message))?;
    let folder = args.workspace.as_deref().unwrap_or(&settings.workspace);
    let (stopper, stop) = stop_pair();
    let context = ToolContext {
        job: JobId(0),
        role: "person".into(),
        effect_key: effect_key("posse tool run", JobId(0), &format!("{}-{}", wire::now(), std::process::id())),
        workspace: workspace::real_path(settings, folder)?,
        workspace_id: None,
        protected: Arc::clone(registry.protected()),
        rules_file: None,
        skill_folder: None,
        reader: Reader::default(),
        // A person may ask for anything that is public.
        web: WebRules { hosts: vec!["*".into()], methods: Method::ALL.into() },
        remarks: None,
        time_left: None,
        tasks: None,
        calls: None,
        step: 0,
        heard: Vec::new(),
        memory: None,
        stop,
    };
    let mut signals = Signals::listen()?;
    let call = tool.call(&context, arguments);
    tokio::pin!(call);
    let ended = tokio::select! {
        ended = &mut call => ended,
        () = signals.next() => {
            stopper.stop(StopReason::Shutdown);
            call.await
        }
    };
    match ended {
        Ok(ToolOutput { text, annotations, .. }) => {
            let notes: Vec<_> = annotations.iter().map(|note| &note.text).collect();
            cx.out.say(&json!({"tool": name, "outcome": "done", "text": text, "annotations": notes}), visible(&text))
        }
        Err(ToolError { category, message }) => {
            if cx.out.json {
                cx.out.document(&json!({"tool": name, "outcome": "failed", "category": category, "text": message}))?;
                return Ok(Exit::Failed);
            }
            match category {
                ToolErrorCategory::InvalidArguments => Err(usage(message)),
                _ => Err(anyhow::anyhow!(message)),
            }
        }
    }
}

fn first_sentence(text: &str) -> String {
    text.split_inclusive(". ").next().unwrap_or(text).trim().to_owned()
}
