//! The personas of a project, and what they may name: tools, skills, hooks, models.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use posse_core::persona::{
    PersonaFile, PersonaFileProblem, PersonaTemplate, Personas, is_placeholder, placeholder_goal,
};
use posse_core::port::{PersonaRepository, SkillRepository};
use posse_core::run::hook::Hooks;
use posse_core::skill::shelf::{self, FIND_SKILLS};
use posse_core::skill::{Skill, SkillScope, Skills};
use posse_core::text::{count, nearest, plural};
use posse_core::tool::tasks::TASK_CREATE;
use posse_core::tool::{EffectClass, Tool, ToolSpec, Tools};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{Code, Error, Result};

/// Where a project's personas are, and what they may name.
#[derive(Clone)]
pub struct Sources {
    /// The personas.
    pub personas: Arc<dyn PersonaRepository>,
    /// The skills.
    pub skills: Arc<dyn SkillRepository>,
    /// The tools.
    pub tools: Arc<dyn Tools>,
    /// The hooks.
    pub hooks: Arc<dyn Hooks>,
    /// The names of the models.
    pub models: BTreeSet<String>,
}

/// What personas may name, as it is at one moment.
pub struct Offer {
    /// The tools.
    pub tools: Arc<dyn Tools>,
    /// The skills, and what is wrong with others.
    pub skills: Skills,
    /// The hooks.
    pub hooks: Arc<dyn Hooks>,
    /// The names of the models.
    pub models: BTreeSet<String>,
}

impl Sources {
    /// What personas may name now.
    pub fn offer(&self) -> Offer {
        let Sources { skills, tools, hooks, models, .. } = self;
        let (tools, hooks) = (Arc::clone(tools), Arc::clone(hooks));
        Offer { tools, skills: skills.skills(), hooks, models: models.clone() }
    }

    /// The personas as they are now, each checked against what it may name: one that names something else is not among
    /// them, and why is among the problems.
    pub fn personas(&self, offer: &Offer) -> Result<Personas> {
        let mut found = self.personas.personas().map_err(Error::invalid)?;
        let mut problems = Vec::new();
        found.personas.retain(|PersonaFile { file, persona }| match offer.unknown_name(persona) {
            None => true,
            Some((field, name, unknown)) => {
                let line = self.personas.line_with(file, &name);
                let message = format!("names '{name}', but {unknown}");
                problems.push(PersonaFileProblem::error(file, line, Some(field), message));
                false
            }
        });
        let all = found.clone();
        found.personas.retain(|PersonaFile { file, persona }| match nobody_to_delegate_to(&all, persona) {
            None => true,
            Some((name, wrong)) => {
                let line = self.personas.line_with(file, &name);
                problems.push(PersonaFileProblem::error(file, line, Some("may_delegate_to"), wrong));
                false
            }
        });
        found.problems.extend(problems);
        let half = found.personas.iter().filter_map(|file| offer.half_delegates(file));
        found.problems.extend(half);
        let heavy = found.personas.iter().filter_map(|file| offer.weight_of_skills(file));
        found.problems.extend(heavy);
        Ok(found)
    }

    /// What personas may name now, and the personas.
    pub fn look(&self) -> Result<(Offer, Personas)> {
        let offer = self.offer();
        let personas = self.personas(&offer)?;
        Ok((offer, personas))
    }

    /// Another value once a look may show something else.
    pub fn stamp(&self) -> (u64, u64) {
        (self.personas.stamp(), self.skills.stamp())
    }

