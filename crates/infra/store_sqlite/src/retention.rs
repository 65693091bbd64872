//! How long what has ended is kept: stored here, once for all who work on the database.

use diesel::prelude::*;
use posse_core::queue::retention::{Keep, Kept, Retention};

use super::fault::Outcome;
use super::schema::retention;
use super::writer::Transaction;

/// What is stored, if anything is.
pub(super) fn stored(connection: &mut SqliteConnection) -> Outcome<Option<Retention>> {
    let rows: Vec<(String, Option<i64>)> = retention::table.load(connection)?;
    // A kind that only a later version knows is that one's business.
    let said = |(kind, keep): &(String, Option<i64>)| {
        let kind = Kept::ALL.into_iter().find(|known| known.as_str() == kind)?;
        Some((kind, *keep))
    };
    let said: Vec<Keep> = rows.iter().filter_map(said).collect();
    Ok((!rows.is_empty()).then(|| Retention::default().with(&said)))
}

/// Stores what nobody has said so far.
pub(super) fn adopt(connection: &mut SqliteConnection, first: &Retention) -> Outcome<()> {
    if stored(connection)?.is_some() {
        return Ok(());
    }
    connection.immediate_transaction(|connection| {
        for kind in Kept::ALL {
            diesel::insert_or_ignore_into(retention::table)
                .values((retention::kind.eq(kind.as_str()), retention::keep_ms.eq(first.of(kind))))
                .execute(connection)?;
        }
        Ok(())
    })
}

/// Stores some times over what is stored; gives how it is then.
pub(super) fn set(tx: &mut Transaction<'_>, said: &[Keep]) -> Outcome<Retention> {
    let all = stored(&mut tx.db.0)?.unwrap_or_default().with(said);
    for kind in Kept::ALL {
        diesel::replace_into(retention::table)
            .values((retention::kind.eq(kind.as_str()), retention::keep_ms.eq(all.of(kind))))
            .execute(&mut tx.db.0)?;
    }
    Ok(all)
}
