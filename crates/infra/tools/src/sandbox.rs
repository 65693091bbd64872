//! A sandbox for each command an agent runs, made by the kernel.
//!
//! A command has its own user, process, mount, network, IPC, host name and cgroup namespaces: it sees
//! its workspace, the host's programs read-only, a `/tmp` of its own, no other process, no network but its own
//! loopback, no environment of ours and no capability; [`CommandLimits`] bound what it uses. What can be confined by
//! none of that is closed by number (`syscalls`). Nothing of it survives its end (`inside`), the death of the worker
//! included.
//!
//! New namespaces need a process with one thread, so the program starts itself anew for each command. It can do
//! that only if its `main` begins with [`begin`].

mod disk;
mod group;
mod inside;
mod kept;
mod launcher;
mod meter;
mod proc;
mod root;
mod serving;
mod spec;
mod sys;
mod syscalls;
mod tenants;
mod usage;

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use posse_core::stop::{Stop, StopReason};
use posse_core::workspace::folder::FolderId;
use posse_core::workspace::protected::Protected;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::Sender;
use tokio::process::{Child, Command};

pub use spec::{CommandLimits, Exact};

pub(crate) use kept::{HALF, Kept};
pub(crate) use serving::Serving;
pub(crate) use spec::{End, Given, Limit};

use crate::workspace::real_path;
use posse_host::folder::{Unusable, pinned, places};
use spec::{Report, Spec, send_length};

/// The argument by which our own program knows what it was started for.
const MARK: &str = "--posse-sandbox";

/// A sandbox that does not end by itself within so long after it should have is ended from outside.
const OVERDUE: Duration = Duration::from_secs(10);

/// Whether this program can start itself as a sandbox.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// The first thing in the `main` of a program whose agents run commands: where the program was started to be
/// a sandbox it becomes one here, and never returns. Without it, commands are refused.
///
/// It must come before any thread is started and any file is opened.
pub fn begin() {
    if std::env::args_os().nth(1).is_some_and(|first| first == MARK) {
        std::process::exit(launcher::live());
    }
    BEGUN.store(true, Ordering::Relaxed);
}

/// Runs commands in sandboxes. What it is told here holds for all of them.
#[derive(Debug, Clone, Default)]
pub struct Commands {
    pub limits: CommandLimits,
    /// What no command sees or changes, by whole entries of the workspace's top folder. One with something hidden in it,
    /// or with a database, is empty as far as a command can see: what belongs to a database lies beside it. One with
    /// something fixed in it can only be read; where the path is not there it could be made, so that nobody does, an
    /// empty folder takes the entry's place.
    pub protected: Protected,
    /// Databases that are hidden likewise while they are there. Others are looked for, as far as a look before each
    /// command goes.
    pub known: Vec<PathBuf>,
}

pub(crate) struct Order<'a> {
    /// For `/bin/sh -c`.
    pub command: String,
    /// The folder it may change.
    pub workspace: &'a Path,
    /// Which folder that is, if it is known.
    pub workspace_id: Option<FolderId>,
    /// Where it begins, beneath the workspace.
    pub directory: PathBuf,
    /// A file of the workspace that it may not change, if it must not.
    pub rules_file: Option<&'a Path>,
    pub time: Duration,
    /// What it is given besides.
    pub given: Given,
}

pub(crate) struct Ran {
    /// How it ended; the reason if it was told to.
    pub end: Result<End, StopReason>,
    pub stdout: Kept,
    pub stderr: Kept,
    pub took: Duration,
    /// Which of its limits nothing could be above.
    pub exact: Exact,
}

impl Commands {
    /// Which limits of commands are held exactly here; or why none can run, and what to do about it.
    pub async fn probe(&self, workspace: &Path) -> Result<Exact, String> {
        let (directory, time) = (PathBuf::new(), Duration::from_secs(20));
        let given = Given::default();
        let (command, workspace_id, rules_file) = (":".into(), None, None);
        let order = Order { command, workspace, workspace_id, directory, rules_file, time, given };
        let ran = self.run(order, &Stop::never()).await;
        match ran.end {
            Ok(End::Exited(0)) => Ok(ran.exact),
            Ok(End::Refused(why) | End::Lacking(why)) => Err(why),
            other => Err(format!("the simplest command ended by {other:?}")),
        }
    }

    /// Runs a command. When this returns, no process of it is left; dropped before, all of them end soon.
    pub(crate) async fn run(&self, order: Order<'_>, stop: &Stop) -> Ran {
        let began = Instant::now();
        let (mut stdout, mut stderr) = (Kept::default(), Kept::default());
        let mut exact = Exact::default();
        let end = match self.start(order, None).await {
            Err(end) => Ok(end),
            Ok(running) => running.finish(stop, &mut stdout, &mut stderr).await.map(|report| {
                exact = report.exact;
                report.end
            }),
        };
        Ran { end, stdout, stderr, took: began.elapsed(), exact }
    }

