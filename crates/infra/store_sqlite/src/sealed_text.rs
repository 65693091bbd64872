//! Sealed texts as columns.

use std::borrow::Borrow;
use std::fmt::Debug;

use diesel::backend::Backend;
use diesel::deserialize::{self, FromSql, Queryable};
use diesel::expression::AsExpression;
use diesel::query_builder::QueryId;
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types::{self, SqlType};
use diesel::sqlite::Sqlite;
use posse_core::store::seal::Sealed;

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
