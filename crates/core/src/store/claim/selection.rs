//! Which available jobs a claim takes.
//!
//! A claim merges the [lanes](super::lanes) by rank, and passes by those that the rules let
//! nothing out of: its work depends on how many lanes may move, on how many jobs run and on how many
//! rules there are, and never on how many jobs wait. Where keys are served in rotation the lanes are not merged,
//! but gone over: see [`Rotation`].

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::fairness::Rotation;
use super::lanes::{Cursor, Lane, Walk};
use crate::job::JobId;
use crate::port::ClaimRequest;
use crate::queue::rules::Gate;
use crate::store::driver::{Driver, Front, Head};
use crate::store::{Done, Tx, limits};

/// Most lanes that one claim takes jobs from. Where more may move, the next claim goes on behind
/// them, so that none waits for ever.
const LANES_AT_ONCE: usize = 1_000;

/// What a claim takes.
pub(super) enum Choice {
    /// The first jobs of the only lane there is, of this queue and concurrency key: the usual case.
    Lane(String, String),
    /// These jobs, in this order.
    Jobs(Vec<JobId>),
}

/// What `request` is given.
pub(super) fn choose<D: Driver>(tx: &mut Tx<'_, D>, request: &ClaimRequest) -> Done<Choice> {
    let mut gate = limits::gate(tx.db, &request.role, request.now)?;
    if gate.as_ref().is_some_and(|gate| gate.shut().is_some()) {
        return Ok(Choice::Jobs(Vec::new()));
    }
    let (mut heads, fair_queues) = match &gate {
        Some(gate) if gate.is_fair() => Default::default(),
        gate => heads(tx, request, gate.as_ref())?,
    };
    if gate.is_none()
        && heads.len() == 1
        && let Some(Head { queue, key, .. }) = heads.pop()
    {
        return Ok(Choice::Lane(queue, key));
    }
    let mut rotations = Vec::with_capacity(fair_queues.len());
    if gate.as_ref().is_some_and(Gate::is_fair) {
        rotations.push(Rotation::go_on(tx.db, request, request.queues.clone())?);
    }
    for queue in fair_queues {
        rotations.push(Rotation::go_on(tx.db, request, vec![queue])?);
    }
    let ids = merge(tx.db, request, &mut gate, heads, &mut rotations)?;
    for rotation in rotations {
        rotation.store(tx.db)?;
    }
    if let Some(gate) = gate {
        limits::store_spent(tx.db, gate)?;
    }
    Ok(Choice::Jobs(ids))
}

/// The heads of lanes that may move, and the queues whose keys are served in rotation and may have some that do.
fn heads<D: Driver>(tx: &mut Tx<'_, D>, request: &ClaimRequest, gate: Option<&Gate>) -> Done<(Vec<Head>, Vec<String>)> {
    let begin = tx.cursors.0.remove(&request.role);
    let mut walk = Walk::new(&request.role, request.queues.clone(), begin);
    let (mut found, mut fair_queues) = (Vec::new(), Vec::new());
    while found.len() < LANES_AT_ONCE {
        let Some(head) = walk.next(tx.db, gate)? else { return Ok((found, fair_queues)) };
        if !gate.is_some_and(|gate| gate.is_fair_in(&head.queue)) {
            found.push(head);
            continue;
        }
        walk.last = Some(Cursor::Queue(head.queue.clone()));
        // A walk that began in the middle of it comes by twice.
        if !fair_queues.contains(&head.queue) {
            fair_queues.push(head.queue);
        }
    }
    if let Some(last) = walk.last {
        tx.cursors.0.insert(request.role.clone(), last);
    }
    Ok((found, fair_queues))
}

/// The ids of the jobs that may start: by rank over all lanes, and over the next jobs of rotations.
fn merge<D: Driver>(
    db: &mut D,
    request: &ClaimRequest,
    gate: &mut Option<Gate>,
    heads: Vec<Head>,
    rotations: &mut [Rotation<'_>],
) -> Done<Vec<JobId>> {
    let mut lanes: Vec<Lane> = Vec::with_capacity(heads.len());
    let mut fronts = BinaryHeap::with_capacity(heads.len());
    for Head { queue, key, front } in heads {
        fronts.push(Reverse((front, lanes.len())));
        lanes.push(Lane::new(queue, key));
    }
    let mut ids = Vec::new();
    while ids.len() < request.limit as usize {
        // What is next may be held by what started just now, so it is asked for each job.
        let mut first: Option<(Front, &mut Rotation<'_>)> = None;
        if let Some(gate) = gate {
            for rotation in rotations.iter_mut() {
                if let Some(front) = rotation.front(db, gate)?
                    && first.as_ref().is_none_or(|(least, _)| front < *least)
                {
                    first = Some((front, rotation));
                }
            }
            if let Some((front, rotation)) = first
                && fronts.peek().is_none_or(|Reverse((other, _))| front < *other)
            {
                ids.extend(rotation.take(gate));
                continue;
            }
        }
        let Some(Reverse((front, index))) = fronts.pop() else { break };
        let lane = &mut lanes[index];
        if let Some(gate) = gate {
            if gate.held(&lane.queue, &lane.key).is_some() {
                // Nothing more comes out of this lane.
                continue;
            }
            gate.start(&lane.queue, &lane.key);
        }
        ids.push(front.1);
        if let Some(front) = lane.after(db, &request.role, front)? {
            fronts.push(Reverse((front, index)));
        }
    }
    Ok(ids)
}
