//! What agents and people remember: items that outlive the conversation they come from.
//!
//! Nothing is changed or deleted silently. An item that is changed is replaced by a new one, and both know of each other;
//! one that an agent forgets holds no more and can still be read by people. Whatever was saved after its author had read
//! what others wrote is marked, and stays so in all that replaces it until a person says otherwise.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

use crate::annotation::check_tag;
use crate::clock::Millis;
use crate::id::JobId;
use crate::text::{has_too_many, is_default, named};
use meaning::{Meaning, Space};

pub mod block;
pub mod meaning;
pub mod told;
pub mod words;

/// The scope of what every persona remembers. A persona that plays a role of this name shares all of its own.
pub const SHARED: &str = "shared";

/// The author of what people save.
pub const PERSON: &str = "person";

/// What is said of the source of items that left a conversation.
pub const CONVERSATION: &str = "conversation";

/// Most bytes of a saved text. What is longer is a document, and belongs in a file.
pub const MAX_TEXT_BYTES: usize = 16 * 1024;

/// Most bytes of an item's metadata, as JSON.
pub const MAX_METADATA_BYTES: usize = 8 * 1024;

/// Most words an item is tagged with.
pub const MAX_TAGS: usize = 32;

/// Most bytes of a conversation's name.
pub const MAX_THREAD_BYTES: usize = 256;

/// Most items that a search gives.
pub const MAX_FOUND: u32 = 200;

/// An item's number; never used again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct MemoryId(pub i64);

impl fmt::Display for MemoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// For how long, and where, an item is present.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// In front of every run from its beginning: a block.
    Core,
    /// Found by a search: what was saved, and what left a conversation.
    #[default]
    Archival,
}

named!(Tier, "tier": Core = "core", Archival = "archival");

/// Where an item comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Origin {
    /// Who saved it: a persona's role, or `person`.
    pub author: String,
    /// The job it was saved in, while there is that job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// The entry of the job's journal before which it was saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// The tool it was saved with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Whether its author had read what others wrote: then nobody vouches for it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub untrusted: bool,
    /// What that was: names of tools, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// Where in a conversation an item stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Spot {
    /// The conversation.
    pub thread: String,
    /// Its place there; what stands at the places before and after it is its context.
    pub place: i64,
}

/// An item about to be saved.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NewMemory {
    /// Whose it is: a persona's role, or [`SHARED`].
    pub scope: String,
    /// Its tier.
    pub tier: Tier,
    /// What it says.
    pub text: String,
    /// What else is known of it.
    pub metadata: Map<String, Value>,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// Where it comes from.
    pub origin: Origin,
    /// Its place in a conversation, if it has one.
    pub spot: Option<Spot>,
    /// When it was said, where that was not now.
    pub at: Option<Millis>,
    /// The key of the call that saves it: the same call saves it once.
    pub effect_key: Option<String>,
}

/// What is to be changed of an item.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Revision {
    /// What it says from now on.
    pub text: Option<String>,
    /// The words it is found by from now on.
    pub tags: Option<Vec<String>>,
    /// What else is known of it from now on.
    pub metadata: Option<Map<String, Value>>,
    /// Who changes it, and what they have read.
    pub origin: Origin,
    /// The key of the call that changes it: the same call changes it once.
    pub effect_key: Option<String>,
}

/// What became of an item that was to be saved or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Became {
    /// It was saved under this number.
    Saved,
    /// The same is known under this number.
    Known,
    /// This call has saved it before.
    Again,
}

/// An item that was to be saved or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Remembered {
    /// Its number.
    pub id: MemoryId,
    /// What became of it.
    pub became: Became,
}

