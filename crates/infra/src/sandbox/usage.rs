//! How much the processes of a sandbox use, added up by their first one.

use std::fs;

use rustix::fs::statvfs;

use super::spec::{Limit, Limits};
use super::sys;

/// All processes together.
#[derive(Default)]
struct Usage {
    /// Processes and threads.
    processes: u64,
    /// Bytes of memory that belong to processes; pages that several share count for each.
    memory: u64,
    /// Bytes written to disks, by those that are there and by those that ended.
    written: u64,
}

/// The limit that is broken, if one is. To be asked by the first process of the pid namespace, with `/proc` its own.
pub(super) fn broken(limits: &Limits) -> Option<Limit> {
    let used = usage();
    let most = limits.memory_mb << 20;
    if used.processes > u64::from(limits.processes) {
        return Some(Limit::Processes);
    }
    if used.written > limits.written_mb << 20 {
        return Some(Limit::Written);
    }
    let unowned = tmp() + sys::shared_memory();
    // Exact, and slow: so only when the quick sum says too much.
    (used.memory + unowned > most && shares() + unowned > most).then_some(Limit::Memory)
}

/// The numbers of the processes there are, but for our own.
fn pids() -> impl Iterator<Item = String> {
    let names = fs::read_dir("/proc").into_iter().flatten().flatten();
    names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.parse::<u32>().is_ok_and(|n| n > 1))
}

fn usage() -> Usage {
    let mut usage = Usage { written: written("1"), ..Usage::default() };
    for pid in pids() {
        // One that is gone by now uses nothing.
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        usage.processes += field(&status, "Threads:");
        usage.memory += kib(&status, &["RssAnon:", "RssShmem:", "VmSwap:"]);
        usage.written += written(&pid);
    }
    usage
}

/// Bytes that a process, and the children it has waited for, had written to disks.
fn written(pid: &str) -> u64 {
    field(&fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default(), "write_bytes:")
}

/// Bytes of memory, each shared page counted once.
fn shares() -> u64 {
    let of = |pid| fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    pids().map(|pid| kib(&of(pid), &["Pss_Anon:", "Pss_Shmem:", "SwapPss:"])).sum()
}

/// Bytes in the sandbox's own `/tmp`.
fn tmp() -> u64 {
    statvfs("/tmp").map_or(0, |tmp| (tmp.f_blocks - tmp.f_bfree) * tmp.f_frsize)
}

fn kib(text: &str, names: &[&str]) -> u64 {
    names.iter().map(|name| field(text, name) << 10).sum()
}

/// The number behind a name at the beginning of a line; 0 where there is none.
fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()).and_then(|number| number.parse().ok()).unwrap_or(0)
}
