//! How long what has ended is kept, and its deletion: a little at a time, so that nobody waits for it.

use std::time::Duration;

use super::driver::{Driver, Ended, IdsOf, JobsOf, KeepFor, Queues, SessionsOf};
use super::{Done, Tx, sessions};
use crate::clock::Millis;
use crate::job::{JobId, holds_key};
use crate::port::Pruned;
use crate::queue::Queue;
use crate::queue::retention::{Keep, Kept, Retention};
use crate::session::Session;

/// Most jobs found at once.
const AT_ONCE: u32 = 200;

/// How long one deletion goes on; whoever writes meanwhile waits for so long.
const A_MOMENT: Duration = Duration::from_millis(5);

/// What is stored, if anything is.
pub fn stored<D: Driver>(db: &mut D) -> Done<Option<Retention>> {
    let rows: Vec<KeepFor> = db.kept(())?;
    // A kind that only a later version knows is that one's business.
    let said = |row: &KeepFor| {
        let kind = Kept::ALL.into_iter().find(|known| known.as_str() == row.kind)?;
        Some((kind, row.keep))
    };
    let said: Vec<Keep> = rows.iter().filter_map(said).collect();
    Ok((!rows.is_empty()).then(|| Retention::default().with(&said)))
}

/// Stores what nobody has said so far. To be done in a transaction.
pub fn adopt<D: Driver>(db: &mut D, first: &Retention) -> Done<()> {
    if stored(db)?.is_some() { Ok(()) } else { store(db, first) }
}

fn store<D: Driver>(db: &mut D, all: &Retention) -> Done<()> {
    Kept::ALL.into_iter().try_for_each(|kind| db.keep(&KeepFor { kind: kind.as_str().to_owned(), keep: all.of(kind) }))
}

/// Stores some times over what is stored; gives how it is then.
pub fn set<D: Driver>(tx: &mut Tx<'_, D>, said: &[Keep]) -> Done<Retention> {
    let all = stored(tx.db)?.unwrap_or_default().with(said);
    store(tx.db, &all)?;
    Ok(all)
}

/// Whether there is anything to delete.
pub fn has_any<D: Driver>(db: &mut D, now: Millis) -> Done<bool> {
    let kept = stored(db)?.unwrap_or_default();
    Ok(!left_by_sessions(db, now, 1)?.is_empty()
        || !ended(db, &kept, None, now, 1)?.is_empty()
        || !unused(db, kept.session_cutoff(now), 1)?.is_empty())
}

/// Some of the jobs that were kept long enough. Looked for where nobody waits meanwhile: what is kept for longer may lie in
/// front, and all of that is passed by.
pub fn old<D: Driver>(db: &mut D, now: Millis) -> Done<Vec<JobId>> {
    let kept = stored(db)?.unwrap_or_default();
    ended(db, &kept, None, now, AT_ONCE)
}

/// Deletes what was kept long enough, of jobs some of `old`, as much as takes a moment and at least something. Retention is
/// read in the same transaction, so that nothing goes that somebody has just had kept.
pub fn prune<D: Driver>(tx: &mut Tx<'_, D>, old: &[JobId], now: Millis) -> Done<Pruned> {
    let begun = tx.db.elapsed();
    let kept = stored(tx.db)?.unwrap_or_default();
    let unused = unused(tx.db, kept.session_cutoff(now), AT_ONCE)?;
    for session in &unused {
        sessions::delete(tx, session, now)?;
    }
    let mut found = left_by_sessions(tx.db, now, AT_ONCE)?;
    let rest = AT_ONCE - found.len() as u32;
    if rest > 0 && !old.is_empty() {
        found.extend(ended(tx.db, &kept, Some(old), now, rest)?);
    }
    let mut pruned = delete(tx, &found, begun)?;
    pruned.sessions = unused.len() as u64;
    pruned.more |= unused.len() as u32 == AT_ONCE;
    Ok(pruned)
}

/// Deletes some of the jobs that were exchanges of sessions which are nobody's any more; true if there may be more.
pub fn finish_sessions<D: Driver>(tx: &mut Tx<'_, D>, now: Millis) -> Done<bool> {
    let begun = tx.db.elapsed();
    let found = left_by_sessions(tx.db, now, AT_ONCE)?;
    Ok(delete(tx, &found, begun)?.more)
}

/// Deletes jobs until a moment is over since `begun`, one at least, and the sessions that have none then.
fn delete<D: Driver>(tx: &mut Tx<'_, D>, found: &[JobId], begun: Duration) -> Done<Pruned> {
    let mut pruned = Pruned { more: found.len() as u32 == AT_ONCE, ..Pruned::default() };
    for &id in found {
        if pruned.jobs > 0 && tx.db.elapsed().saturating_sub(begun) >= A_MOMENT {
            pruned.more = true;
            break;
        }
        pruned.contents += tx.db.delete_job(id)?;
        pruned.jobs += 1;
    }
    tx.db.drop_empty_sessions()?;
    Ok(pruned)
}

/// Jobs of sessions that were deleted, and that nothing else keeps. Looked for from the sessions, of which there are
/// few at any time.
fn left_by_sessions<D: Driver>(db: &mut D, now: Millis, most: u32) -> Done<Vec<JobId>> {
    let mut found = Vec::new();
    for session in db.sessions(SessionsOf::Deleted(most))? {
        let exchanges = db.ids(IdsOf::Exchanges(session.id, JobId(i64::MAX), most - found.len() as u32))?;
        let mut exchanges = db.jobs(JobsOf::Ids(&exchanges))?;
        exchanges.retain(|row| !row.awaited && !holds_key(row.standing.state, row.finalized_at, row.unique_ms, now));
        found.extend(exchanges.iter().map(|row| row.id));
        if found.len() as u32 == most {
            break;
        }
    }
    Ok(found)
}

fn unused<D: Driver>(db: &mut D, cutoff: Option<Millis>, most: u32) -> Done<Vec<Session>> {
    cutoff.map_or_else(|| Ok(Vec::new()), |cutoff| db.sessions(SessionsOf::Unused(cutoff, most)))
}

/// The oldest jobs that were kept long enough, and that nothing else keeps: of the queues that have times of their own, and
/// of all others; all of them or `among` these.
fn ended<D: Driver>(db: &mut D, kept: &Retention, among: Option<&[JobId]>, now: Millis, most: u32) -> Done<Vec<JobId>> {
    let mut own: Vec<Queue> = db.kept(None)?;
    own.retain(|queue| !queue.keep.is_empty());
    let names: Vec<_> = own.iter().map(|queue| queue.name.clone()).collect();
    let own = own.iter().map(|queue| (Queues::Only(&queue.name), kept.with(&queue.keep)));
    let mut found = Vec::new();
    for (queues, kept) in std::iter::once((Queues::AllBut(&names), *kept)).chain(own) {
        for (state, before) in kept.cutoffs(now) {
            let ended = Ended { among, queues, state, before };
            found.extend(db.ids(IdsOf::Ended(ended, now, most - found.len() as u32))?);
            if found.len() as u32 == most {
                return Ok(found);
            }
        }
    }
    Ok(found)
}