/// A saved item.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct MemoryItem {
    /// Its number.
    pub id: MemoryId,
    /// Whose it is: a persona's role, or `shared`.
    pub scope: String,
    /// Its tier.
    pub tier: Tier,
    /// What it says; empty once a person had it forgotten.
    pub text: String,
    /// What else is known of it.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// Where it comes from.
    #[serde(flatten)]
    pub origin: Origin,
    /// Its place in a conversation.
    #[serde(flatten)]
    pub spot: Option<Spot>,
    /// 1 for what was saved, and one more with every change.
    pub version: u32,
    /// The item that it replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supersedes: Option<MemoryId>,
    /// The item that replaced it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<MemoryId>,
    /// When it was saved, or said.
    pub created_at: Millis,
    /// Since when it does not hold any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Millis>,
    /// Why it was forgotten.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The model that made its vector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How many numbers that vector has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dimension: Option<u32>,
}

/// Which items. Without anything, all that hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryFilter {
    /// Of one of these scopes.
    pub scopes: Option<Vec<String>>,
    /// With all of these tags.
    pub tags: Vec<String>,
    /// Saved by this persona, or by [`PERSON`].
    pub author: Option<String>,
    /// Saved in this job.
    pub job: Option<JobId>,
    /// Saved with this tool.
    pub tool: Option<String>,
    /// Whose author had read this: the name of a tool.
    pub source: Option<String>,
    /// Of this conversation.
    pub thread: Option<String>,
    /// Whether nobody vouches for it.
    pub untrusted: Option<bool>,
    /// Of this tier.
    pub tier: Option<Tier>,
    /// Saved or said then or later.
    pub since: Option<Millis>,
    /// Saved or said before then.
    pub until: Option<Millis>,
    /// Also those that were replaced or forgotten.
    pub ended: bool,
}

impl MemoryFilter {
    /// Whether anything is asked for, so that it is not about all items.
    pub fn is_about_some(&self) -> bool {
        *self != MemoryFilter { ended: self.ended, ..MemoryFilter::default() }
    }

    /// Whether nothing is asked of items that hold but that they are of these scopes.
    pub fn is_of_scopes_alone(&self) -> bool {
        *self == MemoryFilter { scopes: self.scopes.clone(), ended: self.ended, ..MemoryFilter::default() }
    }
}

/// What is searched for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MemorySearch {
    /// In any words; a question will do.
    pub text: String,
    /// What it means, where that is known. Without it items are found by their words alone.
    pub meaning: Option<Meaning>,
    /// Among these; those that were replaced or forgotten are never found.
    pub filter: MemoryFilter,
    /// At most so many, of [`MAX_FOUND`].
    pub limit: u32,
}

/// What a search found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct MemoryFound {
    /// The best first.
    pub items: Vec<Hit>,
    /// The words that were searched for.
    pub words: Vec<String>,
    /// Words of the question that are in every other sentence, and were left out.
    pub left_out: Vec<String>,
    /// Words of the question beyond the most that are searched for.
    pub too_many: usize,
    /// Whether there was no word to search for, so that these are the newest.
    pub newest: bool,
    /// Items that were not looked at, because texts are sealed and no more of them are held in memory.
    pub not_loaded: u64,
    /// What part meaning took in it.
    pub meaning: ByMeaning,
}

/// What part meaning took in a search.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct ByMeaning {
    /// The model whose vectors were compared; absent where words alone were searched for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Why words alone were searched for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
    /// How much meaning counts beside words, of 1.
    pub weight: f64,
    /// Items of all scopes that have no vector of the model yet, or none that is held in memory: they are found by their
    /// words alone.
    pub words_alone: u64,
}

/// An item that a search found.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Hit {
    /// The item.
    #[serde(flatten)]
    pub item: MemoryItem,
    /// How well it fits, beside others of the same search alone: more is better.
    pub score: f64,
    /// How well its words and those beside it fit (BM25), if they are among the best.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bm25: Option<f64>,
    /// How alike its meaning is (a cosine), if it is among the most alike.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub likeness: Option<f64>,
    /// The words searched for that stand in it.
    pub words: Vec<String>,
    /// Those that stand beside it in its conversation alone.
    pub around: Vec<String>,
}

