//! Lanes: the jobs of one role, queue and concurrency key that may be claimed, in the order of their rank.
//!
//! The database has an index that holds the lanes one after the other, so that the head of each is found without a look
//! at those behind it.

use std::collections::HashMap;

use crate::queue::rules::Gate;
use crate::store::Done;
use crate::store::driver::{Driver, Front, Head, Lanes};

/// Jobs of a lane that are read at once.
const PAGE: u32 = 16;

/// For roles with more lanes than one claim takes from: the last one that was taken from. The claims that should go on
/// behind each other share them.
#[derive(Debug, Default)]
pub struct Cursors(pub(super) HashMap<String, Cursor>);

/// Where a walk along the lanes is: between two of them, in the order of queue and key.
#[derive(Debug, Clone)]
pub(super) enum Cursor {
    /// After the lane of this queue and concurrency key.
    Lane(String, String),
    /// After all lanes of this queue.
    Queue(String),
}

impl Cursor {
    fn is_before(&self, head: &Head) -> bool {
        match self {
            Cursor::Lane(queue, key) => (queue, key) < (&head.queue, &head.key),
            Cursor::Queue(queue) => *queue < head.queue,
        }
    }
}

/// A walk along the heads of lanes, in the order of queue and key: from behind a cursor on, and once around.
pub(super) struct Walk<'a> {
    role: &'a str,
    /// Those asked for, in order; empty for all.
    queues: Vec<String>,
    begin: Option<Cursor>,
    pub last: Option<Cursor>,
    came_round: bool,
    is_over: bool,
}

impl<'a> Walk<'a> {
    /// Along the lanes of `role` in these queues (empty for all), from behind `begin` on.
    pub fn new(role: &'a str, mut queues: Vec<String>, begin: Option<Cursor>) -> Walk<'a> {
        queues.sort_unstable();
        Walk { role, queues, last: begin.clone(), begin, came_round: false, is_over: false }
    }

    /// The next head that may move.
    pub fn next<D: Driver>(&mut self, db: &mut D, gate: Option<&Gate>) -> Done<Option<Head>> {
        while !self.is_over {
            let Some(head) = self.head_behind(db)? else {
                // If it began in the middle, the ones before come now.
                self.is_over = self.came_round || self.begin.is_none();
                (self.came_round, self.last) = (true, None);
                continue;
            };
            if self.came_round && self.begin.as_ref().is_some_and(|begin| begin.is_before(&head)) {
                self.is_over = true;
                break;
            }
            let held = |key: &str| gate.is_some_and(|gate| gate.held(&head.queue, key).is_some());
            // What holds a job without a key holds the whole queue. Of full keys there are no more than
            // jobs that run, and of others that are held no more than rules.
            if held("") {
                self.last = Some(Cursor::Queue(head.queue));
                continue;
            }
            self.last = Some(Cursor::Lane(head.queue.clone(), head.key.clone()));
            if !held(&head.key) {
                return Ok(Some(head));
            }
        }
        Ok(None)
    }

    /// The head of the first lane after the last one, or of all, among the queues asked for.
    fn head_behind<D: Driver>(&self, db: &mut D) -> Done<Option<Head>> {
        let last = self.last.as_ref();
        if self.queues.is_empty() {
            let (Some(Cursor::Lane(queue, _)) | Some(Cursor::Queue(queue))) = last else {
                return db.head(self.role, Lanes::All);
            };
            if let Some(Cursor::Lane(queue, key)) = last
                && let Some(head) = db.head(self.role, Lanes::Behind(queue, key))?
            {
                return Ok(Some(head));
            }
            return db.head(self.role, Lanes::After(queue));
        }
        for name in &self.queues {
            let lanes = match last {
                Some(Cursor::Lane(queue, _)) if name < queue => continue,
                Some(Cursor::Queue(queue)) if name <= queue => continue,
                Some(Cursor::Lane(queue, key)) if name == queue => Lanes::Behind(queue, key),
                _ => Lanes::Of(name),
            };
            if let Some(head) = db.head(self.role, lanes)? {
                return Ok(Some(head));
            }
        }
        Ok(None)
    }
}

/// A lane that jobs are taken from.
pub(super) struct Lane {
    pub queue: String,
    pub key: String,
    /// Jobs that were read and not come to yet, the next one last.
    read: Vec<Front>,
}

impl Lane {
    pub fn new(queue: String, key: String) -> Lane {
        Lane { queue, key, read: Vec::new() }
    }

    /// The job behind that one.
    pub fn after<D: Driver>(&mut self, db: &mut D, role: &str, front: Front) -> Done<Option<Front>> {
        if self.read.is_empty() {
            self.read = db.lane(role, &self.queue, &self.key, front, PAGE)?;
            self.read.reverse();
        }
        Ok(self.read.pop())
    }
}
