//! Tasks: jobs that a run gives to others, as many as there is room for.

use super::cancel::cancel_within;
use super::driver::{Driver, IdsOf, StoredJob};
use super::enqueue::{Ancestors, Batch, enqueue};
use super::fault::{misused, no_such};
use super::guard::guarded;
use super::jobs::whole;
use super::seal::Place;
use super::{Done, Outcome, Tx};
use crate::clock::Millis;
use crate::job::lease::Lease;
use crate::job::task::{Given, TaskOf, room_for};
use crate::job::{JobId, Payload};
use crate::port::{Cancelled, Reach};

/// Makes the one job of `batch`, which is `task`, beneath the leased one, or finds the one that was made by the same call.
pub fn give<D: Driver>(tx: &mut Tx<'_, D>, lease: Lease, batch: &Batch, task: &TaskOf) -> Outcome<Given> {
    let row = guarded(tx.db, lease)?;
    let parent = lease.job;
    let ids = tx.db.ids(IdsOf::Children(parent))?;
    let tasks = tx.db.whole_jobs(&ids)?;
    if let Some((made, _)) = tasks.iter().find(|made| is_by(tx, made, &task.key)) {
        return Ok(Given::Task(made.id));
    }
    if row.standing.cancel_requested {
        return Ok(Given::Stopped);
    }
    let mut open: Vec<_> = tasks.iter().map(|(row, _)| row).filter(|row| !row.standing.state.is_final()).collect();
    open.sort_by_key(|row| row.id);
    let open: Vec<_> = open.into_iter().map(|row| row.id).collect();
    let root = whole(tx.db, parent)?.1.root.unwrap_or(parent);
    let all = beneath(tx.db, root, task.bounds.all)?;
    if let Err(why) = room_for(task, root, &open, all) {
        return Ok(Given::Refused(why));
    }
    let made = enqueue(tx, batch, Some(Ancestors { parent, root }))?;
    let made = made.first().ok_or_else(|| misused(format!("job {parent} gives no task; nothing was saved")))?;
    Ok(Given::Task(made.id))
}

/// Whether a job was made by the call of this effect key.
fn is_by<D: Driver>(tx: &Tx<'_, D>, (row, data): &StoredJob, key: &str) -> bool {
    let payload = tx.keys.open(Place::payload(row.id.0), &data.payload).ok();
    let payload = payload.and_then(|payload| serde_json::from_str::<Payload>(&payload).ok());
    payload.and_then(|payload| payload.task).is_some_and(|task| task.key == key)
}

/// How many jobs lie beneath `root`; not counted further than `most`.
fn beneath<D: Driver>(db: &mut D, root: JobId, most: u32) -> Done<u32> {
    let (mut level, mut count) = (vec![root], 0);
    while let Some(at) = level.pop() {
        let children = db.ids(IdsOf::Children(at))?;
        count += u32::try_from(children.len()).unwrap_or(u32::MAX);
        if count >= most {
            break;
        }
        level.extend(children);
    }
    Ok(count)
}

/// Asks for the end of a task of the leased job, and of those beneath it.
pub fn cancel<D: Driver>(
    tx: &mut Tx<'_, D>,
    lease: Lease,
    task: JobId,
    reason: &str,
    now: Millis,
) -> Outcome<Cancelled> {
    guarded(tx.db, lease)?;
    if !tx.db.ids(IdsOf::Children(lease.job))?.contains(&task) {
        return Err(no_such(task));
    }
    let told = cancel_within(tx, task, Reach::Beneath, reason, now)?;
    told.first().map(|(_, became)| *became).ok_or_else(|| no_such(task))
}
