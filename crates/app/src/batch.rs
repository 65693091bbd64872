//! Many jobs from a file with one JSON object in each line, in chunks that remember how far they are.

use std::collections::HashMap;
use std::io::{BufRead, Read as _};
use std::path::Path;
use std::time::Instant;

use posse_core::clock::Clock;
use posse_core::job::dependency::{After, OnFailed, empty_group};
use posse_core::job::enqueue::{EnqueueRequest, accept_label};
use posse_core::job::name::role_name;
use posse_core::job::retry::Strategy;
use posse_core::job::unique::Became;
use posse_core::job::{JobId, Meta, NewJob, Unique};
use posse_core::port::{BatchMark, Chunk, RepositoryError, Store};
use posse_core::queue::Queue;
use posse_core::text::plural;
use posse_core::workspace::folder::FolderId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::enqueue::{HeldChoice, Intake, RetryAsked};
use crate::{Error, Result, jsonl, times};

/// Jobs of one transaction.
pub const CHUNK: usize = 1000;
/// Most bytes of one transaction's lines.
const CHUNK_BYTES: usize = 4 << 20;
/// Most bytes of a line: the longest goal, however it is escaped.
const MAX_LINE: u64 = 2 << 20;

/// A line of the file. What it leaves out is as the command's flags say.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    goal: String,
    role: Option<String>,
    queue: Option<String>,
    priority: Option<u8>,
    max_attempts: Option<u32>,
    max_crashes: Option<u32>,
    retry: Option<Strategy>,
    retry_wait: Option<String>,
    retry_wait_most: Option<String>,
    workspace: Option<String>,
    model: Option<String>,
    at: Option<String>,
    delay: Option<String>,
    group: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    meta: Meta,
    #[serde(default)]
    after: Vec<Reference>,
    #[serde(default)]
    after_group: Vec<String>,
    unique: Option<String>,
    unique_for: Option<String>,
    if_held: Option<HeldChoice>,
    debounce_at_most: Option<String>,
    concurrency_key: Option<String>,
    on_failed_dependency: Option<String>,
    /// What later lines call it.
    name: Option<String>,
}

/// A job that a line waits for.
#[derive(Deserialize)]
#[serde(untagged)]
enum Reference {
    Job(i64),
    Name(String),
}

/// A file of jobs, and what its lines are read by.
pub struct File<'a> {
    /// What it is called where something is said about it.
    pub name: &'a str,
    /// What its jobs are checked against.
    pub intake: &'a Intake,
    /// The job that is asked for where a line says nothing of it.
    pub request: &'a EnqueueRequest,
    /// When a job is tried again where its line says nothing of it.
    pub retry: RetryAsked,
    /// Finds the folder that is meant by a workspace.
    pub workspace: &'a (dyn Fn(&Path) -> Result<(String, FolderId)> + Sync),
    /// The time.
    pub clock: &'a dyn Clock,
}

/// What came of a file: the document of `posse enqueue --jsonl --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Stored {
    /// Jobs that were stored now.
    pub jobs: u64,
    /// Lines whose unique key was held already.
    pub existing: usize,
    /// How many of the jobs that hold those keys were changed.
    pub changed: usize,
    /// The first job that was stored now.
    pub first: Option<JobId>,
    /// The last one.
    pub last: Option<JobId>,
    /// Lines of the file.
    pub lines: u64,
    /// Lines that were stored before.
    pub resumed_after_line: u64,
    /// Jobs of those.
    pub jobs_before: u64,
    /// The name under which it is remembered how far the file is.
    pub batch: Option<String>,
    /// How long it took.
    pub seconds: f64,
}

