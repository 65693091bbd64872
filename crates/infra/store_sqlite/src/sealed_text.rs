//! Sealed texts as columns, and which key seals in a database.

use std::borrow::Borrow;
use std::fmt::Debug;

use diesel::backend::Backend;
use diesel::deserialize::{self, FromSql, Queryable};
use diesel::expression::AsExpression;
use diesel::prelude::*;
use diesel::query_builder::QueryId;
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types::{self, SqlType};
use diesel::sqlite::Sqlite;
use posse_core::port::RepositoryError;
use posse_core::store::seal::{Keys, Sealed};

use super::fault::{Fault, Outcome};
use super::schema::meta;

/// The SQL type of a column whose texts are sealed: it takes and gives [`Sealed`] alone.
#[derive(Debug, Clone, Copy, SqlType, QueryId)]
#[diesel(sqlite_type(name = "Text"))]
pub struct SealedText;

/// Such a text, or a reference to one, to be written.
#[derive(Debug, Clone, Copy, AsExpression)]
#[diesel(sql_type = SealedText)]
pub(super) struct Text<T>(pub T);

impl<T: Borrow<Sealed> + Debug> ToSql<SealedText, Sqlite> for Text<T> {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Sqlite>) -> serialize::Result {
        <str as ToSql<sql_types::Text, Sqlite>>::to_sql(self.0.borrow().as_stored(), out)
    }
}

impl FromSql<SealedText, Sqlite> for Sealed {
    fn from_sql(bytes: <Sqlite as Backend>::RawValue<'_>) -> deserialize::Result<Self> {
        <String as FromSql<sql_types::Text, Sqlite>>::from_sql(bytes).map(Sealed::stored)
    }
}

impl Queryable<SealedText, Sqlite> for Sealed {
    type Row = Sealed;

    fn build(sealed: Sealed) -> deserialize::Result<Self> {
        Ok(sealed)
    }
}

/// The row of `meta` that names the key which seals in this database, if one does.
const MARKER: &str = "sealing_key";

/// The id of the key that seals in this database, if one does.
pub(super) fn marked(connection: &mut SqliteConnection) -> Outcome<Option<String>> {
    Ok(meta::table.filter(meta::key.eq(MARKER)).select(meta::value).first(connection).optional()?)
}

/// Refuses those who would write in the clear what others seal, or cannot open what the others write. Gives
/// the id of the key that seals so far.
pub(super) fn admit(connection: &mut SqliteConnection, keys: &Keys) -> Outcome<Option<String>> {
    match marked(connection)? {
        None => Ok(None),
        Some(id) if keys.has(&id) => Ok(Some(id)),
        Some(id) => Err(Fault::Refused(RepositoryError::Unavailable(format!(
            "this database is sealed with key {id}, which is not configured here: add it to POSSE_SEAL_KEYS or \
             [sealing] key_file"
        )))),
    }
}

/// The same, and has it known with which key texts are sealed from now on.
pub(super) fn begin(connection: &mut SqliteConnection, keys: &Keys) -> Outcome<()> {
    let before = admit(connection, keys)?;
    match keys.sealing() {
        Some(id) if before.as_deref() != Some(id) => mark(connection, Some(id)),
        _ => Ok(()),
    }
}

/// Has it known with which key texts are sealed, or that none are.
pub(super) fn mark(connection: &mut SqliteConnection, id: Option<&str>) -> Outcome<()> {
    match id {
        Some(id) => {
            diesel::replace_into(meta::table).values((meta::key.eq(MARKER), meta::value.eq(id))).execute(connection)?
        }
        None => diesel::delete(meta::table.filter(meta::key.eq(MARKER))).execute(connection)?,
    };
    Ok(())
}
