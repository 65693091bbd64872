//! What personas may name, and the personas of a project checked against it: tools, skills, hooks, models.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use posse_app::Code;
use posse_core::persona::PersonaTemplate;
use posse_core::skill::SkillScope;
use posse_core::skill::shelf::{self, FIND_SKILLS};
use posse_core::tool::Tools as _;
use posse_infra::hook::HookRegistry;
use posse_infra::persona::{Loaded, PersonaFile, PersonaFileProblem, Severity, load_all, nearest, problem, warning};
use posse_infra::sandbox::Exact;
use posse_infra::skill::{self, LoadedSkills, SkillFileProblem, SkillRoot};
use posse_infra::tool::{RUN_COMMAND, ToolRegistry};

use crate::exit::{fail, usage};
use crate::models;
use crate::output::Out;
use crate::output::text::{count, plural, visible};
use crate::settings::Settings;
use crate::wire::{commands, tools};

/// The personas that are used where a project has no folder of its own; `posse init` writes them.
pub const BUILT_IN: [(&str, &str); 4] = [
    ("researcher", include_str!("../../../config/personas/researcher.json")),
    ("reviewer", include_str!("../../../config/personas/reviewer.json")),
    ("scribe", include_str!("../../../config/personas/scribe.json")),
    ("triager", include_str!("../../../config/personas/triager.json")),
];

/// The skills that are used where a project has no `config/skills`; `posse init` writes them.
pub const BUILT_IN_SKILLS: [(&str, &str); 1] =
    [("summarise-files", include_str!("../../../config/skills/summarise-files/SKILL.md"))];

/// Which limits of commands are held exactly here, or why none can run; none if no persona runs any.
pub async fn probe_commands(
    settings: &Settings,
    offer: &Offer,
    personas: &[PersonaFile],
) -> Option<Result<Exact, String>> {
    let wants = |file: &PersonaFile| {
        let tools = offer.tools.resolve(&file.persona.tools).unwrap_or_default();
        tools.iter().any(|tool| tool.spec().name == RUN_COMMAND)
    };
    match personas.iter().any(wants) {
        true => Some(commands(settings).probe(&settings.workspace).await),
        false => None,
    }
}

/// What to do where they cannot.
pub const COMMANDS_WAY_OUT: &str = "let users make namespaces (sysctl user.max_user_namespaces, \
    kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0; in a container, in its settings); \
    until then agents are told that no command can run";

/// Where skills are looked for.
pub fn skill_roots(settings: &Settings) -> Vec<SkillRoot> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    skill::roots(&settings.root, home.as_deref())
}

/// The skills there are: those of the person, and of the project where that is trusted.
fn skills(settings: &Settings, tools: &ToolRegistry) -> LoadedSkills {
    let root = &settings.root;
    let mut roots = skill_roots(settings);
    let left_out = roots.extract_if(.., |one| one.scope == SkillScope::Project && !settings.is_trusted);
    let left_out: Vec<_> = left_out.filter(|one| one.folder.is_dir()).collect();
    let has_own = settings.is_trusted && root.join("config/skills").is_dir();
    let mut skills = skill::load_all(&roots, if has_own { &[] } else { &BUILT_IN_SKILLS }, tools);
    skills.problems.extend(left_out.into_iter().map(|one| {
        let why =
            format!("its skills are left out, for the folder {0} is not trusted (posse trust {0})", root.display());
        SkillFileProblem::of_folder(&one.folder, why)
    }));
    skills
}

/// What personas may name.
pub struct Offer {
    /// The tools.
    pub tools: Arc<ToolRegistry>,
    /// The skills.
    pub skills: LoadedSkills,
    /// The hooks.
    pub hooks: HookRegistry,
    /// The names of the models.
    pub models: BTreeSet<String>,
}

impl Offer {
    /// Gathers it all.
    pub fn gather(settings: &Settings) -> Offer {
        let tools = Arc::new(tools(settings));
        let skills = skills(settings, &tools);
        Offer { tools, skills, hooks: HookRegistry::builtin(), models: models::names(settings) }
    }

    /// The first name in a persona that nothing here has: the field, the name, what is wrong with it.
    fn unknown_name(&self, persona: &PersonaTemplate) -> Option<(&'static str, String, String)> {
        let tools = self.tools.resolve(&persona.tools).err().map(|e| ("tools", e.name.clone(), e.to_string()));
        let skills = || self.skills.resolve(&persona.skills).err().map(|e| ("skills", e.name.clone(), e.to_string()));
        let hooks = || self.hooks.resolve(&persona.hooks).err().map(|e| ("hooks", e.name.clone(), e.to_string()));
        let fallbacks: Vec<_> =
            persona.fallback_tools.iter().flat_map(|(tool, spare)| [tool, spare]).cloned().collect();
        let fallbacks =
            || self.tools.resolve(&fallbacks).err().map(|e| ("fallback_tools", e.name.clone(), e.to_string()));
        let models = || self.unknown_model("model", persona.model.as_ref());
        let summaries = || self.unknown_model("context.summary_model", persona.context.summary_model.as_ref());
        tools
            .or_else(skills)
            .or_else(hooks)
            .or_else(fallbacks)
            .or_else(|| self.fallback_not_offered(persona))
            .or_else(models)
            .or_else(summaries)
    }

