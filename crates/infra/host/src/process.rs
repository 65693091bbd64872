//! The host's clocks, and its processes: which of the workers on the list exist no more.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use posse_core::clock::{Clock, Millis};
use posse_core::job::lease::WorkerId;
use posse_core::port::{ProcessProbe, WorkerRecord};

#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Millis {
        // A clock before 1970 is wrong in a way that only its owner can mend.
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as Millis)
    }

    fn elapsed(&self) -> Millis {
        // Unlike the standard library's, this one goes on while the machine sleeps.
        let since_boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        since_boot.tv_sec * 1000 + since_boot.tv_nsec / 1_000_000
    }
}

/// The machine's monotonic clock, which all its processes share, in nanoseconds. For measuring.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

#[derive(Debug, Clone, Copy, Default)]
pub struct LinuxProcessProbe;

impl ProcessProbe for LinuxProcessProbe {
    fn dead(&self, workers: &[WorkerRecord]) -> Vec<WorkerId> {
        here(workers, |worker| is_gone(worker.pid, worker.pid_started))
    }

    fn alive(&self, workers: &[WorkerRecord]) -> Vec<WorkerId> {
        // One whose start was not known when it was put on the list may be another process by now.
        let runs = |worker: &WorkerRecord| start_ticks_of(worker.pid).is_some_and(|now| now == worker.pid_started);
        here(workers, runs)
    }
}

/// The workers on this host for which `is` holds.
fn here(workers: &[WorkerRecord], is: impl Fn(&WorkerRecord) -> bool) -> Vec<WorkerId> {
    let here = host();
    if here.is_empty() {
        return Vec::new();
    }
    let found = workers.iter().filter(|worker| worker.host == here && is(worker));
    found.map(|worker| WorkerId(worker.id.clone())).collect()
}

/// What a [`WorkerRecord`] says of this process: its host, process id and the start of it.
pub fn this_process() -> (String, u32, u64) {
    let pid = std::process::id();
    (host(), pid, start_ticks_of(pid).unwrap_or(0))
}

/// Has a write beyond the limit on the size of files (`ulimit -f`, LimitFSIZE=) be an error from now on, as on a full disk:
/// the kernel's signal for it would end this process with everything that is under way.
pub fn outlive_file_limits() {
    // SAFETY: ignoring a signal runs no code of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// The bytes that this user may still write to the file system of `folder`; none if it cannot be asked.
pub fn free_space(folder: &std::path::Path) -> Option<u64> {
    let space = rustix::fs::statvfs(folder).ok()?;
    Some(space.f_bavail * space.f_frsize)
}

/// When a process was started, in the kernel's ticks since boot; none if it is dead, even if nobody has waited for it yet.
pub fn start_ticks_of(pid: u32) -> Option<u64> {
    match look(pid) {
        Process::Runs { started } => Some(started),
        Process::Gone | Process::Unknown => None,
    }
}

/// The machine, its boot, and the space of process ids: equal only where a process id means the
/// same process. Two containers of one machine have ids of their own. Empty where it cannot be told.
fn host() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    match boot.trim() {
        "" => String::new(),
        boot => format!("{boot} {}", space.display()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Process {
    Runs {
        started: u64,
    },
    /// There is none, or only its remains.
    Gone,
    Unknown,
}

fn look(pid: u32) -> Process {
    match fs::read(format!("/proc/{pid}/stat")) {
        Ok(stat) => read_stat(&String::from_utf8_lossy(&stat)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Process::Gone,
        Err(_) => Process::Unknown,
    }
}

fn read_stat(stat: &str) -> Process {
    // The second field is the program's name in parentheses, and may itself contain any of both.
    let Some((_, rest)) = stat.rsplit_once(')') else { return Process::Unknown };
    let mut fields = rest.split_ascii_whitespace();
    // Field 3: the state. Z, X and x are processes that ended and were not yet taken off the list. Field
    // 22, 18 behind the next one: the start.
    match (fields.next(), fields.nth(18).and_then(|ticks| ticks.parse().ok())) {
        (Some("Z" | "X" | "x"), _) => Process::Gone,
        (_, Some(started)) => Process::Runs { started },
        _ => Process::Unknown,
    }
}

/// Whether that very process is certainly gone. One whose start was not known when it was put on
/// the list is gone only when there is none of its id.
fn is_gone(pid: u32, started: u64) -> bool {
    // Where processes of other users are hidden, "not there" says nothing.
    let can_see = || fs::metadata("/proc/1").is_ok();
    match look(pid) {
        Process::Gone => can_see(),
        Process::Runs { started: now } => started != 0 && now != started,
        Process::Unknown => false,
    }
}
