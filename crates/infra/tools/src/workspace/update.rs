//! Durable, atomic changes of one file.
//!
//! A file is never written in place. The new content goes to a file without a name, is flushed to
//! the disk, and takes the old one's name in one step; then the folder is flushed too. So readers
//! see the old bytes or the new ones and never half of them, a crash leaves one of the two and no
//! litter, and a hard link to a file outside keeps what it had.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use posse_core::stop::Stop;
use posse_core::text::plural;
use posse_core::tool::ToolError;
use rand::Rng;
use rustix::fs::{
    AtFlags, CWD, FlockOperation, Gid, Mode, OFlags, Uid, fchmod, fchown, flock, fsync, linkat, mkdirat, openat,
    readlinkat, renameat, unlinkat,
};
use rustix::io::Errno;

use posse_host::lack::given;
use posse_host::recognise::is_database_at;

use super::super::failure::{check, conflict, denied, failed, invalid, io, kernel, over_limit};
use super::{Dir, Kind, LOOK, Links, Workspace, hidden, real_path, regular, reopened};

/// How long another writer in the same folder is waited for.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// The file as it is before a change.
pub struct Existing {
    file: File,
    meta: Metadata,
    shown: String,
}

impl Existing {
    /// All of its bytes, unless there are more than `limit`.
    pub fn read(&self, limit: u64) -> Result<Vec<u8>, ToolError> {
        let len = self.meta.len();
        if len > limit {
            return Err(over_limit(format!(
                "'{}' has {}; files up to {} can be changed",
                self.shown,
                plural(len, "byte"),
                plural(limit, "byte")
            )));
        }
        let mut bytes = Vec::with_capacity(len as usize);
        // One more than the limit: a file that grows meanwhile is noticed, not cut.
        (&self.file).take(limit + 1).read_to_end(&mut bytes).map_err(|error| io(&error, "read", &self.shown))?;
        if bytes.len() as u64 != len {
            return Err(changed(&self.shown));
        }
        Ok(bytes)
    }
}

fn changed(shown: &str) -> ToolError {
    conflict(format!("'{shown}' was changed by somebody else meanwhile; nothing was written. Read it again and retry"))
}

impl Workspace {
    /// Gives the file at `raw` the content that `change` makes of the present one (`None`: there is
    /// none). Folders on the way are made, but only after `change` agreed. Whatever is refused
    /// leaves everything as it was. On `Ok` the change is on the disk.
    ///
    /// Tools in other threads and processes that change a file in the same folder wait for each
    /// other, so no update is lost; a change by anybody else is noticed up to the last moment.
    /// `change` may be called twice.
    pub fn update(
        &self,
        raw: &str,
        stop: &Stop,
        change: impl Fn(Option<&Existing>) -> Result<Vec<u8>, ToolError>,
    ) -> Result<(), ToolError> {
        let path = self.relative(raw)?;
        let at = |errno| kernel(errno, "write", raw);
        let name = match path.components().next_back() {
            Some(Component::Normal(name)) if !raw.ends_with('/') && !raw.ends_with("/.") => name,
            _ => return Err(invalid(format!("'{raw}' names a folder; name the file in it"))),
        };
        let parent = path.parent().unwrap_or(Path::new(""));
        let folder = match self.root.dir(parent, Links::Beneath) {
            Ok(folder) => {
                self.refuse_owned(&folder, Path::new(name), raw)?;
                folder
            }
            Err(Errno::NOENT) => {
                let (folder, rest) = self.nearest(parent, raw)?;
                self.refuse_owned(&folder, &rest.join(name), raw)?;
                change(None)?;
                check(stop)?;
                make_folders(folder, &rest).map_err(at)?
            }
            Err(errno) => return Err(at(errno)),
        };
        let _lock = lock(&folder, stop, raw)?;
        let existing = existing(&folder, name, raw)?;
        if let Some(there) = &existing
            && self.guard.hides_file(&there.file, &there.meta).map_err(at)?
        {
            return Err(hidden(raw));
        }
        let bytes = change(existing.as_ref())?;
        // The folder may have been moved to where it is somebody's own.
        self.refuse_owned(&folder, Path::new(name), raw)?;
        write(&folder, name, existing.as_ref(), &bytes, stop, raw)
    }

    /// The error for a file that has to be there and is not.
    pub fn no_such_file(&self, raw: &str) -> ToolError {
        match self.relative(raw) {
            Ok(path) => self.not_found(raw, &path),
            Err(error) => error,
        }
    }

