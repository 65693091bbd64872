//! Folders as the kernel knows them: opened without going through links, and told apart by identity.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt::Display;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use posse_core::workspace::folder::FolderId;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags, fchmod, fstat, fstatfs, openat2, readlink, statx,
};
use rustix::io::Errno;

use crate::lack::lack;

/// The number by which an overlay of file systems is known.
const OVERLAY: i128 = 0x794c_7630;

/// As many links as the kernel follows in one path.
const MAX_LINKS: usize = 40;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    #[error("{} is a symlink to {}, and whoever can write there decides where it leads; name the folder itself", link.display(), target.display())]
    Link { link: PathBuf, target: PathBuf },
    #[error("{} cannot be opened: {errno}", path.display())]
    Unopened { path: PathBuf, errno: Errno },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Unusable {
    pub why: String,
    /// Whether this process lacks something, so that it says nothing about the folder.
    pub is_lack: bool,
}

impl From<String> for Unusable {
    fn from(why: String) -> Self {
        Unusable { why, is_lack: false }
    }
}

/// Opens the folder at an absolute path, no part of which is a link.
pub fn open(path: &Path) -> Result<OwnedFd, NotTaken> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(CWD, path, DIRECTORY, Mode::empty(), resolve).map_err(|errno| match first_link(path) {
        Some(link) if errno == Errno::LOOP => {
            let target = readlink(&link, Vec::new()).unwrap_or_default().to_string_lossy().into_owned();
            NotTaken::Link { link, target: target.into() }
        }
        _ => NotTaken::Unopened { path: path.into(), errno },
    })
}

pub fn identity(folder: impl AsFd) -> Result<FolderId, Errno> {
    let stat = fstat(&folder)?;
    // An overlay makes its own copy of a folder when something in it is changed first, and that copy is younger. So
    // the copy is made now.
    if fstatfs(&folder).is_ok_and(|fs| i128::from(fs.f_type) == OVERLAY) {
        let _ = fchmod(&folder, Mode::from_raw_mode(stat.st_mode & 0o7777));
    }
    let more = statx(&folder, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME);
    let born = more.ok().filter(|more| more.stx_mask & StatxFlags::BTIME.bits() != 0).map(|more| {
        let time = more.stx_btime;
        time.tv_sec.wrapping_mul(1_000_000_000).wrapping_add(i64::from(time.tv_nsec))
    });
    Ok(FolderId { device: stat.st_dev, inode: stat.st_ino, born })
}

/// The folder at an absolute path without links, and its identity.
pub fn identify(path: &Path) -> Result<FolderId, NotTaken> {
    let folder = open(path)?;
    identity(&folder).map_err(|errno| NotTaken::Unopened { path: path.into(), errno })
}

/// Opens the folder at an absolute path if it is the one that is meant: no part of the path is a link, and where the
/// identity is known it is that.
pub fn pinned(path: &Path, id: Option<&FolderId>) -> Result<OwnedFd, Unusable> {
    let shown = path.display();
    let unusable = |why: &dyn Display, errno: Option<Errno>| Unusable {
        why: format!("the workspace {shown} cannot be used: {why}"),
        is_lack: errno.is_some_and(|errno| lack(errno).is_some()),
    };
    let opened = open(path).map_err(|why| match why {
        NotTaken::Unopened { errno: Errno::NOSYS, .. } => Unusable::from(
            "file tools need Linux 5.6 or newer: this kernel cannot resolve paths beneath a folder".to_owned(),
        ),
        NotTaken::Unopened { errno, .. } => unusable(&why, Some(errno)),
        NotTaken::Link { .. } => unusable(&why, None),
    })?;
    if let Some(id) = id {
        let now = identity(&opened).map_err(|errno| unusable(&errno, Some(errno)))?;
        if !id.is(&now) {
            return Err(Unusable::from(format!(
                "the workspace {shown} is another folder than the one that was there when the job was accepted, so it is \
                 not touched. Enqueue the job again if this one is meant"
            )));
        }
    }
    Ok(opened)
}

/// Where an absolute path leads, and where on the way there links stand: whoever can change one of these places decides
/// what is found. All are real paths, as far as there is something.
pub fn places(path: &Path) -> Vec<PathBuf> {
    let mut ahead: VecDeque<OsString> = path.components().map(|part| part.as_os_str().to_owned()).collect();
    let (mut real, mut links) = (PathBuf::from("/"), Vec::new());
    while let Some(part) = ahead.pop_front() {
        match Path::new(&part).components().next() {
            Some(Component::ParentDir) => {
                real.pop();
            }
            Some(Component::RootDir) => real = "/".into(),
            Some(Component::Normal(name)) => {
                let next = real.join(name);
                match std::fs::read_link(&next) {
                    Ok(target) if links.len() < MAX_LINKS => {
                        target.components().rev().for_each(|part| ahead.push_front(part.as_os_str().to_owned()));
                        links.push(next);
                    }
                    _ => real = next,
                }
            }
            _ => {}
        }
    }
    links.push(real);
    links
}

fn first_link(path: &Path) -> Option<PathBuf> {
    // Without a slash at its end, behind which a link would be followed.
    let path: PathBuf = path.components().collect();
    let mut ancestors: Vec<_> = path.ancestors().collect();
    ancestors.reverse();
    ancestors.into_iter().find(|part| part.is_symlink()).map(Path::to_owned)
}
