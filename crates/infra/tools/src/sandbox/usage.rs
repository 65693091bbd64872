//! How much the processes of a sandbox use, added up from outside of it by the meter.
//!
//! Where control groups hold memory and processes, what is left is the disk, and the sockets. Where there are none, all is
//! added up here. What the kernel holds for somebody counts as theirs: page tables, stacks, the buffers of sockets and
//! pipes, files of `/tmp`. What may not be looked at counts as too much.

use std::collections::BTreeMap;
use std::fs::File;

use rustix::fs::{StatVfs, fstatvfs};

use super::disk::Disk;
use super::inside::SOCKET_BUFFER;
use super::proc::{Looked, Mapping, Unseen, field, kib, of, of_any, pids, speaker};
use super::spec::{CommandLimits, Exact, Limit};
use super::sys;

/// What the kernel keeps of a process or thread itself.
const THREAD: u64 = 32 << 10;
/// What an open file may hold that is in nobody's memory: two pages of a pipe.
const OPEN_FILE: u64 = 8 << 10;
/// Open files that every process may have besides.
const FEW_FILES: u64 = 64;
/// What the kernel keeps of a file in `/tmp` beside its content.
const TMP_FILE: u64 = 1 << 10;

pub(super) struct Usage {
    limits: CommandLimits,
    exact: Exact,
    tmp: Option<File>,
    disk: Option<Disk>,
}

#[derive(Default)]
struct Sum {
    processes: u64,
    /// Bytes of memory that belong to processes; pages that several share count for each.
    memory: u64,
    /// Bytes that the kernel keeps for them.
    kernel: u64,
    /// Bytes of addresses.
    mapped: u64,
    /// Bytes written to disks, by those that are there and by those that ended.
    written: u64,
}

impl Usage {
    /// The use of the sandbox whose root and whose workspace are ours, from now on.
    pub fn new(limits: CommandLimits, exact: Exact) -> Usage {
        Usage { limits, exact, tmp: File::open("/tmp").ok(), disk: Disk::new(".").ok() }
    }

    /// The limit that is broken, if one is.
    pub fn broken(&mut self) -> Option<Limit> {
        self.look().unwrap_or(Some(Limit::Unseen))
    }

    fn look(&mut self) -> Looked<Option<Limit>> {
        let pids = pids()?;
        let sum = self.sum(&pids)?;
        if !self.exact.processes && sum.processes > u64::from(self.limits.processes) {
            return Ok(Some(Limit::Processes));
        }
        let most_written = self.limits.written_mb << 20;
        if sum.written > most_written || self.disk.as_mut().ok_or(Unseen)?.holds_more_than(most_written, &pids)? {
            return Ok(Some(Limit::Written));
        }
        let most = self.limits.memory_mb << 20;
        let sockets = sockets()?;
        let is_over = match self.exact.memory {
            // What sockets hold is not all counted by every kernel, so it is bounded by itself.
            true => sockets > most,
            false => self.is_memory_over(most, &sum, sockets, &pids)?,
        };
        Ok(is_over.then_some(Limit::Memory))
    }

    fn is_memory_over(&self, most: u64, sum: &Sum, sockets: u64, pids: &[String]) -> Looked<bool> {
        let unowned = self.tmp()? + sys::shared_memory() + sockets + sum.kernel;
        // Each of these is more exact than the one before, and slower.
        if sum.mapped + unowned <= most {
            return Ok(false);
        }
        let unowned = unowned + shared(pids)?;
        Ok(sum.memory + unowned > most && owned(pids)? + unowned > most)
    }

    fn sum(&self, pids: &[String]) -> Looked<Sum> {
        let mut sum = Sum { written: written("1")?, ..Sum::default() };
        let is_all_exact = self.exact.memory && self.exact.processes;
        for pid in pids {
            sum.written += written(pid)?;
            if is_all_exact {
                continue;
            }
            // One that is gone by now uses nothing; one that is going is still one.
            let status = of(pid, "status")?.unwrap_or_default();
            let threads = field(&status, "Threads:");
            let status = speaker(pid, status)?.map_or(String::new(), |(_, status)| status);
            sum.processes += threads;
            sum.memory += kib(&status, &["RssAnon:", "VmSwap:", "HugetlbPages:"]);
            let files = field(&status, "FDSize:").saturating_sub(FEW_FILES);
            sum.kernel += kib(&status, &["VmPTE:"]) + threads * THREAD + files * OPEN_FILE;
            sum.mapped += kib(&status, &["VmSize:", "HugetlbPages:"]);
        }
        Ok(sum)
    }

    /// Bytes in the sandbox's own `/tmp`.
    fn tmp(&self) -> Looked<u64> {
        let at: StatVfs = fstatvfs(self.tmp.as_ref().ok_or(Unseen)?).map_err(|_| Unseen)?;
        Ok((at.f_blocks - at.f_bfree) * at.f_frsize + (at.f_files - at.f_ffree) * TMP_FILE)
    }
}

/// Bytes that a process, and the children it has waited for, had written to disks.
fn written(pid: &str) -> Looked<u64> {
    Ok(field(&of_any(pid, "io")?.unwrap_or_default(), "write_bytes:"))
}

/// Bytes of processes' own memory, each page that several share counted once.
fn owned(pids: &[String]) -> Looked<u64> {
    let names = ["Pss_Anon:", "SwapPss:"];
    pids.iter().map(|pid| Ok(kib(&of_any(pid, "smaps_rollup")?.unwrap_or_default(), &names))).sum()
}

/// Bytes of memory that processes have in common without its being anybody's: what was once touched of it stays, whether or
/// not somebody still has it in sight. So it counts whole.
fn shared(pids: &[String]) -> Looked<u64> {
    let mut sizes = BTreeMap::new();
    for pid in pids {
        for mapping in of_any(pid, "maps")?.unwrap_or_default().lines().filter_map(Mapping::of) {
            if mapping.name.starts_with("/dev/zero (deleted)") {
                let size = sizes.entry(mapping.inode.to_owned()).or_insert(0);
                *size = mapping.end.max(*size);
            }
        }
    }
    Ok(sizes.into_values().sum())
}

/// The most that the sockets of the sandbox's network may hold, in both directions.
fn sockets() -> Looked<u64> {
    // The first process is in the same network.
    let text = of("1", "net/sockstat")?.ok_or(Unseen)?;
    let count = text.lines().find_map(|line| line.strip_prefix("sockets: used ")?.trim().parse::<u64>().ok());
    let tcp = text.lines().find_map(|line| line.strip_prefix("TCP: inuse ")?.split(' ').next()?.parse::<u64>().ok());
    Ok((count.ok_or(Unseen)? + tcp.unwrap_or(0)) * SOCKET_BUFFER)
}
