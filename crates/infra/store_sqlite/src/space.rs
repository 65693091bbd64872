//! Space inside the file.

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use posse_core::store::Done;

use super::writer::Transaction;

/// Space inside the file is given back when it is more than this part of it, and more than so many pages.
const FREE_SHARE: u64 = 4;
const FREE_PAGES: u64 = 2_000;

/// Pages given back in one transaction.
const SHRINK_PAGES: u64 = 200;

/// The database's size in pages, how many of them are free, and the size of a page.
pub(super) fn pages(connection: &mut SqliteConnection) -> Done<(u64, u64, u64)> {
    let sizes = sql::<(BigInt, BigInt, BigInt)>(
        "SELECT page_count, freelist_count, page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size",
    );
    let (pages, free, size): (i64, i64, i64) = sizes.get_result(connection)?;
    Ok((pages.unsigned_abs(), free.unsigned_abs(), size.unsigned_abs()))
}

/// Whether free pages can be given back to the disk: that is settled when a file is made or rewritten.
pub(super) fn gives_back(connection: &mut SqliteConnection) -> Done<bool> {
    let mode: i64 = sql::<BigInt>("PRAGMA auto_vacuum").get_result(connection)?;
    Ok(mode == 2)
}

/// Gives some free pages back to the disk; true if there are more to give. A file that was made by a
/// version that could not do so keeps its size, and uses the space itself.
pub(super) fn shrink(tx: &mut Transaction<'_>) -> Done<bool> {
    let too_many = |(pages, free, _): (u64, u64, u64)| free > FREE_PAGES && free > pages / FREE_SHARE;
    let before = pages(&mut tx.db.0)?;
    if !too_many(before) {
        return Ok(false);
    }
    tx.db.0.batch_execute(&format!("PRAGMA incremental_vacuum({SHRINK_PAGES})"))?;
    let after = pages(&mut tx.db.0)?;
    Ok(after.0 < before.0 && too_many(after))
}
