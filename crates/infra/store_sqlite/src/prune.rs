//! Deleting what was kept long enough: a little at a time, so that nobody waits for it.
//!
//! Jobs are found in the order of their ids, which is the order in which they were enqueued. A job
//! cannot have ended before it was enqueued; so the search ends at the first id that is too young, and
//! no index by the time of the end is needed, which every end would have to write.

use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::dsl::{exists, max, min};
use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::JobState;
use posse_core::port::Pruned;

use super::fault::Outcome;
use super::literal::among;
use super::schema::{blobs, jobs, session_jobs, sessions as sessions_table, steps};
use super::writer::Transaction;
use super::{care, retention, sessions};

/// Most jobs found at once.
const AT_ONCE: i64 = 200;

/// How long one deletion goes on; whoever writes meanwhile waits for so long.
const A_MOMENT: Duration = Duration::from_millis(5);

/// Space inside the file is given back when it is more than this part of it, and more than so many pages.
const FREE_SHARE: u64 = 4;
const FREE_PAGES: u64 = 2_000;

/// Pages given back in one transaction.
const SHRINK_PAGES: u64 = 200;

/// Whether there is anything to delete.
pub(super) fn has_any(connection: &mut SqliteConnection, now: Millis) -> Outcome<bool> {
    let kept = retention::stored(connection)?.unwrap_or_default();
    let cutoffs = kept.cutoffs(now);
    Ok(!find_left(connection, now, 1)?.is_empty()
        || !find(connection, &cutoffs, now, 1)?.is_empty()
        || !unused(connection, kept.session_cutoff(now), 1)?.is_empty())
}

/// Deletes what was kept long enough, as much as takes a moment and at least something. Retention is read in the
/// same transaction, so that nothing goes that somebody has just had kept.
pub(super) fn prune(tx: &mut Transaction<'_>, now: Millis) -> Outcome<Pruned> {
    let begun = Instant::now();
    let kept = retention::stored(&mut tx.db.0)?.unwrap_or_default();
    let unused = unused(&mut tx.db.0, kept.session_cutoff(now), AT_ONCE)?;
    let mut pruned = Pruned { sessions: unused.len() as u64, ..Pruned::default() };
    for id in unused {
        sessions::delete(&mut tx.db.0, id, now)?;
    }
    let mut found = find_left(&mut tx.db.0, now, AT_ONCE)?;
    let rest = AT_ONCE - found.len() as i64;
    if rest > 0 {
        found.extend(find(&mut tx.db.0, &kept.cutoffs(now), now, rest)?);
    }
    pruned.more = found.len() as i64 == AT_ONCE || pruned.sessions == AT_ONCE as u64;
    for id in found {
        if pruned.jobs > 0 && begun.elapsed() >= A_MOMENT {
            pruned.more = true;
            break;
        }
        pruned.contents += delete(&mut tx.db.0, id)?;
        pruned.jobs += 1;
    }
    sessions::drop_empty(&mut tx.db.0)?;
    Ok(pruned)
}

/// Deletes some of the jobs that were turns of sessions which are nobody's any more; true if there may be more.
pub(super) fn finish_sessions(tx: &mut Transaction<'_>, now: Millis) -> Outcome<bool> {
    let begun = Instant::now();
    let found = find_left(&mut tx.db.0, now, AT_ONCE)?;
    let mut more = found.len() as i64 == AT_ONCE;
    for (n, id) in found.into_iter().enumerate() {
        if n > 0 && begun.elapsed() >= A_MOMENT {
            more = true;
            break;
        }
        delete(&mut tx.db.0, id)?;
    }
    sessions::drop_empty(&mut tx.db.0)?;
    Ok(more)
}

/// Jobs of sessions that were deleted, and that nothing else keeps. Looked for from the sessions, of which there are
/// few at any time: joined, SQLite would walk all jobs that have ended.
fn find_left(connection: &mut SqliteConnection, now: Millis, limit: i64) -> QueryResult<Vec<i64>> {
    let deleted: Vec<i64> = sessions_table::table
        .filter(sessions_table::deleted_at.is_not_null())
        .order(sessions_table::id)
        .limit(limit)
        .select(sessions_table::id)
        .load(connection)?;
    let mut found = Vec::new();
    for session in deleted {
        let turns: Vec<i64> = session_jobs::table
            .filter(session_jobs::session_id.eq(session))
            .order(session_jobs::job_id)
            .limit(limit - found.len() as i64)
            .select(session_jobs::job_id)
            .load(connection)?;
        type Row = (i64, String, Option<i64>, bool, Option<i64>);
        let rows: Vec<Row> = jobs::table
            .filter(among(&turns))
            .select((jobs::id, jobs::state, jobs::finalized_at, jobs::awaited, jobs::unique_ms))
            .load(connection)?;
        let may_go = |(id, state, ended_at, awaited, unique_ms): Row| {
            let ended_at = ended_at?;
            let holds_key = state == JobState::Completed.as_str() && unique_ms.is_some_and(|ms| ended_at + ms > now);
            (!awaited && !holds_key).then_some(id)
        };
        found.extend(rows.into_iter().filter_map(may_go));
        if found.len() as i64 == limit {
            break;
        }
    }
    Ok(found)
}

