//! Tools of a project's own: a TOML file each, `config/tools/NAME.toml`, and a command that runs in the sandbox.
//!
//! The command gets the arguments as JSON on standard input, and what it says on standard output is the result. What is
//! wrong with a file keeps out that tool, and no other.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use posse_core::stop::Stop;
use posse_core::text::plural;
use posse_core::tool::{EffectClass, Tool, ToolContext, ToolError, ToolOutput, ToolSpec, Writes};
use posse_core::workspace::folder::FolderId;
use serde::Deserialize;
use serde_json::Value;

use super::run_command::told;
use super::{ToolRegistry, is_legal_name};
use crate::sandbox::{CommandLimits, Commands, End, Given, Order, Serving};

/// The pack that tools of the project are in.
pub const PACK: &str = "project";

/// Bytes of a tool's file, and of all the files that it brings.
const MAX_FILE: u64 = 256 * 1024;
const MAX_FILES: u64 = 1024 * 1024;
const MAX_DESCRIPTION: usize = 4096;

/// What a tool's file says.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolFile {
    description: String,
    command: String,
    #[serde(default)]
    parameters: Option<Value>,
    #[serde(default)]
    effect: Option<EffectClass>,
    #[serde(default)]
    sandbox: Means,
}

/// What a command of the project's own may use, as a file says it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Means {
    /// Most seconds it may take.
    pub seconds: Option<u64>,
    pub memory_mb: Option<u64>,
    pub processes: Option<u32>,
    pub written_mb: Option<u64>,
    pub tmp_mb: Option<u64>,
    /// Whether it is in the host's network.
    #[serde(default)]
    pub network: bool,
    /// Variables of this process's environment that it gets.
    #[serde(default)]
    pub environment: Vec<String>,
    /// Files beside its own, which it finds in `/tool`.
    #[serde(default)]
    pub files: Vec<String>,
    /// Folders and files of this machine that it sees, read-only.
    #[serde(default)]
    pub see: Vec<PathBuf>,
}

/// What is wrong with a file of a project's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnProblem {
    pub file: PathBuf,
    pub line: Option<usize>,
    pub message: String,
}

impl fmt::Display for OwnProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.line.map(|line| format!(":{line}")).unwrap_or_default();
        write!(f, "{}{line}: {}", self.file.display(), self.message)
    }
}

/// A command of the project's own, as it is run.
#[derive(Clone)]
pub struct OwnCommand {
    commands: Arc<Commands>,
    command: String,
    seconds: u64,
    given: Given,
}

/// A variable of this process's environment.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

struct OwnTool {
    spec: ToolSpec,
    effect: EffectClass,
    command: OwnCommand,
}

/// Where a command of the project's own runs, and how long it may.
pub struct Place<'a> {
    /// The folder it is confined to.
    pub workspace: &'a Path,
    /// Which folder that is, if it is known.
    pub workspace_id: Option<FolderId>,
    /// A file of the workspace that it may not change, if it must not.
    pub rules_file: Option<&'a Path>,
    /// What is left of the run's time; none where it is not limited.
    pub time_left: Option<Duration>,
    /// Fires when it should end early.
    pub stop: &'a Stop,
}

