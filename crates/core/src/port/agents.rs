//! Where what agents are made of is kept: personas and skills.

use std::path::{Path, PathBuf};

use crate::persona::{PersonaTemplate, Personas};
use crate::skill::Skills;

/// Where personas are kept. Everything here blocks.
pub trait PersonaRepository: Send + Sync {
    /// All of them as they are now, with what is wrong with others. The error, in words with the way out, is that they
    /// cannot be looked at.
    fn personas(&self) -> Result<Personas, String>;

    /// Whether what is kept as `file` can be changed here; what is built in cannot.
    fn keeps(&self, file: &Path) -> bool;

    /// Where a persona of that role would be kept, and whether there is something already.
    fn place(&self, role: &str) -> (PathBuf, bool);

    /// Keeps a new one at its place. The error is in words.
    fn add(&self, persona: &PersonaTemplate) -> Result<(), String>;

    /// The line of `file` that has `name` between quotation marks.
    fn line_with(&self, file: &Path, name: &str) -> Option<usize>;

    /// Another number once what is kept may be another.
    fn stamp(&self) -> u64;
}

/// Where skills are kept. Everything here blocks.
pub trait SkillRepository: Send + Sync {
    /// All of them as they are now, with what is wrong with others.
    fn skills(&self) -> Skills;

    /// Another number once what is kept may be another.
    fn stamp(&self) -> u64;
}
