//! Skills as they were found: which can be used, and what is wrong with the files of others.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{Severity, Skill, SkillProblem, normal_name};
use crate::persona::ALL_SKILLS;
use crate::text::nearest;

/// Something wrong with a skill's file, or with a folder of skills.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SkillFileProblem {
    /// The file or folder.
    pub file: PathBuf,
    /// Where in it, what, and what it means for the skill.
    #[serde(flatten)]
    pub problem: SkillProblem,
}

impl SkillFileProblem {
    /// A problem of the whole file or folder.
    pub fn new(file: &Path, severity: Severity, message: impl Into<String>) -> Self {
        let problem = SkillProblem { field: None, location: None, message: message.into(), severity };
        SkillFileProblem { file: file.into(), problem }
    }
}

impl fmt::Display for SkillFileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(location) = self.problem.location {
            write!(f, ":{}:{}", location.line, location.column)?;
        }
        match &self.problem.field {
            Some(field) => write!(f, ": {field} {}", self.problem.message),
            None => write!(f, ": {}", self.problem.message),
        }
    }
}

/// The skills of a project.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Skills {
    /// Those that can be used, sorted by name.
    pub skills: Vec<Skill>,
    /// Everything that is wrong.
    pub problems: Vec<SkillFileProblem>,
}

/// A persona names a skill that is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no skill '{}'; {near}there are: {known}", name.escape_debug())]
pub struct UnknownSkill {
    /// What was named.
    pub name: String,
    near: String,
    known: String,
}

impl Skills {
    /// The skill of that name.
    pub fn get(&self, name: &str) -> Option<&Skill> {
        let name = normal_name(name);
        self.skills.iter().find(|skill| skill.name == name)
    }

    /// Why there is no skill `name`, or that there is none.
    pub fn unknown(&self, name: &str) -> UnknownSkill {
        let names: Vec<_> = self.skills.iter().map(|skill| skill.name.as_str()).collect();
        let near =
            nearest(name, names.iter().copied()).map(|n| format!("did you mean {n}? Of skills ")).unwrap_or_default();
        let known = if names.is_empty() { "none".into() } else { names.join(", ") };
        UnknownSkill { name: name.into(), near, known }
    }

    /// The skills of a persona's list, sorted by name; `"*"` is all of them.
    pub fn resolve(&self, names: &[String]) -> Result<Vec<Skill>, UnknownSkill> {
        if names.iter().any(|name| name == ALL_SKILLS) {
            return Ok(self.skills.clone());
        }
        if let Some(name) = names.iter().find(|name| self.get(name).is_none()) {
            return Err(self.unknown(name));
        }
        let named = |skill: &&Skill| names.iter().any(|name| normal_name(name) == skill.name);
        Ok(self.skills.iter().filter(named).cloned().collect())
    }
}
