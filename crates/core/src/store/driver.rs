//! What a database does for the rules: read rows in sets, and write what it is told to.
//!
//! A driver knows SQL and nothing else. Each operation is one statement or a few that belong together, and none
//! spans a decision. Sets of ids may be empty and have no order; rows come by id. In a transaction that writes,
//! nobody else changes a row between its being read and the end of the transaction: where a database has row
//! locks, reading takes them.

mod claim;
mod jobs;
mod journal;
mod kept;
mod memory;
mod people;
mod sessions;
mod vectors;
mod views;
mod waits;

pub use claim::{AvailableRow, ClaimRows, Claimable, ClaimableOf, Front, Head, Lanes};
pub use jobs::{
    AttemptRow, DataRow, Edited, JobChange, JobInsert, JobRow, JobRows, JobsOf, LeaseAfter, Moved, ProgressRow,
    StoredJob, Taken, WorkedRow,
};
pub use journal::{CallRow, JournalRows, LastStep, StepInsert, StepRow};
pub use kept::{
    BatchName, BatchRow, BreakerRow, BreakersOf, DeathRow, DeathsOf, Duty, Forgets, KeepFor, Keeps, LastServed,
    Passing, Rates, Record, Run, ScheduleRow, SchedulesOf,
};
pub use memory::{MemoryEnd, MemoryOf, MemoryRow, MemoryRows, WordsIn};
pub use people::{
    AnnotationInsert, AnnotationRow, AnnotationsOf, AskChange, AskInsert, AskRow, AskSet, AsksOf, PeopleRows,
};
pub use sessions::{SessionRows, SessionsOf, SummaryRow};
pub use vectors::VectorRows;
pub use views::{CountsOf, Ended, IdsOf, Number, Queues, StatesOf, ViewRows};
pub use waits::{Closing, GroupWaitsOf, WaitRow, WaitRows, WaitsOf};

use std::time::Duration;

use crate::clock::Millis;
use crate::job::lease::WorkerId;
use crate::port::{ClockJump, WorkerRecord};
use crate::queue::Queue;
use crate::queue::rules::Rule;
use crate::store::Done;

/// What is told of workers, beside the rows of [`WorkerRecord`].
pub trait FleetRows {
    /// Stores a worker's last sign of life.
    fn beat(&mut self, worker: &WorkerId, at: Millis) -> Done<()>;
    /// Time since a moment that stays the same while this process lives.
    fn elapsed(&self) -> Duration;
}

macro_rules! driver {
    ($($rows:path,)+) => {
        /// All operations of a database.
        pub trait Driver: $($rows +)+ {}

        impl<D: $($rows +)+> Driver for D {}
    };
}

driver! {
    ClaimRows,
    FleetRows,
    JobRows,
    JournalRows,
    MemoryRows,
    PeopleRows,
    SessionRows,
    VectorRows,
    ViewRows,
    WaitRows,
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
    Forgets<BreakerRow>,
    Forgets<ClockJump>,
    Forgets<DeathRow>,
    Forgets<LastServed>,
    Forgets<Rule>,
    Forgets<ScheduleRow>,
    Forgets<SummaryRow>,
    Forgets<WorkerRecord>,
}
