//! `posse skill`: instructions that personas call by name.

use std::path::{Path, PathBuf};

use posse_app::personas::{self, SkillDocument, SkillItem};
use posse_core::skill::{Severity, Skill, SkillFileProblem, SkillScope, Skills, sanitise};
use posse_infra::skill::load_path;

use super::lists::FullArgs;
use super::prelude::*;
use crate::faults::{mark, warn_of_skills};
use crate::output::table::{painted, plain};
use crate::output::text::{one_line, plural, visible, wrap};

#[derive(Subcommand)]
pub enum SkillCommand {
    /// All skills that can be used, and what is wrong with others
    List(FullArgs),
    /// One skill: its fields and its text, as an agent is given it
    Show {
        /// The skill's name
        name: String,
    },
    /// Check skills strictly; names file, line, column and fix
    Check {
        /// Skills' files, their folders or folders of them; all that would be used when absent
        #[arg(value_name = "PATH")]
        paths: Vec<PathBuf>,
    },
}

pub fn dispatch(cx: &Context, command: SkillCommand) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let used = || wire::sources(&settings).offer().skills;
    match command {
        SkillCommand::List(args) => list(cx, &used(), &settings.root, args),
        SkillCommand::Show { name } => show(cx, &used(), &name),
        SkillCommand::Check { paths } if paths.is_empty() => check(cx, &used(), &settings.root),
        SkillCommand::Check { paths } => {
            let (tools, mut all) = (wire::tools(&settings), Skills::default());
            for path in paths {
                let loaded = load_path(&path, &tools)
                    .map_err(|error| not_found(format!("{} cannot be checked: {error}", path.display())))?;
                all.skills.extend(loaded.skills);
                all.problems.extend(loaded.problems);
            }
            check(cx, &all, &settings.root)
        }
    }
}

fn list(cx: &Context, loaded: &Skills, root: &Path, args: FullArgs) -> Result<Exit> {
    warn_of_skills(&cx.out, loaded);
    let items: Vec<_> = loaded.skills.iter().map(SkillItem::from).collect();
    let none = "no skills; a folder with a SKILL.md in config/skills is one";
    let (paint, titles) = (cx.out.paint, ["SKILL", "TOOLS", "FROM", "DESCRIPTION"]);
    cx.out.list_or_table(("skills", args.full), &items, none, &titles, |skill| {
        let from = skill.file.parent().unwrap_or(skill.file);
        let from = match skill.scope {
            SkillScope::BuiltIn => SkillScope::BuiltIn.as_str().to_owned(),
            SkillScope::Project | SkillScope::User => from.strip_prefix(root).unwrap_or(from).display().to_string(),
        };
        vec![
            painted(one_line(skill.name, 64), move |t| paint.cyan(t)),
            plain(one_line(&tools_in_words(skill.allowed_tools), 40)),
            plain(one_line(&from, 48)),
            plain(one_line(skill.description, 300)),
        ]
    })
}

fn tools_in_words(allowed: &Option<Vec<String>>) -> String {
    match allowed {
        None => "as its caller".into(),
        Some(names) if names.is_empty() => "none".into(),
        Some(names) => names.join(", "),
    }
}

fn show(cx: &Context, loaded: &Skills, name: &str) -> Result<Exit> {
    let skill = personas::skill(loaded, name)?;
    let text = sanitise(&skill.body);
    if cx.out.json {
        return cx.out.document(&SkillDocument { skill, tool: skill.tool_name(), text: text.ok() });
    }
    let paint = cx.out.paint;
    let file = visible(&skill.source.file.display().to_string());
    cx.out.line(format!("{}  {}", paint.bold(paint.cyan(visible(&skill.name))), paint.dim(file)))?;
    let called = skill.tool_name();
    let fields = [
        ("about", Some(skill.description.as_str())),
        ("called", Some(called.as_str()).filter(|called| *called != skill.name)),
        ("tools", Some(&tools_in_words(&skill.allowed_tools))),
        ("skills", Some(&skill.allowed_skills.join(", "))),
        ("files", Some(&skill.source.files.join(", "))),
        ("needs", skill.compatibility.as_deref()),
        ("licence", skill.license.as_deref()),
        ("sha-256", Some(&skill.source.sha256)),
    ];
    for (name, text) in fields {
        let Some(text) = text.filter(|text| !text.is_empty()) else { continue };
        cx.out.field(name, wrap(&visible(text), cx.out.width.saturating_sub(14)).join("\n"))?;
    }
    match text {
        Ok(text) => cx.out.line(format!("\n{}", text.lines().map(visible).collect::<Vec<_>>().join("\n")))?,
        Err(error) => cx.out.warn(error.to_string()),
    }
    Ok(Exit::Ok)
}

fn check(cx: &Context, loaded: &Skills, root: &Path) -> Result<Exit> {
    let wrong = loaded.problems.iter().filter(|p| p.problem.severity > Severity::Note).count();
    let exit = if wrong > 0 { Exit::Usage } else { Exit::Ok };
    if cx.out.json {
        let names: Vec<_> = loaded.skills.iter().map(|skill| &skill.name).collect();
        cx.out.document(&json!({"skills": names, "problems": loaded.problems}))?;
        return Ok(exit);
    }
    let paint = cx.out.paint;
    for found in &loaded.problems {
        let file = found.file.strip_prefix(root).unwrap_or(&found.file).into();
        let mark = mark(paint, found.problem.severity);
        cx.out.line(format!("{mark}  {}", visible(&SkillFileProblem { file, ..found.clone() }.to_string())))?;
    }
    let clean = |skill: &&Skill| {
        !loaded.problems.iter().any(|p| p.file == skill.source.file && p.problem.severity > Severity::Note)
    };
    for skill in loaded.skills.iter().filter(clean) {
        cx.out.line(format!("{}  {}", paint.green("✓"), visible(&skill.name)))?;
    }
    if wrong > 0 {
        let what = plural(loaded.skills.len() as u64, "skill");
        return Err(usage(format!("{} found; {what} can be used", plural(wrong as u64, "problem"))));
    }
    Ok(exit)
}
