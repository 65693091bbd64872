//! `posse enqueue --jsonl`: many jobs from a file, in chunks that remember how far they are.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal as _, Read as _};
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use posse_app::times;
use posse_core::job::dependency::{After, OnFailed, empty_group};
use posse_core::job::enqueue::{Ask, accept_label};
use posse_core::job::name::role_name;
use posse_core::job::unique::Became;
use posse_core::job::{JobId, Meta, NewJob, Unique};
use posse_core::port::{BatchMark, Chunk, RepositoryError};
use posse_infra::persona::Loaded;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::enqueue::{HeldArgs, HeldChoice, RetryArgs, RetryChoice, accepted};
use super::{Context, jsonl};
use crate::exit::{Exit, usage};
use crate::output::Out;
use crate::output::text::{count, plural};
use crate::settings::Settings;
use crate::{wire, workspace};

/// Jobs of one transaction.
const CHUNK: usize = 1000;
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
    retry: Option<RetryChoice>,
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

/// What the flags say, for lines that say nothing of it.
pub struct Defaults {
    /// The job.
    pub ask: Ask,
    /// When it is tried again.
    pub retry: RetryArgs,
}

/// A job that a line waits for.
#[derive(Deserialize)]
#[serde(untagged)]
enum Reference {
    Job(i64),
    Name(String),
}

