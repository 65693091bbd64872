//! Small tables, each row of which is found by a key of ours and written whole.

use crate::store::Done;

/// A row of a small table.
pub trait Record: Sized {
    /// Which rows are asked for.
    type Of<'a>;
}

/// A small table. Where rows are locked, what is asked for by its key is locked even if there is no such row.
pub trait Keeps<R: Record> {
    /// The rows that are asked for, by their key unless something else is said.
    fn kept(&mut self, of: R::Of<'_>) -> Done<Vec<R>>;
    /// Stores a row in the place of the one of its key.
    fn keep(&mut self, row: &R) -> Done<()>;
}

/// A row that does not stay for ever.
pub trait Passing {
    /// Which rows are deleted.
    type Which<'a>;
}

/// A small table from which rows are deleted.
pub trait Forgets<R: Passing> {
    /// Deletes rows; whether there were any.
    fn forget(&mut self, which: R::Which<'_>) -> Done<bool>;
}
