//! What can go wrong in a command, and whom it is about.

use std::error::Error;

use crate::job::JobId;
use crate::job::transition::IllegalTransition;
use crate::port::RepositoryError;

/// Why a command failed.
#[derive(Debug)]
pub enum Fault {
    /// For the caller alone; others in the transaction go on.
    Refused(RepositoryError),
    /// From the database, whose driver can tell whether it is about this command or about all.
    Db(DbError),
}

/// What a command gives.
pub type Outcome<T> = Result<T, Fault>;

/// What a driver's operation gives.
pub type Done<T> = Result<T, DbError>;

/// Any error of a database. It is no [`Error`] itself, so that `?` makes one of whatever a driver meets.
#[derive(Debug)]
pub struct DbError(Box<dyn Error + Send + Sync>);

impl DbError {
    /// The error that the driver met.
    pub fn into_inner(self) -> Box<dyn Error + Send + Sync> {
        self.0
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for DbError {
    fn from(error: E) -> Self {
        DbError(Box::new(error))
    }
}

/// What a driver says of a stored value that this version does not understand, in words. It is about the
/// command that asked for the row, and about no other.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);

impl From<DbError> for Fault {
    fn from(error: DbError) -> Self {
        match error.0.downcast::<Unreadable>() {
            Ok(unreadable) => unusable(unreadable.0),
            Err(error) => Fault::Db(DbError(error)),
        }
    }
}

impl From<RepositoryError> for Fault {
    fn from(error: RepositoryError) -> Self {
        Fault::Refused(error)
    }
}

impl From<IllegalTransition> for Fault {
    fn from(error: IllegalTransition) -> Self {
        Fault::Refused(error.into())
    }
}

impl From<serde_json::Error> for Fault {
    fn from(error: serde_json::Error) -> Self {
        unusable(not_ours(&error))
    }
}

/// What it means that a stored value cannot be read, in words.
pub fn not_ours(error: &serde_json::Error) -> String {
    format!("a value in the database is not what this version of posse writes: {error}")
}

/// A fault for the caller, in words.
pub fn unusable(message: impl Into<String>) -> Fault {
    Fault::Refused(RepositoryError::Unusable(message.into()))
}

/// A fault of the caller, in words.
pub fn misused(message: impl Into<String>) -> Fault {
    Fault::Refused(RepositoryError::Misused(message.into()))
}

/// What the rules do not allow, in words.
pub fn refused(message: impl Into<String>) -> Fault {
    Fault::Refused(RepositoryError::Refused(message.into()))
}

/// The fault for a job that is not there.
pub fn no_such(job: JobId) -> Fault {
    Fault::Refused(RepositoryError::NoSuchJob(job))
}
