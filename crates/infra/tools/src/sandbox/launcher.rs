//! The launcher: our own program, started anew for one command. It has one thread, which new namespaces need, and
//! nothing of the worker's memory.
//!
//! It makes the namespaces, their first process ([`super::inside`]) and the meter ([`super::meter`]), and watches the
//! command from outside: it is no process of the pid namespace, so nothing inside can name it, whatever it may do to its
//! equals. It ends the first process, and with that everything in the namespace,
//!
//! - when the command's shell ended, its time is over, or another limit was broken or cannot be looked at;
//! - when the socket to the worker closes, which the kernel does for a worker that is killed.
//!
//! When the launcher itself is killed, the first process and the meter end by the signal for a parent's death. Nothing it
//! waits for can keep it from noticing any of these: what may block is the meter's.

use std::fs;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, set_dumpable_behavior, setsid};
use rustix::thread::{CapabilitySet, UnshareFlags};

use super::group::Group;
use super::inside::{self, Word};
use super::meter::{Meter, Seen};
use super::spec::{End, Exact, Limit, Report, Spec, hear_length};
use super::sys::{Child, Fork, fork};
use super::{root, sys};

/// How often limits are looked at.
const LOOK: Duration = Duration::from_millis(25);
/// A look that takes longer sees nothing.
const BLIND: Duration = Duration::from_secs(10);

/// The life of a launcher; standard input is the socket to the worker.
pub(super) fn live() -> i32 {
    if sys::close_inherited().is_err() {
        return 2;
    }
    let Ok(worker) = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).map(UnixStream::from) else { return 2 };
    let nothing = fs::File::open("/dev/null").map(|nothing| rustix::stdio::dup2_stdin(&nothing).is_ok());
    if !nothing.unwrap_or(false) {
        return 2;
    }
    let report = match launch(&worker) {
        Ok(Some(report)) => report,
        // Nobody is there any more to hear of it.
        Ok(None) => return 0,
        Err(end) => Report { end, exact: Exact::default() },
    };
    let told = serde_json::to_vec(&report).map(|report| (&worker).write_all(&report).is_ok());
    i32::from(!told.unwrap_or(false))
}

/// Makes a sandbox and stays with it. None if nobody is there any more to hear of its end.
fn launch(worker: &UnixStream) -> Result<Option<Report>, End> {
    // Ctrl-C in the worker's terminal is meant for the worker.
    let _ = setsid();
    let (spec, input) = hear(worker)?;
    root::make_kept(&spec)?;
    // Should memory become scarce, commands go first, and before any worker. Written by whoever is root of the host, it
    // cannot be lowered again.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    let mut group = Group::make(&spec.limits);
    let was_root = leave_host(spec.given.network)?;

    let mut meter = Meter::start(spec.limits)?;
    // The meter stays outside, like us.
    sys::leave(UnshareFlags::NEWPID).map_err(unmade)?;
    let (told, go) = std::io::pipe().map_err(|error| End::before_it_began("a pipe", &error))?;
    let (words, speaks) = std::io::pipe().map_err(|error| End::before_it_began("a pipe", &error))?;
    let first = match fork().map_err(|error| End::before_it_began("a process cannot be made", &error))? {
        Fork::Parent(pid) => Child(pid),
        Fork::Child => {
            drop((go, words));
            std::process::exit(inside::live(&spec, input, was_root, told, speaks))
        }
    };
    drop((told, speaks, input));
    inside::hold(CapabilitySet::empty())
        .and_then(|()| set_dumpable_behavior(DumpableBehavior::NotDumpable))
        .map_err(|error| format!("privileges cannot be dropped: {error}"))?;
    // Takes a while, in which the first process builds.
    group.take(first.0);
    let exact = group.exact();
    meter.exact = exact;
    let end = watch(worker, &spec, &group, &mut meter, words, go);
    // Everything inside ends with it, and only then is its end told.
    drop(first);
    drop(meter);
    drop(group);
    Ok(end?.map(|end| Report { end, exact }))
}

/// What to run, and what that is to read.
fn hear(mut worker: &UnixStream) -> Result<(Spec, Option<OwnedFd>), String> {
    let unheard = |error| format!("nobody says what to run: {error}");
    let (length, input) = hear_length(worker).map_err(unheard)?;
    let mut spec = vec![0; length as usize];
    worker.read_exact(&mut spec).map_err(unheard)?;
    let spec = serde_json::from_slice(&spec).map_err(|error| format!("what to run is not understood: {error}"))?;
    Ok((spec, input))
}

