//! The first process of a sandbox's pid namespace, and how its child becomes the command.
//!
//! It builds the root, bounds what the namespaces can bound, gives up all rights, starts the command, and says how that
//! ended. It decides nothing and holds no limit: whatever a command could do to it, it could do only to itself.
//! When it ends, the kernel ends every other process of the namespace, whatever they did about signals, sessions or
//! parents.

use std::convert::Infallible;
use std::fs;
use std::io::{ErrorKind, PipeReader, PipeWriter, Read, Seek as _, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, WaitOptions, WaitStatus, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit, setsid, wait,
};
use rustix::thread::{CapabilitySet, CapabilitySets};
use serde::{Deserialize, Serialize};

use super::spec::{CommandLimits, End, Spec};
use super::sys::{Fork, fork};
use super::{root, sys, syscalls};

/// The kernel's bound on processes lies so much above ours where it is only to stop what is faster than any look.
const SPARE_PROCESSES: u32 = 32;
/// Files that one process may have open.
const OPEN_FILES: u64 = 1024;
/// The most that one socket may hold in one direction.
pub(super) const SOCKET_BUFFER: u64 = 208 << 10;

/// Process numbers below this are not given out a second time.
const RESERVED_PIDS: u32 = 300;

/// What the first process tells the launcher, each on a line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Word {
    /// Everything is there; the command begins when it is told to.
    Ready,
    /// The command never began.
    Failed(String),
    /// The command's shell ended.
    Ended(End),
}

/// The life of the first process. It ends when `go` does, at the latest.
pub(super) fn live(
    spec: &Spec,
    input: Option<OwnedFd>,
    was_root: bool,
    mut go: PipeReader,
    mut words: PipeWriter,
) -> i32 {
    let mut say = |word: &Word| {
        let mut line = serde_json::to_vec(word).unwrap_or_default();
        line.push(b'\n');
        words.write_all(&line).is_ok()
    };
    let ipc_is_bounded = match prepare(spec, was_root) {
        Ok(is_bounded) => is_bounded,
        Err(why) => return i32::from(!say(&Word::Failed(why))),
    };
    // Who is not told to go on has no launcher any more.
    if !say(&Word::Ready) || go.read_exact(&mut [0]).is_err() {
        return 1;
    }
    match run(spec, input, ipc_is_bounded) {
        Ok(end) => say(&Word::Ended(end)),
        Err(why) => say(&Word::Failed(why)),
    };
    // What the command left behind is still looked at; it ends with us.
    let _ = go.read_to_end(&mut Vec::new());
    0
}

/// Builds the sandbox around this process and gives up all rights in it. True if messages between its processes
/// are bounded.
fn prepare(spec: &Spec, was_root: bool) -> Result<bool, String> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| format!("prctl: {error}"))?;
    bound_processes(spec.limits.processes, was_root)?;
    let ipc_is_bounded = bound_namespaces(&spec.limits, spec.given.network)?;
    rustix::system::sethostname(b"sandbox").map_err(|error| format!("the host cannot be named: {error}"))?;
    if !spec.given.network {
        std::net::UdpSocket::bind("0.0.0.0:0")
            .and_then(sys::loopback_up)
            .map_err(|error| format!("the loopback cannot be switched on: {error}"))?;
    }
    root::build(spec)?;
    give_up_rights().map_err(|error| format!("privileges cannot be dropped: {error}"))?;
    Ok(ipc_is_bounded)
}

/// Holds one capability, which has no use here but to be one more than a command has: the kernel lets nobody look into a
/// process with more rights than his own. The meter may; that it looks is why this process can be looked into at all.
fn give_up_rights() -> rustix::io::Result<()> {
    sys::handle_no_signals();
    for capability in CapabilitySet::all() {
        // An older kernel does not know them all.
        let _ = rustix::thread::remove_capability_from_bounding_set(capability);
    }
    rustix::thread::clear_ambient_capability_set()?;
    hold(CapabilitySet::SYS_PTRACE)?;
    rustix::thread::set_no_new_privs(true)?;
    set_dumpable_behavior(DumpableBehavior::Dumpable)
}

/// Holds these capabilities and none that could be taken up again.
pub(super) fn hold(set: CapabilitySet) -> rustix::io::Result<()> {
    let sets = CapabilitySets { effective: set, permitted: set, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets)
}

/// Runs the command to the end of its shell.
fn run(spec: &Spec, input: Option<OwnedFd>, ipc_is_bounded: bool) -> Result<End, String> {
    let (mut failures, failed) = std::io::pipe().map_err(|error| format!("a pipe: {error}"))?;
    let shell = match fork().map_err(|error| format!("a process cannot be made: {error}"))? {
        Fork::Parent(pid) => pid,
        Fork::Child => {
            let Err(why) = match &spec.command {
                Some(command) => become_command(spec, command, input, ipc_is_bounded),
                None => become_program(spec),
            };
            let _ = { failed }.write_all(why.as_bytes());
            std::process::exit(127)
        }
    };
    drop((failed, input));
    // Whoever lost its parent is a child of ours, and waited for too: what it wrote counts.
    let end = loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == shell => break end_of(status),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(format!("the command cannot be waited for: {error}")),
        }
    };
    let mut why = String::new();
    // The other end is closed where the command began.
    if end == End::Exited(127) && failures.read_to_string(&mut why).is_ok() && !why.is_empty() {
        return Err(why);
    }
    Ok(end)
}