/// How items are to be forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forgetting {
    /// Why, in words.
    pub reason: String,
    /// Whether their texts go too, with those of the items that they replaced: what people forget is gone.
    pub erase: bool,
}

/// How the indexes stand beside the items, in numbers of items.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MemoryStanding {
    /// Items that hold.
    pub items: u64,
    /// Those of which no word can be found, and ought to be.
    pub without_words: u64,
    /// Words of what does not hold any more, or must not stand in the clear.
    pub stray_words: u64,
    /// The model whose vectors are compared, once there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub space: Option<Space>,
    /// Items that have no vector of that model yet. They are found by their words.
    pub without_vector: u64,
    /// Those that have one which is not in the index, and ought to be.
    pub unindexed_vectors: u64,
    /// Vectors in the index of what does not hold any more, has none, or must not stand in the clear.
    pub stray_vectors: u64,
}

/// The model whose vectors a database compares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChosenSpace {
    /// Where they lie.
    pub space: Space,
    /// When the latest process began that chose it.
    pub chosen_at: Millis,
    /// While vectors that were there before are put into the index: the last item that was looked at.
    pub filled_through: Option<MemoryId>,
}

impl ChosenSpace {
    /// Whether a process that began then has another model take its place: the one that began later knows the newer
    /// settings.
    pub fn yields_to(&self, space: &Space, began: Option<Millis>) -> bool {
        self.space != *space && began.is_some_and(|began| began > self.chosen_at)
    }
}

/// An item of which a vector is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToEmbed {
    /// Its number.
    pub id: MemoryId,
    /// What it says; none where that is sealed and no key here opens it.
    pub text: Option<String>,
}

/// A text in a form in which the same is the same: small letters, single spaces, no marks at its end.
pub fn normalised(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().map(str::to_lowercase).collect();
    words.join(" ").trim_end_matches(['.', '!', ' ']).to_owned()
}

/// Whether these can be an item's text, tags, metadata and place; if not, which cannot, and why.
pub fn check(new: &NewMemory) -> Result<(), (&'static str, String)> {
    check_text(&new.text).map_err(|why| ("text", why))?;
    check_tags(&new.tags).map_err(|why| ("tags", why))?;
    check_metadata(&new.metadata).map_err(|why| ("metadata", why))?;
    match &new.spot {
        Some(spot) if spot.thread.trim().is_empty() || spot.thread.len() > MAX_THREAD_BYTES => {
            Err(("thread", format!("must be 1 to {MAX_THREAD_BYTES} bytes")))
        }
        _ => Ok(()),
    }
}

/// Whether a text can be an item's, and if not, why.
pub fn check_text(text: &str) -> Result<(), String> {
    match text.len() {
        _ if text.trim().is_empty() => Err("must not be empty".into()),
        _ if text.contains('\0') => Err("must have no NUL in it".into()),
        n if n > MAX_TEXT_BYTES => {
            Err(format!("{}; save what matters of it, or keep it in a file", has_too_many(n, "byte", MAX_TEXT_BYTES)))
        }
        _ => Ok(()),
    }
}

/// Whether words can be an item's tags, and if not, why.
pub fn check_tags(tags: &[String]) -> Result<(), String> {
    if tags.len() > MAX_TAGS {
        return Err(format!("must be no more than {MAX_TAGS}"));
    }
    tags.iter().try_for_each(|tag| check_tag(tag).map_err(|why| format!("each {why}")))
}

/// Whether this can be an item's metadata, and if not, why.
pub fn check_metadata(metadata: &Map<String, Value>) -> Result<(), String> {
    match serde_json::to_string(metadata).map_or(usize::MAX, |json| json.len()) {
        n if n > MAX_METADATA_BYTES => Err(has_too_many(n, "byte", MAX_METADATA_BYTES)),
        _ => Ok(()),
    }
}