    /// The deepest folder on the way to `parent` that exists, and the folders that do not.
    fn nearest(&self, parent: &Path, raw: &str) -> Result<(Dir, PathBuf), ToolError> {
        let at = |errno| kernel(errno, "write", raw);
        let mut parts = parent.components().peekable();
        let mut there = PathBuf::from(".");
        let mut folder = self.root.dir(&there, Links::Beneath).map_err(at)?;
        while let Some(part) = parts.peek() {
            let next = there.join(part);
            match self.root.dir(&next, Links::Beneath) {
                Ok(dir) => (folder, there) = (dir, next),
                Err(Errno::NOENT) => break,
                Err(errno) => return Err(at(errno)),
            }
            parts.next();
        }
        let rest: PathBuf = parts.collect();
        // Nobody can say where `..` leads from a folder that is not there.
        if rest.components().any(|part| !matches!(part, Component::Normal(_))) {
            return Err(denied(format!(
                "'{raw}' goes up ('..') from a folder that does not exist. Give the plain path"
            )));
        }
        Ok((folder, rest))
    }

    /// Nobody but their owner writes to files that decide what runs next, by whatever way the path
    /// came. `below` is what is still to be made or opened below the folder.
    fn refuse_owned(&self, folder: &Dir, below: &Path, raw: &str) -> Result<(), ToolError> {
        let at = |errno| kernel(errno, "write", raw);
        let real = folder.real_path().map_err(at)?;
        let inside = real.strip_prefix(&self.prefixes[0]).map_err(|_| moved_out(raw))?;
        if let Some(owner) = self.guard.owner(&real.join(below)).map_err(at)? {
            return Err(denied(format!("'{raw}' belongs to {owner}, whose own files are read-only to tools")));
        }
        // One whose log is not written back could not be told by its bytes.
        if is_database_at(&real.join(below)).map_err(at)? {
            return Err(hidden(raw));
        }
        if self.is_of_rules(&inside.join(below)).map_err(at)? {
            return Err(denied(format!(
                "'{raw}' holds the rules that you were given, and you may not change them. Say in your answer what should \
                 stand there: a person can write it, or an agent without `project_rules` among its persona's hooks"
            )));
        }
        Ok(())
    }

    /// Whether a path below the root is the file of the rules, a folder in its place, or what it links to.
    fn is_of_rules(&self, path: &Path) -> Result<bool, Errno> {
        let Some(rules) = &self.rules else { return Ok(false) };
        let first = path.components().next().map(|part| part.as_os_str());
        if first.is_some_and(|name| name.eq_ignore_ascii_case(rules)) {
            return Ok(true);
        }
        let target = self.root.open(rules, LOOK, Links::Beneath).and_then(|file| real_path(&file));
        Ok(given(target)?.is_some_and(|target| target.strip_prefix(&self.prefixes[0]) == Ok(path)))
    }
}

/// The handle is of a folder that was beneath the root when it was opened.
fn moved_out(raw: &str) -> ToolError {
    denied(format!("the folder of '{raw}' was moved out of the workspace just now"))
}

/// Makes the folders one below the other, each durably.
fn make_folders(start: Dir, rest: &Path) -> Result<Dir, Errno> {
    let mut folder = start;
    for name in rest {
        let name = Path::new(name);
        match mkdirat(&folder.0, name, Mode::from_raw_mode(0o777)) {
            Ok(()) => fsync(&folder.0)?,
            // Somebody was faster. If it is no folder, opening it says so.
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        folder = folder.dir(name, Links::None)?;
    }
    Ok(folder)
}

struct Lock<'a>(&'a Dir);

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        // Not left to the closing of the handle: a child that is just being started has a copy.
        flock(&self.0.0, FlockOperation::Unlock).ok();
    }
}

