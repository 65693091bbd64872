//! What a database does for the rules: read rows in sets, and write what it is told to.
//!
//! A driver knows SQL and nothing else. Each operation is one statement or a few that belong together, and none
//! spans a decision. Sets of ids may be empty and have no order; rows come by id. In a transaction that writes,
//! nobody else changes a row between its being read and the end of the transaction: where a database has row
//! locks, reading takes them.

mod jobs;
mod people;

pub use jobs::{AttemptRow, DataRow, JobRow, JobRows, StoredJob};
pub use people::{AnnotationInsert, AnnotationRow, PeopleRows};

/// All operations of a database.
pub trait Driver: JobRows + PeopleRows {}

impl<D: JobRows + PeopleRows> Driver for D {}
