//! The two processes that make a sandbox and stay with it.
//!
//! The **launcher** is our own program, started anew: it has one thread, which new namespaces need, and nothing of
//! the worker's memory. It makes the namespaces and waits. Its child is the **first process** of the pid
//! namespace: it builds the root, starts the command, and watches the command, its limits and the worker.
//! When the first process ends, the kernel ends every other one of the namespace, whatever they did about signals,
//! sessions or parents. It ends
//!
//! - when the command's shell ended, or broke a limit;
//! - when the socket to the worker closes, which the kernel does for a worker that is killed;
//! - when the launcher ends, by the signal that a parent's death sends.

use std::convert::Infallible;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Resource, Rlimit, Signal, WaitOptions, WaitStatus, pidfd_open,
    set_dumpable_behavior, set_parent_process_death_signal, setrlimit, setsid, wait, waitpid,
};
use rustix::thread::{CapabilitySet, CapabilitySets, UnshareFlags};

use super::spec::{End, Limit, Spec};
use super::sys::{Fork, fork};
use super::{root, sys, syscalls, usage};

/// How often limits are looked at.
const LOOK: Duration = Duration::from_millis(25);
/// The kernel's bound on processes lies so much above ours, which is the one that can be told of.
const SPARE_PROCESSES: u32 = 32;
/// Process numbers below this are not given out a second time.
const RESERVED_PIDS: u32 = 300;

/// The life of a sandbox; standard input is the socket to the worker.
pub(super) fn live() -> i32 {
    if sys::close_inherited().is_err() {
        return 2;
    }
    let Ok(socket) = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).map(UnixStream::from) else { return 2 };
    match launch(socket) {
        Ok(()) => 0,
        Err(told) => told.tell(),
    }
}

/// Why there is no sandbox, and who is to hear of it.
struct Refusal {
    why: String,
    worker: UnixStream,
}

impl Refusal {
    fn tell(self) -> i32 {
        let _ = tell(&self.worker, &End::Refused(self.why));
        2
    }
}

fn tell(mut worker: &UnixStream, end: &End) -> std::io::Result<()> {
    worker.write_all(&serde_json::to_vec(end)?)
}

/// Makes the namespaces and their first process, and waits for its end.
fn launch(worker: UnixStream) -> Result<(), Refusal> {
    match prepare(&worker) {
        Err(why) => Err(Refusal { why, worker }),
        Ok((spec, was_root)) => match fork() {
            Err(error) => Err(Refusal { why: format!("a process cannot be made: {error}"), worker }),
            Ok(Fork::Child) => std::process::exit(match first_process(&spec, &worker, was_root) {
                Ok(Some(end)) => i32::from(tell(&worker, &end).is_err()),
                Ok(None) => 0,
                Err(why) => Refusal { why, worker }.tell(),
            }),
            Ok(Fork::Parent(pid)) => {
                drop(worker);
                let _ = waitpid(Some(pid), WaitOptions::empty());
                Ok(())
            }
        },
    }
}

/// Reads what is asked for, and leaves the host's namespaces. True if we are root on the host.
fn prepare(mut worker: &UnixStream) -> Result<(Spec, bool), String> {
    // Ctrl-C in the worker's terminal is meant for the worker.
    let _ = setsid();
    let mut length = [0; 4];
    worker.read_exact(&mut length).map_err(|error| format!("nobody says what to run: {error}"))?;
    let mut spec = vec![0; u32::from_le_bytes(length) as usize];
    worker.read_exact(&mut spec).map_err(|error| format!("nobody says what to run: {error}"))?;
    let spec = serde_json::from_slice(&spec).map_err(|error| format!("what to run is not understood: {error}"))?;

    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let namespaces = UnshareFlags::NEWUSER
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWNET
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWCGROUP;
    sys::leave(namespaces).map_err(|error| match error {
        Errno::NOSPC => "namespaces cannot be made: the host allows no more of them".into(),
        Errno::PERM => "namespaces cannot be made: the host does not allow it".into(),
        error => format!("namespaces cannot be made: {error}"),
    })?;
    let inside = root::USER;
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{inside} {user} 1")),
        ("gid_map", format!("{inside} {group} 1")),
    ] {
        fs::write(format!("/proc/self/{file}"), text).map_err(|error| format!("{file} cannot be written: {error}"))?;
    }
    Ok((spec, user == 0))
}

