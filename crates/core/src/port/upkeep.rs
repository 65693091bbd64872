//! The care of what a store is kept in: copies, damage, seals, space. What else there is to a database than what is
//! stored in it.

use std::path::{Path, PathBuf};

use async_trait::async_trait;

use super::Result;

/// A copy that was made and looked through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// Where it is.
    pub path: PathBuf,
    /// Its size on disk.
    pub bytes: u64,
}

/// What became of values that were to be sealed anew.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resealed {
    /// Values that were written anew.
    pub values: u64,
    /// Values that could not be opened, and were left as they are.
    pub closed: u64,
    /// What is wrong with the first of those.
    pub first_closed: Option<String>,
}

/// How far a database's schema is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaSteps {
    /// The last step it has, if it has any.
    pub last: Option<String>,
    /// Whether it has every step of this version.
    pub is_current: bool,
}

/// A database without its free space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compacted {
    /// Its size before, in bytes.
    pub before: u64,
    /// Its size now.
    pub after: u64,
    /// What is left of the log beside it, because somebody still reads: it has what was there before.
    pub log_bytes: u64,
}

/// A backup that was put in a database's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// Where what was there before is kept; none if nothing was.
    pub kept: Option<PathBuf>,
    /// Its schema.
    pub schema: String,
    /// Jobs that a worker had in hand when the backup was made, and that wait now.
    pub given_back: usize,
}

/// The care of a database that is open.
#[async_trait]
pub trait Upkeep: Send + Sync {
    /// What is damaged, in words; each index is compared with its table too where it is to be `full`.
    async fn check(&self, full: bool) -> Result<Vec<String>>;

    /// Copies it to `to` as it is at one moment, while others work on, and looks the copy through. Fails if there is
    /// something at `to`.
    async fn backup(&self, to: &Path) -> Result<Backup>;

    /// The id of the key that texts are sealed with, if they are.
    async fn sealed_with(&self) -> Result<Option<String>>;

    /// Seals every value with the key that seals, or, `in_the_clear`, stores all as they are; and tells `progress` of each
    /// place and the values written so far. Nobody else should write.
    async fn reseal(
        &self,
        in_the_clear: bool,
        progress: &mut (dyn for<'a> FnMut(&'a str, u64) + Send),
    ) -> Result<Resealed>;
}

/// A database that is not open, or may not be there. Everything here blocks.
pub trait Database: Send + Sync {
    /// How far its schema is. Changes nothing; a newer one is an error.
    fn schema(&self) -> Result<SchemaSteps>;

    /// Whether it can be written now.
    fn try_write(&self) -> Result<()>;

    /// Where there is none, what tells that there was one, in words.
    fn left_behind(&self) -> Option<String>;

    /// Rewrites it without its free space, while nobody is at work.
    fn compact(&self) -> Result<Compacted>;

    /// Puts a copy of `backup` in its place, and keeps what is there. No job of the backup is left in the hands of a worker.
    fn restore(&self, backup: &Path) -> Result<Restored>;
}
