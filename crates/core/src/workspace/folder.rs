//! Which folder is meant: a path says where to look, an identity says whether it is still that one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A folder's identity, by its file system's account. Two folders that had the same path at different times differ in
/// it; the same one found again after a restart of the machine does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct FolderId {
    /// The device. Some file systems get another number with every mount.
    pub device: u64,
    /// Its number there; used again when a folder is gone.
    pub inode: u64,
    /// When it was made, in nanoseconds since 1970, where the file system keeps that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub born: Option<i64>,
}

impl FolderId {
    /// Whether both are of one folder.
    pub fn is(&self, other: &FolderId) -> bool {
        let is_same_age = match (self.born, other.born) {
            // Nobody sets this time, so it stands for the device too, whose number may have changed.
            (Some(one), Some(other)) => one == other,
            _ => self.device == other.device,
        };
        self.inode == other.inode && is_same_age
    }
}
