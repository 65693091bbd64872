//! Why a database cannot be written: SQLite's texts say less than the system does when it is asked.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, StatVfsMountFlags, access, statvfs};
use rustix::io::Errno;

use super::paths::beside;

/// What is written to see whether that can be done.
static PROBE: [u8; 64 << 10] = [0; 64 << 10];

/// Why the database at `path` cannot be written, and what to do about it; none if the system finds nothing wrong. `user`
/// is the one who tries.
pub(super) fn find(path: &Path, user: &str) -> Option<String> {
    if let Err(error) = File::open("/dev/null") {
        return errno(&error).and_then(|errno| of_errno(errno, path, user));
    }
    if !path.exists() {
        return Some("there is no such file any more; put it back, or restore a backup (posse db restore FILE)".into());
    }
    let folder = path.parent().unwrap_or(path);
    if statvfs(folder).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY)) {
        return of_errno(Errno::ROFS, path, user);
    }
    let rights = "give that user the right to write the file and its folder, or run posse as the user who owns them";
    for file in [path.to_owned(), beside(path, "-wal"), beside(path, "-shm"), folder.to_owned()] {
        if file.exists() && access(&file, Access::WRITE_OK).is_err() {
            return Some(format!("{user} may not write {}; {rights}", file.display()));
        }
    }
    let failed = write_probe(&beside(path, &format!(".probe-{}", std::process::id()))).err()?;
    of_errno(errno(&failed)?, path, user)
}

fn write_probe(probe: &PathBuf) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(probe)?;
    let written = file.write_all(&PROBE).and_then(|()| file.sync_all());
    let _ = std::fs::remove_file(probe);
    written
}

fn errno(error: &std::io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw_os_error)
}

fn of_errno(errno: Errno, path: &Path, user: &str) -> Option<String> {
    let folder = path.parent().unwrap_or(path).display();
    Some(match errno {
        Errno::NOSPC => format!("the file system of {folder} is full; free some space"),
        Errno::DQUOT => format!("the disk quota of {user} is used up; free some space, or have it raised"),
        Errno::ROFS => format!("the file system of {folder} is mounted read-only; mount it to be written"),
        Errno::IO => {
            format!("the device under {folder} fails (I/O error); see the kernel's log, and copy what is there")
        }
        Errno::FBIG => format!("a file in {folder} may not grow any more (ulimit -f, or the file system's own limit)"),
        Errno::MFILE => {
            "this process has as many files open as it may (ulimit -n); allow more, or lower --slots".into()
        }
        Errno::NFILE => "the system has as many files open as it may (sysctl fs.file-max); allow more".into(),
        Errno::ACCESS | Errno::PERM => format!("{user} may not write {folder}; give that user the right to"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_well_has_no_cause_and_what_is_missing_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("posse.db");
        assert!(find(&path, "user me").is_some_and(|said| said.contains("no such file")));
        std::fs::write(&path, "x").expect("is written");
        assert_eq!(find(&path, "user me"), None);
        assert_eq!(folder.path().read_dir().expect("can be listed").count(), 1, "nothing is left");
    }

    #[test]
    fn only_a_full_disk_is_called_full() {
        let said = |errno| of_errno(errno, Path::new("/data/posse.db"), "user me").unwrap_or_default();
        assert!(said(Errno::NOSPC).contains("is full"));
        for errno in [Errno::DQUOT, Errno::ROFS, Errno::IO, Errno::FBIG, Errno::MFILE, Errno::ACCESS] {
            assert!(!said(errno).is_empty() && !said(errno).contains("is full"), "{errno}: {}", said(errno));
        }
    }
}
