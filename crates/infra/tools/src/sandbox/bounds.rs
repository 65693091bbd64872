//! What the namespaces of a sandbox bound by themselves, once they are told how much.

use std::fs;
use std::io::ErrorKind;

use super::spec::CommandLimits;

/// The kernel's bound on processes lies so much above ours where it is only to stop what is faster than any look.
pub(super) const SPARE_PROCESSES: u32 = 32;
/// Files that one process may have open.
pub(super) const OPEN_FILES: u64 = 1024;
/// The most that one socket may hold in one direction.
pub(super) const SOCKET_BUFFER: u64 = 208 << 10;

/// Process numbers below this are not given out a second time.
const RESERVED_PIDS: u32 = 300;

/// Has the kernel bound how many processes there are, or says that it cannot.
pub(super) fn processes(most: u32, was_root: bool) -> Result<(), String> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    let kernel: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    // Since then a namespace has a bound of its own. Before, this would set the host's.
    if kernel >= (6, 14) {
        let bound = (RESERVED_PIDS + most + SPARE_PROCESSES).to_string();
        let file = "/proc/sys/kernel/pid_max";
        fs::write(file, &bound).map_err(|error| format!("{file} cannot be written: {error}"))?;
        return Ok(());
    }
    // Since then a user's processes are counted in each namespace for itself; root's are never bounded.
    match (kernel >= (5, 14), was_root) {
        (true, false) => Ok(()),
        (true, true) => Err(format!(
            "Linux {release} cannot bound the processes of root: run posse as another user, or on Linux 6.14 or newer"
        )),
        (false, _) => Err(format!("Linux {release} is too old: it needs 5.14 or newer, or 6.14 for root")),
    }
}

/// Has the kernel bound what it holds for the processes of these namespaces without any process having it in its memory.
/// True if that holds for System V messages and semaphores too, which older kernels let nobody bound.
pub(super) fn namespaces(limits: &CommandLimits) -> Result<bool, String> {
    let pages = ((limits.memory_mb << 20) / rustix::param::page_size() as u64).to_string();
    let buffers = format!("4096 65536 {SOCKET_BUFFER}");
    let user = [
        ("user/max_user_namespaces", "0"),
        ("user/max_inotify_instances", "32"),
        ("user/max_inotify_watches", "16384"),
        ("net/ipv4/tcp_rmem", &buffers),
        ("net/ipv4/tcp_wmem", &buffers),
    ];
    for (name, value) in user {
        set(name, value)?;
    }
    let ipc = [
        ("kernel/shmall", pages.as_str()),
        ("kernel/msgmni", "32"),
        // Semaphores of a set, of all, operations at once, sets.
        ("kernel/sem", "250 8000 32 128"),
        ("fs/mqueue/queues_max", "32"),
    ];
    Ok(ipc.into_iter().all(|(name, value)| set(name, value).is_ok()))
}

/// Sets a value of our own namespaces. What a kernel was built without needs no bound.
fn set(name: &str, value: &str) -> Result<(), String> {
    let file = format!("/proc/sys/{name}");
    match fs::OpenOptions::new()
        .write(true)
        .open(&file)
        .and_then(|mut open| std::io::Write::write_all(&mut open, value.as_bytes()))
    {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(format!("{file} cannot be written: {error}")),
        _ => Ok(()),
    }
}