    /// Runs a command that goes on for as long as it is served by us; its time does not count.
    pub(crate) async fn serve(&self, order: Order<'_>) -> Result<Serving, End> {
        let unmade = |error: std::io::Error| End::before_it_began("a pipe", &error);
        let (read, write) = std::io::pipe().map_err(unmade)?;
        let write = Sender::from_owned_fd(write.into()).map_err(unmade)?;
        let order = Order { time: Duration::MAX, ..order };
        let Running { child, socket, .. } = self.start(order, Some(read.as_fd())).await?;
        Ok(Serving::of(child, socket, write))
    }

    async fn start(&self, order: Order<'_>, input: Option<BorrowedFd<'_>>) -> Result<Running, End> {
        let (spec, workspace) = self.spec(order).await?;
        // What was opened, not what is at its path by then.
        let folder = format!("/proc/self/fd/{}", workspace.as_raw_fd());
        launch(spec, &folder, Stdio::piped(), input).await
    }

    /// What to ask for, and the workspace, opened. Nothing of it is looked up by its path any more.
    async fn spec(&self, order: Order<'_>) -> Result<(Spec, OwnedFd), End> {
        let Order { command, workspace, workspace_id, directory, rules_file, time, given } = order;
        let shown = workspace.display();
        let opened = pinned(workspace, workspace_id.as_ref())
            .map_err(|Unusable { why, is_lack }| if is_lack { End::Lacking(why) } else { End::Refused(why) })?;
        let real = real_path(&opened).map_err(|error| format!("the workspace {shown} cannot be opened: {error}"))?;
        if root::covers_system(&real) {
            return Err(End::Refused(format!(
                "the workspace {shown} has parts of the system in it: give the job a folder of its own (workspace in \
                 config/posse.toml, or --workspace)"
            )));
        }
        let Protected { hidden, fixed, databases } = &self.protected;
        if let Some(own) = hidden.iter().chain(fixed).find(|own| lies_in(&real, own)) {
            let own = own.display();
            return Err(End::Refused(format!("the workspace {shown} lies in {own}, which is not for commands")));
        }
        let exposes = |own: &&PathBuf| given.seen.iter().any(|seen| lies_in(own, seen));
        if let Some(own) = hidden.iter().chain(databases).find(exposes) {
            return Err(End::Refused(format!(
                "it is to see what {} lies in, which is not for commands",
                own.display()
            )));
        }
        let entries = |paths: &mut dyn Iterator<Item = &Path>| {
            let mut entries = BTreeSet::new();
            for path in paths {
                // Whether one of them is a link is not asked: it may be one now, and none when the command runs.
                for place in places(path) {
                    entries.extend(entry_of(&place, &real)?);
                }
            }
            Ok::<_, String>(entries)
        };
        let (looked_through, known) = (real.clone(), self.known.clone());
        let found = tokio::task::spawn_blocking(move || tenants::databases_in(&looked_through, &known));
        let unseen = format!("the workspace {shown} cannot be looked through");
        let found = found.await.map_err(|error| format!("{unseen}: {error}"))?;
        let found = found.map_err(|errno| End::before_it_began(&unseen, &errno.into()))?;
        let folders = databases.iter().chain(&found).filter_map(|database| database.parent());
        let hidden = entries(&mut hidden.iter().map(PathBuf::as_path).chain(folders))?;
        let fixed = entries(&mut fixed.iter().map(PathBuf::as_path))?.difference(&hidden).cloned().collect();
        let (hidden, rules_file) = (hidden.into_iter().collect(), rules_file.map(Path::to_owned));
        let (limits, command, processor) = (self.limits, Some(command), None);
        let spec =
            Spec { command, processor, workspace: real, directory, hidden, fixed, rules_file, limits, time, given };
        Ok((spec, opened))
    }
}

/// Starts this program anew as the launcher of a sandbox, in `folder`.
async fn launch(spec: Spec, folder: &str, stdout: Stdio, input: Option<BorrowedFd<'_>>) -> Result<Running, End> {
    if !BEGUN.load(Ordering::Relaxed) {
        let lacks =
            "does not call posse_infra::sandbox::begin() first in its main, which starts it anew for each command";
        return Err(End::Refused(format!("this program {lacks}")));
    }
    let time = spec.time;
    let message = serde_json::to_vec(&spec).map_err(|error| format!("the command cannot be passed on: {error}"))?;
    let (ours, theirs) = StdStream::pair().map_err(unstarted)?;
    // Its own name, so that an operator who sees it knows what it is.
    let child = Command::new("/proc/self/exe")
        .arg0("posse")
        .arg(MARK)
        .env_clear()
        .current_dir(folder)
        .stdin(OwnedFd::from(theirs))
        .stdout(stdout)
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(unstarted)?;
    // Should it be gone already, its silence is noticed next.
    let _ = send_length(&ours, message.len() as u32, input);
    let mut socket = nonblocking(ours)?;
    let _ = socket.write_all(&message).await;
    Ok(Running { child, socket, time })
}