fn lock<'a>(folder: &'a Dir, stop: &Stop, shown: &str) -> Result<Lock<'a>, ToolError> {
    let since = Instant::now();
    loop {
        match flock(&folder.0, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Lock(folder)),
            Err(Errno::WOULDBLOCK | Errno::INTR) => check(stop)?,
            Err(errno) => return Err(kernel(errno, "lock the folder of", shown)),
        }
        if since.elapsed() > LOCK_WAIT {
            return Err(conflict(format!("the folder of '{shown}' is locked by another writer. Try again later")));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The file of that name, if there is one that may be changed. A symlink is refused and its target
/// named: renaming over it would replace the link and leave the target as it was.
fn existing(folder: &Dir, name: &OsStr, shown: &str) -> Result<Option<Existing>, ToolError> {
    let path = Path::new(name);
    let at = |errno| kernel(errno, "write", shown);
    let handle = match folder.open(path, LOOK, Links::None) {
        Err(Errno::NOENT) => return Ok(None),
        other => File::from(other.map_err(at)?),
    };
    let meta = handle.metadata().map_err(|error| io(&error, "write", shown))?;
    if Kind::of(meta.file_type()) == Kind::Symlink {
        let target = readlinkat(&folder.0, path, Vec::new()).unwrap_or_default();
        let target = target.to_string_lossy().into_owned();
        return Err(denied(format!("'{shown}' is a symlink to '{target}'. Name the file itself to change it")));
    }
    regular(&meta, shown)?;
    // Opened for writing too, so that the kernel refuses what is write-protected; never written.
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = reopened(&handle, &meta, flags).map_err(at)?.ok_or_else(|| hidden(shown))?;
    Ok(Some(Existing { file, meta, shown: shown.to_owned() }))
}

fn write(
    folder: &Dir,
    name: &OsStr,
    existing: Option<&Existing>,
    bytes: &[u8],
    stop: &Stop,
    shown: &str,
) -> Result<(), ToolError> {
    let at = |errno| kernel(errno, "write", shown);
    let mut fresh = Fresh::new(folder).map_err(at)?;
    fresh.file.write_all(bytes).map_err(|error| io(&error, "write", shown))?;
    if let Some(Existing { meta, .. }) = existing {
        let own = fresh.file.metadata().map_err(|error| io(&error, "write", shown))?;
        if (own.uid(), own.gid()) != (meta.uid(), meta.gid()) {
            let (uid, gid) = (Uid::from_raw(meta.uid()), Gid::from_raw(meta.gid()));
            // Only root can give a file away; keeping its group keeps those in who shared it.
            fchown(&fresh.file, Some(uid), Some(gid)).or_else(|_| fchown(&fresh.file, None, Some(gid))).map_err(at)?;
        }
        fchmod(&fresh.file, Mode::from_raw_mode(meta.mode() & 0o777)).map_err(at)?;
    }
    fresh.file.sync_all().map_err(|error| io(&error, "write", shown))?;
    check(stop)?;
    match existing {
        None => match fresh.link(name) {
            Err(Errno::EXIST) => return Err(changed(shown)),
            done => done.map_err(at)?,
        },
        Some(Existing { meta, .. }) => {
            let now = given(folder.metadata(Path::new(name), Links::None)).map_err(at)?;
            if !now.is_some_and(|now| is_same(&now, meta)) {
                return Err(changed(shown));
            }
            fresh.rename(name).map_err(at)?;
        }
    }
    // From here on the change is visible, so this must not sound as if nothing had happened.
    fsync(&folder.0).map_err(|errno| {
        failed(format!("'{shown}' was written, but the disk could not confirm it ({errno}); read it to see"))
    })
}

fn is_same(a: &Metadata, b: &Metadata) -> bool {
    let key = |meta: &Metadata| {
        let times = (meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec());
        (meta.dev(), meta.ino(), meta.len(), times)
    };
    key(a) == key(b)
}

/// A new file in a folder that has no name yet, or a random one where the file system cannot do
/// that. Without a final name it vanishes when dropped.
struct Fresh<'a> {
    folder: &'a Dir,
    file: File,
    name: Option<OsString>,
}

impl<'a> Fresh<'a> {
    fn new(folder: &'a Dir) -> Result<Self, Errno> {
        let mode = Mode::from_raw_mode(0o666);
        match openat(&folder.0, ".", OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, mode) {
            Ok(fd) => Ok(Fresh { folder, file: File::from(fd), name: None }),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Self::named(folder),
            Err(errno) => Err(errno),
        }
    }

    fn named(folder: &'a Dir) -> Result<Self, Errno> {
        let name = random_name();
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(&folder.0, name.as_bytes(), flags, Mode::from_raw_mode(0o666))?;
        Ok(Fresh { folder, file: File::from(fd), name: Some(name) })
    }

    /// Takes a name that nobody has.
    fn link(&self, to: &OsStr) -> Result<(), Errno> {
        match &self.name {
            Some(name) => linkat(&self.folder.0, name.as_bytes(), &self.folder.0, to.as_bytes(), AtFlags::empty()),
            None => {
                let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                linkat(CWD, own, &self.folder.0, to.as_bytes(), AtFlags::SYMLINK_FOLLOW)
            }
        }
    }

    /// Takes a name from whoever has it.
    fn rename(&mut self, to: &OsStr) -> Result<(), Errno> {
        if self.name.is_none() {
            let name = random_name();
            self.link(&name)?;
            self.name = Some(name);
        }
        let Some(name) = &self.name else { return Err(Errno::NOENT) };
        renameat(&self.folder.0, name.as_bytes(), &self.folder.0, to.as_bytes())?;
        self.name = None;
        Ok(())
    }
}

impl Drop for Fresh<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            unlinkat(&self.folder.0, name.as_bytes(), AtFlags::empty()).ok();
        }
    }
}

fn random_name() -> OsString {
    OsString::from(format!(".posse-{:016x}.tmp", rand::rng().random::<u64>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_works_where_files_cannot_be_nameless() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Dir::at(dir.path()).unwrap();
        let fresh = |bytes: &[u8]| {
            let mut fresh = Fresh::named(&folder).unwrap();
            fresh.file.write_all(bytes).unwrap();
            fresh
        };
        fresh(b"one").link(OsStr::new("f")).unwrap();
        assert_eq!(fresh(b"two").link(OsStr::new("f")), Err(Errno::EXIST));
        assert_eq!(std::fs::read(dir.path().join("f")).unwrap(), b"one");
        fresh(b"three").rename(OsStr::new("f")).unwrap();
        assert_eq!(std::fs::read(dir.path().join("f")).unwrap(), b"three");
        assert_eq!(dir.path().read_dir().unwrap().count(), 1);
    }
}
