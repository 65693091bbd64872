//! Failures in words that a model can act on: what is wrong, and what to do instead.

use posse_core::stop::Stop;
use posse_core::tool::{ToolError, ToolErrorCategory};
use posse_host::folder::Unusable;
use posse_host::lack::lack;
use rustix::io::Errno;

macro_rules! kinds {
    ($($name:ident => $category:ident;)*) => {
        $(pub(crate) fn $name(message: impl Into<String>) -> ToolError {
            ToolError::new(ToolErrorCategory::$category, message)
        })*
    };
}

kinds! {
    invalid => InvalidArguments;
    missing => NotFound;
    denied => PermissionDenied;
    over_limit => LimitExceeded;
    conflict => Conflict;
    unfit => WorkerUnfit;
    failed => Failed;
}

/// What the kernel said about `shown`, a path as the model wrote it.
pub(crate) fn kernel(errno: Errno, doing: &str, shown: &str) -> ToolError {
    if let Some(what) = lack(errno) {
        return unfit(format!("could not {doing} '{shown}': {what}"));
    }
    match errno {
        Errno::XDEV => denied(format!(
            "'{shown}' leads outside the workspace, which is not allowed. Give a path below the \
             workspace root, such as 'notes.txt', or '.' for the root itself"
        )),
        Errno::LOOP => {
            denied(format!("'{shown}' goes through a symlink that may not be followed here. Name the real path"))
        }
        Errno::NOENT => missing(format!("no such file or folder '{shown}'")),
        Errno::NOTDIR => missing(format!("a part of '{shown}' is a file where a folder is needed")),
        Errno::ISDIR => conflict(format!("'{shown}' is a folder, not a file")),
        Errno::ACCESS | Errno::PERM => denied(format!("no permission to {doing} '{shown}'")),
        Errno::ROFS => denied(format!("cannot {doing} '{shown}': the file system is read-only")),
        Errno::NAMETOOLONG => invalid(format!("the path is too long to {doing}: '{shown}'")),
        Errno::NOSPC | Errno::DQUOT => {
            over_limit(format!("cannot {doing} '{shown}': the disk is full. Nothing was changed"))
        }
        Errno::AGAIN => conflict(format!("'{shown}' is being moved by another process just now. Try again")),
        other => failed(format!("could not {doing} '{shown}': {other}")),
    }
}

/// The same for an error of the standard library.
pub(crate) fn io(error: &std::io::Error, doing: &str, shown: &str) -> ToolError {
    match Errno::from_io_error(error) {
        Some(errno) => kernel(errno, doing, shown),
        None => failed(format!("could not {doing} '{shown}': {error}")),
    }
}

pub(crate) fn unusable(Unusable { why, is_lack }: Unusable) -> ToolError {
    if is_lack { unfit(why) } else { denied(why) }
}

/// An error once the call is asked to stop. Long loops ask on each round, and a write asks last
/// before its effect: after a lost lease nothing more may be done for the job.
pub(crate) fn check(stop: &Stop) -> Result<(), ToolError> {
    match stop.reason() {
        None => Ok(()),
        Some(reason) => Err(ToolError::new(
            ToolErrorCategory::Stopped,
            format!("stopped before it was done ({reason:?}); nothing was changed"),
        )),
    }
}
