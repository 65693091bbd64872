//! Concurrency keys that are served in rotation.
//!
//! The lanes stand in the order of queue and key, and each gives one job before the first gives another;
//! which gave the last one is all that is stored. So what a claim costs depends on how many jobs it takes,
//! and neither on how many keys there are nor on how many jobs wait behind them.

use std::collections::VecDeque;

use super::lanes::{Cursor, Lane, Walk};
use crate::job::JobId;
use crate::port::ClaimRequest;
use crate::queue::rules::Gate;
use crate::store::Done;
use crate::store::driver::{Driver, Front, Head, LastServed};

/// The rotation of one claim, in one queue or over all that are asked for.
pub(super) struct Rotation<'a> {
    role: &'a str,
    /// The queues, as they are stored.
    scope: String,
    /// Lanes that gave nothing in this claim yet.
    walk: Walk<'a>,
    /// Lanes that did, with the job that each gave last. The one that has waited longest comes first.
    had: VecDeque<(Lane, Front)>,
    /// The lane that is next, with its first job.
    next: Option<(Lane, Front)>,
    /// Queue and key that were served last in this claim.
    last: Option<(String, String)>,
}

impl<'a> Rotation<'a> {
    /// Goes on behind the key that was served last in these queues; empty for all. Workers that ask for others
    /// have a rotation of their own: one that went to and fro between them would come to the first keys of
    /// each and to no others.
    pub fn go_on<D: Driver>(db: &mut D, request: &'a ClaimRequest, mut queues: Vec<String>) -> Done<Rotation<'a>> {
        queues.sort_unstable();
        let (role, scope) = (request.role.as_str(), queues.join(","));
        let last: Option<LastServed> = db.kept((role, scope.as_str()))?.pop();
        let begin = last.map(|last| Cursor::Lane(last.queue, last.key));
        let walk = Walk::new(role, queues, begin);
        Ok(Rotation { role, scope, walk, had: VecDeque::new(), next: None, last: None })
    }

    /// The job that is next, among those that may start.
    pub fn front<D: Driver>(&mut self, db: &mut D, gate: &Gate) -> Done<Option<Front>> {
        loop {
            if let Some((lane, front)) = &self.next
                && gate.held(&lane.queue, &lane.key).is_none()
            {
                return Ok(Some(*front));
            }
            self.next = if let Some(Head { queue, key, front }) = self.walk.next(db, Some(gate))? {
                Some((Lane::new(queue, key), front))
            } else if let Some((mut lane, front)) = self.had.pop_front() {
                lane.after(db, self.role, front)?.map(|front| (lane, front))
            } else {
                return Ok(None);
            };
        }
    }

    /// Takes the job that is next; gives its id.
    pub fn take(&mut self, gate: &mut Gate) -> Option<JobId> {
        let (lane, front) = self.next.take()?;
        gate.start(&lane.queue, &lane.key);
        self.last = Some((lane.queue.clone(), lane.key.clone()));
        self.had.push_back((lane, front));
        Some(front.1)
    }

    /// Remembers who was served last, for the next claim of whatever process.
    pub fn store<D: Driver>(self, db: &mut D) -> Done<()> {
        match self.last {
            Some((queue, key)) => db.keep(&LastServed { role: self.role.to_owned(), scope: self.scope, queue, key }),
            None => Ok(()),
        }
    }
}