/// Becomes the command, which ends this program; or says why not.
fn become_command(
    spec: &Spec,
    command: &str,
    input: Option<OwnedFd>,
    ipc_is_bounded: bool,
) -> Result<Infallible, String> {
    setsid().map_err(said("a session cannot be made"))?;
    let input: OwnedFd = match (&spec.given.input, input) {
        (_, Some(input)) => input,
        (None, None) => fs::File::open("/dev/null").map_err(|error| format!("/dev/null: {error}"))?.into(),
        (Some(text), None) => holding(text).map_err(|error| format!("standard input cannot be made: {error}"))?.into(),
    };
    rustix::stdio::dup2_stdin(&input).map_err(said("standard input cannot be set"))?;
    rustix::process::umask(rustix::fs::Mode::WGRP | rustix::fs::Mode::WOTH);
    be_bounded(spec)?;
    sys::be_ended_by_file_limits();
    hold(CapabilitySet::empty()).map_err(said("capabilities cannot be dropped"))?;
    let directory = spec.workspace.join(&spec.directory);
    rustix::process::chdir(&directory)
        .map_err(|error| format!("the folder {} cannot be entered: {error}", spec.directory.display()))?;
    syscalls::restrict(ipc_is_bounded)?;
    let error = Command::new("/bin/sh")
        .args(["-c", command])
        .env_clear()
        .envs([
            ("HOME", "/tmp"),
            ("LANG", "C.UTF-8"),
            ("LOGNAME", "agent"),
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            ("SHELL", "/bin/sh"),
            ("TERM", "dumb"),
            ("USER", "agent"),
        ])
        .envs(spec.given.environment.iter().map(|(name, value)| (name, value)))
        .exec();
    Err(format!("/bin/sh cannot be started: {error}"))
}

/// Becomes a program of an agent; or says why not. What it runs in is this program, so nothing else is started.
fn become_program(spec: &Spec) -> Result<Infallible, String> {
    setsid().map_err(said("a session cannot be made"))?;
    be_bounded(spec)?;
    hold(CapabilitySet::empty()).map_err(said("capabilities cannot be dropped"))?;
    syscalls::restrict_to_computing()?;
    sys::close_inherited().map_err(|error| format!("files cannot be closed: {error}"))?;
    crate::code::live()
}

fn said(what: &'static str) -> impl FnOnce(Errno) -> String {
    move |error| format!("{what}: {error}")
}

/// Has the kernel bound what this process, and each that it makes, may use.
fn be_bounded(spec: &Spec) -> Result<(), String> {
    let _ = rustix::process::nice(5);
    let limits = &spec.limits;
    if let Some(seconds) = spec.processor {
        // First a signal that says which limit it was.
        let limit = Rlimit { current: Some(seconds), maximum: Some(seconds + 1) };
        setrlimit(Resource::Cpu, limit).map_err(said("a limit cannot be set"))?;
    }
    for (resource, most) in [
        // The one value at which the kernel starts no program of the host for a core either.
        (Resource::Core, 1),
        (Resource::Fsize, limits.written_mb << 20),
        (Resource::Nofile, OPEN_FILES),
        (Resource::Nproc, u64::from(limits.processes + SPARE_PROCESSES)),
        // For one process, reserved or not; what is used by all together is looked at.
        (Resource::Data, 2 * (limits.memory_mb << 20)),
        (Resource::Stack, 8 << 20),
        (Resource::Memlock, 8 << 20),
        (Resource::Msgqueue, 1 << 20),
        (Resource::Sigpending, 4096),
        (Resource::Nice, 0),
        (Resource::Rtprio, 0),
    ] {
        // It may be less already, and is then not to be raised.
        let most = rustix::process::getrlimit(resource).maximum.map_or(most, |now| now.min(most));
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })
            .map_err(said("a limit cannot be set"))?;
    }
    Ok(())
}

/// A file in memory that has this text, to be read from its beginning.
fn holding(text: &str) -> std::io::Result<fs::File> {
    let mut file: fs::File = rustix::fs::memfd_create("input", rustix::fs::MemfdFlags::CLOEXEC)?.into();
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file)
}

fn end_of(status: WaitStatus) -> End {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => End::Exited(code),
        (None, signal) => End::Signalled(signal.unwrap_or(0)),
    }
}

/// Has the kernel bound how many processes there are, or says that it cannot.
fn bound_processes(most: u32, was_root: bool) -> Result<(), String> {
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
fn bound_namespaces(limits: &CommandLimits, is_in_hosts_network: bool) -> Result<bool, String> {
    let pages = ((limits.memory_mb << 20) / rustix::param::page_size() as u64).to_string();
    let buffers = format!("4096 65536 {SOCKET_BUFFER}");
    let user = [
        ("user/max_user_namespaces", "0"),
        ("user/max_inotify_instances", "32"),
        ("user/max_inotify_watches", "16384"),
        ("net/ipv4/tcp_rmem", &buffers),
        ("net/ipv4/tcp_wmem", &buffers),
    ];
    // The host's network is not ours to bound.
    for (name, value) in user.into_iter().filter(|(name, _)| !(is_in_hosts_network && name.starts_with("net/"))) {
        set_bound(name, value)?;
    }
    let ipc = [
        ("kernel/shmall", pages.as_str()),
        ("kernel/msgmni", "32"),
        // Semaphores of a set, of all, operations at once, sets.
        ("kernel/sem", "250 8000 32 128"),
        ("fs/mqueue/queues_max", "32"),
    ];
    Ok(ipc.into_iter().all(|(name, value)| set_bound(name, value).is_ok()))
}

/// Sets a value of our own namespaces. What a kernel was built without needs no bound.
fn set_bound(name: &str, value: &str) -> Result<(), String> {
    let file = format!("/proc/sys/{name}");
    let open = fs::OpenOptions::new().write(true).open(&file);
    match open.and_then(|mut open| open.write_all(value.as_bytes())) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(format!("{file} cannot be written: {error}")),
        _ => Ok(()),
    }
}
