//! Skills: named instructions for a kind of work, in the folder form of the Agent Skills standard.
//!
//! An agent is told of a skill by name and description only. It uses one by calling its name like a
//! tool's ([`SkillCallArgs`]); the work is done by a child that knows nothing of the conversation
//! and sees the skill's text, its own tools and its own sub-skills. What the child may do is never
//! more than its caller may.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use unicode_normalization::UnicodeNormalization;

use crate::model::Message;
use crate::text::{folded, named};
use crate::tool::{OfferedTool, ToolSpec, schema_of};

mod call;
mod found;
mod front;
mod sanitise;
pub mod shelf;

pub use crate::persona::Severity;
pub use call::{HistoryMessage, HistoryRole, MAX_HISTORY, MAX_HISTORY_BYTES, MAX_TASK_BYTES, SkillCallArgs};
pub use found::{SkillFileProblem, Skills, UnknownSkill};
pub use front::{Field, FieldValue, FrontMatter, Location, SkillProblem, examine};
pub use sanitise::{SanitiseError, sanitise};

/// Most characters of a skill's name.
pub const MAX_NAME_CHARS: usize = 64;
/// Most characters of a skill's description; what is beyond is not shown to a model.
pub const MAX_DESCRIPTION_CHARS: usize = 1024;
/// Most characters of what a skill says of its surroundings.
pub const MAX_COMPATIBILITY_CHARS: usize = 500;
/// The key under `metadata` that lists the skills a skill may call, separated by spaces.
pub const SUB_SKILLS_KEY: &str = "posse-skills";

/// A skill, as it is used: what its file says, with what could be read of it leniently.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Skill {
    /// What it is called by people and personas; in normal form (NFKC).
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// The licence it is under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    /// What it needs around it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compatibility: Option<String>,
    /// Whatever else its author noted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Tools it may use: absent, all that its caller has; present, of those exactly these names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<Vec<String>>,
    /// Skills it may call, by name. The standard has no field for it, so it is kept in the metadata
    /// under [`SUB_SKILLS_KEY`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_skills: Vec<String>,
    /// The instructions: Markdown, not sanitised yet.
    pub body: String,
    /// Where it comes from.
    pub source: SkillSource,
}

/// Where a skill comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SkillSource {
    /// Its `SKILL.md`.
    pub file: PathBuf,
    /// Whose it is.
    pub scope: SkillScope,
    /// SHA-256 of the file, in hex: tells what a run used from what is there now.
    pub sha256: String,
    /// Other files in its folder, relative to it and sorted; a child can read them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
}

impl SkillSource {
    /// The skill's folder.
    pub fn folder(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new(""))
    }
}

/// Whose a skill is. A skill of the project hides one of the user that has the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SkillScope {
    /// The project's.
    Project,
    /// The user's, for all projects.
    User,
    /// Shipped with Posse.
    BuiltIn,
}

named!(SkillScope: Project = "project", User = "user", BuiltIn = "built in");

impl Skill {
    /// The name a model calls it by: its own where providers take that for a tool, else a stable one
    /// made from it. The standard allows letters of any script; providers only `[a-zA-Z0-9_-]{1,64}`.
    pub fn tool_name(&self) -> String {
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if (1..=64).contains(&self.name.len()) && self.name.chars().all(legal) {
            return self.name.clone();
        }
        let similar: String = self.name.chars().map(|c| if legal(c) { c } else { '-' }).take(48).collect();
        let similar = similar.trim_matches('-');
        let similar = if similar.is_empty() { "skill" } else { similar };
        let digest = Sha256::digest(&self.name);
        let digest: String = digest[..4].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{similar}-{digest}")
    }

    /// What a model is told of it as of something it can call.
    pub fn spec(&self) -> ToolSpec {
        let parameters = arguments_of::<SkillCallArgs>();
        ToolSpec { name: self.tool_name(), description: self.shown_description(), parameters }
    }

