//! How a command ends: the exit codes that errors of the application become.

use posse_app::{Code, Error};
use posse_core::job::{Job, JobState};

/// Exit codes; the text of `--help` lists them too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Ok = 0,
    Failed = 1,
    /// The command line, a file or the input is wrong. Clap uses this code too.
    Usage = 2,
    NotFound = 3,
    Conflict = 4,
    Database = 5,
    /// It was done, and standard output could not take the answer.
    Untold = 6,
    Interrupted = 130,
}

impl Exit {
    pub fn of(job: &Job) -> Exit {
        if job.state == JobState::Completed { Exit::Ok } else { Exit::Failed }
    }
}

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

pub fn usage(message: impl Into<String>) -> anyhow::Error {
    Error::invalid(message).into()
}

pub fn not_found(message: impl Into<String>) -> anyhow::Error {
    Error::new(Code::NotFound, message).into()
}

pub fn fail(code: Code, message: impl Into<String>) -> anyhow::Error {
    Error::new(code, message).into()
}
