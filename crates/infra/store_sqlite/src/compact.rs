//! Rewriting a file without its free space.

use std::path::Path;

use diesel::connection::SimpleConnection;
use posse_core::port::{Compacted, RepositoryError, Result};
use posse_core::text::bytes;
use posse_host::process::free_space;

use super::connection::{Access, open};
use super::fault::{describe, in_words};
use super::log::Log;
use super::migrate::{self, Schema};
use super::{Synchronous, space};

/// Rewrites the database at `path` without its free space. From then on it gives free space back to the
/// disk by itself, which files that were made by an early version cannot do.
///
/// Takes about a second for each 100 MB, and for that time as much space again as is in use, twice:
/// beside the database and where SQLite keeps temporary files (`SQLITE_TMPDIR`, else `/var/tmp`). Whoever
/// writes waits meanwhile, so no worker should be at work. It is one transaction: whatever ends it early
/// leaves what was there before.
pub fn compact(path: &Path) -> Result<Compacted> {
    let failed = |error| describe(&error, path);
    let mut connection = open(path, Access::Write(Synchronous::Full))?;
    if migrate::inspect(&mut connection, path)? == Schema::Older {
        let way_out = "posse db migrate brings it up to date";
        return Err(RepositoryError::Refused(format!("{} was made by an older posse; {way_out}", path.display())));
    }
    let (total, free, size) = space::pages(&mut connection).map_err(|error| in_words(error, path))?;
    let (needed, there) = ((total - free) * size, path.parent().and_then(free_space));
    if there.is_some_and(|there| there < needed + needed / 8) {
        return Err(RepositoryError::Unavailable(format!(
            "{} needs {} beside it to be rewritten, and {} are free there; free some space",
            path.display(),
            bytes(needed + needed / 8),
            bytes(there.unwrap_or_default()),
        )));
    }
    // A temporary copy in memory would be as large as the database.
    connection.batch_execute("PRAGMA temp_store = file; PRAGMA auto_vacuum = INCREMENTAL; VACUUM").map_err(failed)?;
    // Whoever still reads keeps the log from being taken in whole; it is taken in later.
    connection.batch_execute("PRAGMA wal_checkpoint(TRUNCATE)").map_err(failed)?;
    let (after, _, size) = space::pages(&mut connection).map_err(|error| in_words(error, path))?;
    Ok(Compacted { before: total * size, after: after * size, log_bytes: Log::of(path).bytes() })
}
