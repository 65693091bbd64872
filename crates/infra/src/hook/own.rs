//! Hooks of a project's own: a TOML file each, `config/hooks/NAME.toml`, which says what changes before a run, or which
//! command says so.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use posse_core::run::hook::{HookError, RunEnd, RunHook, RunSetup};
use posse_core::stop::Stop;
use posse_core::text::plural;
use posse_core::tool::{OfferedTool, ToolError, ToolErrorCategory, Tools};
use posse_tools::own::{Environment, Means, OwnCommand, OwnProblem, Place, files_in, name_of, parse};
use posse_tools::sandbox::Commands;
use serde::Deserialize;
use serde_json::{Value, json};

use super::HookRegistry;

/// Bytes that one hook may add to the system message.
const MAX_SYSTEM: usize = 64 * 1024;

/// What a hook's file says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HookFile {
    /// What changes before a run, without a command.
    #[serde(default)]
    set: Option<Changes>,
    /// What is run, and says what changes.
    #[serde(default)]
    command: Option<String>,
    /// When it is run.
    #[serde(default)]
    when: Option<Vec<When>>,
    #[serde(default)]
    sandbox: Means,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum When {
    BeforeRun,
    AfterRun,
}

/// What changes before a run: as a file says it, and as a command does, in JSON.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Changes {
    model: Option<String>,
    tools: ToolChanges,
    system: Vec<Section>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ToolChanges {
    /// Tools and packs that are offered too.
    add: Vec<String>,
    /// Those that are not; taken away first, so that one can be put in another's place.
    remove: Vec<String>,
    /// What the model is told of a tool, in place of what is told usually.
    describe: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    heading: String,
    text: String,
}

struct OwnHook {
    name: String,
    tools: Arc<dyn Tools>,
    set: Option<Changes>,
    before: Option<OwnCommand>,
    after: Option<OwnCommand>,
}

impl Changes {
    /// Makes them; or says which of them cannot be.
    fn make(&self, setup: &mut RunSetup, tools: &dyn Tools) -> Result<(), String> {
        if let Some(model) = &self.model {
            setup.persona.model = Some(model.clone());
        }
        let ToolChanges { add, remove, describe } = &self.tools;
        for tool in tools.resolve(remove).map_err(|unknown| unknown.to_string())? {
            setup.withdraw(&tool.spec().name);
        }
        for tool in tools.resolve(add).map_err(|unknown| unknown.to_string())? {
            setup.offer(OfferedTool::of(&*tool));
        }
        for (name, words) in describe {
            let mut offered = setup.withdraw(name).ok_or_else(|| {
                format!("describes the tool '{name}', which the run is not offered; add it, or leave that out")
            })?;
            words.trim().clone_into(&mut offered.spec.description);
            setup.offer(offered);
        }
        let added: usize = self.system.iter().map(|section| section.heading.len() + section.text.len()).sum();
        if added > MAX_SYSTEM {
            let (added, most) = (plural(added as u64, "byte"), plural(MAX_SYSTEM as u64, "byte"));
            return Err(format!("adds {added} to the system message; at most {most} are allowed"));
        }
        for Section { heading, text } in &self.system {
            // A heading is one line, whatever a command says.
            setup.append(&heading.split_whitespace().collect::<Vec<_>>().join(" "), &text.replace('\0', "\u{fffd}"));
        }
        Ok(())
    }
}

impl OwnHook {
    async fn said(
        &self,
        command: &OwnCommand,
        place: Place<'_>,
        input: &Value,
        key: &str,
    ) -> Result<String, HookError> {
        let variables = vec![("POSSE_EFFECT_KEY".to_owned(), key.to_owned())];
        command.run(place, input, variables).await.map_err(|ToolError { category, message }| {
            let what = format!("the hook '{}' failed: {message}", self.name);
            match category {
                // Here no command runs at all, or none now.
                ToolErrorCategory::PermissionDenied | ToolErrorCategory::WorkerUnfit => HookError::WorkerUnfit(what),
                _ => HookError::Failed(what),
            }
        })
    }

    fn wrong(&self, why: impl std::fmt::Display) -> HookError {
        HookError::Failed(format!("the hook '{}' cannot be followed: {why}", self.name))
    }
}