/// Enqueues the lines of `file`.
pub async fn enqueue_many(
    cx: &Context,
    settings: &Settings,
    personas: &Loaded,
    file: &Path,
    batch: Option<String>,
    defaults: Defaults,
) -> Result<Exit> {
    if let Some(name) = &batch {
        accept_label("batch", name)?;
    }
    let shown = if file == Path::new("-") { "standard input".to_owned() } else { file.display().to_string() };
    let open = || File::open(file).map_err(|error| usage(format!("{shown} cannot be read: {error}")));
    let lines = |input| Lines { settings, personas, defaults: &defaults, shown: &shown, input, mark: Mark::default() };
    if file != Path::new("-") {
        // Better to hear of a mistake before the first job.
        let mut lines = lines(Box::new(BufReader::new(open()?)) as Box<dyn BufRead>);
        let mut names = HashMap::new();
        while let Some(part) = lines.next(&names)? {
            names.extend(part.names.into_iter().map(|(name, _)| (name, JobId(0))));
        }
    }
    let input: Box<dyn BufRead> =
        if file == Path::new("-") { Box::new(std::io::stdin().lock()) } else { Box::new(BufReader::new(open()?)) };
    let store = wire::open_store(settings)?;
    let mut lines = lines(input);
    let mut names = HashMap::new();
    let mut from = BatchMark::default();
    let mut before = 0;
    if let Some(name) = &batch {
        let standing = store.batch(name.clone()).await?;
        lines.skip(&standing.mark, name)?;
        names.extend(standing.names);
        (from, before) = (standing.mark, standing.jobs);
    }
    let began_at = from.lines;
    let mut progress = Progress { out: &cx.out, began: Instant::now(), jobs: 0, told: 0 };
    let (mut first, mut last, mut existing, mut changed) = (None, None, 0, 0);
    while let Some(part) = lines.next(&names)? {
        let to = lines.mark.there();
        let Part { jobs, names: new, numbers } = part;
        let asked: Vec<_> = jobs.iter().map(|job| (job.after.clone(), job.after_groups.clone())).collect();
        let chunk = Chunk { batch: batch.clone(), from, to: to.clone(), jobs, names: new.clone() };
        let enqueued = store.enqueue_chunk(chunk, wire::now()).await.map_err(|error| match error {
            RepositoryError::NoSuchJob(id) => {
                let at = asked.iter().position(|(jobs, _)| jobs.contains(&After::Job(id))).map_or(0, |at| numbers[at]);
                progress.stopped(&batch, format!("{shown}:{at}: after names job {id}, and there is no such job"))
            }
            RepositoryError::EmptyGroup(group) => {
                // Who names it first: for those behind it would be as empty.
                let at = asked.iter().position(|(_, groups)| groups.contains(&group)).map_or(0, |at| numbers[at]);
                progress.stopped(&batch, format!("{shown}:{at}: {}", empty_group(&group)))
            }
            other => other.into(),
        })?;
        names.extend(new.into_iter().filter_map(|(name, place)| Some((name, enqueued.get(place)?.id))));
        let stored: Vec<_> = enqueued.iter().filter(|one| !one.existed()).map(|one| one.id).collect();
        existing += enqueued.len() - stored.len();
        changed += enqueued.iter().filter(|one| matches!(one.became, Became::Replaced | Became::Debounced)).count();
        first = first.or(stored.first().copied());
        last = stored.last().copied().or(last);
        from = to;
        progress.more(stored.len() as u64);
    }
    progress.end();
    let (jobs, seconds) = (progress.jobs, progress.began.elapsed().as_secs_f64());
    if cx.out.json {
        cx.out.document(&json!({
            "jobs": jobs, "existing": existing, "changed": changed, "first": first, "last": last, "lines": from.lines, "resumed_after_line": began_at,
            "jobs_before": before, "batch": batch, "seconds": (seconds * 1000.0).round() / 1000.0,
        }))?;
        return Ok(Exit::Ok);
    }
    let ids = first.zip(last).map(|(first, last)| format!(", {first} to {last}")).unwrap_or_default();
    let rate = count((jobs as f64 / seconds.max(0.001)) as u64);
    cx.out.line(format!("{} enqueued{ids}, in {seconds:.1} s ({rate}/s)", plural(jobs, "job")))?;
    if existing > 0 {
        cx.out.note(format!(
            "the unique keys of {} more were held already: {} of the jobs that hold them were changed, the others not",
            count(existing as u64),
            count(changed as u64)
        ));
    }
    if began_at > 0 {
        cx.out.note(format!("lines 1 to {} were stored before, as {}", count(began_at), plural(before, "job")));
    }
    Ok(Exit::Ok)
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
    settings: &'a Settings,
    personas: &'a Loaded,
    defaults: &'a Defaults,
    shown: &'a str,
    input: Box<dyn BufRead>,
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
            let at = |error: anyhow::Error| usage(format!("{}:{number}: {error}", self.shown));
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
        let shown = self.shown;
        read.map_err(|error| usage(format!("{shown} cannot be read: {error}")))?;
        if line.is_empty() {
            return Ok(None);
        }
        self.mark.read(&line);
        if line.len() as u64 == MAX_LINE && line.last() != Some(&b'\n') {
            return Err(usage(format!(
                "{shown}:{}: has more than {MAX_LINE} bytes, the most allowed",
                self.mark.lines
            )));
        }
        Ok(Some(line))
    }

    fn job(&self, line: &[u8], part: &Part, names: &HashMap<String, JobId>) -> Result<(NewJob, Option<String>)> {
        // Its own line is always the first.
        let line: Line =
            jsonl::parse(line).map_err(|error| usage(error.replace(" at line 1 column ", ", at column ")))?;
        let time = |field: &str, error: String| usage(format!("{field}: {error}"));
        let delayed = |text: String| times::span(&text).map(|delay| wire::now() + delay).map_err(|e| time("delay", e));
        let run_at = match (line.at, line.delay) {
            (Some(_), Some(_)) => return Err(usage("has both at and delay; give one of them")),
            (Some(at), None) => Some(times::moment(&at).map_err(|error| time("at", error))?),
            (None, Some(delay)) => Some(delayed(delay)?),
            (None, None) => self.defaults.ask.run_at,
        };
        let on_failed = line.on_failed_dependency.map(|rule| rule.parse::<OnFailed>()).transpose();
        let defaults = self.defaults.ask.clone();
        let known = |name: &str| {
            let here = part.names.iter().find(|(known, _)| known == name).map(|(_, place)| After::Earlier(*place));
            here.or_else(|| names.get(name).copied().map(After::Job))
        };
        let unique_for = line.unique_for.map(|text| times::span(&text)).transpose();
        let unique_for = unique_for.map_err(|error| time("unique_for", error))?;
        if unique_for.is_some() && line.unique.is_none() {
            return Err(usage("has unique_for and no unique"));
        }
        if line.if_held.is_some() && line.unique.is_none() {
            return Err(usage("has if_held and no unique"));
        }
        let wait = |field: &str, text: Option<String>| {
            text.map(|text| times::span(&text)).transpose().map_err(|error| time(field, error))
        };
        let retry = RetryArgs {
            retry: line.retry,
            retry_wait: wait("retry_wait", line.retry_wait)?,
            retry_wait_most: wait("retry_wait_most", line.retry_wait_most)?,
        };
        let held =
            HeldArgs { if_held: line.if_held, debounce_at_most: wait("debounce_at_most", line.debounce_at_most)? };
        let if_held = held.rule()?;
        let mut after = Vec::with_capacity(line.after.len());
        for reference in line.after {
            after.push(match reference {
                Reference::Job(id) => After::Job(JobId(id)),
                Reference::Name(name) => known(&name)
                    .ok_or_else(|| usage(format!("after names '{name}', and no line before has that name")))?,
            });
        }
        if let Some(name) = &line.name {
            accept_label("name", name)?;
            if known(name).is_some() {
                return Err(usage(format!("name '{name}' is taken by a line before")));
            }
        }
        let mut meta = defaults.meta;
        meta.extend(line.meta);
        let folder = line.workspace.map(|folder| workspace::accepted(self.settings, Path::new(&folder))).transpose()?;
        let (workspace, workspace_id) = match folder {
            Some((path, id)) => (path, Some(id)),
            None => (defaults.workspace, defaults.workspace_id),
        };
        let ask = Ask {
            goal: line.goal,
            role: line.role.map_or(defaults.role, |role| role_name(&role)),
            queue: line.queue.unwrap_or(defaults.queue),
            priority: line.priority.unwrap_or(defaults.priority),
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
            on_failed: on_failed.map_err(|error| time("on_failed_dependency", error))?.unwrap_or(defaults.on_failed),
            group: line.group.or(defaults.group),
            tags: defaults.tags.into_iter().chain(line.tags).collect(),
            meta,
            priority_step_ms: defaults.priority_step_ms,
            retry: defaults.retry,
        };
        if ask.role.is_empty() {
            return Err(usage("has no role, and no --role says which"));
        }
        Ok((accepted(self.settings, self.personas, ask, &retry.or(&self.defaults.retry))?, line.name))
    }

    /// Reads over what was stored before, and makes sure that it was this.
    fn skip(&mut self, mark: &BatchMark, batch: &str) -> Result<()> {
        while self.mark.lines < mark.lines && self.line()?.is_some() {}
        if mark.lines > 0 && self.mark.there() != *mark {
            return Err(usage(format!(
                "{} that batch '{batch}' has stored; run it with the same file, or under another name",
                match mark.lines {
                    1 => format!("the first line of {} is not the one", self.shown),
                    n => format!("the first {} of {} are not those", plural(n, "line"), self.shown),
                }
            )));
        }
        Ok(())
    }
}

