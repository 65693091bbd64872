//! How people are told what is wrong with files that describe personas and skills.

use std::fmt::Display;
use std::path::Path;

use posse_core::persona::{PersonaTemplate, Personas, Severity};
use posse_core::skill::Skills;

use crate::output::text::visible;
use crate::output::{Out, Paint};

/// Says what is wrong with one, or how it was read.
pub fn warn_of(out: &Out, severity: Severity, problem: impl Display) {
    match severity {
        Severity::Error => out.warn(format!("{problem} (left out)")),
        Severity::Warning => out.warn(problem.to_string()),
        Severity::Note => out.hint(format!("note: {}", visible(&problem.to_string()))),
    }
}

pub fn warn_of_personas(out: &Out, personas: &Personas) {
    personas.problems.iter().for_each(|problem| warn_of(out, problem.severity, problem));
}

pub fn warn_of_skills(out: &Out, skills: &Skills) {
    skills.problems.iter().for_each(|found| warn_of(out, found.problem.severity, found));
}

/// Says what is wrong with the skills of one persona.
pub fn warn_of_skills_of(out: &Out, skills: &Skills, persona: &PersonaTemplate) {
    let named = skills.resolve(&persona.skills).unwrap_or_default();
    let is_meant = |file: &Path| named.iter().any(|skill| skill.source.file == file);
    let meant = skills.problems.iter().filter(|found| is_meant(&found.file));
    meant.for_each(|found| warn_of(out, found.problem.severity, found));
}

/// What stands before a problem where all are listed.
pub fn mark(paint: Paint, severity: Severity) -> String {
    match severity {
        Severity::Error => paint.red("✗"),
        Severity::Warning => paint.yellow("!"),
        Severity::Note => paint.dim("·"),
    }
}
