//! `posse mcp`: servers of tools, asked by the Model Context Protocol, and what is accepted of them.

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::join_all;
use posse_app::mcp::{self, McpAcceptance, McpServerView, McpTest, McpToolView};
use posse_core::stop::Stop;
use posse_core::text::visible_line;
use posse_core::tool::mcp::{Accepted, Announced, Standing, accept};
use posse_core::tool::{ToolError, Tools as _};
use posse_infra::tool::mcp::{Greeting, Server, Servers, accepted};
use posse_infra::tool::own::Place;

use super::lists::FullArgs;
use super::prelude::*;
use crate::output::table::{painted, plain};
use crate::output::text::{plural, visible, wrap};
use crate::settings::Settings;
use crate::workspace;

#[derive(Subcommand)]
pub enum McpCommand {
    /// The servers that the settings name; none is started
    List(FullArgs),
    /// Ask servers what tools they have, and say which are accepted
    Tools {
        /// The server's name; all of them when absent
        server: Option<String>,
        #[command(flatten)]
        full: FullArgs,
    },
    /// Ask a server who it is, and say what goes wrong
    Test {
        /// The server's name
        server: String,
    },
    /// Accept the tools of a server as it announces them now, so that agents may use them
    #[command(
        after_help = "What a server announces is told to models in its words. Look at them first: posse mcp tools SERVER --full"
    )]
    Accept {
        /// The server's name
        server: String,
        /// Only these, by the server's names; else all of them, and none that it has no more
        tools: Vec<String>,
    },
}

pub async fn dispatch(cx: &Context, command: McpCommand) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let asking = Asking { cx, servers: wire::mcp_servers(&settings), workspace: None, settings: &settings };
    match command {
        McpCommand::List(args) => asking.list(args),
        McpCommand::Tools { server, full } => asking.with_workspace()?.tools(server.as_deref(), full).await,
        McpCommand::Test { server } => asking.with_workspace()?.test(&server).await,
        McpCommand::Accept { server, tools } => asking.with_workspace()?.accept(&server, &tools).await,
    }
}

struct Asking<'a> {
    cx: &'a Context,
    settings: &'a Settings,
    servers: Servers,
    /// The folder that servers are started in.
    workspace: Option<PathBuf>,
}

