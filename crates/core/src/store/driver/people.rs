//! Rows of what people and runs say to each other.

use crate::annotation::AnnotationFilter;
use crate::clock::Millis;
use crate::job::JobId;
use crate::job::question::{QuestionId, QuestionState};
use crate::session::SessionId;
use crate::store::Done;
use crate::store::seal::Sealed;

/// Rows of what people and runs say to each other.
pub trait PeopleRows {
    /// Remarks: all about a job, oldest first, or those that fit a filter whatever their words, newest first.
    fn annotations(&mut self, of: AnnotationsOf<'_>) -> Done<Vec<AnnotationRow>>;
    /// Stores a remark and gives its number.
    fn annotate(&mut self, job: JobId, row: AnnotationInsert<'_>) -> Done<i64>;
    /// Stores the tags of a remark, a list as JSON, in the place of those it had.
    fn tag_annotation(&mut self, id: i64, tags: &str) -> Done<()>;
    /// Questions, oldest first.
    fn asks(&mut self, of: AsksOf) -> Done<Vec<AskRow>>;
    /// Stores a question.
    fn ask(&mut self, job: JobId, row: AskInsert) -> Done<()>;
    /// Stores how questions stand.
    fn change_asks(&mut self, which: AskSet, to: AskChange<'_>) -> Done<()>;
}

/// Which remarks.
#[derive(Debug, Clone, Copy)]
pub enum AnnotationsOf<'a> {
    /// All about a job.
    Job(JobId),
    /// Those that fit but for their words, below a number, at most so many.
    Fitting(&'a AnnotationFilter, Option<i64>, u32),
}

/// A remark.
#[derive(Debug)]
pub struct AnnotationRow {
    /// Its number.
    pub id: i64,
    /// The job it is about.
    pub job: JobId,
    /// Who made it.
    pub author: String,
    /// What it says.
    pub text: Sealed,
    /// A list as JSON.
    pub tags: String,
    /// When it was made.
    pub created_at: Millis,
}

/// A remark to be stored.
#[derive(Debug)]
pub struct AnnotationInsert<'a> {
    /// Who made it.
    pub author: &'a str,
    /// What it says.
    pub text: Sealed,
    /// A list as JSON.
    pub tags: String,
    /// When it was made.
    pub created_at: Millis,
}

/// Which questions.
#[derive(Debug, Clone, Copy)]
pub enum AsksOf {
    /// One.
    One(QuestionId),
    /// All of a job.
    Job(JobId),
    /// All of the jobs of a session.
    Session(SessionId),
    /// Open ones whose time is over then, at most so many.
    Overdue(Millis, u32),
    /// Those of one job or of all that are open, or all.
    Listed {
        /// The job.
        job: Option<JobId>,
        /// Whether settled ones are wanted too.
        settled: bool,
        /// At most so many.
        most: u32,
    },
}

/// Which questions change.
#[derive(Debug, Clone, Copy)]
pub enum AskSet {
    /// One.
    One(QuestionId),
    /// Those of a job that are in this state.
    OfJob(JobId, QuestionState),
}

/// How questions stand.
#[derive(Debug)]
pub struct AskChange<'a> {
    /// Where they are.
    pub state: QuestionState,
    /// What was answered.
    pub answer: Option<Sealed>,
    /// Who answered.
    pub settled_by: Option<&'a str>,
    /// When they were settled.
    pub settled_at: Option<Millis>,
}

/// A question.
#[derive(Debug)]
pub struct AskRow {
    /// Its number.
    pub id: QuestionId,
    /// Who asks.
    pub job: JobId,
    /// The role of that job.
    pub role: String,
    /// The place of the entry that asks it.
    pub seq: i64,
    /// Its place in that entry.
    pub position: i32,
    /// What is asked.
    pub text: Sealed,
    /// Where it is.
    pub state: QuestionState,
    /// What was answered.
    pub answer: Option<Sealed>,
    /// Who answered.
    pub settled_by: Option<String>,
    /// When it was asked.
    pub created_at: Millis,
    /// Until when it is open.
    pub expires_at: Option<Millis>,
    /// When it was settled.
    pub settled_at: Option<Millis>,
}

/// A question to be stored.
#[derive(Debug)]
pub struct AskInsert {
    /// The place of the entry that asks it.
    pub seq: i64,
    /// Its place in that entry.
    pub position: i32,
    /// What is asked.
    pub text: Sealed,
    /// Where it is.
    pub state: QuestionState,
    /// What was answered.
    pub answer: Option<Sealed>,
    /// When it is asked.
    pub created_at: Millis,
    /// Until when it is open.
    pub expires_at: Option<Millis>,
    /// When it was settled.
    pub settled_at: Option<Millis>,
}
