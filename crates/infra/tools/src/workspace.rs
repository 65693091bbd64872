//! The folder a job's tools are confined to.
//!
//! The confinement is the kernel's: every path is resolved by `openat2` with `RESOLVE_BENEATH`
//! from a handle of the root, in the same call that opens it. So `..`, absolute paths, symlinks
//! and folders swapped in the middle of a call cannot lead out, and nothing is ever checked first
//! and opened later. What follows an open works on the handle: it cannot be exchanged any more.
//! Symlinks work as long as they are relative and stay beneath the root.

mod guard;
mod near;
mod update;
mod walk;

use std::ffi::OsStr;
use std::fs::{File, FileType, Metadata};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use posse_core::text::plural;
use posse_core::tool::{ToolContext, ToolError, ToolErrorCategory};
use posse_core::workspace::protected::Protected;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2, readlinkat};
use rustix::io::Errno;

use super::failure::{conflict, denied, failed, invalid, io, kernel, unfit, unusable};
use guard::Guard;
use posse_host::folder::pinned;
use posse_host::lack::{given, lack};
use posse_host::recognise::is_open_here;

pub use update::Existing;
pub use walk::Walk;

/// How many entries of a folder are looked at. More are not held in memory, nor are they any use to a model.
pub(super) const MAX_ENTRIES: usize = 100_000;

/// The kernel's own limits, told before anything is done.
const MAX_PATH: usize = 4096;
const MAX_NAME: usize = 255;

fn hidden(shown: &str) -> ToolError {
    denied(format!("'{shown}' belongs to Posse and is not for tools"))
}

/// The root of everything that a job's tools may touch.
pub struct Workspace {
    root: Dir,
    /// The root's real path, and the one it was opened by: absolute paths below them are welcome.
    prefixes: [PathBuf; 2],
    /// What below it is not for tools.
    guard: Guard,
    /// The file that the agent at work was told its rules from, if it was.
    rules: Option<PathBuf>,
}

pub struct Dir(OwnedFd);

