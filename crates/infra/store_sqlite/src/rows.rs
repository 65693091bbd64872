//! The driver of SQLite: rows in sets, by diesel's queries. What becomes of them is decided in
//! [`posse_core::store`].

use diesel::SqliteConnection;
use diesel::query_dsl::methods::{ExecuteDsl, LoadQuery};
use posse_core::store::Done;

mod claim;
mod jobs;
mod journal;
mod kept;
mod limits;
mod memory;
mod people;
mod sessions;
mod vectors;
mod views;
mod waits;

use jobs::{DataColumns, WorkedColumns, count, state, stored};

/// The rows of a database, on a connection.
///
/// Nobody else writes while a transaction of ours does, so reading locks nothing.
#[repr(transparent)]
pub struct Rows(pub(super) SqliteConnection);

impl Rows {
    /// The rows on a connection that is somebody else's.
    pub fn of(connection: &mut SqliteConnection) -> &mut Rows {
        // SAFETY: `Rows` is transparent, so a reference to one is a reference to the other, for as long.
        unsafe { &mut *std::ptr::from_mut(connection).cast::<Rows>() }
    }

    fn run(&mut self, statement: impl ExecuteDsl<SqliteConnection>) -> Done<()> {
        ExecuteDsl::execute(statement, &mut self.0)?;
        Ok(())
    }

    /// What a query finds, each row as `read` has it.
    fn load<'q, T, R>(
        &mut self,
        query: impl LoadQuery<'q, SqliteConnection, T>,
        mut read: impl FnMut(T) -> R,
    ) -> Done<Vec<R>> {
        query.load_iter(&mut self.0)?.map(|row| Ok(read(row?))).collect()
    }
}