/// How the command ended; none if nobody is there any more to hear of it.
fn first_process(spec: &Spec, worker: &UnixStream, was_root: bool) -> Result<Option<End>, String> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| format!("prctl: {error}"))?;
    // Should memory become scarce, commands go first, and before any worker.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    bound_processes(spec.limits.processes, was_root)?;
    rustix::system::sethostname(b"sandbox").map_err(|error| format!("the host cannot be named: {error}"))?;
    std::net::UdpSocket::bind("0.0.0.0:0")
        .and_then(sys::loopback_up)
        .map_err(|error| format!("the loopback cannot be switched on: {error}"))?;
    root::build(spec)?;

    let (mut failures, failed) = std::io::pipe().map_err(|error| format!("a pipe: {error}"))?;
    let shell = match fork().map_err(|error| format!("a process cannot be made: {error}"))? {
        Fork::Parent(pid) => pid,
        Fork::Child => {
            let Err(why) = become_command(spec);
            let _ = { failed }.write_all(why.as_bytes());
            std::process::exit(127)
        }
    };
    drop(failed);
    // Nothing inside can look into this process; it may look at what they use, and nothing more.
    let sees = CapabilitySet::SYS_PTRACE;
    hold(sees).map_err(|error| format!("capabilities cannot be dropped: {error}"))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|error| format!("prctl: {error}"))?;

    let end = watch(shell, spec, worker).map_err(|error| format!("the command cannot be watched: {error}"))?;
    let mut why = String::new();
    // The other end is closed where the command began.
    if end == Some(End::Exited(127)) && failures.read_to_string(&mut why).is_ok() && !why.is_empty() {
        return Err(why);
    }
    Ok(end)
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

/// Holds these capabilities and none that could be taken up again.
fn hold(set: CapabilitySet) -> rustix::io::Result<()> {
    let sets = CapabilitySets { effective: set, permitted: set, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets)
}

/// Becomes the command, which ends this program; or says why not.
fn become_command(spec: &Spec) -> Result<Infallible, String> {
    let said = |what: &'static str| move |error: Errno| format!("{what}: {error}");
    setsid().map_err(said("a session cannot be made"))?;
    let nothing: OwnedFd = fs::File::open("/dev/null").map_err(|error| format!("/dev/null: {error}"))?.into();
    rustix::stdio::dup2_stdin(&nothing).map_err(said("standard input cannot be emptied"))?;
    rustix::process::umask(rustix::fs::Mode::WGRP | rustix::fs::Mode::WOTH);
    let _ = rustix::process::nice(5);

    let limits = &spec.limits;
    for (resource, most) in [
        (Resource::Core, 0),
        (Resource::Fsize, limits.written_mb << 20),
        (Resource::Nofile, 1024),
        (Resource::Nproc, u64::from(limits.processes + SPARE_PROCESSES)),
        // For one process, reserved or not; what is used by all together is looked at.
        (Resource::Data, 2 * (limits.memory_mb << 20)),
        (Resource::Stack, 8 << 20),
        (Resource::Memlock, 8 << 20),
    ] {
        // It may be less already, and is then not to be raised.
        let most = rustix::process::getrlimit(resource).maximum.map_or(most, |now| now.min(most));
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })
            .map_err(said("a limit cannot be set"))?;
    }

    for capability in CapabilitySet::all() {
        // An older kernel does not know them all.
        let _ = rustix::thread::remove_capability_from_bounding_set(capability);
    }
    rustix::thread::clear_ambient_capability_set().map_err(said("capabilities cannot be dropped"))?;
    hold(CapabilitySet::empty()).map_err(said("capabilities cannot be dropped"))?;
    rustix::thread::set_no_new_privs(true).map_err(said("privileges cannot be locked"))?;
    let directory = spec.workspace.join(&spec.directory);
    rustix::process::chdir(&directory)
        .map_err(|error| format!("the folder {} cannot be entered: {error}", spec.directory.display()))?;
    syscalls::restrict()?;
    let error = Command::new("/bin/sh")
        .args(["-c", &spec.command])
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
        .exec();
    Err(format!("/bin/sh cannot be started: {error}"))
}

/// Waits for the end of the shell, of its time or another limit, or of the worker.
fn watch(shell: Pid, spec: &Spec, worker: &UnixStream) -> rustix::io::Result<Option<End>> {
    let began = Instant::now();
    let ended = pidfd_open(shell, PidfdFlags::empty())?;
    let look = Timespec { tv_sec: 0, tv_nsec: LOOK.as_nanos() as _ };
    loop {
        let mut events = [PollFd::new(worker, PollFlags::IN), PollFd::new(&ended, PollFlags::IN)];
        match poll(&mut events, Some(&look)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        // Nothing more is ever said, so this is its end.
        if !events[0].revents().is_empty() {
            return Ok(None);
        }
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid == shell {
                // What multiplies faster than we look stops the shell by the kernel's bound first.
                let is_flooded = usage::broken(&spec.limits) == Some(Limit::Processes);
                return Ok(Some(if is_flooded { End::Limited(Limit::Processes) } else { end_of(status) }));
            }
        }
        if began.elapsed() >= spec.time {
            return Ok(Some(End::Limited(Limit::Time)));
        }
        if let Some(limit) = usage::broken(&spec.limits) {
            return Ok(Some(End::Limited(limit)));
        }
    }
}

fn end_of(status: WaitStatus) -> End {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => End::Exited(code),
        (None, signal) => End::Signalled(signal.unwrap_or(0)),
    }
}