    /// That a persona's skills take much of each of its requests, if they do.
    fn weight_of_skills(&self, PersonaFile { file, persona }: &PersonaFile) -> Option<PersonaFileProblem> {
        let named = self.skills.resolve(&persona.skills).ok()?;
        let most = shelf::most_bytes(Some(u32::MAX));
        let left_out = shelf::told_within(&named, most).left_out.len();
        let message = format!(
            "names {}, whose names and descriptions would take {} of every request. At most {}, and a quarter of the model's \
             window, go to skills: agents are told of {} or fewer, and find others with {FIND_SKILLS}. Name those it needs, \
             the most important first, or shorten their descriptions",
            plural(named.len() as u64, "skill"),
            plural(named.iter().map(shelf::weight).sum::<usize>() as u64, "byte"),
            plural(most as u64, "byte"),
            count((named.len() - left_out) as u64)
        );
        (left_out > 0).then(|| warning(file, None, Some("skills"), message))
    }

    fn unknown_model(&self, field: &'static str, name: Option<&String>) -> Option<(&'static str, String, String)> {
        let name = name.filter(|name| !self.models.contains(*name))?;
        let names: Vec<_> = self.models.iter().map(String::as_str).collect();
        let near = nearest(name, names.iter().copied()).map(|near| format!("; did you mean {near}?"));
        let wrong = format!(
            "there is no such model{} There are: {}. Add [models.{name}] to config/posse.toml, or name one of these",
            near.unwrap_or_else(|| ".".into()),
            names.join(", ")
        );
        Some((field, name.clone(), wrong))
    }

    /// A tool that a persona names as the fallback of another and does not have: it would never be tried.
    fn fallback_not_offered(&self, persona: &PersonaTemplate) -> Option<(&'static str, String, String)> {
        let offered = self.tools.resolve(&persona.tools).ok()?;
        let has = |name: &&String| offered.iter().any(|tool| tool.spec().name == **name);
        let missing = persona.fallback_tools.values().find(|name| !has(name))?;
        let wrong = "this is not one of the persona's tools, so it would never be tried: add it to \"tools\"";
        Some(("fallback_tools", missing.clone(), wrong.into()))
    }
}

/// Says what is wrong with skills.
pub fn warn_of_skills(out: &Out, skills: &LoadedSkills) {
    warn_of_each(out, skills.problems.iter());
}

/// Says what is wrong with the skills of one persona.
pub fn warn_of_skills_of(out: &Out, skills: &LoadedSkills, persona: &PersonaTemplate) {
    let named = skills.resolve(&persona.skills).unwrap_or_default();
    warn_of_each(out, skills.problems.iter().filter(|found| named.iter().any(|skill| skill.source.file == found.file)));
}

fn warn_of_each<'a>(out: &Out, problems: impl Iterator<Item = &'a SkillFileProblem>) {
    use posse_core::skill::Severity;
    for found in problems {
        let told = visible(&found.to_string());
        match found.problem.severity {
            Severity::Note => out.note(out.note_paint.dim(format!("note: {told}"))),
            Severity::Warning => out.warn(told),
            Severity::Error => out.warn(format!("{told} (left out)")),
        }
    }
}

/// The personas of the project, checked against what there is. What is wrong with one is among the
/// problems; it is not among the personas then.
pub fn personas(settings: &Settings, offer: &Offer) -> Result<Loaded> {
    let folder = &settings.personas;
    let mut loaded = if folder.is_dir() || settings.personas_named {
        let unreadable = |e| {
            usage(format!("the folder of personas {} cannot be read: {e}. Make it with posse init", folder.display()))
        };
        load_all(folder).map_err(unreadable)?
    } else {
        let mut loaded = Loaded::default();
        BUILT_IN
            .iter()
            .for_each(|(role, text)| loaded.add(&Path::new("(built in)").join(format!("{role}.json")), text));
        loaded
    };
    let mut problems = Vec::new();
    loaded.personas.retain(|PersonaFile { file, persona }| match offer.unknown_name(persona) {
        None => true,
        Some((field, name, unknown)) => {
            let line = std::fs::read_to_string(file).ok().and_then(|text| {
                let quoted = format!("\"{name}\"");
                text.lines().position(|line| line.contains(&quoted)).map(|index| index + 1)
            });
            problems.push(problem(file, line, Some(field), format!("names '{name}', but {unknown}")));
            false
        }
    });
    loaded.problems.extend(problems);
    let heavy = loaded.personas.iter().filter_map(|file| offer.weight_of_skills(file));
    loaded.problems.extend(heavy);
    Ok(loaded)
}

/// The persona that plays `role`, or why there is none.
pub fn persona<'a>(loaded: &'a Loaded, role: &str) -> Result<&'a PersonaFile> {
    if let Some(found) = loaded.get(role) {
        return Ok(found);
    }
    let errors = loaded.errors_of(role);
    if !errors.is_empty() {
        let told: Vec<_> = errors.iter().map(ToString::to_string).collect();
        return Err(fail(Code::PersonaInvalid, format!("the persona '{role}' cannot be used: {}", told.join("; "))));
    }
    let roles = loaded.roles();
    let near =
        nearest(role, roles.iter().map(String::as_str)).map(|n| format!("; did you mean {n}?")).unwrap_or_default();
    let there_are = if roles.is_empty() { "none".into() } else { roles.join(", ") };
    Err(fail(
        Code::PersonaNotFound,
        format!("there is no persona '{role}'{near} There are: {there_are} (posse persona new {role} makes one)"),
    ))
}

/// Says what is wrong with personas that are left out.
pub fn warn_of_problems(out: &Out, loaded: &Loaded) {
    loaded.problems.iter().for_each(|problem| warn_of_problem(out, problem));
}

/// Says what is wrong with one, or how it was read.
pub fn warn_of_problem(out: &Out, problem: &PersonaFileProblem) {
    match problem.severity {
        Severity::Error => out.warn(format!("{problem} (left out)")),
        Severity::Warning => out.warn(problem.to_string()),
        Severity::Note => out.note(out.note_paint.dim(format!("note: {}", visible(&problem.to_string())))),
    }
}
