//! The mark that lies beside a database while a restore has begun and is not finished.

use std::path::{Path, PathBuf};

use posse_core::port::{RepositoryError, Result};

use super::paths::beside;

pub(super) fn mark(path: &Path) -> PathBuf {
    beside(path, ".restoring")
}

/// Fails where a restore was begun and not finished.
pub(super) fn finished(path: &Path) -> Result<()> {
    if !mark(path).exists() {
        return Ok(());
    }
    Err(RepositoryError::Unusable(format!(
        "the restore of {} was interrupted, and parts of it may be the old database's; run posse db restore FILE again",
        path.display()
    )))
}