impl File<'_> {
    /// Reads all of it and stores nothing: better to hear of a mistake before the first job.
    pub fn check(&self, input: Box<dyn BufRead + Send>) -> Result<()> {
        let mut lines = self.lines(input, Vec::new());
        let mut names = HashMap::new();
        while let Some(part) = lines.next(&names)? {
            names.extend(part.names.into_iter().map(|(name, _)| (name, JobId(0))));
        }
        Ok(())
    }

    /// Stores its jobs, from where `batch` is; tells `progress` how many there are so far.
    pub async fn store(
        &self,
        store: &dyn Store,
        input: Box<dyn BufRead + Send>,
        batch: Option<String>,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<Stored> {
        let began = Instant::now();
        let mut lines = self.lines(input, store.queues().await?);
        let mut names = HashMap::new();
        let (mut from, mut jobs_before) = (BatchMark::default(), 0);
        if let Some(name) = &batch {
            let standing = store.batch(name.clone()).await?;
            lines.skip(&standing.mark, name)?;
            names.extend(standing.names);
            (from, jobs_before) = (standing.mark, standing.jobs);
        }
        let resumed_after_line = from.lines;
        let (mut jobs, mut first, mut last, mut existing, mut changed) = (0, None, None, 0, 0);
        while let Some(part) = lines.next(&names)? {
            let to = lines.mark.there();
            let Part { jobs: new, names: named, numbers } = part;
            let asked: Vec<_> = new.iter().map(|job| (job.after.clone(), job.after_groups.clone())).collect();
            let chunk = Chunk { batch: batch.clone(), from, to: to.clone(), jobs: new, names: named.clone() };
            let stored = store.enqueue_chunk(chunk, self.clock.now()).await;
            let enqueued = stored.map_err(|error| self.unstored(error, &asked, &numbers, jobs, batch.is_some()))?;
            names.extend(named.into_iter().filter_map(|(name, place)| Some((name, enqueued.get(place)?.id))));
            let new: Vec<_> = enqueued.iter().filter(|one| !one.existed()).map(|one| one.id).collect();
            existing += enqueued.len() - new.len();
            changed += enqueued.iter().filter(|one| matches!(one.became, Became::Replaced | Became::Debounced)).count();
            first = first.or(new.first().copied());
            last = new.last().copied().or(last);
            from = to;
            jobs += new.len() as u64;
            progress(jobs);
        }
        let seconds = (began.elapsed().as_secs_f64() * 1000.0).round() / 1000.0;
        let lines = from.lines;
        Ok(Stored { jobs, existing, changed, first, last, lines, resumed_after_line, jobs_before, batch, seconds })
    }

    fn lines(&self, input: Box<dyn BufRead + Send>, queues: Vec<Queue>) -> Lines<'_> {
        Lines { file: self, input, queues, mark: Mark::default() }
    }

    /// The error of a chunk that could not be stored, where `jobs` were before it; each of its jobs asked to wait for these
    /// jobs and groups.
    fn unstored(
        &self,
        error: RepositoryError,
        asked: &[(Vec<After>, Vec<String>)],
        numbers: &[u64],
        jobs: u64,
        is_remembered: bool,
    ) -> Error {
        let line = |at: Option<usize>| at.map_or(0, |at| numbers[at]);
        let (at, why) = match &error {
            RepositoryError::NoSuchJob(id) => {
                let at = asked.iter().position(|(jobs, _)| jobs.contains(&After::Job(*id)));
                (line(at), format!("after names job {id}, and there is no such job"))
            }
            RepositoryError::EmptyGroup(group) => {
                // Who names it first: for those behind it would be as empty.
                let at = asked.iter().position(|(_, groups)| groups.contains(group));
                (line(at), empty_group(group))
            }
            _ => return error.into(),
        };
        let before = format!("{} before it {}", plural(jobs, "job"), if jobs == 1 { "is" } else { "are" });
        let way_on = match (jobs, is_remembered) {
            (0, _) => "nothing was stored".to_owned(),
            (_, true) => format!("{before} stored; mend it and run this again"),
            (_, false) => format!("{before} stored; --batch NAME would remember that"),
        };
        Error::invalid(format!("{}:{at}: {why}; {way_on}", self.name))
    }
}

/// A part of the file, ready to be stored.
#[derive(Default)]
struct Part {
    jobs: Vec<NewJob>,
    names: Vec<(String, usize)>,
    /// The line of each job.
    numbers: Vec<u64>,
}

/// How far the file is read.
#[derive(Default)]
struct Mark {
    lines: u64,
    digest: Sha256,
}

impl Mark {
    fn read(&mut self, line: &[u8]) {
        self.lines += 1;
        self.digest.update(line);
        // An end of file is an end of line.
        if line.last() != Some(&b'\n') {
            self.digest.update(b"\n");
        }
    }

    fn there(&self) -> BatchMark {
        BatchMark { lines: self.lines, digest: self.digest.clone().finalize().to_vec() }
    }
}

struct Lines<'a> {
    file: &'a File<'a>,
    input: Box<dyn BufRead + Send>,
    /// Those of which something is said.
    queues: Vec<Queue>,
    mark: Mark,
}

