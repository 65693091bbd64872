//! `run_command`: a command of the shell, in a sandbox of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use posse_core::text::{has_too_many, plural};
use posse_core::tool::{EffectClass, ToolContext, ToolError, ToolErrorCategory, ToolOutput};
use schemars::JsonSchema;
use serde::Deserialize;

use super::FnTool;
use super::failure::{denied, failed, invalid, over_limit, unfit};
use super::workspace::{Found, Workspace};
use crate::sandbox::{CommandLimits, Commands, End, Given, HALF, Limit, Order, Ran};

pub const RUN_COMMAND: &str = "run_command";

/// Longer commands belong in a file.
const MAX_COMMAND: usize = 64 * 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    /// What to run, as one would type it into a shell (/bin/sh). Nothing can be typed in while it runs.
    #[schemars(length(min = 1))]
    command: String,
    /// The most seconds it may take.
    #[serde(default)]
    timeout_s: Option<u64>,
    /// The folder to run it in, relative to the workspace root. The root itself when absent.
    #[serde(default)]
    directory: Option<String>,
}

/// The tool, with the limits that `commands` has.
pub(super) fn tool(commands: Commands) -> FnTool {
    let CommandLimits { seconds, max_seconds, processes, memory_mb, .. } = commands.limits;
    let description = format!(
        "Runs a shell command in the workspace and gives its exit code and output. It runs in a sandbox: it can change \
         only the workspace and its own empty /tmp, has no network, and all its processes end with it, those in the \
         background too. It may take {seconds} s, or up to {max_seconds} s with timeout_s, {memory_mb} MB of memory \
         and {}. Of a long output you see the first and the last {} KB.",
        plural(processes.into(), "process"),
        HALF / 1024
    );
    let commands = Arc::new(commands);
    FnTool::new(RUN_COMMAND, &description, EffectClass::Once, move |cx: ToolContext, args| {
        let commands = Arc::clone(&commands);
        async move { run_command(&commands, &cx, args).await }
    })
}

async fn run_command(commands: &Commands, cx: &ToolContext, args: Args) -> Result<ToolOutput, ToolError> {
    let Args { command, timeout_s, directory } = args;
    let limits = &commands.limits;
    let asked = timeout_s.unwrap_or(limits.seconds);
    if asked == 0 || asked > limits.max_seconds {
        let most = limits.max_seconds;
        return Err(invalid(format!("timeout_s is {asked}; it must lie between 1 and {most}. Nothing was run")));
    }
    if command.len() > MAX_COMMAND {
        let too_many = has_too_many(command.len(), "byte", MAX_COMMAND);
        return Err(over_limit(format!("the command {too_many}. Put it into a file and run that. Nothing was run")));
    }
    if command.trim().is_empty() || command.contains('\0') {
        return Err(invalid("the command is empty or has a NUL in it. Nothing was run"));
    }
    let directory = folder(cx, directory.as_deref()).await?;
    let left = cx.time_left.unwrap_or(Duration::MAX);
    let time = Duration::from_secs(asked).min(left);
    let rules_file = cx.rules_file.as_deref();
    let workspace_id = cx.workspace_id;
    let given = Given::default();
    let order = Order { command, workspace: &cx.workspace, workspace_id, directory, rules_file, time, given };
    let ran = commands.run(order, &cx.stop).await;
    told(ran, limits, time, time == left, &format!("; ask for more with timeout_s, up to {}", limits.max_seconds))
}

/// The folder to run in, relative to the workspace's root. Where it leads to is looked up again inside the sandbox,
/// in which there is nothing else to lead to; here it is only for the words.
async fn folder(cx: &ToolContext, directory: Option<&str>) -> Result<PathBuf, ToolError> {
    let Some(directory) = directory.map(str::to_owned) else { return Ok(PathBuf::new()) };
    let cx = cx.clone();
    let looked = tokio::task::spawn_blocking(move || {
        let workspace = Workspace::of(&cx)?;
        match workspace.find(&directory)? {
            Found::File(..) => Err(invalid(format!("'{directory}' is a file; commands run in folders"))),
            Found::Folder(_) => workspace.relative(&directory),
        }
    });
    looked.await.unwrap_or_else(|error| Err(denied(format!("the folder cannot be looked up: {error}"))))
}

/// What the model is told of a command's end; `way_out` is what it may do about its time.
pub(crate) fn told(
    ran: Ran,
    limits: &CommandLimits,
    time: Duration,
    is_job_over: bool,
    way_out: &str,
) -> Result<ToolOutput, ToolError> {
    let took = format!("{:.1} s", ran.took.as_secs_f64());
    let output = output(&ran);
    let CommandLimits { processes, memory_mb, written_mb, .. } = limits;
    match ran.end {
        Ok(End::Exited(0)) => Ok(format!("exit code 0, after {took}\n{output}").into()),
        Ok(End::Exited(code)) => Err(failed(format!("exit code {code}, after {took}\n{output}"))),
        Ok(End::Signalled(signal)) if signal == libc::SIGXFSZ => Err(over_limit(format!(
            "ended after {took}: a file became larger than {written_mb} MB, the limit (written_mb)\n{output}"
        ))),
        Ok(End::Signalled(signal)) => Err(failed(format!("ended by signal {signal}, after {took}\n{output}"))),
        Ok(End::Limited(limit)) => {
            let (seconds, processes) = (time.as_secs_f64(), plural(u64::from(*processes), "process"));
            let why = match limit {
                Limit::Time if is_job_over => {
                    format!("timed out after {seconds:.0} s, when the time of the whole task was used up")
                }
                Limit::Time => format!("timed out after {seconds:.0} s{way_out}"),
                Limit::Memory => format!("ended after {took}: it used more than {memory_mb} MB of memory, the limit"),
                Limit::Processes => format!("ended after {took}: it had more than {processes}, the limit"),
                Limit::Written => format!("ended after {took}: it wrote more than {written_mb} MB, the limit"),
                Limit::Unseen => {
                    format!("ended after {took}: what it uses could not be seen, so it counts as too much")
                }
            };
            Err(over_limit(format!("{why}. All its processes were ended; what it had done stays done\n{output}")))
        }
        Ok(End::Refused(why)) => {
            Err(denied(format!("Commands cannot run here: {why}. Nothing was run; go on without.")))
        }
        Ok(End::Lacking(why)) => Err(unfit(format!("a command could not be started: {why}"))),
        Err(reason) => Err(ToolError::new(
            ToolErrorCategory::Interrupted,
            format!("It was ended after {took} ({reason:?}), with all its processes. Until then it said:\n{output}"),
        )),
    }
}

fn output(ran: &Ran) -> String {
    let streams = [("stdout", &ran.stdout), ("stderr", &ran.stderr)];
    let shown = streams.iter().filter(|(_, kept)| !kept.is_empty());
    let shown: Vec<_> =
        shown.map(|(name, kept)| format!("[{name}]\n{}", kept.shown().trim_end_matches('\n'))).collect();
    if shown.is_empty() { "no output".into() } else { shown.join("\n") }
}
