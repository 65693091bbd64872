//! Concurrency keys that take turns.
//!
//! The lines stand in the order of queue and key, and a turn goes from each to the next, around and
//! around; where it is, is all that is stored. So what a claim costs depends on how many jobs it takes,
//! and neither on how many keys there are nor on how many jobs wait behind them.

use std::collections::VecDeque;

use super::selection::{Line, Place, Walk};
use crate::job::JobId;
use crate::port::ClaimRequest;
use crate::queue::rules::Gate;
use crate::store::Done;
use crate::store::driver::{Driver, Front, Head, LastTurn};

/// The turns of one claim, in one queue or over all that are asked for.
pub(super) struct Turns<'a> {
    role: &'a str,
    /// The queues, as they are stored.
    scope: String,
    /// Lines that had no turn in this claim yet.
    walk: Walk<'a>,
    /// Lines that had one, with the job that each gave last. The one that has waited longest comes first.
    had: VecDeque<(Line, Front)>,
    /// Whose turn it is, with its first job.
    next: Option<(Line, Front)>,
    /// Who had the last one in this claim.
    last: Option<(String, String)>,
}

impl<'a> Turns<'a> {
    /// Goes on behind whoever had the last turn in these queues; empty for all. Workers that ask for others
    /// have turns of their own: a turn that went to and fro between them would come to the first keys of
    /// each and to no others.
    pub fn go_on<D: Driver>(db: &mut D, request: &'a ClaimRequest, mut queues: Vec<String>) -> Done<Turns<'a>> {
        queues.sort_unstable();
        let (role, scope) = (request.role.as_str(), queues.join(","));
        let last: Option<LastTurn> = db.kept((role, scope.as_str()))?.pop();
        let begin = last.map(|last| Place::Line(last.queue, last.key));
        let walk = Walk::new(role, queues, begin);
        Ok(Turns { role, scope, walk, had: VecDeque::new(), next: None, last: None })
    }

    /// The job whose turn it is, among those that may start.
    pub fn front<D: Driver>(&mut self, db: &mut D, gate: &Gate) -> Done<Option<Front>> {
        loop {
            if let Some((line, front)) = &self.next
                && gate.held(&line.queue, &line.key).is_none()
            {
                return Ok(Some(*front));
            }
            self.next = if let Some(Head { queue, key, front }) = self.walk.next(db, Some(gate))? {
                Some((Line::new(queue, key), front))
            } else if let Some((mut line, front)) = self.had.pop_front() {
                line.after(db, self.role, front)?.map(|front| (line, front))
            } else {
                return Ok(None);
            };
        }
    }

    /// Takes the job whose turn it is; gives its id.
    pub fn take(&mut self, gate: &mut Gate) -> Option<JobId> {
        let (line, front) = self.next.take()?;
        gate.start(&line.queue, &line.key);
        self.last = Some((line.queue.clone(), line.key.clone()));
        self.had.push_back((line, front));
        Some(front.1)
    }

    /// Remembers who had the last turn, for the next claim of whatever process.
    pub fn store<D: Driver>(self, db: &mut D) -> Done<()> {
        match self.last {
            Some((queue, key)) => db.keep(&LastTurn { role: self.role.to_owned(), scope: self.scope, queue, key }),
            None => Ok(()),
        }
    }
}
