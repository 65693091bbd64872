//! The folder a job's tools are confined to.
//!
//! The confinement is the kernel's: every path is resolved by `openat2` with `RESOLVE_BENEATH`
//! from a handle of the root, in the same call that opens it. So `..`, absolute paths, symlinks
//! and folders swapped in the middle of a call cannot lead out, and nothing is ever checked first
//! and opened later. What follows an open works on the handle: it cannot be exchanged any more.
//! Symlinks work as long as they are relative and stay beneath the root.

mod path;
mod update;
mod walk;

use std::ffi::OsStr;
use std::fs::{File, FileType, Metadata};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};

use posse_core::tool::{ToolContext, ToolError};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2, readlinkat};
use rustix::io::Errno;

use super::failure::{conflict, denied, failed, io, kernel, missing};
use super::registry::near_matches;

pub use update::Existing;
pub use walk::Walk;

/// How many names a "not found" offers.
const MAX_NEIGHBOURS: usize = 20;

/// The root of everything that a job's tools may touch.
pub struct Workspace {
    root: Dir,
    /// The root's real path, and the one it was opened by: absolute paths below them are welcome.
    prefixes: [PathBuf; 2],
    /// The file that the agent at work was told its rules from, if it was.
    rules: Option<PathBuf>,
}

/// An open folder beneath the root.
pub struct Dir(OwnedFd);

/// Which symlinks a path may go through.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// Those that stay beneath the folder it starts from.
    Beneath,
    /// None at all, not even at its end: the path is one that was found by walking.
    None,
}

/// What an entry of a folder is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symlink, to wherever.
    Symlink,
    /// Something that is not read: opening it could block for ever or have an effect.
    Special(&'static str),
}

impl Kind {
    fn of(kind: FileType) -> Self {
        match kind {
            kind if kind.is_file() => Kind::File,
            kind if kind.is_dir() => Kind::Folder,
            kind if kind.is_symlink() => Kind::Symlink,
            kind if kind.is_fifo() => Kind::Special("FIFO"),
            kind if kind.is_socket() => Kind::Special("socket"),
            kind if kind.is_char_device() || kind.is_block_device() => Kind::Special("device"),
            _ => Kind::Special("special file"),
        }
    }
}

/// What a path of the model's leads to.
pub enum Found {
    /// A regular file, open for reading, and its length at that time.
    File(File, u64),
    /// A folder.
    Folder(Dir),
}

impl Workspace {
    /// Opens the root. Fails on a kernel without `openat2` (before Linux 5.6) rather than to do
    /// without it, so a worker can find out at its start.
    pub fn open(root: &Path) -> Result<Self, ToolError> {
        let shown = root.display().to_string();
        let dir = Dir::at(root).map_err(|errno| match errno {
            Errno::NOSYS => {
                failed("file tools need Linux 5.6 or newer: this kernel cannot resolve paths beneath a folder")
            }
            errno => failed(format!("the workspace {shown} cannot be opened: {errno}")),
        })?;
        let real = dir.real_path().map_err(|errno| failed(format!("the workspace {shown} has no path: {errno}")))?;
        Ok(Workspace { root: dir, prefixes: [real, root.to_owned()], rules: None })
    }

    /// The same for the workspace of a call, in which its agent's rules may not be changed.
    pub fn of(cx: &ToolContext) -> Result<Self, ToolError> {
        Ok(Workspace { rules: cx.rules_file.clone(), ..Workspace::open(&cx.workspace)? })
    }

