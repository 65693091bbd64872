//! This process: how many files and sockets it may have open at once and how many jobs that is enough for, the signals
//! that it hears, numbers of its own.

use std::hash::{BuildHasher as _, Hasher as _};

use anyhow::{Context as _, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::output::text::{count, plural};

/// For the database with its readers, the log, signals, listening, and tools that work on files, of which only so many
/// run at once (see `posse_infra::tool`).
const OWN: u64 = 256;
/// For a connection to a model, and for the pipes, cgroup and folders of a command in a sandbox.
const PER_JOB: u64 = 12;

/// Raises the limit as far as this process may, and gives what it is then. Fewer are an accident of the shell (1,024 in
/// most) and no decision: the lower limit is for programs that use select(2).
pub fn raise_open_files() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    (if raised.is_ok() { maximum } else { current }).unwrap_or(u64::MAX)
}

/// How many jobs each of `roles` roles can work at once with so many descriptors: at most what was `asked` for, at least
/// one. A sentence says when it is less.
pub fn slots(asked: usize, roles: usize, descriptors: u64) -> (usize, Option<String>) {
    let all = (asked * roles.max(1)) as u64;
    let enough_for = descriptors.saturating_sub(OWN) / PER_JOB;
    if all <= enough_for {
        return (asked, None);
    }
    let slots = (enough_for as usize / roles.max(1)).max(1);
    let said = format!(
        "{} at once need {}, and this process may have {}: each role works {slots} at once. \
         Raise the hard limit (ulimit -Hn; LimitNOFILE= in a systemd unit), or ask for fewer (--slots)",
        plural(all, "job"),
        plural(OWN + all * PER_JOB, "open file"),
        count(descriptors)
    );
    (slots, (slots < asked).then_some(said))
}

pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Listens from now on; the process is no longer ended by them.
    pub fn listen() -> Result<Signals> {
        let listen = |kind| signal(kind).context("signals cannot be listened to");
        Ok(Signals { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    pub async fn next(&mut self) {
        self.heard().await;
    }

    pub async fn heard(&mut self) -> Heard {
        tokio::select! {
            _ = self.interrupt.recv() => Heard::Interrupt,
            _ = self.terminate.recv() => Heard::Terminate,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    Interrupt,
    Terminate,
}

/// A number that nobody else has: the standard library seeds its hash maps from the kernel.
pub fn random() -> u64 {
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish()
}
