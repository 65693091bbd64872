//! Personas as they were found: which can be used, and what is wrong with the files of others.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::PersonaTemplate;
use crate::job::name::role_name;

/// What is to be made of something wrong with a file that describes a persona or a skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// It works as it was meant; it is good to know.
    Note,
    /// It works; something about it will surprise somebody.
    Warning,
    /// It is left out.
    Error,
}

/// A persona and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct PersonaFile {
    /// The file's path.
    pub file: PathBuf,
    /// What it describes.
    pub persona: PersonaTemplate,
}

/// Something wrong with a persona's file: where, what, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PersonaFileProblem {
    /// The file's path.
    pub file: PathBuf,
    /// The line, where one is to blame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The field, where one is to blame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What is wrong and how to mend it.
    pub message: String,
    /// Whether the persona is left out for it.
    pub severity: Severity,
}

impl PersonaFileProblem {
    /// A problem for which the persona is left out.
    pub fn error(file: &Path, line: Option<usize>, field: Option<&str>, message: String) -> PersonaFileProblem {
        PersonaFileProblem { file: file.into(), line, field: field.map(Into::into), message, severity: Severity::Error }
    }

    /// One for which it is not.
    pub fn warning(file: &Path, line: Option<usize>, field: Option<&str>, message: String) -> PersonaFileProblem {
        PersonaFileProblem { severity: Severity::Warning, ..PersonaFileProblem::error(file, line, field, message) }
    }
}

impl fmt::Display for PersonaFileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        match &self.field {
            Some(field) => write!(f, ": {field} {}", self.message),
            None => write!(f, ": {}", self.message),
        }
    }
}

/// The personas of a project.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Personas {
    /// Those that work, sorted by role.
    pub personas: Vec<PersonaFile>,
    /// Everything that is wrong, in the order of the files.
    pub problems: Vec<PersonaFileProblem>,
}

impl Personas {
    /// The persona that plays `role`.
    pub fn get(&self, role: &str) -> Option<&PersonaFile> {
        let role = role_name(role);
        self.personas.iter().find(|p| p.persona.role == role)
    }

    /// The personas that `persona` may give tasks to, in the order in which it names them.
    pub fn delegates(&self, persona: &PersonaTemplate) -> Vec<PersonaTemplate> {
        persona.may_delegate_to.iter().filter_map(|role| Some(self.get(role)?.persona.clone())).collect()
    }

    /// The persona that plays `role`, and those to whom its tasks and theirs may go.
    pub fn team(&self, role: &str) -> Vec<&PersonaFile> {
        let mut team: Vec<_> = self.get(role).into_iter().collect();
        let mut at = 0;
        while let Some(one) = team.get(at).copied() {
            for file in one.persona.may_delegate_to.iter().filter_map(|role| self.get(role)) {
                if team.iter().all(|known| known.persona.role != file.persona.role) {
                    team.push(file);
                }
            }
            at += 1;
        }
        team
    }

    /// The roles that can be worked, sorted.
    pub fn roles(&self) -> Vec<String> {
        self.personas.iter().map(|p| p.persona.role.clone()).collect()
    }

    /// Why there is no working persona for `role`: the problems of the file that is named after it.
    pub fn errors_of(&self, role: &str) -> Vec<&PersonaFileProblem> {
        let named = |p: &&PersonaFileProblem| {
            p.file.file_stem().is_some_and(|stem| role_name(&stem.to_string_lossy()) == role_name(role))
        };
        self.problems.iter().filter(|p| p.severity == Severity::Error).filter(named).collect()
    }

    /// Takes a persona in, unless somebody plays its role already.
    pub fn admit(&mut self, new: PersonaFile) {
        let role = &new.persona.role;
        if let Some(first) = self.get(role) {
            let message = format!(
                "'{role}' is played by {} already, so this file is left out; give each file its own role",
                first.file.display()
            );
            self.problems.push(PersonaFileProblem::error(&new.file, None, Some("role"), message));
            return;
        }
        if new.file.file_stem().is_some_and(|stem| role_name(&stem.to_string_lossy()) != *role) {
            let message = format!("is '{role}' but the file has another name; rename it to {role}.json");
            self.problems.push(PersonaFileProblem::warning(&new.file, None, Some("role"), message));
        }
        let at = self.personas.partition_point(|p| p.persona.role < *role);
        self.personas.insert(at, new);
    }
}
