//! Jobs that a job makes, and then waits for.

use super::driver::Driver;
use super::enqueue::{Ancestors, Batch, enqueue};
use super::jobs::{existing, set_reason, whole};
use super::{Outcome, Tx, cancel, waits};
use crate::clock::Millis;
use crate::job::dependency::{OnFailed, waits_for, would_wait_for_itself};
use crate::job::{JobId, JobState};
use crate::port::Reach;

/// Makes the jobs beneath `parent`, which is suspended, and has it wait for them. Tells where it is
/// then.
pub fn wait_for_children<D: Driver>(
    tx: &mut Tx<'_, D>,
    parent: JobId,
    children: &Batch,
    now: Millis,
) -> Outcome<JobState> {
    let root = whole(tx.db, parent)?.1.root;
    let above = Ancestors { parent, root: root.unwrap_or(parent) };
    let made = enqueue(tx, children, Some(above))?;
    let mut ids: Vec<_> = made.into_iter().map(|made| made.id).collect();
    // Two with one unique key are one.
    ids.sort();
    ids.dedup();
    if let Some(child) = waits::depends_on(tx.db, &ids, parent)? {
        cancel::cancel_within(tx, parent, Reach::Beneath, &would_wait_for_itself(child, parent), now)?;
        return Ok(JobState::Cancelled);
    }
    let states = ids.into_iter().map(|id| Ok((id, existing(tx.db, id)?.standing.state)));
    let states = states.collect::<Outcome<Vec<_>>>()?;
    // However they end, the parent wants to know.
    waits::wait_for(tx.db, parent, &states, JobState::Suspended, OnFailed::Run)?;
    let open: Vec<_> = states.iter().filter(|(_, state)| !state.is_final()).map(|(id, _)| *id).collect();
    if open.is_empty() {
        return waits::go_on(tx, parent, now);
    }
    set_reason(tx, parent, &waits_for(&open))?;
    Ok(JobState::Suspended)
}
