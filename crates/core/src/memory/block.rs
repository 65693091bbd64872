//! Core blocks: short texts that runs have before them from their first request on.
//!
//! A block is an item of the tier `core` at a place of its own, so each change of it is a version that can be read and
//! brought back. Nothing that others wrote comes into one by itself: a run that has read such changes none.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::Serialize;

use super::{Became, MemoryItem, NewMemory, Origin, SHARED, Tier};
use crate::text::{count, has_too_many, plural, quoted};

/// The tool that changes a block.
pub const CORE_MEMORY_EDIT: &str = "core_memory_edit";

/// The block with what is known of the people who are worked for: one for all personas.
pub const PROFILE: &str = "profile";

/// The block with what a persona is to keep in mind: one for each.
pub const NOTES: &str = "notes";

/// Most bytes of a block: all of them are read with every request.
pub const MAX_BYTES: usize = 2000;

/// Most blocks of a scope, beside the one that is always there.
pub const MAX_BLOCKS: usize = 5;

/// Most bytes of a block's name.
const MAX_NAME_BYTES: usize = 32;

/// Stands before a block's name where items have the name of their conversation.
const THREAD: &str = "block ";

/// A block as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Block {
    /// Whose it is: a persona's role, or `shared`.
    pub scope: String,
    /// What it is called.
    pub name: String,
    /// What it says; may be empty.
    pub text: String,
    /// How often it was changed.
    pub version: u32,
}

/// What is to become of a block's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// These lines are added at its end.
    Add(String),
    /// The first place that has the one text has the other one from now on.
    Replace(String, String),
    /// This is all that it says.
    Rewrite(String),
}

/// A change of a block, and who makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockEdit {
    /// What is to become of it.
    pub change: Change,
    /// Who changes it, and what they have read.
    pub origin: Origin,
    /// The key of the call that changes it: the same call changes it once.
    pub effect_key: Option<String>,
}

/// What came of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BlockEdited {
    /// The block as it is then.
    #[serde(flatten)]
    pub block: Block,
    /// What became of the change: a block that says so already has no new version.
    pub became: Became,
    /// Its oldest lines, which it had no room for any more.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub left_out: String,
}

impl Change {
    /// What a block says then, and what of it had no room; none where the text to be replaced is not there.
    pub fn of(&self, text: &str) -> Option<(String, String)> {
        let whole = match self {
            Change::Add(new) => [text.trim_end(), new.trim()].join("\n"),
            Change::Replace(old, new) if text.contains(old.as_str()) => text.replacen(old.as_str(), new, 1),
            Change::Replace(..) => return None,
            Change::Rewrite(new) => new.clone(),
        };
        Some(within(whole.trim()))
    }
}

/// A text that fits a block, of too long a one the end, in whole lines unless the last one is too long itself; and what
/// stood before that.
fn within(text: &str) -> (String, String) {
    let over = text.len().saturating_sub(MAX_BYTES);
    if over == 0 {
        return (text.to_owned(), String::new());
    }
    let line = text.bytes().skip(over - 1).position(|byte| byte == b'\n').map(|at| over + at);
    let from = line.unwrap_or_else(|| text.ceil_char_boundary(over));
    (text[from..].to_owned(), text[..from].trim_end().to_owned())
}

/// Where among the items a block stands: the name of its conversation.
pub fn thread(name: &str) -> String {
    format!("{THREAD}{name}")
}

/// The name of the block that an item is a version of, where it is one.
pub fn name_of(item: &MemoryItem) -> Option<&str> {
    let spot = item.spot.as_ref().filter(|_| item.tier == Tier::Core);
    spot.and_then(|spot| spot.thread.strip_prefix(THREAD))
}

/// Whether a word can be a block's name, and if not, why.
pub fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    match name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(fits) {
        true => Err(format!("must be 1 to {MAX_NAME_BYTES} small letters, digits, '_' and '-'")),
        false => Ok(()),
    }
}

