//! Who has a database open, as far as this host can tell.
//!
//! SQLite locks bytes of its files: a process holds a shared lock on the database file for as long as it has it open in
//! this journal mode, and a writer holds one on a byte of the shared memory beside it. A file that this process may have
//! open itself is not opened here to ask: closing any descriptor of a file releases all locks of the process on it.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::paths::beside;

/// The bytes of a database file that locks are on: `PENDING_BYTE` and those behind it, in SQLite's words.
const LOCKS: (i64, i64) = (0x4000_0000, 512);
/// The byte of the shared memory that a writer locks, `WAL_WRITE_LOCK`.
const WRITE: u64 = 120;

/// Some process that has the database at `path` open, in words. This process must not have it open.
pub(super) fn holder(path: &Path) -> Option<String> {
    let file = File::open(path).ok()?;
    // SAFETY: a structure of numbers, for which zero is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    (lock.l_start, lock.l_len) = LOCKS;
    // SAFETY: the file is open, and this command reads and writes this structure.
    let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    (asked == 0 && i32::from(lock.l_type) != libc::F_UNLCK).then(|| named(u32::try_from(lock.l_pid).unwrap_or(0)))
}

/// The process that holds the write lock of the database at `path`, in words; asked of the kernel's own list.
pub(super) fn writer(path: &Path) -> Option<String> {
    let memory = beside(path, "-shm").metadata().ok()?;
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| writer_in(line, memory.ino())).map(named)
}

/// Of a line such as `1: POSIX  ADVISORY  WRITE 4711 fd:01:1234 120 120`: the process, if it is that lock.
fn writer_in(line: &str, inode: u64) -> Option<u32> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (kind, _, access, pid, file) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let range: [u64; 2] = [fields.next()?.parse().ok()?, fields.next()?.parse().ok()?];
    let is_it = kind == "POSIX" && access == "WRITE" && file.rsplit(':').next()?.parse() == Ok(inode);
    (is_it && range[0] <= WRITE && WRITE <= range[1]).then(|| pid.parse().ok())?.filter(|pid| *pid > 0)
}

fn named(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    match (pid, name.trim()) {
        (0, _) => "another process".into(),
        (pid, "") => format!("process {pid}"),
        (pid, name) => format!("process {pid} ({name})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_of_a_writer_is_found_among_others() {
        let line = "17: POSIX  ADVISORY  WRITE 4711 fd:01:1234 120 120";
        assert_eq!(writer_in(line, 1234), Some(4711));
        assert_eq!(writer_in(line, 1235), None);
        assert_eq!(writer_in(&line.replace("WRITE", "READ"), 1234), None);
        assert_eq!(writer_in(&line.replace("120 120", "123 123"), 1234), None);
        assert_eq!(writer_in(&line.replace("120 120", "120 EOF"), 1234), None);
        assert_eq!(writer_in("", 1234), None);
    }
}
