//! `posse init`: a project to begin with.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use posse_app::Code;

use super::prelude::*;
use crate::env;
use crate::output::text::visible;
use crate::trust::{self, Extent, Trust};

const FILES: &[(&str, &str)] = &[
    ("config/posse.toml", include_str!("../init/posse.toml")),
    ("config/personas.schema.json", include_str!("../../../../config/personas.schema.json")),
    ("config/tools/count_lines.toml", include_str!("../init/tools/count_lines.toml")),
    ("examples/README.md", include_str!("../init/examples/README.md")),
    ("examples/expenses.csv", include_str!("../init/examples/expenses.csv")),
    ("examples/suppliers/fjordtex.md", include_str!("../init/examples/suppliers/fjordtex.md")),
    ("examples/suppliers/loomworks.md", include_str!("../init/examples/suppliers/loomworks.md")),
    ("examples/suppliers/terra-tessile.md", include_str!("../init/examples/suppliers/terra-tessile.md")),
    ("examples/issues/001.md", include_str!("../init/examples/issues/001.md")),
    ("examples/issues/002.md", include_str!("../init/examples/issues/002.md")),
    ("examples/issues/003.md", include_str!("../init/examples/issues/003.md")),
];

/// Writes the project's files. All or none: nothing that is there is overwritten.
pub fn init(cx: &Context, folder: &Path) -> Result<Exit> {
    crate::output::before_change()?;
    let personas = wire::BUILT_IN_PERSONAS.iter().map(|(role, text)| (format!("config/personas/{role}.json"), *text));
    let skills = wire::BUILT_IN_SKILLS.iter().map(|(name, text)| (format!("config/skills/{name}/SKILL.md"), *text));
    let files: Vec<_> =
        FILES.iter().map(|(path, text)| ((*path).to_owned(), *text)).chain(personas).chain(skills).collect();
    // A dangling link is there too.
    let is_there = |path: &&str| folder.join(path).symlink_metadata().is_ok();
    let there: Vec<_> = files.iter().map(|(path, _)| path.as_str()).filter(is_there).collect();
    if !there.is_empty() {
        let more = if there.len() > 3 { format!(" and {} more", there.len() - 3) } else { String::new() };
        return Err(fail(
            Code::Conflict,
            format!(
                "the folder {} has a project in it already ({}{more}); nothing was changed. Choose another folder, or move those away",
                folder.display(),
                there[..there.len().min(3)].join(", ")
            ),
        ));
    }
    // What others put there first is not trusted along with what is written now.
    let before = trust::found_in(folder);
    for (path, text) in &files {
        let path = folder.join(path);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).with_context(|| format!("the folder {} cannot be made", parent.display()))?;
        fs::write(&path, text).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    let trusted = match before.as_slice() {
        [] => Trust::load(&env::own).and_then(|mut trust| trust.give(folder, Extent::Project)).err(),
        before => Some(usage(format!(
            "{} was there before; if you know who wrote that: posse trust {}",
            before.join(", "),
            folder.display()
        ))),
    };
    if let Some(why) = &trusted {
        let shown = folder.display();
        cx.out.warn(format!("{shown} is not trusted, so nothing in it is used: {why:#}"));
    }
    if cx.out.json {
        let written: Vec<_> = files.iter().map(|(path, _)| path).collect();
        return cx.out.document(&json!({"folder": folder, "written": written, "trusted": trusted.is_none()}));
    }
    let paint = cx.out.paint;
    for (what, why) in [
        ("config/posse.toml", "settings, all commented out"),
        (
            "config/personas/",
            "analyst, assistant, browser, coordinator, researcher, reviewer, scribe, triager; a new file is a new kind of agent",
        ),
        ("config/skills/", "summarise-files; instructions that a persona can call by name"),
        ("config/tools/", "count_lines; a command that agents can call as a tool"),
        ("examples/", "files to try it on"),
    ] {
        cx.out.line(format!("  {} {what:<20} {}", paint.green("+"), paint.dim(why)))?;
    }
    let cd = if folder == Path::new(".") {
        String::new()
    } else {
        format!("cd {} && ", visible(&folder.display().to_string()))
    };
    cx.out.line("\nWhat next:")?;
    for (command, why) in [
        ("posse model list", "which language model would be used"),
        (
            "posse run --role researcher \"Which supplier in examples/suppliers ships to Norway?\"",
            "a first job, here and now",
        ),
        ("posse enqueue --role triager \"Triage the items in examples/issues\"", "a job for later"),
        ("posse up", "work all that is enqueued"),
    ] {
        cx.out.line(format!("  {cd}{command}\n      {}", paint.dim(why)))?;
    }
    Ok(Exit::Ok)
}
