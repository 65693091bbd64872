//! What in a workspace is not its agents': the project's own files, wherever they lie.

use std::path::PathBuf;

/// Paths that tools keep away from, all of them: those that open files and those that run commands. Absolute.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Protected {
    /// Neither read nor changed, with everything below.
    pub hidden: Vec<PathBuf>,
    /// Read and not changed, with everything below.
    pub fixed: Vec<PathBuf>,
    /// Databases. Neither they nor what lies beside them under their names is read or changed.
    pub databases: Vec<PathBuf>,
}
