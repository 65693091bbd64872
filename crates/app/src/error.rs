//! What went wrong: a code that programs can rely on, and a sentence for people. A door makes of it what its callers
//! know: an exit code, a problem document.

use posse_core::job::enqueue::Refused;
use posse_core::model::ModelError;
use posse_core::port::RepositoryError;

/// What came of it, or why nothing did.
pub type Result<T> = std::result::Result<T, Error>;

/// What the caller can do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Ask for something else: what was asked for is wrong in itself.
    Invalid,
    /// Look for another one: what was named is not there.
    NotFound,
    /// Wait, or change what is there: it is in no state that allows this.
    Conflict,
    /// See to the database: it cannot be used, or not now.
    Database,
    /// See why: it was tried, and failed.
    Failed,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $kind:ident;)*) => {
        /// What went wrong, for programs. A code that has been released keeps its meaning.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &[Code] = &[$(Code::$name),*];

            /// The code as it is written: what it is about, a point, what is wrong.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Code::$name => $text,)*
                }
            }

            /// What the caller can do about it.
            pub fn kind(self) -> Kind {
                match self {
                    $(Code::$name => Kind::$kind,)*
                }
            }
        }
    };
}

codes! {
    /// What was asked for cannot be read, or contradicts itself.
    RequestInvalid = "request.invalid", Invalid;
    /// A field of what was asked for breaks its rule; [`Error::field`] says which.
    FieldInvalid = "field.invalid", Invalid;
    /// Something that has no code of its own is not there.
    NotFound = "request.not_found", NotFound;
    /// What is there does not allow it, for a reason that has no code of its own.
    Conflict = "request.conflict", Conflict;
    /// It was tried and failed, for a reason that has no code of its own.
    Failed = "request.failed", Failed;
    /// There is no such job.
    JobNotFound = "job.not_found", NotFound;
    /// The job's state does not allow it.
    JobState = "job.wrong_state", Conflict;
    /// The job would need a unique key that another one holds.
    UniqueHeld = "unique.held", Conflict;
    /// The job has no answer yet.
    JobNotEnded = "job.not_ended", Conflict;
    /// The job ended without an answer.
    JobUnanswered = "job.unanswered", Failed;
    /// A job cannot wait for a group without jobs.
    GroupEmpty = "group.empty", Conflict;
    /// There is no such group.
    GroupNotFound = "group.not_found", NotFound;
    /// There is no such question.
    QuestionNotFound = "question.not_found", NotFound;
    /// The question takes no answer any more.
    QuestionSettled = "question.settled", Conflict;
    /// There is no such worker.
    WorkerNotFound = "worker.not_found", NotFound;
    /// There is nothing to be limited by there.
    LimitNotFound = "limit.not_found", NotFound;
    /// There is no such tool.
    ToolNotFound = "tool.not_found", NotFound;
    /// There is no such skill.
    SkillNotFound = "skill.not_found", NotFound;
    /// There is no such persona.
    PersonaNotFound = "persona.not_found", NotFound;
    /// There is a persona that plays the role.
    PersonaExists = "persona.exists", Conflict;
    /// The persona's file is wrong.
    PersonaInvalid = "persona.invalid", Invalid;
    /// There is no such schedule.
    ScheduleNotFound = "schedule.not_found", NotFound;
    /// There is a schedule of that name.
    ScheduleExists = "schedule.exists", Conflict;
    /// What is stored of the schedule cannot be read.
    ScheduleDamaged = "schedule.damaged", Conflict;
    /// Nothing is remembered under that number.
    MemoryNotFound = "memory.not_found", NotFound;
    /// There is no such session.
    SessionNotFound = "session.not_found", NotFound;
    /// There is a session of that name.
    SessionExists = "session.exists", Conflict;
    /// A worker's lease was lost before it could write.
    LeaseLost = "lease.lost", Failed;
    /// A model cannot be asked, or gave no answer.
    ModelFailed = "model.failed", Failed;
    /// There is no database yet.
    DatabaseNotFound = "database.not_found", NotFound;
    /// The database cannot be written or reached now.
    DatabaseUnavailable = "database.unavailable", Database;
    /// The database is no longer the one that was opened.
    DatabaseGone = "database.gone", Database;
    /// The database cannot be used at all.
    DatabaseUnusable = "database.unusable", Database;
    /// What was to be stored breaks a rule of what is stored: a fault of the program.
    DatabaseMisused = "database.misused", Failed;
}

/// An error as every door has it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What went wrong, for programs.
    pub code: Code,
    /// The field that is to blame, where one is.
    pub field: Option<&'static str>,
    /// What, why, and the way out, for people.
    pub message: String,
}

impl Error {
    /// An error that no field is to blame for.
    pub fn new(code: Code, message: impl Into<String>) -> Error {
        Error { code, field: None, message: message.into() }
    }

    /// That what was asked for is wrong in itself.
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(Code::RequestInvalid, message)
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> Kind {
        self.code.kind()
    }
}

impl From<&RepositoryError> for Code {
    fn from(error: &RepositoryError) -> Code {
        match error {
            RepositoryError::LeaseLost(_) => Code::LeaseLost,
            RepositoryError::NoSuchJob(_) => Code::JobNotFound,
            RepositoryError::EmptyGroup(_) => Code::GroupEmpty,
            RepositoryError::Illegal(_) => Code::JobState,
            RepositoryError::Refused(_) => Code::Conflict,
            RepositoryError::KeyHeld { .. } => Code::UniqueHeld,
            RepositoryError::Unavailable(_) => Code::DatabaseUnavailable,
            RepositoryError::Gone(_) => Code::DatabaseGone,
            RepositoryError::Unusable(_) => Code::DatabaseUnusable,
            RepositoryError::Misused(_) => Code::DatabaseMisused,
        }
    }
}

impl From<RepositoryError> for Error {
    fn from(error: RepositoryError) -> Error {
        Error::new(Code::from(&error), error.to_string())
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Error {
        Error { code: Code::FieldInvalid, field: Some(refused.field), message: refused.to_string() }
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Error {
        Error::new(Code::Failed, format!("this cannot be written as JSON: {error}"))
    }
}

impl From<ModelError> for Error {
    fn from(error: ModelError) -> Error {
        Error::new(Code::ModelFailed, error.to_string())
    }
}