impl Means {
    /// How `command` is run with these; or what is wrong. `folder` has the files.
    pub fn command(
        &self,
        command: &str,
        folder: &Path,
        commands: &Commands,
        environment: Environment<'_>,
    ) -> Result<OwnCommand, String> {
        if command.trim().is_empty() || command.contains('\0') {
            return Err("command is empty or has a NUL in it; write what /bin/sh is to run".into());
        }
        let usual = commands.limits;
        let limits = CommandLimits {
            seconds: self.seconds.unwrap_or(usual.seconds),
            max_seconds: self.seconds.unwrap_or(usual.seconds),
            processes: self.processes.unwrap_or(usual.processes),
            memory_mb: self.memory_mb.unwrap_or(usual.memory_mb),
            written_mb: self.written_mb.unwrap_or(usual.written_mb),
            tmp_mb: self.tmp_mb.unwrap_or(usual.tmp_mb),
        };
        for (key, value, least, most) in [
            ("seconds", limits.seconds, 1, 86_400),
            ("processes", u64::from(limits.processes), 4, 10_000),
            ("memory_mb", limits.memory_mb, 16, 1 << 20),
            ("written_mb", limits.written_mb, 1, 1 << 20),
            ("tmp_mb", limits.tmp_mb, 1, 1 << 20),
        ] {
            if !(least..=most).contains(&value) {
                return Err(format!("{key} is {value}; it must lie between {least} and {most}"));
            }
        }
        let mut variables = Vec::new();
        for name in &self.environment {
            let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(legal) || name.starts_with(|c: char| c.is_ascii_digit()) {
                return Err(format!("environment names '{name}', which is no name of a variable"));
            }
            let value = environment(name).ok_or_else(|| {
                format!("environment names {name}, which is not set here: set it, or take it off the list")
            })?;
            variables.push((name.clone(), value));
        }
        if let Some(path) = self.see.iter().find(|path| !path.is_absolute() || path.parent().is_none()) {
            return Err(format!(
                "see names '{}'; name folders or files from the root on, and not the root",
                path.display()
            ));
        }
        let (files, seen) = (self.read(folder)?, self.see.clone());
        let given = Given { environment: variables, files, seen, network: self.network, ..Given::default() };
        let commands = Arc::new(Commands { limits, ..commands.clone() });
        Ok(OwnCommand { commands, command: command.to_owned(), seconds: limits.seconds, given })
    }

    /// The files that it brings, by name, as they are now.
    fn read(&self, folder: &Path) -> Result<Vec<(String, String)>, String> {
        let (mut files, mut left) = (Vec::new(), MAX_FILES);
        for name in &self.files {
            let is_plain = Path::new(name).file_name() == Some(OsStr::new(name)) && !name.starts_with('.');
            if !is_plain {
                return Err(format!("files names '{name}'; name files right in {}", folder.display()));
            }
            let text = read(&folder.join(name), left).map_err(|why| format!("files names '{name}', which {why}"))?;
            left -= text.len() as u64;
            files.push((name.clone(), text));
        }
        Ok(files)
    }
}

impl OwnCommand {
    /// The same, which may read the workspace and not change it.
    pub fn reading_only(mut self) -> OwnCommand {
        self.given.read_only = true;
        self
    }

    /// Runs it; gives what it said on standard output, if it ended well. `more` are variables of this one run.
    pub async fn run(&self, place: Place<'_>, input: &Value, more: Vec<(String, String)>) -> Result<String, ToolError> {
        let mut given = self.given.clone();
        given.input = Some(input.to_string());
        given.environment.extend(more);
        let left = place.time_left.unwrap_or(Duration::MAX);
        let time = Duration::from_secs(self.seconds).min(left);
        let ran = self.commands.run(self.order(&place, time, given), place.stop).await;
        if ran.end == Ok(End::Exited(0)) {
            return Ok(ran.stdout.shown());
        }
        told(ran, &self.commands.limits, time, time == left, "").map(|output| output.text)
    }

    /// Begins it as a server, which goes on until what this gives is let go.
    pub(crate) async fn serve(&self, place: &Place<'_>) -> Result<Serving, End> {
        self.commands.serve(self.order(place, Duration::MAX, self.given.clone())).await
    }

    fn order<'a>(&self, place: &Place<'a>, time: Duration, given: Given) -> Order<'a> {
        Order {
            command: self.command.clone(),
            workspace: place.workspace,
            workspace_id: place.workspace_id,
            directory: PathBuf::new(),
            rules_file: place.rules_file,
            time,
            given,
        }
    }

    /// What it is given that nobody else is to see.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        self.given.environment.iter().map(|(_, value)| value.as_str())
    }
}

#[async_trait]
impl Tool for OwnTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> EffectClass {
        self.effect
    }

    fn writes(&self) -> Writes {
        if self.effect == EffectClass::Pure { Writes::Nothing } else { Writes::Anything }
    }

    async fn call(&self, cx: &ToolContext, args: Value) -> Result<ToolOutput, ToolError> {
        let mut variables = vec![
            ("POSSE_EFFECT_KEY".to_owned(), cx.effect_key.clone()),
            ("POSSE_JOB".to_owned(), cx.job.to_string()),
            ("POSSE_ROLE".to_owned(), cx.role.clone()),
        ];
        variables.extend(in_variables(&args));
        let place = Place {
            workspace: &cx.workspace,
            workspace_id: cx.workspace_id,
            rules_file: cx.rules_file.as_deref(),
            time_left: cx.time_left,
            stop: &cx.stop,
        };
        let said = self.command.run(place, &args, variables).await?;
        Ok(if said.trim().is_empty() { "done; it said nothing".to_owned() } else { said }.into())
    }
}

