//! Rows of what is remembered, and the index of its words.

use crate::clock::Millis;
use crate::id::{JobId, SessionId};
use crate::memory::{MemoryFilter, MemoryId, MemoryStanding};
use crate::store::Done;
use crate::store::seal::Sealed;

/// Rows of what is remembered, and the index of its words.
pub trait MemoryRows {
    /// Rows like these in memory alone, with none in them.
    fn in_memory() -> Done<Self>
    where
        Self: Sized;
    /// Items. In no order unless one is named.
    fn memory(&mut self, of: MemoryOf<'_>) -> Done<Vec<MemoryRow>>;
    /// Stores an item, under its number where it has one, and gives its number.
    fn insert_memory(&mut self, row: &MemoryRow) -> Done<MemoryId>;
    /// Stores how an item ended.
    fn end_memory(&mut self, id: MemoryId, end: &MemoryEnd) -> Done<()>;
    /// Stores what an item is known by.
    fn print_memory(&mut self, id: MemoryId, fingerprint: &[u8]) -> Done<()>;
    /// Deletes what left the conversations of a session's jobs.
    fn drop_archived(&mut self, of: SessionId) -> Done<()>;
    /// Deletes all that ever had a place of these, the first to the last, in a conversation of a scope.
    fn drop_thread(&mut self, scope: &str, thread: &str, places: (i64, i64)) -> Done<()>;
    /// The highest revision that an item has.
    fn last_memory_revision(&mut self) -> Done<i64>;
    /// Stores the words of an item and those beside it, in the place of those it had.
    fn index_words(&mut self, id: MemoryId, content: &str, around: &str) -> Done<()>;
    /// Deletes the words of an item.
    fn drop_words(&mut self, id: MemoryId) -> Done<()>;
    /// Deletes all words.
    fn drop_all_words(&mut self) -> Done<()>;
    /// The items that hold, fit and have what the expression asks for, at most so many, the best first; with a score of
    /// which more is better.
    fn find_words(&mut self, expression: &str, among: &MemoryFilter, most: u32) -> Done<Vec<(MemoryId, f64)>>;
    /// Those of the items of whose words in that column the expression is true.
    fn have_words(&mut self, column: WordsIn, expression: &str, ids: &[MemoryId]) -> Done<Vec<MemoryId>>;
    /// How the index stands where each item's words ought to be in it, or, in a sealed database, none.
    fn memory_standing(&mut self, sealed: bool) -> Done<MemoryStanding>;
}

/// Which words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WordsIn {
    /// An item's own.
    Content,
    /// Those beside it.
    Around,
}

/// Which items.
#[derive(Debug, Clone, Copy)]
pub enum MemoryOf<'a> {
    /// Those of these numbers.
    Ids(&'a [MemoryId]),
    /// The one that this call saved.
    Effect(&'a str),
    /// That of a scope that holds and has one of these fingerprints.
    Same(&'a str, &'a [Vec<u8>]),
    /// That of a scope that holds and has this place in a conversation.
    Spot(&'a str, &'a str, i64),
    /// All that ever had a place of these, the first to the last, in a conversation of a scope, those that hold no more too;
    /// by place, and of one place the newest last.
    Thread(&'a str, &'a str, (i64, i64)),
    /// Those of the tier `core` that hold, of these scopes or of all; by scope and conversation.
    Core(Option<&'a [String]>),
    /// The nearest one before that place, and the nearest one after it.
    Beside(&'a str, &'a str, i64),
    /// What left the conversation of a job, in the order of entries.
    Archived(JobId),
    /// Those that fit, with smaller numbers than this, newest first, at most so many.
    Listed(&'a MemoryFilter, i64, u32),
    /// Those with higher numbers than this, by number, at most so many.
    After(i64, u32),
    /// Those with a higher revision than this, by revision, at most so many.
    Revised(i64, u32),
}

/// An item.
#[derive(Debug, Clone, Default)]
pub struct MemoryRow {
    /// Its number; 0 before it is stored.
    pub id: i64,
    /// Whose it is.
    pub scope: String,
    /// Its tier's name.
    pub tier: String,
    /// What it says.
    pub content: Sealed,
    /// What else is known of it, as JSON.
    pub metadata: Option<Sealed>,
    /// A list as JSON.
    pub tags: String,
    /// The job it comes from.
    pub job: Option<JobId>,
    /// What its seals are bound to beside the time.
    pub seq: Option<i64>,
    /// The entry before which it was saved.
    pub step: Option<i64>,
    /// Who saved it.
    pub author: String,
    /// With which tool.
    pub tool: Option<String>,
    /// Whether nobody vouches for it.
    pub untrusted: bool,
    /// What its author had read.
    pub source: Option<String>,
    /// Its conversation and its place there.
    pub spot: Option<(String, i64)>,
    /// What it is known by.
    pub fingerprint: Option<Vec<u8>>,
    /// The call that saved it.
    pub effect_key: Option<String>,
    /// How often it was changed, from 1.
    pub version: i64,
    /// What it replaced.
    pub supersedes: Option<i64>,
    /// What replaced it.
    pub superseded_by: Option<i64>,
    /// Since when it does not hold.
    pub ended_at: Option<Millis>,
    /// Why it was forgotten.
    pub reason: Option<Sealed>,
    /// Rises with every change of any item.
    pub revision: i64,
    /// When it was saved or said.
    pub created_at: Millis,
    /// The model that made its vector.
    pub model: Option<String>,
    /// How many numbers that has.
    pub dimension: Option<i64>,
}

/// How an item ends.
#[derive(Debug, Clone, Default)]
pub struct MemoryEnd {
    /// What replaced it.
    pub superseded_by: Option<MemoryId>,
    /// Since when it does not hold.
    pub at: Millis,
    /// Why it was forgotten.
    pub reason: Option<Sealed>,
    /// What its text is from now on, where it is erased, with all that follows from it.
    pub erased: Option<Sealed>,
    /// Its new revision.
    pub revision: i64,
}
