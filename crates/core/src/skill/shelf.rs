//! More skills than a request has room for: as many are told as fit, and the rest is found by words.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::OfferedSkill;
use super::{CALLING, Skill, arguments_of, listed};
use crate::text::{count, plural};
use crate::tool::{EffectClass, OfferedTool, ToolError, ToolErrorCategory, ToolSpec, Writes};

/// The tool that finds skills which are not told of.
pub const FIND_SKILLS: &str = "find_skills";

/// Most skills that one call finds.
const FOUND_AT_ONCE: usize = 5;

/// Most names that are told where nothing was found.
const NAMES_TOLD: usize = 40;

/// The part of the window that skills may take: a quarter. They are part of each request of a run.
const SHARE: u32 = 4;

/// Tokens that they may take at most, in the largest window too.
const MOST_TOKENS: u32 = 16 * 1024;

/// The window where it is not known.
const UNKNOWN_WINDOW: u32 = 32 * 1024;

/// A token of text has at least so many bytes on average.
const BYTES_OF_TOKEN: u32 = 3;

/// Most bytes of each request that go to skills, where the model has this window.
pub fn most_bytes(window: Option<u32>) -> usize {
    ((window.unwrap_or(UNKNOWN_WINDOW) / SHARE).min(MOST_TOKENS) * BYTES_OF_TOKEN) as usize
}

/// What an agent is told of its skills.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// Names and descriptions of those that are told; none where there are no skills.
    pub message: Option<String>,
    /// Names of those that are not.
    pub left_out: Vec<String>,
}

/// What an agent is told of its skills, the first ones first, in about `most` bytes with how to call them.
pub fn told_within(skills: &[Skill], most: usize) -> Told {
    let mut room = most;
    let (mut shown, mut left_out) = (Vec::new(), Vec::new());
    for skill in skills {
        match room.checked_sub(weight(skill)) {
            Some(left) if left_out.is_empty() => {
                room = left;
                shown.push(skill);
            }
            _ => left_out.push(skill.name.clone()),
        }
    }
    let more = match left_out.len() as u64 {
        0 => String::new(),
        more => format!(
            "\n{} not told of here. When none of these fits the task, find others with `{FIND_SKILLS}`: those it finds can be \
             called from then on.\n",
            if more == 1 { "1 more skill is".into() } else { plural(more, "more skill") + " are" }
        ),
    };
    let is_any = !skills.is_empty();
    let list = listed(&shown).unwrap_or_default();
    Told { message: is_any.then(|| format!("# Skills you may call\n{CALLING}{list}{more}")), left_out }
}

/// Roughly the bytes of each request that go to a skill which is told of: its line, and how it is called.
pub fn weight(skill: &Skill) -> usize {
    let line = skill.tool_name().len() + skill.shown_description().len() + 5;
    line + serde_json::to_string(&skill.spec()).map_or(0, |spec| spec.len())
}

/// What a call of [`FIND_SKILLS`] asks for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FindSkills {
    /// Words of what is to be done, such as "tide table harbour".
    words: String,
}

/// The tool, as it is offered.
pub fn finder() -> OfferedTool {
    let parameters = arguments_of::<FindSkills>();
    let description =
        "Finds skills that are not told of, by words of what is to be done. Those it finds can be called from \
                       then on."
            .to_owned();
    OfferedTool {
        spec: ToolSpec { name: FIND_SKILLS.to_owned(), description, parameters },
        effect: EffectClass::Pure,
        writes: Writes::Nothing,
        own_words: false,
    }
}

/// Whether a call of `name` is one of ours in a run that has these tools, and not of a tool of that name of somebody else's.
pub fn finds(tools: &[OfferedTool], name: &str) -> bool {
    name == FIND_SKILLS && tools.contains(&finder())
}

/// The skills that a call with these arguments finds, of those that are not told of: the best first.
pub fn find<'a>(skills: &'a [OfferedSkill], arguments: &str) -> Vec<&'a OfferedSkill> {
    let Ok(FindSkills { words }) = serde_json::from_str(arguments) else { return Vec::new() };
    let left_out = skills.iter().filter(|skill| skill.unlisted);
    let mut scored: Vec<_> =
        left_out.map(|skill| (0, skill, [words_of(&skill.spec.name), words_of(&skill.spec.description)])).collect();
    for word in words_of(&words) {
        let parts = |texts: &[Vec<String>; 2]| {
            let [name, description] =
                texts.each_ref().map(|text| u64::from(text.iter().any(|one| is_like(one, &word))));
            3 * name + description
        };
        // The fewer have a word, the more it tells.
        let having = scored.iter().filter(|(.., texts)| parts(texts) > 0).count() as u64;
        for (score, _, texts) in &mut scored {
            *score += parts(texts) * 1_000_000 / having.max(1);
        }
    }
    let best = scored.iter().map(|(score, ..)| *score).max().unwrap_or(0);
    scored.retain(|(score, ..)| *score > 0 && score * 4 >= best);
    // By name where they are equal, as they are sorted already.
    scored.sort_by_key(|(score, ..)| std::cmp::Reverse(*score));
    scored.into_iter().take(FOUND_AT_ONCE).map(|(_, skill, _)| skill).collect()
}

/// What the model is told of a search.
pub fn answer(skills: &[OfferedSkill], arguments: &Value) -> Result<String, ToolError> {
    if let Err(error) = serde_json::from_value::<FindSkills>(arguments.clone()) {
        let message = format!("the arguments do not fit: {error}");
        return Err(ToolError::new(ToolErrorCategory::InvalidArguments, message));
    }
    let found = find(skills, &arguments.to_string());
    let mut out = String::new();
    if !found.is_empty() {
        out.push_str("These can be called now:\n");
        for skill in found {
            let _ = writeln!(out, "- {}: {}", skill.spec.name, skill.spec.description);
        }
        return Ok(out.trim_end().to_owned());
    }
    let all: Vec<_> = skills.iter().filter(|skill| skill.unlisted).map(|skill| skill.spec.name.as_str()).collect();
    let names = all[..all.len().min(NAMES_TOLD)].join(", ");
    let more = match all.len().saturating_sub(NAMES_TOLD) as u64 {
        0 => String::new(),
        more => format!(", and {} more", count(more)),
    };
    Ok(format!("No skill has any of these words in its name or description. There are {names}{more}."))
}

/// The words of a text that can tell things apart, in small letters.
fn words_of(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| word.chars().count() > 2);
    let mut words: Vec<_> = words.map(str::to_lowercase).collect();
    words.sort_unstable();
    words.dedup();
    words
}

/// Whether two words are the same but for an ending: `tide` and `tides`, `table` and `tables`.
fn is_like(one: &str, other: &str) -> bool {
    let (short, long) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    long.starts_with(short) && long.chars().count() - short.chars().count() <= 3
}
