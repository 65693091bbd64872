//! `posse hook`: what runs before and after an agent's run.

use std::sync::Arc;

use posse_core::tool::Tools;
use posse_infra::tool::own::OwnProblem;

use super::prelude::*;
use crate::output::text::{plural, visible};

#[derive(Subcommand)]
pub enum HookCommand {
    /// All hooks that personas may name
    List,
    /// Check the project's own hooks (config/hooks); names file, line and fix
    Check,
}

pub fn dispatch(cx: &Context, command: HookCommand) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let (hooks, problems) = wire::hooks_and_problems(&settings, &(Arc::new(wire::tools(&settings)) as Arc<dyn Tools>));
    let names = hooks.names();
    match command {
        HookCommand::List => {
            problems.iter().for_each(|problem| cx.out.warn(visible(&problem.to_string())));
            cx.out.say(&json!({"hooks": names}), names.join("\n"))
        }
        HookCommand::Check => {
            let exit = if problems.is_empty() { Exit::Ok } else { Exit::Usage };
            if cx.out.json {
                let told = |OwnProblem { file, line, message }: &OwnProblem| json!({"file": file, "line": line, "message": message});
                let problems: Vec<_> = problems.iter().map(told).collect();
                cx.out.document(&json!({"hooks": names, "problems": problems}))?;
                return Ok(exit);
            }
            let paint = cx.out.paint;
            for problem in &problems {
                let file = problem.file.strip_prefix(&settings.root).unwrap_or(&problem.file).into();
                let told = OwnProblem { file, ..problem.clone() }.to_string();
                cx.out.line(format!("{}  {}", paint.red("✗"), visible(&told)))?;
            }
            for name in &names {
                cx.out.line(format!("{}  {}", paint.green("✓"), visible(name)))?;
            }
            match problems.len() {
                0 => Ok(exit),
                n => Err(usage(format!(
                    "{} found; {} can be used",
                    plural(n as u64, "problem"),
                    plural(names.len() as u64, "hook")
                ))),
            }
        }
    }
}