/// Sessions that nobody used since `cutoff`, longest unused first: nothing was said in them or answered, and no
/// session that was used since remembers them.
fn unused(connection: &mut SqliteConnection, cutoff: Option<Millis>, limit: i64) -> QueryResult<Vec<i64>> {
    let Some(cutoff) = cutoff else { return Ok(Vec::new()) };
    let later = diesel::alias!(sessions_table as later);
    let remembered = later
        .filter(later.field(sessions_table::previous_id).eq(sessions_table::id.nullable()))
        .filter(later.field(sessions_table::used_at).ge(cutoff));
    let at_work = session_jobs::table
        .inner_join(jobs::table)
        .filter(session_jobs::session_id.eq(sessions_table::id))
        .filter(jobs::finalized_at.is_null().or(jobs::finalized_at.ge(cutoff)).or(jobs::awaited.eq(true)));
    sessions_table::table
        .filter(sessions_table::deleted_at.is_null())
        .filter(sessions_table::used_at.lt(cutoff))
        .filter(diesel::dsl::not(exists(remembered)))
        .filter(diesel::dsl::not(exists(at_work)))
        .order(sessions_table::used_at)
        .limit(limit)
        .select(sessions_table::id)
        .load(connection)
}

/// Deletes a job and all that belongs to it; gives the number of contents that went with it.
fn delete(connection: &mut SqliteConnection, id: i64) -> QueryResult<u64> {
    let contents: Vec<Option<Vec<u8>>> = steps::table
        .filter(steps::job_id.eq(id))
        .filter(steps::blob_hash.is_not_null())
        .select(steps::blob_hash)
        .load(connection)?;
    diesel::delete(jobs::table.find(id)).execute(connection)?;
    let mut deleted = 0;
    for hash in contents.into_iter().flatten() {
        let referred_to = exists(steps::table.filter(steps::blob_hash.eq(&hash)));
        if !diesel::select(referred_to).get_result::<bool>(connection)? {
            deleted += diesel::delete(blobs::table.find(&hash)).execute(connection)? as u64;
        }
    }
    Ok(deleted)
}

/// The oldest jobs that ended before their state's cutoff, and that nothing else keeps.
fn find(
    connection: &mut SqliteConnection,
    cutoffs: &[(JobState, Millis)],
    now: Millis,
    limit: i64,
) -> QueryResult<Vec<i64>> {
    let mut found = Vec::new();
    for (state, cutoff) in cutoffs {
        let Some(end) = first_younger(connection, *cutoff)? else { continue };
        let ended: Vec<i64> = jobs::table
            .filter(jobs::state.eq(state.as_str()))
            // Spells the condition of the index that has these in order.
            .filter(jobs::finalized_at.is_not_null())
            .filter(jobs::id.lt(end))
            .filter(jobs::finalized_at.lt(cutoff))
            // Others still wait for it, and would for ever.
            .filter(jobs::awaited.eq(false))
            // A turn stays as long as its session does.
            .filter(diesel::dsl::not(exists(session_jobs::table.filter(session_jobs::job_id.eq(jobs::id)))))
            // Its row is what holds its unique key; see [`posse_core::job::holds_key`].
            .filter(
                jobs::state
                    .ne(JobState::Completed.as_str())
                    .or(jobs::unique_ms.is_null())
                    .or((jobs::finalized_at + jobs::unique_ms).le(now)),
            )
            .order(jobs::id)
            .limit(limit - found.len() as i64)
            .select(jobs::id)
            .load(connection)?;
        found.extend(ended);
        if found.len() as i64 == limit {
            break;
        }
    }
    Ok(found)
}

/// The end of the ids of jobs that were enqueued before `cutoff`, found by halving; none if the very
/// first is younger. A clock that was set back makes it an earlier end, never a wrong deletion.
fn first_younger(connection: &mut SqliteConnection, cutoff: Millis) -> QueryResult<Option<i64>> {
    let (first, last): (Option<i64>, Option<i64>) =
        (jobs::table.select(min(jobs::id)).first(connection)?, jobs::table.select(max(jobs::id)).first(connection)?);
    let (Some(mut older), Some(last)) = (first, last) else { return Ok(None) };
    let mut is_older = |id: i64| -> QueryResult<Option<(i64, bool)>> {
        // Ids of deleted jobs are gaps.
        let next: Option<(i64, i64)> = jobs::table
            .filter(jobs::id.ge(id))
            .order(jobs::id)
            .select((jobs::id, jobs::created_at))
            .first(connection)
            .optional()?;
        Ok(next.map(|(id, created_at)| (id, created_at < cutoff)))
    };
    if !is_older(older)?.is_some_and(|(_, older)| older) {
        return Ok(None);
    }
    let mut younger = last + 1;
    while younger - older > 1 {
        let middle = older + (younger - older) / 2;
        match is_older(middle)? {
            Some((id, true)) => older = id.max(middle),
            _ => younger = middle,
        }
    }
    Ok(Some(younger))
}

/// Gives some free pages back to the disk; true if there are more to give. A file that was made by a
/// version that could not do so keeps its size, and uses the space itself.
pub(super) fn shrink(tx: &mut Transaction<'_>) -> Outcome<bool> {
    let too_many = |(pages, free, _): (u64, u64, u64)| free > FREE_PAGES && free > pages / FREE_SHARE;
    let before = care::pages(&mut tx.db.0)?;
    if !too_many(before) {
        return Ok(false);
    }
    tx.db.0.batch_execute(&format!("PRAGMA incremental_vacuum({SHRINK_PAGES})"))?;
    let after = care::pages(&mut tx.db.0)?;
    Ok(after.0 < before.0 && too_many(after))
}
