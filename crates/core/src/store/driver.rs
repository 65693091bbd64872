//! What a database does for the rules: read rows in sets, and write what it is told to.
//!
//! A driver knows SQL and nothing else. Each operation is one statement or a few that belong together, and none
//! spans a decision. Sets of ids may be empty and have no order; rows come by id. In a transaction that writes,
//! nobody else changes a row between its being read and the end of the transaction: where a database has row
//! locks, reading takes them.

mod care;
mod claim;
mod deaths;
mod endpoints;
mod jobs;
mod journal;
mod keeps;
mod leases;
mod limits;
mod people;
mod schedules;
mod sessions;
mod views;
mod waits;

pub use care::{CareRows, Duty, KeepFor};
pub use claim::{ClaimRows, ClaimableOf, Front, Head, Lanes, LastServed};
pub use deaths::{DeathRow, DeathRows, DeathsOf};
pub use endpoints::{BreakerRow, BreakersOf, Rates};
pub use jobs::{
    AttemptRow, DataRow, Edited, JobChange, JobInsert, JobRow, JobRows, JobsOf, LeaseAfter, Moved, ProgressRow,
    RunningRow, StoredJob, Taken,
};
pub use journal::{CallRow, JournalRows, LastStep, StepInsert, StepRow};
pub use keeps::{Forgets, Keeps, Passing, Record};
pub use leases::LeaseRows;
pub use limits::LimitRows;
pub use people::{AnnotationInsert, AnnotationRow, AskChange, AskInsert, AskRow, AskSet, AsksOf, PeopleRows};
pub use schedules::{BatchName, BatchRow, Run, ScheduleRow, SchedulesOf};
pub use sessions::{ArchivedRow, SessionRows, SessionsOf, SummaryRow};
pub use views::{CountsOf, Ended, IdsOf, Number, Queues, StatesOf, ViewRows};
pub use waits::{Closing, GroupWaitsOf, WaitRow, WaitRows, WaitsOf};

use crate::port::{ClockJump, WorkerRecord};
use crate::queue::Queue;
use crate::queue::rules::Rule;

macro_rules! driver {
    ($($rows:path,)+) => {
        /// All operations of a database.
        pub trait Driver: $($rows +)+ {}

        impl<D: $($rows +)+> Driver for D {}
    };
}

driver! {
    CareRows,
    ClaimRows,
    DeathRows,
    JobRows,
    JournalRows,
    LeaseRows,
    LimitRows,
    PeopleRows,
    SessionRows,
    ViewRows,
    WaitRows,
    Keeps<ArchivedRow>,
    Keeps<BatchName>,
    Keeps<BatchRow>,
    Keeps<BreakerRow>,
    Keeps<ClockJump>,
    Keeps<DeathRow>,
    Keeps<Duty>,
    Keeps<KeepFor>,
    Keeps<LastServed>,
    Keeps<ProgressRow>,
    Keeps<Queue>,
    Keeps<Rates>,
    Keeps<Rule>,
    Keeps<Run>,
    Keeps<ScheduleRow>,
    Keeps<SummaryRow>,
    Keeps<WorkerRecord>,
    Forgets<ArchivedRow>,
    Forgets<BreakerRow>,
    Forgets<ClockJump>,
    Forgets<DeathRow>,
    Forgets<LastServed>,
    Forgets<Rule>,
    Forgets<ScheduleRow>,
    Forgets<SummaryRow>,
    Forgets<WorkerRecord>,
}
