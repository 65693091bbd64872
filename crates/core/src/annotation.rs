//! Remarks that agents and people attach to jobs.

use crate::clock::Millis;
use crate::id::JobId;
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Most bytes of a remark.
pub const MAX_TEXT_BYTES: usize = 64 * 1024;

/// Most bytes of a remark's tag.
pub const MAX_TAG_BYTES: usize = 128;

/// Most tags of a remark that is tagged later.
pub const MAX_TAGS: usize = 16;

/// The tag of a remark that says what a job asks people.
pub const CLARIFICATION_NEEDED: &str = "clarification_needed";

/// Remarks whose texts are searched for words, the newest that fit the rest of a filter; older ones are not found.
pub const SEARCHED_AT_MOST: u32 = 20_000;

/// Whether a text can be a remark, whoever makes it, and if not, why.
pub fn check_text(text: &str) -> Result<(), String> {
    match text.trim().is_empty() || text.len() > MAX_TEXT_BYTES || text.contains('\0') {
        true => Err(format!("must be text of 1 to {MAX_TEXT_BYTES} bytes, without NUL")),
        false => Ok(()),
    }
}

/// Whether a word can be a remark's tag, and if not, why.
pub fn check_tag(tag: &str) -> Result<(), String> {
    match tag.trim().is_empty() || tag.len() > MAX_TAG_BYTES || tag.chars().any(char::is_control) {
        true => Err(format!("must be 1 to {MAX_TAG_BYTES} bytes without control characters")),
        false => Ok(()),
    }
}

/// A remark about to be saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NewAnnotation {
    /// What it says; never empty.
    pub text: String,
    /// Words to find it by, `clarification_needed` for instance.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

impl NewAnnotation {
    /// The remark that a job waits for answers to these questions.
    pub fn clarification(job: JobId, questions: &[String]) -> NewAnnotation {
        NewAnnotation { text: questions.join("\n"), tags: vec![CLARIFICATION_NEEDED.into(), format!("job:{job}")] }
    }
}

/// A saved remark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Annotation {
    /// Its number.
    pub id: i64,
    /// The job it is about.
    pub job: JobId,
    /// Who wrote it: a persona's role, or `person`.
    pub author: String,
    /// What it says.
    pub text: String,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// When it was saved.
    pub created_at: Millis,
}

/// Which remarks to find: newest first, or by words the nearest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AnnotationFilter {
    /// Only this one.
    pub id: Option<i64>,
    /// Only about this job.
    pub job: Option<JobId>,
    /// Only by this author.
    pub author: Option<String>,
    /// Only with all of these tags.
    pub tags: Vec<String>,
    /// Only with at least one of these words in text or tags ([`words_of`]); those with most of them come first. See
    /// [`SEARCHED_AT_MOST`].
    pub words: Vec<String>,
    /// Only with numbers below this one: the way to the next page.
    pub before: Option<i64>,
    /// At most so many.
    pub limit: u32,
}

/// How the tags of a remark that is there are to change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tagging {
    /// Those that it has then too.
    pub add: Vec<String>,
    /// Those that it has no more.
    pub remove: Vec<String>,
}

impl Tagging {
    /// The tags that a remark with these has then; why not, where there would be too many or one cannot be a tag.
    pub fn of(&self, tags: &[String]) -> Result<Vec<String>, String> {
        self.add.iter().try_for_each(|tag| check_tag(tag).map_err(|why| format!("a tag {why}")))?;
        let mut all: Vec<String> = tags.iter().filter(|tag| !self.remove.contains(tag)).cloned().collect();
        for tag in &self.add {
            if !all.contains(tag) {
                all.push(tag.clone());
            }
        }
        // One that was made with more may lose some.
        match all.len() > MAX_TAGS && all.len() > tags.len() {
            true => Err(format!("it would have more tags than {MAX_TAGS}, the limit")),
            false => Ok(all),
        }
    }
}

/// Remarks that are there, for a tool that looks for some.
#[async_trait]
pub trait Remarks: Send + Sync {
    /// Adds tags to a remark, and gives it as it is then; none where there is none of that number. Or why not, in words.
    async fn tag(&self, id: i64, add: Vec<String>) -> Result<Option<Annotation>, String>;

    /// Those that fit; or why they cannot be read, in words.
    async fn find(&self, filter: AnnotationFilter) -> Result<Vec<Annotation>, String>;
}

/// The words of a text, in small letters, each once and in its order; punctuation is no part of any.
pub fn words_of(text: &str) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase);
    words.filter(|word| seen.insert(word.clone())).collect()
}

impl Annotation {
    /// How many of these words stand in its text or its tags, alone or as the beginning of a longer one.
    pub fn has_of(&self, words: &[String]) -> usize {
        let texts = std::iter::once(&self.text).chain(&self.tags);
        let own: BTreeSet<String> = texts.flat_map(|text| words_of(text)).collect();
        let begins = |word: &&String| own.range(word.to_string()..).next().is_some_and(|one| one.starts_with(*word));
        words.iter().filter(begins).count()
    }
}
