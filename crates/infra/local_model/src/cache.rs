//! Where model files live, and how one is known to be whole.
//!
//! A file is hashed once. What was found is kept beside it, with the file's size and time of change, so that later
//! starts need not read a gigabyte again.

use posse_core::text::{count, plural};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::catalogue::{KnownModel, fetchable};

/// `posse/models` in the user's cache (`XDG_CACHE_HOME`, else `~/.cache`); `None` where neither it nor `HOME` is set.
pub fn models_dir() -> Option<PathBuf> {
    Some(cache_dir()?.join("models"))
}

pub(super) fn cache_dir() -> Option<PathBuf> {
    // The XDG rules: a relative path is to be ignored.
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(cache.join("posse"))
}

/// What is known about a model's file, without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// There, and its SHA-256 was found right since it last changed.
    Ready,
    /// There and of the right size; not hashed yet.
    Unverified,
    Wrong {
        reason: String,
    },
    /// A fetch began and did not end.
    Partial {
        bytes: u64,
    },
    Missing,
}

/// A model's place in the cache, and the files beside it.
#[derive(Debug, Clone)]
pub(super) struct CachedFiles {
    pub file: PathBuf,
    /// Says that `file` was hashed and right.
    pub verified: PathBuf,
    pub part: PathBuf,
    /// How many pieces `part` holds.
    pub part_state: PathBuf,
    /// Where pip puts wheels, one at a time.
    pub download: PathBuf,
    /// Held by the process that fetches.
    pub lock: PathBuf,
}

impl CachedFiles {
    pub(super) fn of(model: &KnownModel, dir: &Path) -> Self {
        let beside = |ending: &str| dir.join(format!("{}.{ending}", model.file));
        Self {
            file: dir.join(model.file),
            verified: beside("verified"),
            part: beside("part"),
            part_state: beside("part.json"),
            download: beside("download"),
            lock: beside("lock"),
        }
    }
}

/// Says which file was hashed: any change of it makes this stale.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Verified {
    sha256: String,
    bytes: u64,
    changed_s: i64,
    changed_ns: i64,
}

impl Verified {
    fn now(model: &KnownModel, file: &fs::Metadata) -> Self {
        Self {
            sha256: model.sha256.to_owned(),
            bytes: file.len(),
            changed_s: file.mtime(),
            changed_ns: file.mtime_nsec(),
        }
    }
}

/// What is known about the model's file in `dir`, without reading it.
pub fn status(model: &KnownModel, dir: &Path) -> Status {
    let place = CachedFiles::of(model, dir);
    let Ok(file) = fs::metadata(&place.file) else {
        return match fs::metadata(&place.part) {
            Ok(part) => Status::Partial { bytes: part.len() },
            Err(_) => Status::Missing,
        };
    };
    if !file.is_file() {
        return Status::Wrong { reason: "it is not a file".into() };
    }
    if file.len() != model.bytes {
        return Status::Wrong { reason: format!("it has {}, not {}", plural(file.len(), "byte"), count(model.bytes)) };
    }
    let known = fs::read(&place.verified).ok().and_then(|json| serde_json::from_slice::<Verified>(&json).ok());
    if known == Some(Verified::now(model, &file)) { Status::Ready } else { Status::Unverified }
}

/// Everything that can be fetched, with its status in `dir`, best model first. Reads no model file.
pub fn list(dir: &Path) -> Vec<(&'static KnownModel, Status)> {
    fetchable().map(|m| (m, status(m, dir))).collect()
}

/// The model's file in `dir`, if it is there and right. The first time, this reads the whole file to hash it.
pub fn find(model: &KnownModel, dir: &Path) -> io::Result<Option<PathBuf>> {
    let place = CachedFiles::of(model, dir);
    match status(model, dir) {
        Status::Ready => Ok(Some(place.file)),
        Status::Unverified if hash_file(&place.file, |_| {})? == model.sha256 => {
            mark_verified(model, &place);
            Ok(Some(place.file))
        }
        Status::Unverified | Status::Wrong { .. } | Status::Partial { .. } | Status::Missing => Ok(None),
    }
}

pub(super) fn mark_verified(model: &KnownModel, place: &CachedFiles) {
    // Only saves time: a cache that cannot be written is hashed again at each start.
    if let Ok(file) = fs::metadata(&place.file)
        && let Ok(json) = serde_json::to_vec(&Verified::now(model, &file))
    {
        let _ = write_whole(&place.verified, &json);
    }
}

/// Writes a small file so that it is there whole or not at all.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    // Two writers must not share the new file, be they two processes or two threads.
    static WRITES: AtomicU64 = AtomicU64::new(0);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}-{}.new", std::process::id(), WRITES.fetch_add(1, Ordering::Relaxed)));
    let new = PathBuf::from(name);
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_data()).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

/// SHA-256 of a file in lower-case hex; `seen` is told how many bytes were read so far.
pub(super) fn hash_file(path: &Path, seen: impl FnMut(u64)) -> io::Result<String> {
    Ok(format!("{:x}", hash_up_to(&mut File::open(path)?, u64::MAX, seen)?.finalize()))
}

/// Hashes at most `limit` bytes and gives the hasher back, to go on with.
pub(super) fn hash_up_to(file: &mut File, limit: u64, mut seen: impl FnMut(u64)) -> io::Result<Sha256> {
    let mut hasher = Sha256::new();
    let (mut chunk, mut total) = (vec![0; 1 << 20], 0);
    let mut file = file.take(limit);
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(hasher),
            n => {
                hasher.update(&chunk[..n]);
                total += n as u64;
                seen(total);
            }
        }
    }
}