    /// Opens what the path leads to: a regular file or a folder. Anything else is refused by its
    /// type, without opening it.
    pub fn find(&self, raw: &str) -> Result<Found, ToolError> {
        let path = self.relative(raw)?;
        let meta =
            self.root.metadata(&path, Links::Beneath).map_err(|errno| self.explain(errno, "open", raw, &path))?;
        let found = match Kind::of(meta.file_type()) {
            Kind::Folder => {
                let dir = self.root.dir(&path, Links::Beneath);
                Found::Folder(dir.map_err(|errno| self.explain(errno, "open", raw, &path))?)
            }
            _ => {
                let (file, len) = self.root.file(&path, Links::Beneath, raw)?;
                Found::File(file, len)
            }
        };
        // Asked of what was opened, not of the path: a link leads there too.
        let real = match &found {
            Found::Folder(dir) => real_path(&dir.0),
            Found::File(file, _) => real_path(file),
        };
        let real = real.map_err(|errno| kernel(errno, "open", raw))?;
        let below = real.strip_prefix(&self.prefixes[0]).unwrap_or(&real);
        if below.components().any(|part| part.as_os_str() == PRIVATE) {
            return Err(denied(format!("'{raw}' belongs to Posse and is not for tools")));
        }
        Ok(found)
    }

    /// The path relative to the root, as the model meant it.
    pub fn relative(&self, raw: &str) -> Result<PathBuf, ToolError> {
        path::relative(raw, &self.prefixes)
    }

    fn explain(&self, errno: Errno, doing: &str, raw: &str, path: &Path) -> ToolError {
        if errno == Errno::NOENT { self.not_found(raw, path) } else { kernel(errno, doing, raw) }
    }

