//! Which available jobs a claim takes.
//!
//! Jobs of one role, queue and concurrency key stand in a **line**, in the order of their rank. The
//! index `jobs_claim` holds the lines one after the other, so that the head of each is found without
//! a look at those behind it. A claim merges the lines by rank, and passes by those that the rules let
//! nothing out of: its work depends on how many lines may move, on how many jobs run and on how many
//! rules there are, and never on how many jobs wait.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use diesel::prelude::*;
use posse_core::port::ClaimRequest;
use posse_core::rules::Gate;

use super::fault::Outcome;
use super::literal::{IsAvailable, after_rank};
use super::rules;
use super::schema::jobs;

/// Most lines that one claim takes jobs from. Where more may move, the next claim goes on behind
/// them, so that each has its turn.
const LINES_AT_ONCE: usize = 1_000;

/// Jobs of a line that are read at once.
const PAGE: i64 = 16;

thread_local! {
    /// For roles with more lines than are taken from at once: the last one that was.
    static TAKEN_FROM: RefCell<HashMap<String, Place>> = RefCell::default();
}

/// A place between lines.
#[derive(Debug, Clone)]
enum Place {
    /// After the line of this queue and concurrency key.
    Line(String, String),
    /// After all lines of this queue.
    Queue(String),
}

impl Place {
    fn is_before(&self, head: &Head) -> bool {
        match self {
            Place::Line(queue, key) => (queue, key) < (&head.0, &head.1),
            Place::Queue(queue) => *queue < head.0,
        }
    }
}

/// The first job of a line: queue, concurrency key, rank, id.
type Head = (String, String, i64, i64);

/// What a claim takes.
pub(super) enum Choice {
    /// The first jobs of the only line there is, of this queue and concurrency key: the usual case.
    Line(String, String),
    /// These jobs, in this order.
    Jobs(Vec<i64>),
}

/// What `request` is given.
pub(super) fn choose(connection: &mut SqliteConnection, request: &ClaimRequest) -> Outcome<Choice> {
    let mut gate = rules::gate(connection, &request.role, request.now)?;
    if gate.as_ref().is_some_and(|gate| gate.shut().is_some()) {
        return Ok(Choice::Jobs(Vec::new()));
    }
    let mut heads = heads(connection, request, gate.as_ref())?;
    if gate.is_none()
        && heads.len() == 1
        && let Some((queue, key, ..)) = heads.pop()
    {
        return Ok(Choice::Line(queue, key));
    }
    let ids = merge(connection, request, &mut gate, heads)?;
    if let Some(gate) = gate {
        rules::store_spent(connection, gate)?;
    }
    Ok(Choice::Jobs(ids))
}

/// The heads of lines that may move.
fn heads(connection: &mut SqliteConnection, request: &ClaimRequest, gate: Option<&Gate>) -> QueryResult<Vec<Head>> {
    let begin = TAKEN_FROM.with_borrow_mut(|taken_from| taken_from.remove(&request.role));
    let mut found: Vec<Head> = Vec::new();
    let mut last = begin.clone();
    let mut came_round = false;
    while found.len() < LINES_AT_ONCE {
        let Some(head) = next_head(connection, request, last.as_ref())? else {
            if came_round || begin.is_none() {
                return Ok(found);
            }
            // It began in the middle; now come the ones before.
            (came_round, last) = (true, None);
            continue;
        };
        if came_round && begin.as_ref().is_some_and(|begin| begin.is_before(&head)) {
            return Ok(found);
        }
        let held = |key: &str| gate.is_some_and(|gate| gate.held(&head.0, key).is_some());
        // What holds a job without a key holds the whole queue. Of full keys there are no more than
        // jobs that run, and of others that are held no more than rules.
        if held("") {
            last = Some(Place::Queue(head.0));
            continue;
        }
        last = Some(Place::Line(head.0.clone(), head.1.clone()));
        if !held(&head.1) {
            found.push(head);
        }
    }
    if let Some(last) = last {
        TAKEN_FROM.with_borrow_mut(|taken_from| taken_from.insert(request.role.clone(), last));
    }
    Ok(found)
}

