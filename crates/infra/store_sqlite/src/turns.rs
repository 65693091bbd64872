//! Concurrency keys that take turns.
//!
//! The lines stand in the order of queue and key, and a turn goes from each to the next, around and
//! around; where it is, is all that is stored. So what a claim costs depends on how many jobs it takes,
//! and neither on how many keys there are nor on how many jobs wait behind them.

use std::collections::VecDeque;

use diesel::prelude::*;
use posse_core::port::ClaimRequest;
use posse_core::queue::rules::Gate;

use super::lines::{Front, Line, Place, Walk};
use super::schema::turns;

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
    /// Turns over all queues that are asked for.
    pub fn of_all(connection: &mut SqliteConnection, request: &'a ClaimRequest) -> QueryResult<Turns<'a>> {
        Turns::go_on(connection, request, request.queues.clone())
    }

    /// Turns within a queue.
    pub fn of_queue(
        connection: &mut SqliteConnection,
        request: &'a ClaimRequest,
        queue: String,
    ) -> QueryResult<Turns<'a>> {
        Turns::go_on(connection, request, vec![queue])
    }

    /// Goes on behind whoever had the last turn in these queues; empty for all. Workers that ask for others
    /// have turns of their own: a turn that went to and fro between them would come to the first keys of
    /// each and to no others.
    fn go_on(
        connection: &mut SqliteConnection,
        request: &'a ClaimRequest,
        mut queues: Vec<String>,
    ) -> QueryResult<Turns<'a>> {
        queues.sort_unstable();
        let (role, scope) = (request.role.as_str(), queues.join(","));
        let last: Option<(String, String)> =
            turns::table.find((role, &scope)).select((turns::queue, turns::key)).first(connection).optional()?;
        let begin = last.map(|(queue, key)| Place::Line(queue, key));
        let walk = Walk::new(role, queues, begin);
        Ok(Turns { role, scope, walk, had: VecDeque::new(), next: None, last: None })
    }

    /// The job whose turn it is, among those that may start.
    pub fn front(&mut self, connection: &mut SqliteConnection, gate: &Gate) -> QueryResult<Option<Front>> {
        loop {
            if let Some((line, front)) = &self.next
                && gate.held(&line.queue, &line.key).is_none()
            {
                return Ok(Some(*front));
            }
            self.next = if let Some((queue, key, rank, id)) = self.walk.next(connection, Some(gate))? {
                Some((Line::new(queue, key), (rank, id)))
            } else if let Some((mut line, front)) = self.had.pop_front() {
                line.after(connection, self.role, front)?.map(|front| (line, front))
            } else {
                return Ok(None);
            };
        }
    }

    /// Takes the job whose turn it is; gives its id.
    pub fn take(&mut self, gate: &mut Gate) -> Option<i64> {
        let (line, front) = self.next.take()?;
        gate.start(&line.queue, &line.key);
        self.last = Some((line.queue.clone(), line.key.clone()));
        self.had.push_back((line, front));
        Some(front.1)
    }

    /// Remembers who had the last turn, for the next claim of whatever process.
    pub fn store(self, connection: &mut SqliteConnection) -> QueryResult<()> {
        let Some((queue, key)) = self.last else { return Ok(()) };
        diesel::replace_into(turns::table)
            .values((
                turns::role.eq(self.role),
                turns::scope.eq(self.scope),
                turns::queue.eq(queue),
                turns::key.eq(key),
            ))
            .execute(connection)
            .map(drop)
    }
}