impl Asking<'_> {
    fn with_workspace(self) -> Result<Self> {
        let workspace = Some(workspace::real_path(self.settings, &self.settings.workspace)?);
        Ok(Asking { workspace, ..self })
    }

    fn list(&self, args: FullArgs) -> Result<Exit> {
        let views: Vec<_> = self.servers.all().map(|(name, server)| self.view(name, server.err())).collect();
        let paint = self.cx.out.paint;
        let none = "no MCP servers; a table [mcp_servers.NAME] in config/posse.toml names one (see CONTRIBUTING.md)";
        let titles = ["SERVER", "HOW", "ACCEPTED", "STATE"];
        self.cx.out.list_or_table(("servers", args.full), &views, none, &titles, |view: &McpServerView| {
            let how = view.command.clone().or(view.url.clone()).unwrap_or_default();
            let state = match (&view.problem, view.accepted) {
                (Some(problem), _) => problem.clone(),
                (None, 0) => format!("nothing accepted yet: posse mcp accept {}", view.name),
                (None, _) => "ready".into(),
            };
            let name = painted(&view.name, move |t| paint.cyan(t));
            vec![name, plain(how), plain(plural(view.accepted, "tool")), plain(state)]
        })
    }

    fn view(&self, name: &str, problem: Option<&str>) -> McpServerView {
        let table = self.settings.mcp_servers.get(name);
        let (accepted, unread) = match self.kept(name) {
            Ok(kept) => (kept.len() as u64, None),
            Err(error) => (0, Some(error.to_string())),
        };
        McpServerView {
            name: name.to_owned(),
            command: table.and_then(|table| table.command.clone()),
            url: table.and_then(|table| table.url.clone()),
            accepted,
            problem: problem.map(str::to_owned).or(unread),
        }
    }

    /// What is accepted of a server.
    fn kept(&self, server: &str) -> Result<Vec<Accepted>> {
        let folder = wire::mcp_folder(self.settings);
        accepted::read(&folder, server).map_err(|(line, what)| {
            let line = line.map(|line| format!(":{line}")).unwrap_or_default();
            usage(format!("{}{line}: {what}", accepted::file(&folder, server).display()))
        })
    }

    fn server(&self, name: &str) -> Result<&Arc<Server>> {
        let found = self.servers.all().find(|(known, _)| *known == name);
        let Some((_, server)) = found else {
            let names: Vec<_> = self.servers.all().map(|(name, _)| name).collect();
            let there_are = if names.is_empty() { "none".into() } else { names.join(", ") };
            return Err(not_found(format!("the settings name no MCP server '{name}'. There are: {there_are}")));
        };
        server.map_err(|why| usage(format!("[mcp_servers.{name}] {why}")))
    }

    async fn greet(&self, server: &Server) -> Result<Greeting, ToolError> {
        let (stop, folder) = (Stop::never(), self.workspace.clone().unwrap_or_default());
        let place = Place { workspace: &folder, workspace_id: None, rules_file: None, time_left: None, stop: &stop };
        server.greet(&place).await
    }

    async fn tools(&self, only: Option<&str>, full: FullArgs) -> Result<Exit> {
        let names: Vec<_> = match only {
            Some(name) => vec![name.to_owned()],
            None => self.servers.all().map(|(name, _)| name.to_owned()).collect(),
        };
        let asked = join_all(names.iter().map(|name| self.tools_of(name))).await;
        let (mut views, mut exit) = (Vec::new(), Exit::Ok);
        for asked in asked {
            match asked {
                Ok(tools) => views.extend(tools),
                Err(error) if only.is_some() => return Err(error),
                Err(error) => {
                    self.cx.out.warn(visible(&error.to_string()));
                    exit = Exit::Failed;
                }
            }
        }
        let paint = self.cx.out.paint;
        let titles = ["SERVER", "TOOL", "AGENTS CALL IT", "STATE", "IF RUN TWICE", "WHAT IT SAYS"];
        self.cx.out.list_or_table(("tools", full.full), &views, "no tools", &titles, |view: &McpToolView| {
            vec![
                plain(&view.server),
                plain(&view.tool),
                painted(view.call.clone().unwrap_or_default(), move |t| paint.cyan(t)),
                plain(state(view)),
                plain(view.effect.as_str()),
                plain(&view.description),
            ]
        })?;
        Ok(exit)
    }

    async fn tools_of(&self, name: &str) -> Result<Vec<McpToolView>> {
        let (server, kept) = (self.server(name)?, self.kept(name)?);
        let greeting = self.greet(server).await.map_err(|error| anyhow::anyhow!(error.message))?;
        Ok(mcp::tools(name, &kept, &greeting.tools, &|tool| server.effect(tool)))
    }

    async fn test(&self, name: &str) -> Result<Exit> {
        let server = self.server(name)?;
        let greeting = self.greet(server).await;
        let complaints = server.complaints();
        let (greeting, problem) = match greeting {
            Ok(greeting) => (Some(greeting), None),
            Err(error) => (None, Some(error.message)),
        };
        let (own_name, protocol) =
            greeting.as_ref().map(|said| (said.name.clone(), said.protocol.clone())).unwrap_or_default();
        let test = McpTest {
            server: name.to_owned(),
            name: own_name,
            protocol,
            tools: greeting.as_ref().map_or(0, |said| said.tools.len() as u64),
            took_ms: greeting.as_ref().map_or(0, |said| said.took.as_millis() as u64),
            problem,
            complaints,
        };
        let out = &self.cx.out;
        if out.json {
            out.document(&test)?;
            return Ok(if test.problem.is_some() { Exit::Failed } else { Exit::Ok });
        }
        if !test.complaints.is_empty() {
            out.note(format!("on standard error it said:\n{}", visible(test.complaints.trim_end())));
        }
        match &test.problem {
            Some(problem) => Err(anyhow::anyhow!(problem.clone())),
            None => {
                let (tools, ms) = (plural(test.tools, "tool"), test.took_ms);
                let (name, protocol) = (visible_line(&test.name), visible_line(&test.protocol));
                out.line(format!("{}  {name}, protocol {protocol}: {tools}, after {ms} ms", out.paint.green("✓")))?;
                Ok(Exit::Ok)
            }
        }
    }

    async fn accept(&self, name: &str, only: &[String]) -> Result<Exit> {
        let (server, kept) = (self.server(name)?, self.kept(name)?);
        let greeting = self.greet(server).await.map_err(|error| anyhow::anyhow!(error.message))?;
        mcp::announces(name, &greeting.tools, only)?;
        let registry = wire::tools(self.settings);
        let is_own = |call: &str| kept.iter().any(|tool| tool.call == call);
        let is_taken = |call: &str| registry.get(call).is_some() && !is_own(call);
        let now = accept(name, &kept, &greeting.tools, only, &is_taken);
        let effect = |tool: &Announced| server.effect(tool);
        let before = mcp::tools(name, &kept, &greeting.tools, &effect);
        let mut changed: Vec<_> = mcp::tools(name, &now, &greeting.tools, &effect);
        let is_same = |view: &McpToolView| {
            let then = before.iter().find(|then| then.tool == view.tool);
            then.is_some_and(|then| then.standing == view.standing)
        };
        changed.retain(|view| !is_same(view));
        changed.extend(before.into_iter().filter(|view| {
            view.standing == Standing::Gone && !now.iter().any(|tool| tool.announced.name == view.tool)
        }));
        let folder = wire::mcp_folder(self.settings);
        let (file, count) = (accepted::file(&folder, name), now.len() as u64);
        crate::output::before_change()?;
        accepted::write(&folder, name, now)
            .map_err(|error| anyhow::anyhow!("{} cannot be written: {error}", file.display()))?;
        let out = &self.cx.out;
        if out.json {
            return out.document(&McpAcceptance { server: name, file: &file, tools: &changed, accepted: count });
        }
        for view in &changed {
            let call = view.call.as_deref().unwrap_or_default();
            let (mark, call) = match view.standing {
                Standing::Accepted => (out.paint.green("✓"), call.to_owned()),
                _ => (out.paint.yellow("-"), format!("{call} (gone)")),
            };
            out.line(format!("{mark}  {}", visible_line(&call)))?;
            for line in wrap(&visible(view.description.trim()), out.width.saturating_sub(4)) {
                out.line(format!("     {line}"))?;
            }
            if let Some(problem) = &view.problem {
                out.warn(visible(&format!("{} is left out: {problem}", view.tool)));
            }
        }
        let what = if changed.is_empty() { "nothing changed; ".to_owned() } else { String::new() };
        let told = format!("{what}{} of '{name}' accepted, in {}", plural(count, "tool"), file.display());
        out.line(visible(&told))?;
        out.note(format!("personas name all of them as mcp:{name}; a worker takes them when it is started"));
        Ok(Exit::Ok)
    }
}

fn state(view: &McpToolView) -> String {
    match (&view.standing, &view.problem) {
        (_, Some(problem)) => format!("left out: {problem}"),
        (Standing::Accepted, None) => "accepted".into(),
        (Standing::New, None) => "new".into(),
        (Standing::Changed(parts), None) => format!("changed: {}", parts.join(", ")),
        (Standing::Gone, None) => "gone".into(),
    }
}