    /// A new persona as it is asked for, and where it is to be kept; nothing is kept yet.
    pub fn draft(&self, asked: Draft, offer: &Offer, known: &Personas) -> Result<(PersonaTemplate, PathBuf)> {
        let Draft { role, goal, backstory, tools } = asked;
        let goal = goal.unwrap_or_else(|| placeholder_goal(&role));
        let backstory = backstory.unwrap_or_else(|| BACKSTORY.into());
        let tools = if tools.is_empty() { READING.map(Into::into).into() } else { tools };
        let schema = Some("../personas.schema.json".into());
        let persona = PersonaTemplate { schema, role, goal, backstory, tools, ..PersonaTemplate::default() };
        // Its goal may be for a person to write.
        let is_open = is_placeholder(&persona.goal);
        if let Some(problem) = persona.problems().iter().find(|problem| !(is_open && problem.field == "goal")) {
            return Err(Error::invalid(format!("{} {}", problem.field, problem.message)));
        }
        offer.tools.resolve(&persona.tools).map_err(|unknown| Error::invalid(unknown.to_string()))?;
        let (place, is_there) = self.personas.place(&persona.role);
        let taken = known.get(&persona.role).map(|found| &found.file).filter(|file| self.personas.keeps(file));
        if let Some(there) = taken.or(is_there.then_some(&place)) {
            let what = format!("{} plays '{}' already; nothing was changed", there.display(), persona.role);
            return Err(Error::new(Code::PersonaExists, what));
        }
        Ok((persona, place))
    }
}

/// A new persona, as it is asked for.
pub struct Draft {
    /// The role.
    pub role: String,
    /// What it is for; where nobody says it is left for a person to write.
    pub goal: Option<String>,
    /// Who it is and how it works.
    pub backstory: Option<String>,
    /// Tools and packs; those that read, where none is named.
    pub tools: Vec<String>,
}

const BACKSTORY: &str = "You are careful and brief. List the files first, read what matters completely, and copy names and numbers exactly.";

const READING: [&str; 3] = ["list_files", "read_file", "search_files"];

