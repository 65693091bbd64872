//! The ports of care, over what each file here does.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use posse_core::port::{Backup, Compacted, Database, Resealed, Restored, Result, SchemaSteps, Upkeep};

use super::{Keys, SqliteStore, backup, compact, meta, migrate, probe, reseal, restore};

#[async_trait]
impl Upkeep for SqliteStore {
    async fn check(&self, full: bool) -> Result<Vec<String>> {
        self.readers.run(move |connection| backup::check(connection, full)).await
    }

    async fn backup(&self, to: &Path) -> Result<Backup> {
        let (from, to) = (self.path.clone(), to.to_owned());
        self.readers.run(move |_| backup::make(&from, &to)).await
    }

    async fn sealed_with(&self) -> Result<Option<String>> {
        self.readers.run(meta::sealing_key).await
    }

    async fn reseal(
        &self,
        in_the_clear: bool,
        progress: &mut (dyn for<'a> FnMut(&'a str, u64) + Send),
    ) -> Result<Resealed> {
        let target = if in_the_clear { Keys::default() } else { self.keys.clone() };
        reseal::reseal(self.writer()?, target, progress).await
    }
}

pub struct SqliteDatabase {
    pub path: PathBuf,
    pub keys: Keys,
}

impl Database for SqliteDatabase {
    fn schema(&self) -> Result<SchemaSteps> {
        migrate::schema_of(&self.path)
    }

    fn try_write(&self) -> Result<()> {
        probe::try_write(&self.path)
    }

    fn left_behind(&self) -> Option<String> {
        probe::left_behind(&self.path)
    }

    fn compact(&self) -> Result<Compacted> {
        compact::compact(&self.path)
    }

    fn restore(&self, backup: &Path) -> Result<Restored> {
        restore::restore(&self.path, backup, &self.keys)
    }
}
