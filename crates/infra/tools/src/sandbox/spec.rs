//! What a worker asks a sandbox for, and what it hears back: one message each way over a socket. Before the first goes its
//! length, and with that what the command reads, where that is not known beforehand.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use posse_host::lack::lack;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

/// What one command may use. 1 MB is 1,048,576 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandLimits {
    /// How long it may take unless it asks for another time.
    pub seconds: u64,
    /// The longest time it may ask for.
    pub max_seconds: u64,
    /// Processes and threads at once, all descendants together.
    pub processes: u32,
    /// Memory of all its processes together, and of its `/tmp`.
    pub memory_mb: u64,
    /// What it may write to the disk altogether, and hold there; no file may become larger either.
    pub written_mb: u64,
    /// What fits into its `/tmp`, which is memory.
    pub tmp_mb: u64,
}

impl Default for CommandLimits {
    fn default() -> Self {
        CommandLimits { seconds: 60, max_seconds: 600, processes: 256, memory_mb: 2048, written_mb: 4096, tmp_mb: 512 }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Spec {
    /// For `/bin/sh -c`. Where absent it is a program of an agent, of which the worker is told, and no command: it sees no
    /// file, the workspace included, and most of what follows says nothing.
    pub command: Option<String>,
    /// Seconds of its first process's own time on processors.
    pub processor: Option<u64>,
    /// The path of the folder it may change, for inside; the folder itself is the one that the sandbox is started in.
    pub workspace: PathBuf,
    /// Where in the workspace it begins.
    pub directory: PathBuf,
    /// Entries of the workspace that it sees as empty.
    pub hidden: Vec<PathBuf>,
    /// Entries of the workspace that it may read and not change; what is missing is made, as a folder.
    pub fixed: Vec<PathBuf>,
    /// The same for one file.
    pub rules_file: Option<PathBuf>,
    /// What it may use; its own time is beside.
    pub limits: CommandLimits,
    pub time: Duration,
    /// What it is given besides.
    pub given: Given,
}

/// What a command is given besides, where it is none of an agent's but the project's own.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Given {
    /// What it reads on standard input; nothing where absent.
    pub input: Option<String>,
    /// Variables beside the usual ones.
    pub environment: Vec<(String, String)>,
    /// Files that it finds in `/tool`, by name, with what is in them.
    pub files: Vec<(String, String)>,
    /// Folders and files of the host that it sees, read-only, where they are.
    pub seen: Vec<PathBuf>,
    /// Whether it is in the host's network, and not in one of its own where nobody else is.
    pub network: bool,
    /// Whether it may only read the workspace.
    pub read_only: bool,
}

/// What a worker hears of a command in the end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Report {
    pub end: End,
    /// Which of its limits nothing could be above.
    pub exact: Exact,
}

/// Limits that the kernel holds by control groups, so that nothing is ever above them. The others are looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exact {
    /// Memory, with what the kernel holds for the command.
    pub memory: bool,
    pub processes: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum End {
    /// It never ran: there is no sandbox, for this reason.
    Refused(String),
    /// It never ran: this worker or its machine has run out of what it takes.
    Lacking(String),
    Exited(i32),
    Signalled(i32),
    Limited(Limit),
}

impl From<String> for End {
    fn from(why: String) -> Self {
        End::Refused(why)
    }
}

impl End {
    /// The end of a command that could not begin, for want of something or not.
    pub fn before_it_began(what: &str, error: &io::Error) -> End {
        let why = format!("{what}: {error}");
        // "Again" is what the kernel says when there are as many processes as there may be.
        let is_lack = Errno::from_io_error(error).is_some_and(|it| it == Errno::AGAIN || lack(it).is_some());
        if is_lack { End::Lacking(why) } else { End::Refused(why) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Limit {
    Time,
    Memory,
    Processes,
    /// It wrote more than it may, or holds more on the disk.
    Written,
    Unseen,
}

/// Says how long the message is that follows, and hands over what the command is to read.
pub(super) fn send_length(to: &UnixStream, length: u32, input: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    let input: Vec<_> = input.into_iter().collect();
    if !input.is_empty() {
        with.push(SendAncillaryMessage::ScmRights(&input));
    }
    // Four bytes into an empty socket: they fit.
    sendmsg(to, &[IoSlice::new(&length.to_le_bytes())], &mut with, SendFlags::empty())?;
    Ok(())
}

/// Hears what [`send_length`] said.
pub(super) fn hear_length(from: &UnixStream) -> io::Result<(u32, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let mut length = [0; 4];
    let heard =
        recvmsg(from, &mut [IoSliceMut::new(&mut length)], &mut with, RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL)?;
    if heard.bytes != length.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut input = None;
    for message in with.drain() {
        if let RecvAncillaryMessage::ScmRights(mut handed) = message {
            input = handed.next();
        }
    }
    Ok((u32::from_le_bytes(length), input))
}
