//! Which available jobs a claim takes.
//!
//! Jobs of one role, queue and concurrency key stand in a **line**, in the order of their rank. The
//! index `jobs_claim` holds the lines one after the other, so that the head of each is found without
//! a look at those behind it. A claim merges the lines by rank, and passes by those that the rules let
//! nothing out of: its work depends on how many lines there are, and not on how long they are.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use diesel::prelude::*;
use posse_core::port::ClaimRequest;
use posse_core::rules::Gate;

use super::fault::Outcome;
use super::jobs::{DataRow, JobRow};
use super::literal::{IsAvailable, after_line, after_rank};
use super::rules;
use super::schema::{job_data, jobs};

/// Most lines that one claim looks at. Where there are more, the next claim goes on behind them, so
/// that each has its turn.
const LINES_AT_ONCE: usize = 1_000;

/// Jobs of a line that are read at once.
const PAGE: i64 = 16;

thread_local! {
    /// For roles with more lines than are looked at at once: the last line looked at.
    static LOOKED_AT: RefCell<HashMap<String, (String, String)>> = RefCell::default();
}

/// The first job of a line: queue, concurrency key, rank, id.
type Head = (String, String, i64, i64);

/// The jobs that `request` is given, in order.
pub(super) fn choose(connection: &mut SqliteConnection, request: &ClaimRequest) -> Outcome<Vec<(JobRow, DataRow)>> {
    let mut gate = rules::gate(connection, &request.role, request.now)?;
    if gate.as_ref().is_some_and(|gate| gate.shut().is_some()) {
        return Ok(Vec::new());
    }
    let heads = heads(connection, request)?;
    if let (None, [(queue, key, ..)]) = (&gate, heads.as_slice()) {
        return Ok(whole_line(connection, &request.role, queue, key, request.limit)?);
    }
    let ids = merge(connection, request, &mut gate, heads)?;
    if let Some(gate) = gate {
        rules::store_spent(connection, gate)?;
    }
    ids.into_iter().map(|id| Ok(job(connection, id)?)).collect()
}

/// The heads of the lines that are looked at.
fn heads(connection: &mut SqliteConnection, request: &ClaimRequest) -> QueryResult<Vec<Head>> {
    let role = request.role.as_str();
    let begin = LOOKED_AT.with_borrow_mut(|looked| looked.remove(role));
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
        let line = (head.0.clone(), head.1.clone());
        if came_round && Some(&line) > begin.as_ref() {
            return Ok(found);
        }
        last = Some(line);
        found.push(head);
    }
    if let Some(last) = last {
        LOOKED_AT.with_borrow_mut(|looked| looked.insert(role.to_owned(), last));
    }
    Ok(found)
}

/// The head of the first line after `last`, or of all, among the queues asked for.
fn next_head(
    connection: &mut SqliteConnection,
    request: &ClaimRequest,
    last: Option<&(String, String)>,
) -> QueryResult<Option<Head>> {
    let of_role = jobs::table
        .filter(IsAvailable)
        .filter(jobs::role.eq(&request.role))
        .order((jobs::queue, jobs::concurrency_key, jobs::rank, jobs::id))
        .select((jobs::queue, jobs::concurrency_key, jobs::rank, jobs::id));
    if request.queues.is_empty() {
        return match last {
            Some((queue, key)) => of_role.filter(after_line(queue, key)).first(connection),
            None => of_role.first(connection),
        }
        .optional();
    }
    let mut queues: Vec<_> = request.queues.iter().collect();
    queues.sort_unstable();
    for name in queues {
        let of_queue = of_role.filter(jobs::queue.eq(name));
        let head = match last {
            Some((queue, _)) if name < queue => continue,
            Some((queue, key)) if name == queue => of_queue.filter(jobs::concurrency_key.gt(key)).first(connection),
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

/// The first jobs of the only line there is: the usual case.
fn whole_line(
    connection: &mut SqliteConnection,
    role: &str,
    queue: &str,
    key: &str,
    limit: u32,
) -> QueryResult<Vec<(JobRow, DataRow)>> {
    jobs::table
        .inner_join(job_data::table)
        .filter(IsAvailable)
        .filter(jobs::role.eq(role))
        .filter(jobs::queue.eq(queue))
        .filter(jobs::concurrency_key.eq(key))
        .order((jobs::rank, jobs::id))
        .limit(i64::from(limit))
        .select((JobRow::as_select(), DataRow::as_select()))
        .load(connection)
}

fn job(connection: &mut SqliteConnection, id: i64) -> QueryResult<(JobRow, DataRow)> {
    jobs::table
        .inner_join(job_data::table)
        .filter(jobs::id.eq(id))
        .select((JobRow::as_select(), DataRow::as_select()))
        .first(connection)
}