/// The head of the first line after `last`, or of all, among the queues asked for.
fn next_head(
    connection: &mut SqliteConnection,
    request: &ClaimRequest,
    last: Option<&Place>,
) -> QueryResult<Option<Head>> {
    let of_role = jobs::table
        .filter(IsAvailable)
        .filter(jobs::role.eq(&request.role))
        .order((jobs::queue, jobs::concurrency_key, jobs::rank, jobs::id))
        .select((jobs::queue, jobs::concurrency_key, jobs::rank, jobs::id));
    let behind = |queue, key| of_role.filter(jobs::queue.eq(queue)).filter(jobs::concurrency_key.gt(key));
    if request.queues.is_empty() {
        let (Some(Place::Line(queue, _)) | Some(Place::Queue(queue))) = last else {
            return of_role.first(connection).optional();
        };
        if let Some(Place::Line(queue, key)) = last
            && let Some(head) = behind(queue, key).first(connection).optional()?
        {
            return Ok(Some(head));
        }
        return of_role.filter(jobs::queue.gt(queue)).first(connection).optional();
    }
    let mut queues: Vec<_> = request.queues.iter().collect();
    queues.sort_unstable();
    for name in queues {
        let of_queue = of_role.filter(jobs::queue.eq(name));
        let head = match last {
            Some(Place::Line(queue, _)) if name < queue => continue,
            Some(Place::Queue(queue)) if name <= queue => continue,
            Some(Place::Line(queue, key)) if name == queue => behind(queue, key).first(connection),
            _ => of_queue.first(connection),
        };
        if let Some(head) = head.optional()? {
            return Ok(Some(head));
        }
    }
    Ok(None)
}

/// The ids of the jobs that may start, by rank over all lines.
fn merge(
    connection: &mut SqliteConnection,
    request: &ClaimRequest,
    gate: &mut Option<Gate>,
    heads: Vec<Head>,
) -> QueryResult<Vec<i64>> {
    let mut lines: Vec<Line> = Vec::with_capacity(heads.len());
    let mut fronts = BinaryHeap::with_capacity(heads.len());
    for (queue, key, rank, id) in heads {
        fronts.push(Reverse((rank, id, lines.len())));
        lines.push(Line { queue, key, read: Vec::new() });
    }
    let mut ids = Vec::new();
    while ids.len() < request.limit as usize
        && let Some(Reverse((rank, id, index))) = fronts.pop()
    {
        let line = &mut lines[index];
        if let Some(gate) = gate {
            if gate.held(&line.queue, &line.key).is_some() {
                // Nothing more comes out of this line.
                continue;
            }
            gate.start(&line.queue, &line.key);
        }
        ids.push(id);
        if let Some((rank, id)) = line.after(connection, &request.role, rank, id)? {
            fronts.push(Reverse((rank, id, index)));
        }
    }
    Ok(ids)
}

struct Line {
    queue: String,
    key: String,
    /// Rank and id of jobs that were read and not come to yet, the next one last.
    read: Vec<(i64, i64)>,
}

impl Line {
    /// The job behind that of `rank` and `id`.
    fn after(
        &mut self,
        connection: &mut SqliteConnection,
        role: &str,
        rank: i64,
        id: i64,
    ) -> QueryResult<Option<(i64, i64)>> {
        if self.read.is_empty() {
            self.read = jobs::table
                .filter(IsAvailable)
                .filter(jobs::role.eq(role))
                .filter(jobs::queue.eq(&self.queue))
                .filter(jobs::concurrency_key.eq(&self.key))
                .filter(after_rank(rank, id))
                .order((jobs::rank, jobs::id))
                .limit(PAGE)
                .select((jobs::rank, jobs::id))
                .load(connection)?;
            self.read.reverse();
        }
        Ok(self.read.pop())
    }
}