/// A name that nothing has: its field, the name, what is wrong with it.
type Unknown = (&'static str, String, String);

impl Offer {
    /// The first name in a persona that nothing here has.
    fn unknown_name(&self, persona: &PersonaTemplate) -> Option<Unknown> {
        let no_tool = |field, names: &[String]| {
            let unknown = self.tools.resolve(names).err()?;
            Some((field, unknown.name.clone(), unknown.to_string()))
        };
        let skill = || self.skills.resolve(&persona.skills).err().map(|e| ("skills", e.name.clone(), e.to_string()));
        let hook = || self.hooks.resolve(&persona.hooks).err().map(|e| ("hooks", e.name.clone(), e.to_string()));
        let fallbacks: Vec<_> =
            persona.fallback_tools.iter().flat_map(|(tool, spare)| [tool, spare]).cloned().collect();
        no_tool("tools", &persona.tools)
            .or_else(skill)
            .or_else(hook)
            .or_else(|| no_tool("fallback_tools", &fallbacks))
            .or_else(|| self.fallback_not_offered(persona))
            .or_else(|| self.unknown_model("model", persona.model.as_ref()))
            .or_else(|| self.unknown_model("context.summary_model", persona.context.summary_model.as_ref()))
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
        (left_out > 0).then(|| PersonaFileProblem::warning(file, None, Some("skills"), message))
    }

    /// That a persona has the tools for giving tasks and nobody to give them to, or the other way round.
    fn half_delegates(&self, PersonaFile { file, persona }: &PersonaFile) -> Option<PersonaFileProblem> {
        let tools = self.tools.resolve(&persona.tools).ok()?;
        let has_tool = tools.iter().any(|tool| tool.spec().name == TASK_CREATE);
        let message = match (has_tool, persona.may_delegate_to.is_empty()) {
            (true, true) => {
                "names nobody, so the tools of the pack 'tasks' are not offered; name roles of other personas"
            }
            (false, false) => {
                "names personas, and without the tools of the pack 'tasks' no task is given; add it to tools"
            }
            _ => return None,
        };
        Some(PersonaFileProblem::warning(file, None, Some("may_delegate_to"), message.into()))
    }

    fn unknown_model(&self, field: &'static str, name: Option<&String>) -> Option<Unknown> {
        let name = name.filter(|name| !self.models.contains(*name))?;
        let names: Vec<_> = self.models.iter().map(String::as_str).collect();
        let near = did_you_mean(name, names.iter().copied());
        let wrong = format!(
            "there is no such model{near} There are: {}. Add [models.{name}] to config/posse.toml, or name one of these",
            names.join(", ")
        );
        Some((field, name.clone(), wrong))
    }

    /// A tool that a persona names as the fallback of another and does not have: it would never be tried.
    fn fallback_not_offered(&self, persona: &PersonaTemplate) -> Option<Unknown> {
        let offered = self.tools.resolve(&persona.tools).ok()?;
        let has = |name: &&String| offered.iter().any(|tool| tool.spec().name == **name);
        let missing = persona.fallback_tools.values().find(|name| !has(name))?;
        let wrong = "this is not one of the persona's tools, so it would never be tried: add it to \"tools\"";
        Some(("fallback_tools", missing.clone(), wrong.into()))
    }

    /// Whether one of these personas has this tool.
    pub fn any_has(&self, personas: &[PersonaFile], tool: &str) -> bool {
        let has = |file: &PersonaFile| {
            let tools = self.tools.resolve(&file.persona.tools).unwrap_or_default();
            tools.iter().any(|one| one.spec().name == tool)
        };
        personas.iter().any(has)
    }
}

/// The first role that a persona names to give tasks to and nobody plays, with what is wrong.
fn nobody_to_delegate_to(personas: &Personas, persona: &PersonaTemplate) -> Option<(String, String)> {
    let role = persona.may_delegate_to.iter().find(|role| personas.get(role).is_none())?;
    let roles = personas.roles();
    let near = did_you_mean(role, roles.iter().map(String::as_str));
    let there_are = if roles.is_empty() { "none".into() } else { roles.join(", ") };
    Some((role.clone(), format!("names '{role}', and there is no such persona{near} There are: {there_are}")))
}

/// The persona that plays `role`, or why there is none.
pub fn find<'a>(personas: &'a Personas, role: &str) -> Result<&'a PersonaFile> {
    if let Some(found) = personas.get(role) {
        return Ok(found);
    }
    not_broken(personas, role)?;
    let roles = personas.roles();
    let near = did_you_mean(role, roles.iter().map(String::as_str));
    let there_are = if roles.is_empty() { "none".into() } else { roles.join(", ") };
    let what =
        format!("there is no persona '{role}'{near} There are: {there_are} (posse persona new {role} makes one)");
    Err(Error::new(Code::PersonaNotFound, what))
}

/// How a sentence ends that says that a name is of nothing: with the nearest one, if any is near.
fn did_you_mean<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    nearest(name, known).map_or_else(|| ".".into(), |near| format!("; did you mean {near}?"))
}

/// Fails where nobody plays `role` because its file is wrong, and says what is.
pub fn not_broken(personas: &Personas, role: &str) -> Result<()> {
    let errors = personas.errors_of(role);
    if personas.get(role).is_some() || errors.is_empty() {
        return Ok(());
    }
    let told: Vec<_> = errors.iter().map(ToString::to_string).collect();
    Err(Error::new(Code::PersonaInvalid, format!("the persona '{role}' cannot be used: {}", told.join("; "))))
}

/// The personas to work for: all that can be used, or the ones named, each of which must be usable.
pub fn chosen(personas: &Personas, roles: &[String]) -> Result<Vec<PersonaFile>> {
    let mut chosen: Vec<PersonaFile> = Vec::new();
    for role in roles {
        let found = find(personas, role)?;
        if !chosen.contains(found) {
            chosen.push(found.clone());
        }
    }
    if roles.is_empty() {
        chosen.clone_from(&personas.personas);
    }
    if chosen.is_empty() {
        let what = "there is no persona to work for; posse persona check says why, posse init writes five";
        return Err(Error::invalid(what));
    }
    Ok(chosen)
}

