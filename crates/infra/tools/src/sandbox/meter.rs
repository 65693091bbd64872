//! The meter: looks at what a command uses, whenever the launcher asks.
//!
//! It is a process of its own because looking may block: some of what the kernel tells of a process it tells only when
//! that process lets go of its memory map. Like the launcher it is no process of the command's pid namespace.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::time::{Duration, Instant};

use rustix::process::{DumpableBehavior, Signal, set_dumpable_behavior, set_parent_process_death_signal};
use rustix::thread::CapabilitySet;

use super::inside;
use super::spec::{CommandLimits, End, Exact, Limit};
use super::sys::{Child, Fork, fork};
use super::usage::Usage;

/// What the meter answers, by its place.
const ANSWERS: [Option<Limit>; 5] =
    [None, Some(Limit::Memory), Some(Limit::Processes), Some(Limit::Written), Some(Limit::Unseen)];

/// The launcher's side.
pub(super) struct Meter {
    /// What need not be looked at.
    pub exact: Exact,
    _child: Child,
    orders: PipeWriter,
    pub answers: PipeReader,
    pub seen: Seen,
    at: Instant,
    /// Whether a look that is under way is not to count.
    again: bool,
}

#[derive(Clone, Copy)]
pub(super) enum Seen {
    NotAsked,
    NothingSince(Instant),
    Something,
}

impl Meter {
    /// Starts the meter of one sandbox. It may be asked when the sandbox's root is built.
    pub fn start(limits: CommandLimits) -> Result<Meter, End> {
        let pipe = || std::io::pipe().map_err(|error| End::before_it_began("a pipe", &error));
        let ((asked, orders), (answers, answer)) = (pipe()?, pipe()?);
        let child = match fork().map_err(|error| End::before_it_began("a process cannot be made", &error))? {
            Fork::Parent(pid) => Child(pid),
            Fork::Child => {
                drop((orders, answers));
                std::process::exit(live(limits, asked, answer))
            }
        };
        let (exact, seen, at) = (Exact::default(), Seen::NotAsked, Instant::now());
        Ok(Meter { exact, _child: child, orders, answers, seen, at, again: false })
    }

    pub fn ask(&mut self) {
        // Should it be gone, its silence is noticed.
        let _ = self.orders.write_all(&[u8::from(self.exact.memory) | u8::from(self.exact.processes) << 1]);
        self.seen = Seen::NothingSince(Instant::now());
    }

    /// Asks for a look that begins from now on.
    pub fn ask_again(&mut self) {
        match self.seen {
            Seen::NothingSince(_) => self.again = true,
            _ => self.ask(),
        }
    }

    /// Asks for a look if the last one is so long ago.
    pub fn ask_after(&mut self, pause: Duration) {
        if self.at.elapsed() >= pause {
            self.ask();
        }
    }

    /// Takes an answer: the limit that is broken, if one is.
    pub fn hear(&mut self) -> Option<Limit> {
        let mut answer = [0];
        if self.answers.read_exact(&mut answer).is_err() {
            return Some(Limit::Unseen);
        }
        self.at = Instant::now();
        self.seen = Seen::Something;
        if std::mem::take(&mut self.again) {
            self.ask();
        }
        ANSWERS.get(usize::from(answer[0])).copied().unwrap_or(Some(Limit::Unseen))
    }
}

/// The meter's own side. It ends when nobody can ask any more.
fn live(limits: CommandLimits, mut asked: PipeReader, mut answer: PipeWriter) -> i32 {
    // It may look at processes and folders that are closed to others, and nothing more.
    let sees = CapabilitySet::SYS_PTRACE | CapabilitySet::DAC_READ_SEARCH;
    let ready = set_parent_process_death_signal(Some(Signal::KILL))
        .and_then(|()| inside::hold(sees))
        .and_then(|()| set_dumpable_behavior(DumpableBehavior::NotDumpable));
    if ready.is_err() {
        return 1;
    }
    let mut usage = None;
    let mut order = [0];
    while asked.read_exact(&mut order).is_ok() {
        let exact = Exact { memory: order[0] & 1 != 0, processes: order[0] & 2 != 0 };
        // The first time is before the command begins.
        let broken = usage.get_or_insert_with(|| Usage::new(limits, exact)).broken();
        let place = ANSWERS.iter().position(|limit| *limit == broken).unwrap_or(ANSWERS.len() - 1);
        if answer.write_all(&[place as u8]).is_err() {
            return 1;
        }
    }
    0
}