/// Says on standard error how far it is.
struct Progress<'a> {
    out: &'a Out,
    began: Instant,
    jobs: u64,
    told: u64,
}

impl Progress<'_> {
    fn more(&mut self, jobs: u64) {
        self.jobs += jobs;
        let rate = count((self.jobs as f64 / self.began.elapsed().as_secs_f64().max(0.001)) as u64);
        let line = format!("{} stored ({rate}/s)", plural(self.jobs, "job"));
        if std::io::stderr().is_terminal() {
            self.out.moving_line(&line);
        } else if self.jobs - self.told >= 10 * CHUNK as u64 {
            self.told = self.jobs;
            self.out.note(line);
        }
    }

    fn end(&self) {
        if self.jobs > 0 && std::io::stderr().is_terminal() {
            self.out.moving_line("");
        }
    }

    /// The error for a chunk that could not be stored.
    fn stopped(&self, batch: &Option<String>, message: String) -> anyhow::Error {
        self.end();
        let before = |n| format!("{} before it {}", plural(n, "job"), if n == 1 { "is" } else { "are" });
        let way_on = match (self.jobs, batch) {
            (0, _) => "nothing was stored".to_owned(),
            (n, Some(_)) => format!("{} stored; mend it and run this again", before(n)),
            (n, None) => format!("{} stored; --batch NAME would remember that", before(n)),
        };
        usage(format!("{message}; {way_on}"))
    }
}
