//! `posse tool`: what personas may use.

use posse_app::personas::{self, ToolView};

use super::lists::FullArgs;
use super::prelude::*;
use crate::output::table::{painted, plain};
use crate::output::text::wrap;

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

pub fn dispatch(cx: &Context, command: ToolCommand) -> Result<Exit> {
    let tools = personas::tools(&wire::tools(&cx.plain_settings()?));
    let paint = cx.out.paint;
    match command {
        ToolCommand::List(args) => {
            let titles = ["PACK", "TOOL", "IF RUN TWICE", "WHAT IT DOES"];
            cx.out.list_or_table(
                ("tools", args.full),
                &tools,
                "no tools",
                &titles,
                |ToolView { pack, effect, spec }| {
                    let what = first_sentence(&spec.description);
                    vec![plain(pack), painted(&spec.name, move |t| paint.cyan(t)), plain(effect.as_str()), plain(what)]
                },
            )
        }
        ToolCommand::Show { name } => {
            let tool = personas::tool(tools, &name)?;
            if cx.out.json {
                return cx.out.document(&tool);
            }
            let ToolView { pack, effect, spec } = tool;
            cx.out.line(format!("{}  pack {pack}, if run twice: {}", paint.bold(&spec.name), effect.as_str()))?;
            for line in wrap(&spec.description, cx.out.width - 2) {
                cx.out.line(format!("  {line}"))?;
            }
            cx.out.line(format!("\n{}", serde_json::to_string_pretty(&spec.parameters)?))?;
            Ok(Exit::Ok)
        }
    }
}

fn first_sentence(text: &str) -> String {
    text.split_inclusive(". ").next().unwrap_or(text).trim().to_owned()
}