    /// "Not found", with what is there instead: models guess names.
    fn not_found(&self, raw: &str, path: &Path) -> ToolError {
        let mut below = path;
        while let Some(parent) = below.parent() {
            let nearest = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            if let Ok(entries) = self.root.dir(nearest, Links::Beneath).and_then(|dir| dir.entries()) {
                let here = nearest.display();
                let wanted = below.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
                let names: Vec<_> = entries.iter().map(|(name, kind)| shown_entry(Path::new(name), *kind)).collect();
                if names.is_empty() {
                    return missing(format!("no such file or folder '{raw}'; '{here}' is empty"));
                }
                let mut offered = near_matches(&wanted, names.iter().map(String::as_str));
                let rest: Vec<_> = names.iter().filter(|name| !offered.contains(name)).cloned().collect();
                offered.extend(rest);
                let more = offered.len().saturating_sub(MAX_NEIGHBOURS);
                offered.truncate(MAX_NEIGHBOURS);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                let list = offered.join(", ");
                return missing(format!("no such file or folder '{raw}'; in '{here}' there are: {list}{more}"));
            }
            below = parent;
        }
        kernel(Errno::NOENT, "open", raw)
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Opening so never blocks, and never makes a terminal ours.
const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
/// A handle for `fstat` and nothing else: it opens no device and wakes no FIFO.
const LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

impl Dir {
    /// Opens a folder by its path, which may go through any symlink: whoever names it may be trusted.
    pub fn at(path: &Path) -> Result<Dir, Errno> {
        openat2(CWD, path, DIRECTORY, Mode::empty(), ResolveFlags::empty()).map(Dir)
    }

    /// The one place where a path is resolved.
    fn open(&self, path: &Path, flags: OFlags, links: Links) -> Result<OwnedFd, Errno> {
        let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let mut flags = flags;
        if links == Links::None {
            // With `O_PATH` this still gives a handle of a symlink at the very end.
            resolve |= ResolveFlags::NO_SYMLINKS;
            flags |= OFlags::NOFOLLOW;
        }
        // The kernel gives up with EAGAIN when something was renamed while it went through `..`.
        for _ in 0..100 {
            match openat2(&self.0, path, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                done => return done,
            }
        }
        Err(Errno::AGAIN)
    }

    /// Opens a folder beneath this one.
    pub fn dir(&self, path: &Path, links: Links) -> Result<Dir, Errno> {
        self.open(path, DIRECTORY, links).map(Dir)
    }

    /// What the path leads to, without opening it.
    pub fn metadata(&self, path: &Path, links: Links) -> Result<Metadata, Errno> {
        let handle = File::from(self.open(path, LOOK, links)?);
        handle.metadata().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    /// Opens a regular file beneath this folder for reading, and gives its length. `shown` is what
    /// the error calls it.
    pub fn file(&self, path: &Path, links: Links, shown: &str) -> Result<(File, u64), ToolError> {
        let at = |errno| kernel(errno, "read", shown);
        regular(&self.metadata(path, links).map_err(at)?, shown)?;
        // It may be another one by now; so the type is asked for again, of the handle.
        let file = File::from(self.open(path, READ, links).map_err(at)?);
        let meta = file.metadata().map_err(|error| io(&error, "read", shown))?;
        regular(&meta, shown)?;
        Ok((file, meta.len()))
    }

    /// The names in this folder with what each is, sorted by their bytes.
    pub fn entries(&self) -> Result<Vec<(std::ffi::OsString, Kind)>, Errno> {
        let mut entries = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let name = OsStr::from_bytes(name).to_owned();
            let kind = match entry.file_type() {
                rustix::fs::FileType::RegularFile => Kind::File,
                rustix::fs::FileType::Directory => Kind::Folder,
                rustix::fs::FileType::Symlink => Kind::Symlink,
                // Rare enough to be asked about one by one; it may be gone by now.
                _ => match self.metadata(Path::new(&name), Links::None) {
                    Ok(meta) => Kind::of(meta.file_type()),
                    Err(_) => continue,
                },
            };
            entries.push((name, kind));
        }
        entries.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Ok(entries)
    }

    /// Where the folder is now, by the kernel's account.
    fn real_path(&self) -> Result<PathBuf, Errno> {
        real_path(&self.0)
    }
}

/// Where what was opened really is, by the kernel's word.
fn real_path(opened: &impl AsRawFd) -> Result<PathBuf, Errno> {
    let link = readlinkat(CWD, format!("/proc/self/fd/{}", opened.as_raw_fd()), Vec::new())?;
    Ok(PathBuf::from(std::ffi::OsString::from_vec(link.into_bytes())))
}

fn regular(meta: &Metadata, shown: &str) -> Result<(), ToolError> {
    match Kind::of(meta.file_type()) {
        Kind::File => Ok(()),
        Kind::Folder => Err(conflict(format!("'{shown}' is a folder, not a file; list_files shows what is in it"))),
        Kind::Symlink => Err(denied(format!("'{shown}' is a symlink, which is not followed here"))),
        Kind::Special(kind) => {
            Err(denied(format!("'{shown}' is a {kind}, not a regular file; it is neither read nor written")))
        }
    }
}

/// The name as it may stand in a line of output: one that holds line breaks, or is not UTF-8, is
/// escaped and cannot pass for two.
pub fn shown_name(name: &Path) -> String {
    match name.to_str() {
        Some(name) if !name.chars().any(char::is_control) => name.to_owned(),
        Some(name) => format!("\"{}\"", name.escape_debug()),
        None => format!("{} (not UTF-8: cannot be opened by name)", name.as_os_str().as_bytes().escape_ascii()),
    }
}

/// The same, with a slash behind a folder.
pub fn shown_entry(name: &Path, kind: Kind) -> String {
    let slash = if kind == Kind::Folder { "/" } else { "" };
    format!("{}{slash}", shown_name(name))
}

/// Whose own files a path below the root leads to, if tools may not write there: what git runs as
/// whoever uses it next, what Posse keeps or loads, and what decides which tools an agent has.
fn owner(path: &Path) -> Option<&'static str> {
    let named = |name: &str| path.components().any(|part: Component<'_>| part.as_os_str().eq_ignore_ascii_case(name));
    let lower = path.to_string_lossy().to_ascii_lowercase();
    if named(".git") {
        return Some("git");
    }
    let below = |folder: &str| Path::new(&lower).starts_with(folder);
    let settings = ["config/posse.toml", "config/personas", "config/skills", ".agents/skills", "sqlite_extensions"];
    (named(PRIVATE) || settings.into_iter().any(below)).then_some("Posse")
}

/// The folder of Posse's database: other jobs' work, which no tool reads either.
const PRIVATE: &str = ".posse";

#[cfg(test)]
mod tests;
