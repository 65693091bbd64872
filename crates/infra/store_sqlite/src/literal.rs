//! Fixed pieces of SQL as diesel expressions.
//!
//! Two things that diesel's own means do not give together: conditions spelled with literals,
//! which SQLite needs to see before it uses a partial index, and statements that are prepared once
//! per connection (`sql()` and `sql_query()` are prepared on every use).

use std::marker::PhantomData;

use diesel::expression::{AppearsOnTable, Expression, SelectableExpression, ValidGrouping};
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Bool, Text};
use diesel::sqlite::Sqlite;
use serde::Serialize;

/// Types that stand for a fixed piece of SQL each.
macro_rules! literals {
    ($($(#[$doc:meta])* $name:ident = $sql:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, QueryId, ValidGrouping)]
        pub(super) struct $name;

        impl QueryFragment<Sqlite> for $name {
            fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
                out.push_sql($sql);
                Ok(())
            }
        }
    )*};
}

/// Those that are conditions on any rows.
macro_rules! conditions {
    ($($(#[$doc:meta])* $name:ident = $sql:literal;)*) => {
        literals! { $($(#[$doc])* $name = $sql;)* }
        $(
            impl Expression for $name {
                type SqlType = Bool;
            }
            impl<QS> AppearsOnTable<QS> for $name {}
            impl<QS> SelectableExpression<QS> for $name {}
        )*
    };
}

/// Those that are statements.
macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $sql:literal;)*) => {
        literals! { $($(#[$doc])* $name = $sql;)* }
        $(impl<C> RunQueryDsl<C> for $name {})*
    };
}

// Each is, to the letter, the condition of a partial index.
conditions! {
    IsAvailable = "(jobs.state = 'available')";
    IsWaiting = "(jobs.state IN ('scheduled', 'retryable'))";
    IsRunning = "(jobs.state = 'running')";
    IsSuspended = "(jobs.state = 'suspended')";
    IsToBeCancelled = "(jobs.state = 'running' AND jobs.cancel_requested = 1)";
    IsSuspect = "(deaths.suspect = 1)";
    /// Together with a condition on the key.
    MayHoldKey = "(jobs.finalized_at IS NULL OR (jobs.state = 'completed' AND jobs.unique_ms IS NOT NULL))";
    IsNotPaused = "(schedules.paused_at IS NULL)";
    IsRemembered = "(memory_items.ended_at IS NULL)";
    IsCore = "(memory_items.tier = 'core' AND memory_items.ended_at IS NULL)";
    IsOpenAsk = "(asks.state = 'open')";
    IsOpen = "(dependencies.open = 1)";
    IsGroupOpen = "(group_waits.open = 1)";
}

statements! {
    /// Takes the write lock at once. A transaction that reads first and writes later can find that
    /// another process has written in between, and then nothing helps but starting over.
    Begin = "BEGIN IMMEDIATE";
    Commit = "COMMIT";
    Rollback = "ROLLBACK";
    Savepoint = "SAVEPOINT command";
    Release = "RELEASE command";
    /// After a command that failed; the savepoint is still there and must be released.
    RollbackTo = "ROLLBACK TO command";
}

#[derive(Debug, Clone, Copy, QueryId, ValidGrouping)]
pub(super) struct AfterRank(i64, i64);

/// The condition that a job stands after that of this rank and id. SQLite seeks such a pair by "at
/// least", and walks what is equal: here one row, but it would be a whole line for a pair that many
/// rows share.
pub(super) fn after_rank(rank: i64, id: i64) -> AfterRank {
    AfterRank(rank, id)
}

impl Expression for AfterRank {
    type SqlType = Bool;
}
impl<QS> AppearsOnTable<QS> for AfterRank {}
impl QueryFragment<Sqlite> for AfterRank {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        out.push_sql("((jobs.rank, jobs.id) > (");
        out.push_bind_param::<BigInt, _>(&self.0)?;
        out.push_sql(", ");
        out.push_bind_param::<BigInt, _>(&self.1)?;
        out.push_sql("))");
        Ok(())
    }
}

/// Job ids as one bind, whatever their number. Matches `jobs.id`; built by [`among`].
#[derive(Debug, Clone, QueryId, ValidGrouping)]
pub(super) struct Among(String);

/// The condition that a job is one of `jobs`. The statement stays the same text.
pub(super) fn among(jobs: &[impl Serialize]) -> Among {
    // Numbers can always be written.
    Among(serde_json::to_string(jobs).unwrap_or_default())
}

impl Expression for Among {
    type SqlType = Bool;
}
impl<QS> AppearsOnTable<QS> for Among {}
impl<QS> SelectableExpression<QS> for Among {}
impl QueryFragment<Sqlite> for Among {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        out.push_sql("(jobs.id IN (SELECT value FROM json_each(");
        out.push_bind_param::<Text, _>(&self.0)?;
        out.push_sql(")))");
        Ok(())
    }
}

/// An UPDATE that is prepared once per connection. diesel prepares its own on every use, since one
/// with optional assignments has many texts under one type; so none may be optional here.
pub(super) fn update<T, W, S>(table: T, rows: W, set: S) -> Update<T, W, S, S::Changeset>
where
    T: Table,
    W: AppearsOnTable<T> + Expression<SqlType = Bool>,
    S: AsChangeset<Target = T>,
{
    Update { table, rows, set: set.as_changeset(), assignments: PhantomData }
}

/// See [`update`]. `S` are the assignments as they were written, `C` as they are sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Update<T, W, S, C> {
    table: T,
    rows: W,
    set: C,
    assignments: PhantomData<S>,
}

impl<T, W, S, C> QueryFragment<Sqlite> for Update<T, W, S, C>
where
    T: Table + QueryFragment<Sqlite>,
    W: QueryFragment<Sqlite>,
    C: QueryFragment<Sqlite>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        out.push_sql("UPDATE ");
        self.table.walk_ast(out.reborrow())?;
        out.push_sql(" SET ");
        self.set.walk_ast(out.reborrow())?;
        out.push_sql(" WHERE ");
        self.rows.walk_ast(out.reborrow())
    }
}
// Assignments have no id as they are sent, but one as they are written, and that decides the text.
impl<T: 'static, W: QueryId, S: QueryId, C> QueryId for Update<T, W, S, C> {
    type QueryId = Update<T, W::QueryId, S::QueryId, ()>;
    const HAS_STATIC_QUERY_ID: bool = W::HAS_STATIC_QUERY_ID && S::HAS_STATIC_QUERY_ID;
}
impl<T, W, S, C, Connection> RunQueryDsl<Connection> for Update<T, W, S, C> {}
