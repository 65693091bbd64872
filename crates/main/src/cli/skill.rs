//! `posse skill`: instructions that personas call by name.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Subcommand;
use posse_app::Code;
use posse_app::json;
use posse_core::skill::{Severity, Skill, SkillScope, sanitise};
use posse_infra::skill::{LoadedSkills, SkillFileProblem, load_path};
use serde::Serialize;
use serde_json::json;

use super::Context;
use super::lists::FullArgs;
use crate::catalog::{self, Offer};
use crate::exit::{Exit, fail, not_found, usage};
use crate::output::table::{painted, plain, render};
use crate::output::text::{one_line, plural, visible, wrap};

/// Skills
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

/// Does what was asked.
pub fn dispatch(cx: &Context, command: SkillCommand) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let offer = Offer::gather(&settings);
    match command {
        SkillCommand::List(args) => list(cx, &offer.skills, &settings.root, args),
        SkillCommand::Show { name } => show(cx, &offer.skills, &name),
        SkillCommand::Check { paths } if paths.is_empty() => check(cx, &offer.skills, &settings.root),
        SkillCommand::Check { paths } => {
            let mut all = LoadedSkills::default();
            for path in paths {
                let loaded = load_path(&path, &offer.tools)
                    .map_err(|error| not_found(format!("{} cannot be checked: {error}", path.display())))?;
                all.skills.extend(loaded.skills);
                all.problems.extend(loaded.problems);
            }
            check(cx, &all, &settings.root)
        }
    }
}

#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    description: &'a str,
    /// What a model calls it by.
    tool: String,
    /// Null where it may use all its caller has.
    allowed_tools: &'a Option<Vec<String>>,
    allowed_skills: &'a [String],
    scope: SkillScope,
    file: &'a Path,
    sha256: &'a str,
}

fn listed(skill: &Skill) -> Listed<'_> {
    let Skill { name, description, allowed_tools, allowed_skills, source, .. } = skill;
    let (scope, file, sha256) = (source.scope, source.file.as_path(), source.sha256.as_str());
    Listed { name, description, tool: skill.tool_name(), allowed_tools, allowed_skills, scope, file, sha256 }
}

fn list(cx: &Context, loaded: &LoadedSkills, root: &Path, args: FullArgs) -> Result<Exit> {
    catalog::warn_of_skills(&cx.out, loaded);
    if cx.out.json {
        cx.out.list("skills", json::listed(loaded.skills.iter().map(listed), args.full)?, None)?;
        return Ok(Exit::Ok);
    }
    if loaded.skills.is_empty() {
        cx.out.note("no skills; a folder with a SKILL.md in config/skills is one");
        return Ok(Exit::Ok);
    }
    let paint = cx.out.paint;
    let rows = loaded.skills.iter().map(|skill| {
        let from = skill.source.folder();
        let from = match skill.source.scope {
            SkillScope::BuiltIn => SkillScope::BuiltIn.as_str().to_owned(),
            SkillScope::Project | SkillScope::User => from.strip_prefix(root).unwrap_or(from).display().to_string(),
        };
        vec![
            painted(one_line(&skill.name, 64), move |t| paint.cyan(t)),
            plain(one_line(&tools_of(skill), 40)),
            plain(one_line(&from, 48)),
            plain(one_line(&skill.description, 300)),
        ]
    });
    for line in render(&["SKILL", "TOOLS", "FROM", "DESCRIPTION"], rows.collect(), cx.out.width, |t| paint.dim(t)) {
        cx.out.line(line)?;
    }
    Ok(Exit::Ok)
}

fn tools_of(skill: &Skill) -> String {
    match &skill.allowed_tools {
        None => "as its caller".into(),
        Some(names) if names.is_empty() => "none".into(),
        Some(names) => names.join(", "),
    }
}

#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    skill: &'a Skill,
    /// What a model calls it by.
    tool: String,
    /// The text as an agent is given it; null where nothing is left of it.
    text: Option<String>,
}

fn show(cx: &Context, loaded: &LoadedSkills, name: &str) -> Result<Exit> {
    let Some(skill) = loaded.get(name) else {
        // What keeps it from being one may be among the problems.
        let about = |p: &&SkillFileProblem| p.file.parent().and_then(Path::file_name).is_some_and(|f| f == name);
        let why: Vec<_> = loaded.problems.iter().filter(about).map(|p| format!("\n  {p}")).collect();
        return Err(fail(Code::SkillNotFound, format!("{}{}", loaded.unknown(name), visible(&why.concat()))));
    };
    let text = sanitise(&skill.body);
    if cx.out.json {
        cx.out.document(&Shown { skill, tool: skill.tool_name(), text: text.ok() })?;
        return Ok(Exit::Ok);
    }
    let paint = cx.out.paint;
    let file = visible(&skill.source.file.display().to_string());
    cx.out.line(format!("{}  {}", paint.bold(paint.cyan(visible(&skill.name))), paint.dim(file)))?;
    let called = skill.tool_name();
    let fields = [
        ("about", Some(skill.description.as_str())),
        ("called", Some(called.as_str()).filter(|called| *called != skill.name)),
        ("tools", Some(&tools_of(skill))),
        ("skills", Some(&skill.allowed_skills.join(", "))),
        ("files", Some(&skill.source.files.join(", "))),
        ("needs", skill.compatibility.as_deref()),
        ("licence", skill.license.as_deref()),
        ("sha-256", Some(&skill.source.sha256)),
    ];
    for (name, text) in fields {
        let Some(text) = text.filter(|text| !text.is_empty()) else { continue };
        for (n, line) in wrap(&visible(text), cx.out.width.saturating_sub(14)).into_iter().enumerate() {
            cx.out.line(format!("  {} {line}", paint.dim(format!("{:<10}", if n == 0 { name } else { "" }))))?;
        }
    }
    match text {
        Ok(text) => cx.out.line(format!("\n{}", text.lines().map(visible).collect::<Vec<_>>().join("\n")))?,
        Err(error) => cx.out.warn(error.to_string()),
    }
    Ok(Exit::Ok)
}

fn check(cx: &Context, loaded: &LoadedSkills, root: &Path) -> Result<Exit> {
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
        let mark = match found.problem.severity {
            Severity::Error => paint.red("✗"),
            Severity::Warning => paint.yellow("!"),
            Severity::Note => paint.dim("·"),
        };
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
