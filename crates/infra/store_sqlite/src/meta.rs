//! What a database says of itself: its id, and the key that seals its texts.

use std::path::Path;
use std::sync::Arc;

use diesel::prelude::*;
use posse_core::port::{RepositoryError, Result};
use posse_core::store::seal::Keys;
use posse_core::store::{Done, Outcome};

use super::fault::describe;
use super::schema::meta;

/// The row that names the key which seals, if one does.
const SEALING_KEY: &str = "sealing_key";

/// What tells this database from all others.
pub(super) fn installation(connection: &mut SqliteConnection, path: &Path) -> Result<Arc<str>> {
    let id = meta::table.filter(meta::key.eq("installation")).select(meta::value).first::<String>(connection);
    id.map(Arc::from).map_err(|error| describe(&error, path))
}

/// The id of the key that seals in this database, if one does.
pub(super) fn sealing_key(connection: &mut SqliteConnection) -> Done<Option<String>> {
    Ok(meta::table.filter(meta::key.eq(SEALING_KEY)).select(meta::value).first(connection).optional()?)
}

/// Refuses keys that do not include the one that seals here: their owner would write in the clear what others seal, or
/// could not open what they write. Gives the id of the key that seals so far.
pub(super) fn admit(connection: &mut SqliteConnection, keys: &Keys) -> Outcome<Option<String>> {
    match sealing_key(connection)? {
        Some(id) if !keys.has(&id) => Err(RepositoryError::Unavailable(format!(
            "this database is sealed with key {id}, which is not configured here: add it to POSSE_SEAL_KEYS or \
             [sealing] key_file"
        ))
        .into()),
        key => Ok(key),
    }
}

/// The same, and records the key that seals from now on.
pub(super) fn begin_sealing(connection: &mut SqliteConnection, keys: &Keys) -> Outcome<()> {
    let before = admit(connection, keys)?;
    match keys.sealing() {
        Some(id) if before.as_deref() != Some(id) => Ok(set_sealing_key(connection, Some(id))?),
        _ => Ok(()),
    }
}

/// Records the key that seals, or that none does.
pub(super) fn set_sealing_key(connection: &mut SqliteConnection, id: Option<&str>) -> Done<()> {
    match id {
        Some(id) => diesel::replace_into(meta::table)
            .values((meta::key.eq(SEALING_KEY), meta::value.eq(id)))
            .execute(connection)?,
        None => diesel::delete(meta::table.filter(meta::key.eq(SEALING_KEY))).execute(connection)?,
    };
    Ok(())
}
