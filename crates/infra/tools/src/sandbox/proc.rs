//! What the kernel tells of the processes of a sandbox, to somebody outside of it.

use std::fs;
use std::io::ErrorKind;

pub(super) struct Unseen;

pub(super) type Looked<T> = Result<T, Unseen>;

/// The numbers of the processes there are, but for the first.
pub(super) fn pids() -> Looked<Vec<String>> {
    let names = fs::read_dir("/proc").map_err(|_| Unseen)?.flatten();
    let numbers = names.filter_map(|entry| entry.file_name().into_string().ok());
    Ok(numbers.filter(|name| name.parse::<u32>().is_ok_and(|n| n > 1)).collect())
}

/// What the kernel tells of a process; none if it is gone.
pub(super) fn of(pid: &str, file: &str) -> Looked<Option<String>> {
    match fs::read_to_string(format!("/proc/{pid}/{file}")) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        Err(_) => Err(Unseen),
    }
}

/// The thread that tells of a process's memory, with its status: the first one, or another where that has ended before the
/// others. None if the process is ending: it has no memory any more.
pub(super) fn speaker(pid: &str, status: String) -> Looked<Option<(String, String)>> {
    const HAS_MEMORY: &str = "\nVmSize:";
    if status.contains(HAS_MEMORY) {
        return Ok(Some((pid.to_owned(), status)));
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    for thread in threads.filter_map(|entry| entry.file_name().into_string().ok()) {
        let status = of(&thread, "status")?.unwrap_or_default();
        if status.contains(HAS_MEMORY) {
            return Ok(Some((thread, status)));
        }
    }
    Ok(None)
}

/// The same as [`of`], of whatever thread the process has left.
pub(super) fn of_any(pid: &str, file: &str) -> Looked<Option<String>> {
    // Of one that is ending some kernels tell nothing more; whoever waits for it takes over what it wrote.
    for _ in 0..100 {
        match of(pid, file) {
            Ok(Some(text)) if !text.is_empty() => return Ok(Some(text)),
            told => {
                let status = of(pid, "status")?.unwrap_or_default();
                let Some((thread, _)) = speaker(pid, status)? else { return Ok(None) };
                if thread != pid {
                    match of(&thread, file) {
                        Ok(Some(text)) => return Ok(Some(text)),
                        // It has ended since; perhaps there is one more.
                        _ => continue,
                    }
                }
                // It is there, and does not tell.
                return told;
            }
        }
    }
    Err(Unseen)
}

pub(super) struct Mapping<'a> {
    /// Device and number of the file.
    pub inode: &'a str,
    /// How far into the file it reaches.
    pub end: u64,
    pub name: &'a str,
}

impl<'a> Mapping<'a> {
    pub fn of(line: &'a str) -> Option<Self> {
        let mut parts = line.splitn(4, ' ');
        let (from, to) = parts.next()?.split_once('-')?;
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let offset = hex(parts.nth(1)?)?;
        let rest = parts.next()?;
        let name = rest.find(" /").map_or("", |at| &rest[at + 1..]);
        let inode = rest.get(..rest.len() - name.len())?.trim_end();
        Some(Mapping { inode, end: offset + hex(to)?.checked_sub(hex(from)?)?, name })
    }

    pub fn device(&self) -> Option<u64> {
        let (major, minor) = self.inode.split(' ').next()?.split_once(':')?;
        let hex = |text| u32::from_str_radix(text, 16).ok();
        Some(rustix::fs::makedev(hex(major)?, hex(minor)?))
    }

    pub fn number(&self) -> Option<u64> {
        self.inode.split(' ').nth(1)?.parse().ok()
    }
}

pub(super) fn kib(text: &str, names: &[&str]) -> u64 {
    names.iter().map(|name| field(text, name) << 10).sum()
}

/// The number behind a name at the beginning of a line; 0 where there is none.
pub(super) fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()).and_then(|number| number.parse().ok()).unwrap_or(0)
}