    /// Of the tools its caller has, those it may use.
    pub fn tools(&self, of_caller: &[OfferedTool]) -> Vec<OfferedTool> {
        let allowed = |tool: &&OfferedTool| match &self.allowed_tools {
            None => true,
            Some(names) => names.contains(&tool.spec.name),
        };
        of_caller.iter().filter(allowed).cloned().collect()
    }

    /// Of all skills there are, those it may call, sorted by name. Never itself.
    pub fn sub_skills<'a>(&self, all: &'a [Skill]) -> Vec<&'a Skill> {
        let mut found: Vec<_> =
            all.iter().filter(|s| s.name != self.name && self.allowed_skills.contains(&s.name)).collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }

    /// The description on one line, not longer than a model is shown.
    fn shown_description(&self) -> String {
        folded(&self.description).chars().take(MAX_DESCRIPTION_CHARS).collect()
    }
}

/// A skill as it was when the run began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OfferedSkill {
    /// What the model is told of it: it is called like a tool.
    pub spec: ToolSpec,
    /// The first system message of its conversation: who the agent is and how it works.
    pub system: String,
    /// The second one: the skill's text, sanitised, and the skills it may use.
    pub prompt: String,
    /// Worked examples that follow it, where the model needs them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Message>,
    /// Names of the run's tools that it may use.
    pub tools: Vec<String>,
    /// Names of the run's skills that it may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    /// Whether only other skills may call it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inner: bool,
    /// Whether the model is not told of it until it has found it ([`crate::skill::shelf`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unlisted: bool,
    /// Why it cannot be worked by, if it cannot: what a call of it is answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The folder its files are in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// SHA-256 of the file it was read from, in hex.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hash: String,
}

/// The schema of a call's arguments, without what is said of the type.
fn arguments_of<T: JsonSchema>() -> serde_json::Value {
    let mut parameters = schema_of::<T>();
    if let Some(schema) = parameters.as_object_mut() {
        schema.remove("description");
    }
    parameters
}

/// A name in the form in which names are compared: trimmed, NFKC.
pub fn normal_name(name: &str) -> String {
    name.trim().nfkc().collect()
}

/// The skills of `names` and all that one of them can lead to, by name: what a run keeps of them.
pub fn reachable(names: &[String], all: &[Skill]) -> Vec<Skill> {
    let mut wanted: BTreeSet<&str> = BTreeSet::new();
    let mut ahead: Vec<&str> = names.iter().map(String::as_str).collect();
    while let Some(name) = ahead.pop() {
        let Some(skill) = all.iter().find(|s| s.name == name) else { continue };
        if wanted.insert(&skill.name) {
            ahead.extend(skill.allowed_skills.iter().map(String::as_str));
        }
    }
    wanted.into_iter().filter_map(|name| all.iter().find(|s| s.name == name)).cloned().collect()
}

const CALLING: &str = "\
A skill is called by its name, like a tool, and does one kind of work well. When the description of a skill fits the \
task or a part of it, call the skill instead of doing that work yourself. It does not see this conversation: write \
into `task` everything it has to know.
";

/// What a child is told of its skill: the sanitised text, the files beside it, the skills it may call in turn.
pub fn child_message(skill: &Skill, sub_skills: &[&Skill]) -> Result<String, SanitiseError> {
    let mut out = format!("# Skill: {}\n\n{}\n", skill.name, sanitise(&skill.body)?);
    if !skill.source.files.is_empty() {
        let files = skill.source.files.join(", ");
        let _ =
            write!(out, "\n# Files of this skill\nRead them with `{READ_SKILL_FILE}` when you need them: {files}\n");
    }
    if let Some(list) = listed(sub_skills) {
        let _ = write!(out, "\n# Skills you may call\n{CALLING}{list}");
    }
    Ok(out)
}

/// The tool that reads the files beside a skill's text.
pub const READ_SKILL_FILE: &str = "read_skill_file";

fn listed(skills: &[&Skill]) -> Option<String> {
    let mut lines: Vec<_> =
        skills.iter().map(|s| format!("- {}: {}\n", s.tool_name(), s.shown_description())).collect();
    lines.sort_unstable();
    (!lines.is_empty()).then(|| lines.concat())
}
