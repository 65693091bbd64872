//! What a folder holds, to see that nothing in it was changed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Everything at and below a path: kind, size, identity and time of change.
pub type Tree = BTreeMap<PathBuf, (u32, u64, u64, i64, i64)>;

pub fn tree(at: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut ahead = vec![at.to_owned()];
    while let Some(path) = ahead.pop() {
        let meta = fs::symlink_metadata(&path).expect("is there");
        if meta.is_dir() {
            ahead.extend(fs::read_dir(&path).expect("a folder").map(|entry| entry.expect("an entry").path()));
        }
        tree.insert(path, (meta.mode(), meta.size(), meta.ino(), meta.mtime(), meta.mtime_nsec()));
    }
    tree
}
