//! What becomes of stored jobs, decided once for every database.
//!
//! Everything here runs in one transaction and is generic over the [`Driver`] of a database, which reads and
//! writes rows in sets and decides nothing: it chooses no state and makes no sentence for people. What the
//! ports of [`crate::port`] promise is kept here.

use crate::port::RepositoryError;

pub mod annotations;
pub mod attempts;
pub mod driver;
pub mod fault;
pub mod jobs;
pub mod seal;
pub mod views;

pub use driver::Driver;
pub use fault::{DbError, Done, Fault, Outcome, Unreadable};

use seal::Keys;

/// What a command sees: its database, inside of a transaction.
pub struct Tx<'a, D> {
    /// The rows.
    pub db: &'a mut D,
    /// What texts are sealed with.
    pub keys: &'a Keys,
    rings: &'a mut bool,
}

impl<'a, D> Tx<'a, D> {
    /// Commands run on `db` set `rings` if they want waiting workers to look.
    pub fn new(db: &'a mut D, keys: &'a Keys, rings: &'a mut bool) -> Self {
        Tx { db, keys, rings }
    }

    /// Has waiting workers look once this is committed: a job may have become claimable or due, or the end of
    /// a running one was asked for.
    pub fn ring(&mut self) {
        *self.rings = true;
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
pub type Answer<V> = Result<<V as Verb>::Answer, RepositoryError>;
