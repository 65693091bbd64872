//! What a command holds on the disk of its workspace.
//!
//! What it writes is counted by the kernel, process by process, but not everything that takes room is written, nor is
//! everybody who wrote waited for. So the room itself is looked at too: when the file system has lost more of it than a
//! command may take, which is a cheap question, what the command made or changed is added up.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Dir, FileType, Mode, OFlags, fstatvfs, openat};

use super::proc::{Looked, Mapping, Unseen, of_any};

/// What a file takes beside its content.
const FILE: u64 = 1 << 10;
/// Nobody makes folders deeper than this but to hide something.
const DEEP: usize = 256;
/// Adding up takes at most one part in so many of the time.
const SELDOM: u32 = 20;

pub(super) struct Disk {
    workspace: File,
    device: u64,
    free: Free,
    /// Everything that is changed from now on has a later time.
    since: i64,
    /// Not to be added up again before.
    next: Instant,
}

#[derive(Clone, Copy)]
struct Free {
    bytes: u64,
    files: u64,
}

/// What was added up, each file once.
struct Held {
    since: i64,
    bytes: u64,
    linked: BTreeMap<(u64, u64), u64>,
    /// Whether files are on their way through a socket: those are in nobody's hands, and cannot be added up.
    on_their_way: bool,
}

impl Disk {
    /// The disk beneath this folder, as it is now.
    pub fn new(workspace: impl AsRef<Path>) -> Looked<Disk> {
        let workspace = File::open(workspace).map_err(|_| Unseen)?;
        let device = workspace.metadata().map_err(|_| Unseen)?.dev();
        let free = Free::of(&workspace)?;
        // A file system's clock is a tick behind.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_err(|_| Unseen)?;
        Ok(Disk { workspace, device, free, since: now.as_secs() as i64 - 1, next: Instant::now() })
    }

    /// Whether the file system has lost more than this, and what was changed in the workspace since is as much too, or
    /// cannot be added up.
    pub fn holds_more_than(&mut self, most: u64, pids: &[String]) -> Looked<bool> {
        let now = Free::of(&self.workspace)?;
        let lost = self.free.bytes.saturating_sub(now.bytes) + self.free.files.saturating_sub(now.files) * FILE;
        if lost <= most || Instant::now() < self.next {
            return Ok(false);
        }
        let began = Instant::now();
        let mut held = Held { since: self.since, bytes: 0, linked: BTreeMap::new(), on_their_way: false };
        held.folder(&self.workspace, self.device, 0)?;
        for pid in pids {
            held.open_files(pid, self.device)?;
        }
        self.next = Instant::now() + (began.elapsed() * SELDOM).min(Duration::from_secs(5));
        Ok(held.on_their_way || held.bytes + held.linked.into_values().sum::<u64>() > most)
    }
}

impl Free {
    fn of(file: &File) -> Looked<Free> {
        let at = fstatvfs(file).map_err(|_| Unseen)?;
        Ok(Free { bytes: at.f_bfree * at.f_frsize, files: at.f_ffree })
    }
}

impl Held {
    /// What a folder holds, and all below it on the same file system.
    fn folder(&mut self, folder: &File, device: u64, depth: usize) -> Looked<()> {
        if depth > DEEP {
            return Err(Unseen);
        }
        for entry in Dir::read_from(folder).map_err(|_| Unseen)? {
            let Ok(entry) = entry else { return Err(Unseen) };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let look = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            // It may be gone by now.
            let Ok(found) = openat(folder, name, look, Mode::empty()).map(File::from) else { continue };
            let meta = found.metadata().map_err(|_| Unseen)?;
            if meta.dev() != device {
                continue;
            }
            self.take(&meta);
            if meta.is_dir() && entry.file_type() != FileType::Symlink {
                let open = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                match openat(&found, ".", open, Mode::empty()) {
                    Ok(below) => self.folder(&File::from(below), device, depth + 1)?,
                    Err(rustix::io::Errno::NOENT) => {}
                    Err(_) => return Err(Unseen),
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, meta: &Metadata) {
        if meta.ctime() < self.since {
            return;
        }
        let bytes = meta.blocks() * 512 + FILE;
        if meta.nlink() == 1 || meta.is_dir() {
            self.bytes += bytes;
        } else {
            self.linked.insert((meta.dev(), meta.ino()), bytes);
        }
    }

    /// Files without a name that a process has open, or in its memory.
    fn open_files(&mut self, pid: &str, device: u64) -> Looked<()> {
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let Ok(meta) = fs::metadata(entry.path()) else { continue };
            if meta.is_file() && meta.nlink() == 0 && meta.dev() == device {
                self.linked.insert((meta.dev(), meta.ino()), meta.blocks() * 512 + FILE);
            } else if meta.file_type().is_socket() {
                let number = entry.file_name().to_string_lossy().into_owned();
                let about = of_any(pid, &format!("fdinfo/{number}"))?.unwrap_or_default();
                let passed = about.lines().find_map(|line| line.strip_prefix("scm_fds:"));
                self.on_their_way |= passed.is_some_and(|passed| passed.trim() != "0");
            }
        }
        for mapping in of_any(pid, "maps")?.unwrap_or_default().lines().filter_map(Mapping::of) {
            let is_ours = mapping.name.ends_with(" (deleted)") && mapping.device() == Some(device);
            if let (true, Some(inode)) = (is_ours, mapping.number()) {
                self.linked.entry((device, inode)).or_insert(mapping.end);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(folder: &Path, since: i64) -> u64 {
        let mut held = Held { since, bytes: 0, linked: BTreeMap::new(), on_their_way: false };
        let open = File::open(folder).unwrap();
        let device = open.metadata().unwrap().dev();
        assert!(held.folder(&open, device, 0).is_ok());
        held.bytes + held.linked.into_values().sum::<u64>()
    }

    #[test]
    fn each_file_counts_once_and_links_lead_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let ws = folder.path().join("ws");
        fs::create_dir_all(ws.join("below")).unwrap();
        fs::write(folder.path().join("outside"), vec![1; 4 << 20]).unwrap();
        let empty = held(&ws, 0);
        fs::write(ws.join("below/a"), vec![1; 1 << 20]).unwrap();
        fs::hard_link(ws.join("below/a"), ws.join("b")).unwrap();
        std::os::unix::fs::symlink("../outside", ws.join("c")).unwrap();
        std::os::unix::fs::symlink("..", ws.join("d")).unwrap();
        let more = held(&ws, 0) - empty;
        assert!((1 << 20..(1 << 20) + (64 << 10)).contains(&more), "{more}");
        // Nothing of it was changed an hour from now.
        let now = fs::metadata(ws.join("b")).unwrap().ctime();
        assert_eq!(held(&ws, now + 3600), 0);
    }
}