fn unstarted(error: std::io::Error) -> End {
    End::before_it_began("a process for the sandbox cannot be started", &error)
}

fn nonblocking(socket: StdStream) -> Result<UnixStream, End> {
    socket.set_nonblocking(true).map_err(unstarted)?;
    UnixStream::from_std(socket).map_err(unstarted)
}

/// The process of a program of an agent: it sees no file and nobody, and can do nothing but compute and speak to whoever
/// started it. When it is dropped the process ends soon.
pub(crate) struct Computing(Running);

impl Computing {
    /// Starts one; gives the other end of its line too. It has a process, this much memory altogether, this much time, and
    /// of that so many seconds on a processor.
    pub async fn start(memory_mb: u64, time: Duration, processor: u64) -> Result<(Computing, UnixStream), End> {
        let (ours, theirs) = StdStream::pair().map_err(unstarted)?;
        let seconds = time.as_secs();
        let limits = CommandLimits { seconds, max_seconds: seconds, processes: 1, memory_mb, written_mb: 1, tmp_mb: 1 };
        let spec = Spec {
            command: None,
            processor: Some(processor),
            workspace: PathBuf::new(),
            directory: PathBuf::new(),
            hidden: Vec::new(),
            fixed: Vec::new(),
            rules_file: None,
            limits,
            time,
            given: Given::default(),
        };
        let running = launch(spec, "/", OwnedFd::from(theirs).into(), None).await?;
        Ok((Computing(running), nonblocking(ours)?))
    }

    /// Waits for its end, and has it end once `stop` says so. Gives what it said on standard error, too.
    pub async fn end(self, stop: &Stop) -> (Result<End, StopReason>, String) {
        let (mut stdout, mut stderr) = (Kept::default(), Kept::default());
        let ended = self.0.finish(stop, &mut stdout, &mut stderr).await.map(|report| report.end);
        (ended, stderr.shown())
    }
}

/// The entry of `workspace` that a real path is, or is in; none where it is elsewhere. What a command can rename is no
/// place to put anything over, and it can rename everything but the entries themselves.
fn entry_of(place: &Path, workspace: &Path) -> Result<Option<PathBuf>, String> {
    match place.strip_prefix(workspace) {
        Err(_) => Ok(None),
        Ok(below) => match below.components().next() {
            Some(first) => Ok(Some(PathBuf::from(first.as_os_str()))),
            None => Err(format!(
                "the workspace {} has files of Posse beside the agent's, which no command may see or change: name a folder \
                 of its own (workspace in config/posse.toml, or --workspace)",
                workspace.display()
            )),
        },
    }
}

/// Whether a real path lies in another one.
fn lies_in(real: &Path, path: &Path) -> bool {
    path.canonicalize().is_ok_and(|path| path != *real && real.starts_with(path))
}

struct Running {
    child: Child,
    /// While it is open, the command may go on.
    socket: UnixStream,
    time: Duration,
}

impl Running {
    async fn finish(self, stop: &Stop, stdout: &mut Kept, stderr: &mut Kept) -> Result<Report, StopReason> {
        let Running { mut child, socket, time } = self;
        let (mut from, to) = socket.into_split();
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let hearing = async {
            let mut said = Vec::new();
            let _ = (&mut from).take(64 * 1024).read_to_end(&mut said).await;
            serde_json::from_slice::<Report>(&said).ok()
        };
        let ended = |end| Report { end, exact: Exact::default() };
        // The launcher's end comes last, when the kernel has ended all others.
        let ending = async {
            // Both outputs to their ends, so that all who could write to them are gone.
            let ((), (), end) = tokio::join!(stdout.read(out), stderr.read(err), hearing);
            let _ = child.wait().await;
            end
        };
        tokio::pin!(ending);
        let reason = tokio::select! {
            biased;
            report = &mut ending => {
                return Ok(report.unwrap_or_else(|| ended(End::Refused("the sandbox ended without a word".into()))));
            }
            reason = stop.stopped() => Some(reason),
            () = tokio::time::sleep(time + OVERDUE) => None,
        };
        // The launcher hears this, and ends. Should it not, it is ended when the child is dropped.
        drop(to);
        let _ = tokio::time::timeout(OVERDUE, ending).await;
        reason.map_or(Ok(ended(End::Limited(Limit::Time))), Err)
    }
}