/// Which symlinks a path may go through.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// Those that stay beneath the folder it starts from.
    Beneath,
    /// None at all, not even at its end: the path is one that was found by walking.
    None,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    File,
    Folder,
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
            errno => {
                let kind = if lack(errno).is_some() { unfit } else { failed };
                kind(format!("the workspace {shown} cannot be opened: {errno}"))
            }
        })?;
        Workspace::at(dir, root, &Protected::default())
    }

    /// The same for a path no part of which may be a link.
    pub fn open_plain(root: &Path) -> Result<Self, ToolError> {
        Workspace::at(Dir(pinned(root, None).map_err(unusable)?), root, &Protected::default())
    }

    /// The workspace of a call: the folder that is meant and no other one, whatever has become of its path. Its
    /// project's own files are not for the tool, nor may its agent's rules be changed.
    pub fn of(cx: &ToolContext) -> Result<Self, ToolError> {
        let dir = Dir(pinned(&cx.workspace, cx.workspace_id.as_ref()).map_err(unusable)?);
        Ok(Workspace { rules: cx.rules_file.clone(), ..Workspace::at(dir, &cx.workspace, &cx.protected)? })
    }

    fn at(dir: Dir, root: &Path, protected: &Protected) -> Result<Self, ToolError> {
        let shown = root.display();
        let real = dir.real_path().map_err(|errno| failed(format!("the workspace {shown} has no path: {errno}")))?;
        let guard = Guard::new(real.clone(), protected);
        Ok(Workspace { root: dir, prefixes: [real, root.to_owned()], guard, rules: None })
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
                let (file, len) = self.file(&self.root, &path, Links::Beneath, raw)?;
                Found::File(file, len)
            }
        };
        if let Found::Folder(dir) = &found
            && dir.real_path().and_then(|real| self.guard.hides(&real)).map_err(|errno| kernel(errno, "open", raw))?
        {
            return Err(hidden(raw));
        }
        Ok(found)
    }

    /// Opens a regular file beneath a folder of the workspace for reading, if it is one for tools, and gives its length.
    pub fn file(&self, folder: &Dir, path: &Path, links: Links, shown: &str) -> Result<(File, u64), ToolError> {
        let (file, meta) = folder.file(path, links, shown)?;
        // Asked of what was opened, not of the path: a link leads there too, and anything may be elsewhere by now.
        let hides = |real: PathBuf| Ok(self.guard.hides(&real)? || self.guard.hides_file(&file, &meta)?);
        match real_path(&file).and_then(hides) {
            Ok(false) => Ok((file, meta.len())),
            Ok(true) => Err(hidden(shown)),
            Err(errno) => Err(kernel(errno, "open", shown)),
        }
    }

    /// A walk through a folder of the workspace that leaves out what is not for tools, and through the folders in it
    /// where `recursive`.
    pub fn walk<'a>(&'a self, folder: &'a Dir, recursive: bool) -> Walk<'a> {
        Walk::without(Some(&self.guard), folder, recursive)
    }

    /// The path relative to the root, as the model meant it.
    pub fn relative(&self, raw: &str) -> Result<PathBuf, ToolError> {
        relative(raw, &self.prefixes).map_err(|error| match error.category {
            ToolErrorCategory::PermissionDenied if raw.starts_with('/') => self.perhaps_inside(error, Path::new(raw)),
            _ => error,
        })
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

    /// The one place where a path is resolved; an empty one leads to the folder itself.
    fn open(&self, path: &Path, flags: OFlags, links: Links) -> Result<OwnedFd, Errno> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
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

    pub fn dir(&self, path: &Path, links: Links) -> Result<Dir, Errno> {
        self.open(path, DIRECTORY, links).map(Dir)
    }

    /// What the path leads to, without opening it.
    pub fn metadata(&self, path: &Path, links: Links) -> Result<Metadata, Errno> {
        let handle = File::from(self.open(path, LOOK, links)?);
        handle.metadata().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    /// Opens a regular file beneath this folder for reading, and gives what is known of it. `shown` is what
    /// the error calls it.
    pub fn file(&self, path: &Path, links: Links, shown: &str) -> Result<(File, Metadata), ToolError> {
        let at = |errno| kernel(errno, "read", shown);
        let handle = File::from(self.open(path, LOOK, links).map_err(at)?);
        let meta = handle.metadata().map_err(|error| io(&error, "read", shown))?;
        regular(&meta, shown)?;
        let file = reopened(&handle, &meta, READ).map_err(at)?.ok_or_else(|| hidden(shown))?;
        Ok((file, meta))
    }

    /// The names in this folder with what each is, sorted by their bytes; of a very large one not all.
    pub fn entries(&self) -> Result<Vec<(std::ffi::OsString, Kind)>, Errno> {
        self.some_entries(MAX_ENTRIES)
    }

    /// The same, of at most so many.
    fn some_entries(&self, most: usize) -> Result<Vec<(std::ffi::OsString, Kind)>, Errno> {
        let mut entries = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.0)? {
            if entries.len() == most {
                break;
            }
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
                _ => match given(self.metadata(Path::new(&name), Links::None))? {
                    Some(meta) => Kind::of(meta.file_type()),
                    None => continue,
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

/// Opens what a handle is of: that file, whatever has become of its path. None for a database that this process has
/// open, whose locks would be gone when the file is closed again.
fn reopened(handle: &File, meta: &Metadata, flags: OFlags) -> Result<Option<File>, Errno> {
    if is_open_here(meta) {
        return Ok(None);
    }
    let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    Ok(Some(File::from(openat2(CWD, path, flags, Mode::empty(), ResolveFlags::empty())?)))
}

/// Where what was opened really is, by the kernel's word.
pub(crate) fn real_path(opened: &impl AsRawFd) -> Result<PathBuf, Errno> {
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

/// The path relative to the root. An absolute path is taken below one of the prefixes, compared by
/// whole components. Backslashes and `%2e` are plain characters of a name.
fn relative(raw: &str, prefixes: &[PathBuf]) -> Result<PathBuf, ToolError> {
    if raw.is_empty() {
        return Err(invalid("the path is empty. Use '.' for the workspace root"));
    }
    if raw.len() > MAX_PATH {
        return Err(invalid(format!("the path is {} long; the limit is {MAX_PATH}", plural(raw.len() as u64, "byte"))));
    }
    if raw.contains('\0') {
        return Err(invalid("the path contains a NUL character, which no file name can"));
    }
    if let Some(long) = raw.split('/').find(|name| name.len() > MAX_NAME) {
        let long = plural(long.len() as u64, "byte");
        return Err(invalid(format!("a name in the path is {long} long; the limit is {MAX_NAME}")));
    }
    // Neither is expanded. They are refused, and not taken for names, because a file made under
    // such a name is never what was meant.
    if raw == "~" || raw.starts_with("~/") {
        return Err(denied(format!(
            "'{raw}' leads outside the workspace: there is no home folder here. Give a path relative \
             to the workspace root ('./~' for something that is really named '~')"
        )));
    }
    if raw.contains("://") {
        return Err(denied(format!("'{raw}' is a URL. Give a path relative to the workspace root")));
    }
    let path = Path::new(raw);
    let path = if path.is_absolute() {
        prefixes.iter().find_map(|prefix| path.strip_prefix(prefix).ok()).ok_or_else(|| {
            denied(format!(
                "'{raw}' is outside the workspace. Give a path relative to the workspace root, such \
                 as 'notes.txt', or '.' for the root itself"
            ))
        })?
    } else {
        path
    };
    Ok(if path.as_os_str().is_empty() { PathBuf::from(".") } else { path.to_owned() })
}