#[async_trait]
impl RunHook for OwnHook {
    async fn before_run(&self, setup: &mut RunSetup) -> Result<(), HookError> {
        if let Some(set) = &self.set {
            set.make(setup, &*self.tools).map_err(|why| self.wrong(why))?;
        }
        let Some(command) = &self.before else { return Ok(()) };
        let names: Vec<_> = setup.tools().into_iter().map(|tool| tool.spec.name).collect();
        let input = json!({
            "event": "before_run",
            "job": setup.job,
            "role": setup.persona.role,
            "goal": setup.goal,
            "workspace": setup.workspace,
            "model": setup.persona.model,
            "tools": names,
            "system": setup.system,
        });
        let workspace = setup.workspace.clone();
        let (workspace_id, stop) = (setup.workspace_id, Stop::never());
        let place = Place { workspace: &workspace, workspace_id, rules_file: None, time_left: None, stop: &stop };
        let said = self.said(command, place, &input, &format!("before-{}", setup.job)).await?;
        if said.trim().is_empty() {
            return Ok(());
        }
        let changes: Changes = serde_json::from_str(&said).map_err(|error| {
            self.wrong(format!("what it says on standard output is not what a hook may say ({error})"))
        })?;
        changes.make(setup, &*self.tools).map_err(|why| self.wrong(why))
    }

    async fn after_run(&self, end: &RunEnd<'_>) -> Result<(), HookError> {
        let Some(command) = &self.after else { return Ok(()) };
        let input = json!({
            "event": "after_run",
            "job": end.job,
            "role": end.role,
            "goal": end.goal,
            "workspace": end.workspace,
            "output": end.output,
        });
        let (workspace, workspace_id, stop) = (end.workspace, end.workspace_id, Stop::never());
        let place = Place { workspace, workspace_id, rules_file: None, time_left: None, stop: &stop };
        self.said(command, place, &input, end.effect_key).await.map(drop)
    }
}

impl HookRegistry {
    /// The same with the hooks of the files in `folder`; and what is wrong with others.
    pub fn with_own(
        mut self,
        folder: &Path,
        tools: &Arc<dyn Tools>,
        commands: &Commands,
        environment: Environment<'_>,
    ) -> (HookRegistry, Vec<OwnProblem>) {
        let mut problems = Vec::new();
        for file in files_in(folder) {
            let added = hook(&file, tools, commands, environment).and_then(|hook| {
                let name = hook.name.clone();
                self.register(&name, Arc::new(hook)).map_err(|error| (None, error.to_string()))
            });
            if let Err((line, message)) = added {
                problems.push(OwnProblem { file, line, message });
            }
        }
        (self, problems)
    }
}

fn hook(
    file: &Path,
    tools: &Arc<dyn Tools>,
    commands: &Commands,
    environment: Environment<'_>,
) -> Result<OwnHook, (Option<usize>, String)> {
    let name = name_of(file)?;
    let HookFile { set, command, when, sandbox } = parse(file)?;
    let wrong = |message: &str| Err((None, message.to_owned()));
    let when = match (&set, &command, when) {
        (None, None, _) => return wrong("says nothing; write [set], or a command"),
        (Some(_), None, Some(_)) => return wrong("has when without a command; [set] is before each run"),
        (_, Some(_), Some(when)) if when.is_empty() => {
            return wrong("when is empty; name before_run, after_run or both");
        }
        (_, _, when) => when.unwrap_or_else(|| vec![When::BeforeRun]),
    };
    if let Some(set) = &set {
        let named: Vec<_> = set.tools.add.iter().chain(&set.tools.remove).cloned().collect();
        tools.resolve(&named).map_err(|unknown| (None, format!("[set] tools: {unknown}")))?;
    }
    let folder = file.parent().unwrap_or(Path::new("."));
    let command = command.map(|command| sandbox.command(&command, folder, commands, environment));
    let command = command.transpose().map_err(|message| (None, message))?;
    // Before a run it may look at the world, and not change it: it is run again where a process dies.
    let before = command.clone().filter(|_| when.contains(&When::BeforeRun)).map(OwnCommand::reading_only);
    let after = command.filter(|_| when.contains(&When::AfterRun));
    Ok(OwnHook { name, tools: Arc::clone(tools), set, before, after })
}
