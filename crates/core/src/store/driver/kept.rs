//! Small tables, each row of which is found by a key of ours and written whole.

use crate::clock::Millis;
use crate::job::JobId;
use crate::job::deaths::Deaths;
use crate::job::lease::WorkerId;
use crate::model::breaker::Breaker;
use crate::port::{BatchMark, ClockJump, WorkerRecord};
use crate::queue::Queue;
use crate::queue::rules::{Rule, Scope};
use crate::schedule::Schedule;
use crate::store::Done;
use crate::store::seal::Sealed;

/// A row of a small table.
pub trait Record: Sized {
    /// Which rows are asked for.
    type Of<'a>;
}

/// A small table. Where rows are locked, what is asked for by its key is locked even if there is no such row.
pub trait Keeps<R: Record> {
    /// The rows that are asked for, by their key unless something else is said.
    fn kept(&mut self, of: R::Of<'_>) -> Done<Vec<R>>;
    /// Stores a row in the place of the one of its key.
    fn keep(&mut self, row: &R) -> Done<()>;
}

/// A row that does not stay for ever.
pub trait Passing {
    /// Which rows are deleted.
    type Which<'a>;
}

/// A small table from which rows are deleted.
pub trait Forgets<R: Passing> {
    /// Deletes rows; whether there were any.
    fn forget(&mut self, which: R::Which<'_>) -> Done<bool>;
}

/// What one worker does at a time. Found by its name.
#[derive(Debug)]
pub struct Duty {
    /// What it is.
    pub name: String,
    /// Who has it.
    pub worker: WorkerId,
    /// Until when.
    pub until: Millis,
}

impl Record for Duty {
    type Of<'a> = &'a str;
}

/// For how long a kind is kept.
#[derive(Debug)]
pub struct KeepFor {
    /// The kind's name, which only a later version may know.
    pub kind: String,
    /// For how long, in milliseconds; for ever where that is absent.
    pub keep: Option<Millis>,
}

impl Record for KeepFor {
    type Of<'a> = ();
}

/// Each is kept beside the others. Newest first.
impl Record for ClockJump {
    type Of<'a> = ();
}

/// All but the last so many.
impl Passing for ClockJump {
    type Which<'a> = i64;
}

/// The workers on the list: one, or all by id.
impl Record for WorkerRecord {
    type Of<'a> = Option<&'a str>;
}

/// One.
impl Passing for WorkerRecord {
    type Which<'a> = &'a WorkerId;
}

/// What is known of the deaths that a job met.
#[derive(Debug)]
pub struct DeathRow {
    /// The job.
    pub job: JobId,
    /// How many, and where.
    pub met: Deaths,
    /// When the last worker died.
    pub died_at: Millis,
    /// Whether it is worked with nothing beside it.
    pub suspect: bool,
    /// The worker that keeps its hands empty for it.
    pub awaited_by: Option<String>,
}

/// Rows of one or of several jobs.
#[derive(Debug)]
pub enum DeathsOf {
    /// A job's, if it met any.
    Job(JobId),
    /// Those of jobs that are suspected. Nearly always none, and then nearly free.
    Suspects,
}

impl Record for DeathRow {
    type Of<'a> = DeathsOf;
}

/// That of a job.
impl Passing for DeathRow {
    type Which<'a> = JobId;
}

/// All of them, by the kind and the name of their scopes. Nearly always none, and then nearly free. That of a queue is a
/// part of the queue's row: it is kept where there is one.
impl Record for Rule {
    type Of<'a> = ();
}

/// That of a scope, a queue's with all that is said of it.
impl Passing for Rule {
    type Which<'a> = &'a Scope;
}

/// The one of a name, or all of which something is said, by name.
impl Record for Queue {
    type Of<'a> = Option<&'a str>;
}

/// Which queue and key were served last. Found by role and scope.
#[derive(Debug)]
pub struct LastServed {
    /// The role that jobs were claimed for.
    pub role: String,
    /// The queues that were asked for.
    pub scope: String,
    /// The queue.
    pub queue: String,
    /// The concurrency key.
    pub key: String,
}

impl Record for LastServed {
    type Of<'a> = (&'a str, &'a str);
}

/// All of them.
impl Passing for LastServed {
    type Which<'a> = ();
}

/// A schedule.
#[derive(Debug)]
pub struct ScheduleRow {
    /// All of it but the job it makes and the last one it made.
    pub schedule: Schedule,
    /// The job it makes, as JSON.
    pub job: Sealed,
}

/// Some schedules.
#[derive(Debug)]
pub enum SchedulesOf<'a> {
    /// That of a name.
    Name(&'a str),
    /// All, by name.
    All,
    /// Those that are not paused and whose next run is not ahead of this time, the most overdue first.
    Due(Millis),
}

impl Record for ScheduleRow {
    type Of<'a> = SchedulesOf<'a>;
}

/// That of a name, with what is known of its runs.
impl Passing for ScheduleRow {
    type Which<'a> = &'a str;
}

/// A job that a schedule made. The last so many are found by its name, newest first.
#[derive(Debug)]
pub struct Run {
    /// The schedule.
    pub schedule: String,
    /// The time it was made for.
    pub due_at: Millis,
    /// The job.
    pub job: JobId,
}

impl Record for Run {
    type Of<'a> = (&'a str, u32);
}

/// A batch. Found by its name.
#[derive(Debug)]
pub struct BatchRow {
    /// Its name.
    pub name: String,
    /// How far it is.
    pub mark: BatchMark,
    /// How many jobs it stored.
    pub jobs: u64,
    /// When it was begun.
    pub created_at: Millis,
    /// When it last went on.
    pub changed_at: Millis,
}

impl Record for BatchRow {
    type Of<'a> = &'a str;
}

/// A name that a batch gave a job. Found by the batch.
#[derive(Debug)]
pub struct BatchName {
    /// The batch.
    pub batch: String,
    /// The name.
    pub name: String,
    /// The job.
    pub job: JobId,
}

impl Record for BatchName {
    type Of<'a> = &'a str;
}

/// What is known of an endpoint; nothing where all is well.
#[derive(Debug)]
pub struct BreakerRow {
    /// Its name.
    pub endpoint: String,
    /// Whether it may be asked.
    pub breaker: Breaker,
    /// What was said when it failed.
    pub reason: Option<Sealed>,
}

/// Rows of some endpoints.
#[derive(Debug)]
pub enum BreakersOf<'a> {
    /// Of those of these names.
    Either(&'a [String; 2]),
    /// Of all, by name.
    All,
}

impl Record for BreakerRow {
    type Of<'a> = BreakersOf<'a>;
}

/// That of a name.
impl Passing for BreakerRow {
    type Which<'a> = &'a str;
}

/// When the buckets of a model are full again, in microseconds. Found by endpoint and model.
#[derive(Debug)]
pub struct Rates {
    /// Where it is asked.
    pub endpoint: String,
    /// The model.
    pub model: String,
    /// That of its requests.
    pub requests_us: i64,
    /// That of its tokens.
    pub tokens_us: i64,
}

impl Record for Rates {
    type Of<'a> = (&'a str, &'a str);
}
