//! What becomes of stored jobs, decided once for every database.
//!
//! Everything here runs in one transaction and is generic over the [`Driver`] of a database, which reads and
//! writes rows in sets and decides nothing: it chooses no state and makes no sentence for people. What the
//! ports of [`crate::port`] promise is kept here.

use crate::clock::Millis;
use crate::port::Result;

pub mod annotations;
pub mod cancel;
pub mod care;
pub mod change;
pub mod claim;
pub mod deaths;
pub mod driver;
pub mod endpoints;
pub mod engine;
pub mod enqueue;
pub mod fault;
pub mod find;
pub mod finish;
pub mod forks;
pub mod groups;
pub mod guard;
pub mod jobs;
pub mod journal;
pub mod leases;
pub mod ledger;
pub mod limits;
pub mod memory;
mod ports;
pub mod questions;
pub mod retention;
pub mod schedules;
pub mod seal;
pub mod sessions;
pub mod tasks;
pub mod turns;
mod unique;
pub mod views;
pub mod waits;

pub use driver::Driver;
pub use fault::{DbError, Done, Fault, Outcome, Unreadable};

use claim::Cursors;
use seal::Keys;

/// Roughly what a change of a row takes, in bytes.
pub const ROW: usize = 300;
/// What is said of a change that may touch any number of rows, in bytes.
pub const MANY_ROWS: usize = 1000 * ROW;

/// What a command sees: its database, inside of a transaction.
pub struct Tx<'a, D> {
    /// The rows.
    pub db: &'a mut D,
    /// What texts are sealed with.
    pub keys: &'a Keys,
    /// Where claims go on.
    pub cursors: &'a mut Cursors,
    /// How much later than it was asked for the command is run, in milliseconds; 0 where that is not worth mentioning.
    pub late_ms: Millis,
    notifies: &'a mut bool,
}

impl<'a, D> Tx<'a, D> {
    /// Commands run on `db` set `notifies` if they want waiting workers to look.
    pub fn new(db: &'a mut D, keys: &'a Keys, cursors: &'a mut Cursors, notifies: &'a mut bool) -> Self {
        Tx { db, keys, cursors, late_ms: 0, notifies }
    }

    /// Has waiting workers look once this is committed: a job may have become claimable or due, or the end of
    /// a running one was asked for.
    pub fn notify(&mut self) {
        *self.notifies = true;
    }
}

/// Work that many callers ask for, and that costs less when it is done for all of them at once.
pub trait Verb {
    /// What one caller asks for. It is done whole or not at all.
    type Ask: Send + 'static;
    /// What comes of it.
    type Answer: Send + 'static;

    /// Does what is asked for and gives an answer for each, in order. An ask that is refused in its
    /// answer has changed nothing. A fault is about all: then they are done one at a time.
    fn run<D: Driver>(tx: &mut Tx<'_, D>, asks: &[&Self::Ask]) -> Outcome<Vec<Answer<Self>>>;
}

/// What comes of one ask.
pub type Answer<V> = Result<<V as Verb>::Answer>;