/// Whether an item has what makes it a version of a block where it says that it is one, and not where it does not; if
/// not, why.
pub fn check(new: &NewMemory) -> Result<(), String> {
    let name = new.spot.as_ref().and_then(|spot| spot.thread.strip_prefix(THREAD));
    match (new.tier, name) {
        (Tier::Archival, None) => Ok(()),
        (Tier::Archival, Some(_)) => Err(format!("has a thread that only items of the tier {} have", Tier::Core)),
        (Tier::Core, None) => Err(format!("of the tier {} must have the thread \"{THREAD}NAME\"", Tier::Core)),
        (Tier::Core, Some(_)) if new.text.len() > MAX_BYTES => Err(has_too_many(new.text.len(), "byte", MAX_BYTES)),
        (Tier::Core, Some(_)) if new.origin.untrusted => {
            Err(format!("of the tier {} must have somebody who vouches for it", Tier::Core))
        }
        (Tier::Core, Some(name)) => check_name(name).map_err(|why| format!("has a block's name that {why}")),
    }
}

/// Whose block an agent means by a name: the profile is everybody's, and others are its own.
pub fn scope_of<'a>(name: &str, role: &'a str) -> &'a str {
    if name == PROFILE { SHARED } else { role }
}

/// The blocks that are always there, of everybody's or of a persona's.
pub fn is_standing(scope: &str, name: &str) -> bool {
    matches!((scope == SHARED, name), (true, PROFILE) | (false, NOTES))
}

/// What a run is told of its blocks, in the order of their names, those of everybody first; none where there is nothing to
/// be told. Who edits them is told of those that are always there, even where they are empty.
pub fn told(blocks: &[Block], role: &str, edits: bool) -> Option<String> {
    let standing = [(SHARED, PROFILE), (role, NOTES)];
    let there = |scope: &str, name: &str| blocks.iter().any(|block| block.scope == scope && block.name == name);
    let missing = standing.into_iter().filter(|(scope, name)| edits && !there(scope, name));
    let missing = missing.map(|(scope, name)| Block { scope: scope.into(), name: name.into(), ..Block::default() });
    let mut all: Vec<_> =
        blocks.iter().filter(|block| edits || !block.text.is_empty()).cloned().chain(missing).collect();
    all.sort_by_key(|block| (block.scope != SHARED, block.name.clone()));
    if all.is_empty() {
        return None;
    }
    let mut out = String::from(
        "# What you keep in mind\nEach line behind \"|\" was written by people, or by agents in work for which they had read \
         nothing of others. Go by it unless your task says otherwise.\n",
    );
    if edits {
        let _ = writeln!(
            out,
            "{CORE_MEMORY_EDIT} changes a block, and you see that from your next task on. A block has room for {}.",
            plural(MAX_BYTES as u64, "byte")
        );
    }
    for Block { scope, name, text, .. } in all {
        let of = match (scope == SHARED, name.as_str()) {
            (true, PROFILE) => "profile: the people you work for",
            (false, NOTES) => "notes: your own",
            (_, name) => name,
        };
        let _ = writeln!(out, "\n## {of}\n{}", if text.is_empty() { "(nothing yet)".into() } else { quoted(&text) });
    }
    Some(out)
}

/// What an agent is told of a change that it made.
pub fn edited(BlockEdited { block, became, left_out }: &BlockEdited) -> String {
    let room = MAX_BYTES.saturating_sub(block.text.len());
    let (has, left) = (plural(block.text.len() as u64, "byte"), count(room as u64));
    let mut told = match became {
        Became::Known => format!("The block {} says so already: {has}, {left} left.", block.name),
        Became::Saved | Became::Again => {
            format!("The block {} is now version {}: {has}, {left} left.", block.name, block.version)
        }
    };
    if !left_out.is_empty() {
        let _ = write!(
            told,
            " It has room for {}, so its oldest lines are in it no more. Save what matters of them with memory_save:\n{}",
            plural(MAX_BYTES as u64, "byte"),
            quoted(left_out)
        );
    }
    told
}
