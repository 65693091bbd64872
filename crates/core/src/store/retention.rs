//! How long what has ended is kept, and its deletion: a little at a time, so that nobody waits for it.

use std::time::Duration;

use super::driver::{Driver, Ended, ExchangeLeft, KeepFor, Queues};
use super::{Done, Tx};
use crate::clock::Millis;
use crate::job::{JobId, holds_key};
use crate::port::Pruned;
use crate::queue::Queue;
use crate::queue::retention::{Keep, Kept, Retention};
use crate::session::SessionId;

/// Most jobs found at once.
const AT_ONCE: usize = 200;

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
    let mut pruned = Pruned { sessions: unused.len() as u64, ..Pruned::default() };
    for id in unused {
        tx.db.delete_session(id, now)?;
    }
    let mut found = left_by_sessions(tx.db, now, AT_ONCE)?;
    let rest = AT_ONCE.saturating_sub(found.len());
    if rest > 0 && !old.is_empty() {
        found.extend(ended(tx.db, &kept, Some(old), now, rest)?);
    }
    pruned.more = found.len() == AT_ONCE || pruned.sessions == AT_ONCE as u64;
    for id in found {
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

/// Deletes some of the jobs that were exchanges of sessions which are nobody's any more; true if there may be more.
pub fn finish_sessions<D: Driver>(tx: &mut Tx<'_, D>, now: Millis) -> Done<bool> {
    let begun = tx.db.elapsed();
    let found = left_by_sessions(tx.db, now, AT_ONCE)?;
    let mut more = found.len() == AT_ONCE;
    for (n, id) in found.into_iter().enumerate() {
        if n > 0 && tx.db.elapsed().saturating_sub(begun) >= A_MOMENT {
            more = true;
            break;
        }
        tx.db.delete_job(id)?;
    }
    tx.db.drop_empty_sessions()?;
    Ok(more)
}

/// Jobs of sessions that were deleted, and that nothing else keeps. Looked for from the sessions, of which there are
/// few at any time.
fn left_by_sessions<D: Driver>(db: &mut D, now: Millis, most: usize) -> Done<Vec<JobId>> {
    let mut found = Vec::new();
    for session in db.deleted_sessions(most)? {
        let may_go = |ExchangeLeft { job, state, finalized_at, awaited, unique_ms }| {
            (!awaited && !holds_key(state, finalized_at, unique_ms, now)).then_some(job)
        };
        found.extend(db.exchanges_left(session, most - found.len())?.into_iter().filter_map(may_go));
        if found.len() == most {
            break;
        }
    }
    Ok(found)
}

fn unused<D: Driver>(db: &mut D, cutoff: Option<Millis>, most: usize) -> Done<Vec<SessionId>> {
    cutoff.map_or_else(|| Ok(Vec::new()), |cutoff| db.unused_sessions(cutoff, most))
}

/// The oldest jobs that were kept long enough, and that nothing else keeps: of the queues that have times of their own, and
/// of all others; all of them or `among` these.
fn ended<D: Driver>(
    db: &mut D,
    kept: &Retention,
    among: Option<&[JobId]>,
    now: Millis,
    most: usize,
) -> Done<Vec<JobId>> {
    let mut own: Vec<Queue> = db.kept(None)?;
    own.retain(|queue| !queue.keep.is_empty());
    let names: Vec<_> = own.iter().map(|queue| queue.name.clone()).collect();
    let own = own.iter().map(|queue| (Queues::Only(&queue.name), kept.with(&queue.keep)));
    let mut found = Vec::new();
    for (queues, kept) in std::iter::once((Queues::AllBut(&names), *kept)).chain(own) {
        for (state, before) in kept.cutoffs(now) {
            found.extend(db.ended(Ended { among, queues, state, before }, now, most - found.len())?);
            if found.len() == most {
                return Ok(found);
            }
        }
    }
    Ok(found)
}
