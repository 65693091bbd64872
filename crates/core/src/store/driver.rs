//! What a database does for the rules: read rows in sets, and write what it is told to.
//!
//! A driver knows SQL and nothing else. Each operation is one statement or a few that belong together, and none
//! spans a decision. Sets of ids may be empty and have no order; rows come by id. In a transaction that writes,
//! nobody else changes a row between its being read and the end of the transaction: where a database has row
//! locks, reading takes them.

mod care;
mod change;
mod claim;
mod deaths;
mod endpoints;
mod jobs;
mod journal;
mod leases;
mod limits;
mod people;
mod schedules;
mod sessions;
mod views;
mod waits;

pub use care::{CareRows, Ended, Queues, TurnLeft};
pub use change::{ChangeRows, Edited};
pub use claim::{ClaimRow, ClaimRows, Front, Head, Lines, Taking};
pub use deaths::DeathRows;
pub use endpoints::{BreakerRow, EndpointRows};
pub use jobs::{
    AttemptRow, DataRow, HolderRow, JobInsert, JobRow, JobRows, Leaving, ProgressRow, RunningRow, StoredJob,
};
pub use journal::{CallInsert, CallRow, JournalRows, StepInsert, StepRow};
pub use leases::{LeaseRow, LeaseRows};
pub use limits::LimitRows;
pub use people::{AnnotationInsert, AnnotationRow, AskInsert, AskRow, AsksOf, PeopleRows};
pub use schedules::{ScheduleRow, ScheduleRows};
pub use sessions::{ArchivedRow, SessionRows, TurnRow};
pub use views::{TextRow, ViewRows};
pub use waits::{Family, WaitRows};

macro_rules! driver {
    ($($rows:ident)+) => {
        /// All operations of a database.
        pub trait Driver: $($rows +)+ {}

        impl<D: $($rows +)+> Driver for D {}
    };
}

driver! {
    CareRows
    ChangeRows
    ClaimRows
    DeathRows
    EndpointRows
    JobRows
    JournalRows
    LeaseRows
    LimitRows
    PeopleRows
    ScheduleRows
    SessionRows
    ViewRows
    WaitRows
}
