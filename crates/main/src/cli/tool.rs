//! `posse tool`: what personas may use.

use anyhow::Result;
use clap::Subcommand;
use posse_app::Code;
use posse_app::json::listed;
use posse_core::tool::{EffectClass, ToolSpec, Tools as _};
use posse_infra::persona::nearest;
use serde::Serialize;

use super::Context;
use super::lists::FullArgs;
use crate::exit::{Exit, fail};
use crate::output::table::{painted, plain, render};
use crate::output::text::wrap;
use crate::wire;

/// Tools
#[derive(Subcommand)]
pub enum ToolCommand {
    /// All tools, by pack
    List(FullArgs),
    /// One tool: what the model is told, and its arguments
    Show {
        /// The tool's name
        name: String,
    },
}

#[derive(Serialize)]
struct Listed<'a> {
    pack: &'a str,
    effect: EffectClass,
    #[serde(flatten)]
    spec: &'a ToolSpec,
}

/// Does what was asked.
pub fn dispatch(cx: &Context, command: ToolCommand) -> Result<Exit> {
    let registry = wire::tools(&cx.plain_settings()?);
    let tools = registry.packs().iter().flat_map(|(pack, names)| names.iter().map(move |name| (pack.as_str(), name)));
    let tools: Vec<_> = tools.filter_map(|(pack, name)| Some((pack, registry.get(name)?))).collect();
    match command {
        ToolCommand::List(args) => {
            if cx.out.json {
                let all = tools.iter().map(|(pack, tool)| Listed { pack, effect: tool.effect(), spec: tool.spec() });
                cx.out.list("tools", listed(all, args.full)?, None)?;
                return Ok(Exit::Ok);
            }
            let paint = cx.out.paint;
            let rows = tools.iter().map(|(pack, tool)| {
                let spec = tool.spec();
                vec![
                    plain(*pack),
                    painted(&spec.name, move |t| paint.cyan(t)),
                    plain(tool.effect().as_str()),
                    plain(first_sentence(&spec.description)),
                ]
            });
            for line in render(&["PACK", "TOOL", "IF RUN TWICE", "WHAT IT DOES"], rows.collect(), cx.out.width, |t| {
                paint.dim(t)
            }) {
                cx.out.line(line)?;
            }
        }
        ToolCommand::Show { name } => {
            let Some((pack, tool)) = tools.iter().find(|(_, tool)| tool.spec().name == name) else {
                let names: Vec<_> = tools.iter().map(|(_, tool)| tool.spec().name.as_str()).collect();
                let near =
                    nearest(&name, names.iter().copied()).map(|n| format!("; did you mean {n}?")).unwrap_or_default();
                return Err(fail(
                    Code::ToolNotFound,
                    format!("there is no tool '{name}'{near} There are: {}", names.join(", ")),
                ));
            };
            let (effect, spec) = (tool.effect(), tool.spec());
            if cx.out.json {
                cx.out.document(&Listed { pack, effect, spec })?;
                return Ok(Exit::Ok);
            }
            cx.out.line(format!(
                "{}  pack {pack}, if run twice: {}",
                cx.out.paint.bold(&spec.name),
                effect.as_str()
            ))?;
            for line in wrap(&spec.description, cx.out.width - 2) {
                cx.out.line(format!("  {line}"))?;
            }
            cx.out.line(format!("\n{}", serde_json::to_string_pretty(&spec.parameters)?))?;
        }
    }
    Ok(Exit::Ok)
}

fn first_sentence(text: &str) -> String {
    text.split_inclusive(". ").next().unwrap_or(text).trim().to_owned()
}
