//! How a command ends: the exit codes that errors of the application become.

use posse_app::{Code, Error, Kind};
use posse_core::job::enqueue::Refused;
use posse_core::port::RepositoryError;

use crate::settings::Settings;
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

/// The error for something wrong with what was asked.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    Error::invalid(message).into()
}

/// The error for something that is not there.
pub fn not_found(message: impl Into<String>) -> anyhow::Error {
    Error::new(Code::NotFound, message).into()
}

/// An error with its code.
pub fn fail(code: Code, message: impl Into<String>) -> anyhow::Error {
    Error::new(code, message).into()
}

/// Says of an error about a job that is not there which database it is not in.
pub fn in_database(settings: &Settings) -> impl Fn(Error) -> Error + use<> {
    let path = settings.database.display().to_string();
    move |mut error| {
        if error.code == Code::JobNotFound {
            error.message += &format!(" in {path}");
        }
        error
    }
}

/// The exit code an error asks for.
pub fn code_of(error: &anyhow::Error) -> Exit {
    let kind = if let Some(error) = error.downcast_ref::<Error>() {
        error.kind()
    } else if let Some(error) = error.downcast_ref::<RepositoryError>() {
        Code::from(error).kind()
    } else if error.is::<Refused>() || error.is::<Untrusted>() {
        Kind::Invalid
    } else {
        Kind::Failed
    };
    match kind {
        Kind::Invalid => Exit::Usage,
        Kind::NotFound => Exit::NotFound,
        Kind::Conflict => Exit::Conflict,
        Kind::Database => Exit::Database,
        Kind::Failed => Exit::Failed,
    }
}