/// Arguments that are one value each, for a shell: `ARG_path`. A value is never part of a command's text.
fn in_variables(args: &Value) -> impl Iterator<Item = (String, String)> {
    let one = |(name, value): (&String, &Value)| {
        let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let value = match value {
            Value::String(text) => text.clone(),
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            _ => return None,
        };
        (is_name && !value.contains('\0')).then(|| (format!("ARG_{name}"), value))
    };
    args.as_object().into_iter().flatten().filter_map(one)
}

impl ToolRegistry {
    /// The same with the tools of the files in `folder`, in the pack [`PACK`]; and what is wrong with others.
    pub fn with_own(
        mut self,
        folder: &Path,
        commands: &Commands,
        environment: Environment<'_>,
    ) -> (ToolRegistry, Vec<OwnProblem>) {
        let mut problems = Vec::new();
        for file in files_in(folder) {
            let added = tool(&file, commands, environment).and_then(|tool| {
                let added = self.register(PACK, Arc::new(tool));
                added.map_err(|error| (None, error.to_string()))
            });
            if let Err((line, message)) = added {
                problems.push(OwnProblem { file, line, message });
            }
        }
        (self, problems)
    }
}

/// The TOML files in a folder, by name.
pub fn files_in(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_ours = |path: &PathBuf| {
        let hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
        !hidden && path.extension() == Some(OsStr::new("toml"))
    };
    entries.filter(is_ours).collect()
}

/// What a file says, as what it is to be; or what is wrong, and in which line.
pub fn parse<T: serde::de::DeserializeOwned>(file: &Path) -> Result<T, (Option<usize>, String)> {
    let text = read(file, MAX_FILE).map_err(|why| (None, why))?;
    toml::from_str(&text).map_err(|error| {
        let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        (line, error.message().replace('`', "'"))
    })
}

/// The name that a file gives; or that it is none.
pub fn name_of(file: &Path) -> Result<String, (Option<usize>, String)> {
    let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    match is_legal_name(&name) {
        true => Ok(name),
        false => Err((None, format!("'{name}' is no name: use 1 to 64 of a-z, A-Z, 0-9, _ and -"))),
    }
}

fn tool(file: &Path, commands: &Commands, environment: Environment<'_>) -> Result<OwnTool, (Option<usize>, String)> {
    let name = name_of(file)?;
    let wrong = |message: String| (None, message);
    let ToolFile { description, command, parameters, effect, sandbox } = parse(file)?;
    if description.trim().is_empty() || description.len() > MAX_DESCRIPTION {
        let most = plural(MAX_DESCRIPTION as u64, "byte");
        return Err(wrong(format!("description must say in 1 to {most} what the tool does: a model reads it")));
    }
    let effect = effect.unwrap_or(EffectClass::Once);
    let folder = file.parent().unwrap_or(Path::new("."));
    let command = sandbox.command(&command, folder, commands, environment).map_err(wrong)?;
    let command = if effect == EffectClass::Pure { command.reading_only() } else { command };
    let nothing = || serde_json::json!({"type": "object", "properties": {}, "additionalProperties": false});
    let parameters = parameters.unwrap_or_else(nothing);
    Ok(OwnTool { spec: ToolSpec { name, description: description.trim().to_owned(), parameters }, effect, command })
}

/// A file's text, if it has no more than `most` bytes.
fn read(file: &Path, most: u64) -> Result<String, String> {
    let meta = fs::metadata(file).map_err(|error| format!("cannot be read: {error}"))?;
    if !meta.is_file() || meta.len() > most {
        return Err(format!("is no file of at most {}", plural(most, "byte")));
    }
    fs::read_to_string(file).map_err(|error| format!("cannot be read: {error}"))
}
