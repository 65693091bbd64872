//! Which available jobs a claim takes.
//!
//! Jobs of one role, queue and concurrency key stand in a **line**, in the order of their rank. The
//! database has an index that holds the lines one after the other, so that the head of each is found without
//! a look at those behind it. A claim merges the lines by rank, and passes by those that the rules let
//! nothing out of: its work depends on how many lines may move, on how many jobs run and on how many
//! rules there are, and never on how many jobs wait. Where keys are served in rotation the lines are not merged,
//! but gone over: see [`Rotation`].

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::fairness::Rotation;
use crate::job::JobId;
use crate::port::ClaimRequest;
use crate::queue::rules::Gate;
use crate::store::driver::{Driver, Front, Head, Lines};
use crate::store::{Done, Tx, limits};

/// Most lines that one claim takes jobs from. Where more may move, the next claim goes on behind
/// them, so that none waits for ever.
const LINES_AT_ONCE: usize = 1_000;

/// Jobs of a line that are read at once.
const PAGE: u32 = 16;

/// For roles with more lines than one claim takes from: the last one that was taken from. The claims that should go on
/// behind each other share them.
#[derive(Debug, Default)]
pub struct Places(HashMap<String, Place>);

/// A place between lines, in the order of queue and key.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// After the line of this queue and concurrency key.
    Line(String, String),
    /// After all lines of this queue.
    Queue(String),
}

impl Place {
    fn is_before(&self, head: &Head) -> bool {
        match self {
            Place::Line(queue, key) => (queue, key) < (&head.queue, &head.key),
            Place::Queue(queue) => *queue < head.queue,
        }
    }
}

/// What a claim takes.
pub(super) enum Choice {
    /// The first jobs of the only line there is, of this queue and concurrency key: the usual case.
    Line(String, String),
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
        return Ok(Choice::Line(queue, key));
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

/// The heads of lines that may move, and the queues whose keys are served in rotation and may have some that do.
fn heads<D: Driver>(tx: &mut Tx<'_, D>, request: &ClaimRequest, gate: Option<&Gate>) -> Done<(Vec<Head>, Vec<String>)> {
    let begin = tx.places.0.remove(&request.role);
    let mut walk = Walk::new(&request.role, request.queues.clone(), begin);
    let (mut found, mut fair_queues) = (Vec::new(), Vec::new());
    while found.len() < LINES_AT_ONCE {
        let Some(head) = walk.next(tx.db, gate)? else { return Ok((found, fair_queues)) };
        if !gate.is_some_and(|gate| gate.is_fair_in(&head.queue)) {
            found.push(head);
            continue;
        }
        walk.last = Some(Place::Queue(head.queue.clone()));
        // A walk that began in the middle of it comes by twice.
        if !fair_queues.contains(&head.queue) {
            fair_queues.push(head.queue);
        }
    }
    if let Some(last) = walk.last {
        tx.places.0.insert(request.role.clone(), last);
    }
    Ok((found, fair_queues))
}

/// A walk along the heads of lines, in the order of queue and key: from behind a place on, and once around.
pub(super) struct Walk<'a> {
    role: &'a str,
    /// Those asked for, in order; empty for all.
    queues: Vec<String>,
    begin: Option<Place>,
    last: Option<Place>,
    came_round: bool,
    is_over: bool,
}

impl<'a> Walk<'a> {
    /// Along the lines of `role` in these queues (empty for all), from behind `begin` on.
    pub fn new(role: &'a str, mut queues: Vec<String>, begin: Option<Place>) -> Walk<'a> {
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
                self.last = Some(Place::Queue(head.queue));
                continue;
            }
            self.last = Some(Place::Line(head.queue.clone(), head.key.clone()));
            if !held(&head.key) {
                return Ok(Some(head));
            }
        }
        Ok(None)
    }

    /// The head of the first line after the last one, or of all, among the queues asked for.
    fn head_behind<D: Driver>(&self, db: &mut D) -> Done<Option<Head>> {
        let last = self.last.as_ref();
        if self.queues.is_empty() {
            let (Some(Place::Line(queue, _)) | Some(Place::Queue(queue))) = last else {
                return db.head(self.role, Lines::All);
            };
            if let Some(Place::Line(queue, key)) = last
                && let Some(head) = db.head(self.role, Lines::Behind(queue, key))?
            {
                return Ok(Some(head));
            }
            return db.head(self.role, Lines::After(queue));
        }
        for name in &self.queues {
            let lines = match last {
                Some(Place::Line(queue, _)) if name < queue => continue,
                Some(Place::Queue(queue)) if name <= queue => continue,
                Some(Place::Line(queue, key)) if name == queue => Lines::Behind(queue, key),
                _ => Lines::Of(name),
            };
            if let Some(head) = db.head(self.role, lines)? {
                return Ok(Some(head));
            }
        }
        Ok(None)
    }
}

/// The ids of the jobs that may start: by rank over all lines, and over the next jobs of rotations.
fn merge<D: Driver>(
    db: &mut D,
    request: &ClaimRequest,
    gate: &mut Option<Gate>,
    heads: Vec<Head>,
    rotations: &mut [Rotation<'_>],
) -> Done<Vec<JobId>> {
    let mut lines: Vec<Line> = Vec::with_capacity(heads.len());
    let mut fronts = BinaryHeap::with_capacity(heads.len());
    for Head { queue, key, front } in heads {
        fronts.push(Reverse((front, lines.len())));
        lines.push(Line::new(queue, key));
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
        let line = &mut lines[index];
        if let Some(gate) = gate {
            if gate.held(&line.queue, &line.key).is_some() {
                // Nothing more comes out of this line.
                continue;
            }
            gate.start(&line.queue, &line.key);
        }
        ids.push(front.1);
        if let Some(front) = line.after(db, &request.role, front)? {
            fronts.push(Reverse((front, index)));
        }
    }
    Ok(ids)
}

/// A line that jobs are taken from.
pub(super) struct Line {
    pub queue: String,
    pub key: String,
    /// Jobs that were read and not come to yet, the next one last.
    read: Vec<Front>,
}

impl Line {
    pub fn new(queue: String, key: String) -> Line {
        Line { queue, key, read: Vec::new() }
    }

    /// The job behind that one.
    pub fn after<D: Driver>(&mut self, db: &mut D, role: &str, front: Front) -> Done<Option<Front>> {
        if self.read.is_empty() {
            self.read = db.line(role, &self.queue, &self.key, front, PAGE)?;
            self.read.reverse();
        }
        Ok(self.read.pop())
    }
}