impl Lines<'_> {
    /// The next part; `None` at the end of the file. `names` are those of earlier parts.
    fn next(&mut self, names: &HashMap<String, JobId>) -> Result<Option<Part>> {
        let mut part = Part::default();
        let mut bytes = 0;
        let mut read = false;
        while part.jobs.len() < CHUNK && bytes < CHUNK_BYTES {
            let Some(line) = self.line()? else { break };
            read = true;
            bytes += line.len();
            let line = jsonl::without_mark(&line);
            if line.trim_ascii().is_empty() {
                continue;
            }
            let number = self.mark.lines;
            let at = |error: Error| Error::invalid(format!("{}:{number}: {error}", self.file.name));
            let (job, name) = self.job(line, &part, names).map_err(at)?;
            if let Some(name) = name {
                part.names.push((name, part.jobs.len()));
            }
            part.jobs.push(job);
            part.numbers.push(number);
        }
        Ok(read.then_some(part))
    }

    /// The next line with its end.
    fn line(&mut self) -> Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let read = self.input.by_ref().take(MAX_LINE).read_until(b'\n', &mut line);
        let shown = self.file.name;
        read.map_err(|error| Error::invalid(format!("{shown} cannot be read: {error}")))?;
        if line.is_empty() {
            return Ok(None);
        }
        self.mark.read(&line);
        if line.len() as u64 == MAX_LINE && line.last() != Some(&b'\n') {
            return Err(Error::invalid(format!(
                "{shown}:{}: has more than {MAX_LINE} bytes, the most allowed",
                self.mark.lines
            )));
        }
        Ok(Some(line))
    }

    fn job(&self, line: &[u8], part: &Part, names: &HashMap<String, JobId>) -> Result<(NewJob, Option<String>)> {
        // Its own line is always the first.
        let line: Line =
            jsonl::parse(line).map_err(|error| Error::invalid(error.replace(" at line 1 column ", ", at column ")))?;
        if line.at.is_some() && line.delay.is_some() {
            return Err(Error::invalid("has both at and delay; give one of them"));
        }
        let wrong = |field: &str, error: String| Error::invalid(format!("{field}: {error}"));
        let span = |field: &str, text: Option<String>| {
            text.map(|text| times::span(&text)).transpose().map_err(|error| wrong(field, error))
        };
        let at = line.at.map(|at| times::moment(&at)).transpose().map_err(|error| wrong("at", error))?;
        let delayed = span("delay", line.delay)?.map(|delay| self.file.clock.now() + delay);
        let run_at = at.or(delayed).or(self.file.request.run_at);
        let on_failed = line.on_failed_dependency.map(|rule| rule.parse::<OnFailed>()).transpose();
        let defaults = self.file.request.clone();
        let known = |name: &str| {
            let here = part.names.iter().find(|(known, _)| known == name).map(|(_, place)| After::Earlier(*place));
            here.or_else(|| names.get(name).copied().map(After::Job))
        };
        let unique_for = span("unique_for", line.unique_for)?;
        if unique_for.is_some() && line.unique.is_none() {
            return Err(Error::invalid("has unique_for and no unique"));
        }
        if line.if_held.is_some() && line.unique.is_none() {
            return Err(Error::invalid("has if_held and no unique"));
        }
        let retry = RetryAsked {
            strategy: line.retry,
            wait: span("retry_wait", line.retry_wait)?,
            wait_most: span("retry_wait_most", line.retry_wait_most)?,
        };
        let debounce_at_most = span("debounce_at_most", line.debounce_at_most)?;
        let if_held = line.if_held.unwrap_or_default().rule(debounce_at_most)?;
        let mut after = Vec::with_capacity(line.after.len());
        for reference in line.after {
            after.push(match reference {
                Reference::Job(id) => After::Job(JobId(id)),
                Reference::Name(name) => known(&name)
                    .ok_or_else(|| Error::invalid(format!("after names '{name}', and no line before has that name")))?,
            });
        }
        if let Some(name) = &line.name {
            accept_label("name", name)?;
            if known(name).is_some() {
                return Err(Error::invalid(format!("name '{name}' is taken by a line before")));
            }
        }
        let mut meta = defaults.meta;
        meta.extend(line.meta);
        let folder = line.workspace.map(|folder| (self.file.workspace)(Path::new(&folder))).transpose()?;
        let (workspace, workspace_id) = match folder {
            Some((path, id)) => (path, Some(id)),
            None => (defaults.workspace, defaults.workspace_id),
        };
        let request = EnqueueRequest {
            goal: line.goal,
            role: line.role.map_or(defaults.role, |role| role_name(&role)),
            queue: line.queue.unwrap_or(defaults.queue),
            priority: line.priority.or(defaults.priority),
            max_attempts: line.max_attempts.or(defaults.max_attempts),
            max_crashes: line.max_crashes.or(defaults.max_crashes),
            unique: line.unique.map(|key| Unique { key, for_ms: unique_for, if_held }),
            concurrency_key: line.concurrency_key.or(defaults.concurrency_key),
            workspace,
            workspace_id,
            model: line.model.or(defaults.model),
            run_at,
            after,
            after_groups: line.after_group,
            on_failed: on_failed.map_err(|error| wrong("on_failed_dependency", error))?.unwrap_or(defaults.on_failed),
            group: line.group.or(defaults.group),
            tags: defaults.tags.into_iter().chain(line.tags).collect(),
            meta,
            priority_step_ms: defaults.priority_step_ms,
            retry: defaults.retry,
        };
        if request.role.is_empty() {
            return Err(Error::invalid("has no role, and no --role says which"));
        }
        Ok((self.file.intake.accept(request, &retry.or(&self.file.retry), &self.queues)?, line.name))
    }

    /// Reads over what was stored before, and makes sure that it was this.
    fn skip(&mut self, mark: &BatchMark, batch: &str) -> Result<()> {
        while self.mark.lines < mark.lines && self.line()?.is_some() {}
        if mark.lines > 0 && self.mark.there() != *mark {
            return Err(Error::invalid(format!(
                "{} that batch '{batch}' has stored; run it with the same file, or under another name",
                match mark.lines {
                    1 => format!("the first line of {} is not the one", self.file.name),
                    n => format!("the first {} of {} are not those", plural(n, "line"), self.file.name),
                }
            )));
        }
        Ok(())
    }
}