/// A persona: an item of `posse persona list --json`, and the document of `posse persona show --json`.
#[derive(Serialize, JsonSchema)]
pub struct PersonaView<'a> {
    /// Its file.
    pub file: &'a Path,
    /// What is in it.
    #[serde(flatten)]
    pub persona: &'a PersonaTemplate,
}

impl<'a> From<&'a PersonaFile> for PersonaView<'a> {
    fn from(PersonaFile { file, persona }: &'a PersonaFile) -> Self {
        PersonaView { file, persona }
    }
}

/// A tool: an item of `posse tool list --json`, and the document of `posse tool show --json`.
#[derive(Clone, Serialize, JsonSchema)]
pub struct ToolView {
    /// The pack that it is in.
    pub pack: String,
    /// Whether it may be run again.
    pub effect: EffectClass,
    /// What a model is told.
    #[serde(flatten)]
    pub spec: ToolSpec,
}

/// Every tool, by pack.
pub fn tools(tools: &dyn Tools) -> Vec<ToolView> {
    let view = |pack: &String, tool: Arc<dyn Tool>| ToolView {
        pack: pack.clone(),
        effect: tool.effect(),
        spec: tool.spec().clone(),
    };
    let of_pack = |(pack, names): (_, &Vec<String>)| {
        let found: Vec<_> = names.iter().filter_map(|name| Some(view(pack, tools.get(name)?))).collect();
        found
    };
    tools.packs().iter().flat_map(of_pack).collect()
}

/// The tool of that name, or that there is none.
pub fn tool(all: Vec<ToolView>, name: &str) -> Result<ToolView> {
    let names: Vec<_> = all.iter().map(|tool| tool.spec.name.clone()).collect();
    all.into_iter().find(|tool| tool.spec.name == name).ok_or_else(|| {
        let near = did_you_mean(name, names.iter().map(String::as_str));
        Error::new(Code::ToolNotFound, format!("there is no tool '{name}'{near} There are: {}", names.join(", ")))
    })
}

/// A skill in a list: an item of `posse skill list --json`.
#[derive(Serialize, JsonSchema)]
pub struct SkillItem<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it does and when to use it.
    pub description: &'a str,
    /// What a model calls it by.
    pub tool: String,
    /// Tools it may use; null where it may use all its caller has.
    pub allowed_tools: &'a Option<Vec<String>>,
    /// Skills it may call.
    pub allowed_skills: &'a [String],
    /// Whose it is.
    pub scope: SkillScope,
    /// Its file.
    pub file: &'a Path,
    /// The hash of that.
    pub sha256: &'a str,
}

impl<'a> From<&'a Skill> for SkillItem<'a> {
    fn from(skill: &'a Skill) -> Self {
        let Skill { name, description, allowed_tools, allowed_skills, source, .. } = skill;
        let (scope, file, sha256) = (source.scope, source.file.as_path(), source.sha256.as_str());
        SkillItem { name, description, tool: skill.tool_name(), allowed_tools, allowed_skills, scope, file, sha256 }
    }
}

/// A skill: the document of `posse skill show --json`.
#[derive(Serialize, JsonSchema)]
pub struct SkillDocument<'a> {
    /// The skill.
    #[serde(flatten)]
    pub skill: &'a Skill,
    /// What a model calls it by.
    pub tool: String,
    /// The text as an agent is given it; null where nothing is left of it.
    pub text: Option<String>,
}

/// The skill of that name, or why there is none.
pub fn skill<'a>(skills: &'a Skills, name: &str) -> Result<&'a Skill> {
    skills.get(name).ok_or_else(|| {
        // What keeps it from being one may be among the problems.
        let is_about = |file: &Path| file.parent().and_then(Path::file_name).is_some_and(|folder| folder == name);
        let about = skills.problems.iter().filter(|problem| is_about(&problem.file));
        let why: String = about.map(|problem| format!("\n  {problem}")).collect();
        let why = posse_core::text::visible(&why);
        Error::new(Code::SkillNotFound, format!("{}{why}", skills.unknown(name)))
    })
}
