//! The ports of care, over what each file here does.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use posse_core::port::{Backup, Compacted, Database, RepositoryError, Resealed, Restored, SchemaSteps, Upkeep};

use crate::{Keys, SqliteStore, compact, left_behind, restore, schema_of, try_write};

#[async_trait]
impl Upkeep for SqliteStore {
    async fn check(&self, full: bool) -> Result<Vec<String>, RepositoryError> {
        self.check(full).await
    }

    async fn backup(&self, to: &Path) -> Result<Backup, RepositoryError> {
        self.backup(to).await
    }

    async fn sealed_with(&self) -> Result<Option<String>, RepositoryError> {
        self.sealed_with().await
    }

    async fn reseal(
        &self,
        in_the_clear: bool,
        progress: &mut (dyn for<'a> FnMut(&'a str, u64) + Send),
    ) -> Result<Resealed, RepositoryError> {
        self.reseal(in_the_clear, progress).await
    }
}

/// A database that is a file.
pub struct SqliteDatabase {
    /// The file.
    pub path: PathBuf,
    /// What opens and seals its texts.
    pub keys: Keys,
}

impl Database for SqliteDatabase {
    fn schema(&self) -> Result<SchemaSteps, RepositoryError> {
        schema_of(&self.path)
    }

    fn try_write(&self) -> Result<(), RepositoryError> {
        try_write(&self.path)
    }

    fn left_behind(&self) -> Option<String> {
        left_behind(&self.path)
    }

    fn compact(&self) -> Result<Compacted, RepositoryError> {
        compact(&self.path)
    }

    fn restore(&self, backup: &Path) -> Result<Restored, RepositoryError> {
        restore(&self.path, backup, &self.keys)
    }
}
