//! How a command ends: its exit code, and the sentence that goes with it.

use std::fmt;

use posse_core::model::ModelError;
use posse_core::port::RepositoryError;
use posse_core::usecase::enqueue::Refused;

use crate::trust::Untrusted;

/// Exit codes; the text of `--help` lists them too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// All is well.
    Ok = 0,
    /// The job or the operation failed.
    Failed = 1,
    /// The command line, a file or the input is wrong. Clap uses this code too.
    Usage = 2,
    /// What was named is not there.
    NotFound = 3,
    /// It is there, and not in a state that allows this.
    Conflict = 4,
    /// The database cannot be used, or not now.
    Database = 5,
    /// It was done, and standard output could not take the answer.
    Untold = 6,
    /// Ended by a signal before its time.
    Interrupted = 130,
}

/// Exit codes, for the end of `--help`.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    the job or the operation failed
  2    bad usage, settings or input
  3    not found
  4    the job's state does not allow it (too late to cancel, or its unique key is taken)
  5    the database cannot be used
  6    done, but standard output could not take the answer; standard error has it
  130  interrupted";

/// A command that did not do what was asked, in one or two sentences for a person.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What, why, and the way out.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// The error for something wrong with what was asked.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    fail(Exit::Usage, message)
}

/// The error for something that is not there.
pub fn not_found(message: impl Into<String>) -> anyhow::Error {
    fail(Exit::NotFound, message)
}

/// An error with its exit code.
pub fn fail(exit: Exit, message: impl Into<String>) -> anyhow::Error {
    Failure { exit, message: message.into() }.into()
}

/// The exit code an error asks for.
pub fn code_of(error: &anyhow::Error) -> Exit {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return failure.exit;
    }
    if let Some(error) = error.downcast_ref::<RepositoryError>() {
        return match error {
            RepositoryError::NoSuchJob(_) => Exit::NotFound,
            RepositoryError::Illegal(_)
            | RepositoryError::KeyHeld { .. }
            | RepositoryError::EmptyGroup(_)
            | RepositoryError::Refused(_) => Exit::Conflict,
            RepositoryError::Unavailable(_) | RepositoryError::Unusable(_) | RepositoryError::Gone(_) => Exit::Database,
            RepositoryError::LeaseLost(_) | RepositoryError::Misused(_) => Exit::Failed,
        };
    }
    if error.downcast_ref::<Refused>().is_some() || error.downcast_ref::<Untrusted>().is_some() {
        return Exit::Usage;
    }
    // A model that cannot be asked is a failed operation, whatever its kind.
    debug_assert!(error.downcast_ref::<ModelError>().is_none_or(|e| !e.message.is_empty()));
    Exit::Failed
}