fn unmade(error: Errno) -> End {
    match error {
        Errno::NOSPC => End::Refused("namespaces cannot be made: the host allows no more of them".into()),
        Errno::PERM => End::Refused("namespaces cannot be made: the host does not allow it".into()),
        error => End::before_it_began("namespaces cannot be made", &error.into()),
    }
}

/// Leaves the host's namespaces, but for the one of processes, and that of its network where the command is to be in it.
/// True if we are root on the host.
fn leave_host(stays_in_network: bool) -> Result<bool, End> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let network = if stays_in_network { UnshareFlags::empty() } else { UnshareFlags::NEWNET };
    let namespaces = UnshareFlags::NEWUSER
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWCGROUP;
    sys::leave(namespaces | network).map_err(unmade)?;
    let inside = root::USER;
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{inside} {user} 1")),
        ("gid_map", format!("{inside} {group} 1")),
    ] {
        fs::write(format!("/proc/self/{file}"), text).map_err(|error| format!("{file} cannot be written: {error}"))?;
    }
    Ok(user == 0)
}

/// Waits for the end of the shell, of its time or another limit, or of the worker.
fn watch(
    worker: &UnixStream,
    spec: &Spec,
    group: &Group,
    meter: &mut Meter,
    mut words: PipeReader,
    mut go: PipeWriter,
) -> Result<Option<End>, String> {
    let mut heard = Vec::new();
    let mut began: Option<Instant> = None;
    // How the shell ended, once it did. One look is taken after that: what breaks a limit may be faster than any other.
    let mut ended: Option<End> = None;
    loop {
        let mut events = [
            PollFd::new(worker, PollFlags::IN),
            PollFd::new(&words, PollFlags::IN),
            PollFd::new(&meter.answers, PollFlags::IN),
        ];
        let look = Timespec { tv_sec: 0, tv_nsec: LOOK.as_nanos() as _ };
        match poll(&mut events, Some(&look)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(format!("the command cannot be watched: {error}")),
        }
        let [of_worker, of_first, of_meter] = events.map(|event| !event.revents().is_empty());
        // Nothing more is ever said, so this is its end.
        if of_worker {
            return Ok(None);
        }
        if let Some(limit) = group.broken() {
            return Ok(Some(End::Limited(limit)));
        }
        if of_meter && let Some(limit) = meter.hear() {
            return Ok(Some(End::Limited(limit)));
        }
        if of_first && ended.is_none() {
            for word in hear_words(&mut words, &mut heard)? {
                match word {
                    Word::Ready => meter.ask(),
                    Word::Failed(why) => return Err(why),
                    Word::Ended(end) => {
                        ended = Some(end);
                        meter.ask_again();
                    }
                }
            }
        }
        match meter.seen {
            Seen::Something if ended.is_some() => return Ok(ended),
            // What was there before the command is known now, so it may begin.
            Seen::Something if began.is_none() => {
                began = Some(Instant::now());
                go.write_all(b"!").map_err(|error| format!("the sandbox ended before the command began: {error}"))?;
            }
            Seen::Something => meter.ask_after(LOOK),
            Seen::NothingSince(since) if since.elapsed() > BLIND => return Ok(Some(End::Limited(Limit::Unseen))),
            Seen::NothingSince(_) | Seen::NotAsked => {}
        }
        if began.is_some_and(|began| began.elapsed() >= spec.time) {
            return Ok(Some(ended.unwrap_or(End::Limited(Limit::Time))));
        }
    }
}

/// What the first process said since.
fn hear_words(words: &mut PipeReader, heard: &mut Vec<u8>) -> Result<Vec<Word>, String> {
    let mut buffer = [0; 4096];
    match words.read(&mut buffer) {
        Ok(read @ 1..) => heard.extend(&buffer[..read]),
        _ => return Err("the sandbox ended without a word".into()),
    }
    let mut said = Vec::new();
    while let Some(end) = heard.iter().position(|byte| *byte == b'\n') {
        let line: Vec<u8> = heard.drain(..=end).collect();
        said.push(serde_json::from_slice(&line).map_err(|error| format!("the sandbox is not understood: {error}"))?);
    }
    Ok(said)
}
