//! A database's file and those that lie beside it.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// The path of a file that lies beside the database: `jobs.db` and `-wal` give `jobs.db-wal`.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Whether this process may write the file and make the files that SQLite needs beside it.
pub(super) fn may_write(path: &Path) -> bool {
    let may = |path: &Path| access(path, Access::WRITE_OK).is_ok();
    may(path) && path.parent().is_some_and(may)
}
