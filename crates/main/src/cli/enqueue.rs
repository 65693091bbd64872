//! `posse enqueue`: a person's words become a job.

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use posse_app::batch::{self, CHUNK, Stored};
use posse_app::enqueue::{EnqueuedView, HeldChoice, Intake, RetryAsked};
use posse_app::{filter, times};
use posse_core::clock::Millis;
use posse_core::job::dependency::{After, OnFailed};
use posse_core::job::enqueue::{EnqueueRequest, MAX_GOAL_BYTES, accept_label};
use posse_core::job::retry::Strategy;
use posse_core::job::unique::Became;
use posse_core::job::{DEFAULT_QUEUE, JobId, Unique};
use posse_core::persona::Personas;
use posse_core::port::Enqueued;
use posse_infra::process::SystemClock;

use super::prelude::*;
use crate::output::Out;
use crate::output::text::{count, moment, plural, visible};
use crate::settings::Settings;
use crate::{wire, workspace};

/// How it is to be worked.
#[derive(Args)]
pub struct TermsArgs {
    /// The folder its tools are confined to; the project's workspace when absent
    #[arg(long, short, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// 1 (first) to 9 (last); as its queue says when absent, else 5. A step is worth 10 minutes of waiting
    /// (priority_step_minutes in config/posse.toml), so a 9 is served before a 1 that is due 80 minutes after it
    #[arg(long, value_name = "N")]
    pub priority: Option<u8>,
    /// Attempts it gets; as its persona says when absent, else as its queue does (posse queue set), else 5
    #[arg(long, value_name = "N")]
    pub max_attempts: Option<u32>,
    /// Deaths of workers in a row that it may meet without getting any further; as its persona or the settings say
    /// when absent, else 3
    #[arg(long, value_name = "N")]
    pub max_crashes: Option<u32>,
    /// How waits grow from one failure to the next; none makes one attempt
    #[arg(long, value_name = "STRATEGY", value_parser = one_of(STRATEGIES))]
    retry: Option<Strategy>,
    /// The first wait: 2s, 10m, 1h
    #[arg(long, value_name = "TIME", value_parser = times::span)]
    retry_wait: Option<Millis>,
    /// No wait is longer
    #[arg(long, value_name = "TIME", value_parser = times::span)]
    retry_wait_most: Option<Millis>,
    /// The model to use instead of the persona's (posse model list)
    #[arg(long, short, value_name = "NAME")]
    pub model: Option<String>,
}

const STRATEGIES: [(&str, &str, Strategy); 3] = [
    ("exponential", "Four times as long after each failure", Strategy::Exponential),
    ("fixed", "Always the same", Strategy::Fixed),
    ("none", "One attempt is all", Strategy::None),
];

/// Reads the name of one of several, each with its description.
fn one_of<T: Copy + Send + Sync + 'static>(
    all: impl IntoIterator<Item = (&'static str, &'static str, T)> + Copy + Send + Sync + 'static,
) -> impl TypedValueParser<Value = T> {
    let values = all.into_iter().map(|(name, about, _)| PossibleValue::new(name).help(about));
    PossibleValuesParser::new(values).try_map(move |written| {
        let found = all.into_iter().find(|(name, ..)| *name == written).map(|(.., meant)| meant);
        found.ok_or("is none of them")
    })
}

const RULES: [(&str, &str, HeldChoice); 3] = [
    ("keep", "Nothing", HeldChoice::Keep),
    ("replace", "It becomes this job", HeldChoice::Replace),
    ("debounce", "And is due when this one is", HeldChoice::Debounce),
];

#[derive(Args)]
#[command(after_long_help = MANY_HELP)]
pub struct EnqueueArgs {
    /// The role that shall work it (posse persona list)
    #[arg(long, short, value_name = "ROLE", value_parser = super::role, required_unless_present = "jsonl")]
    role: Option<String>,
    #[command(flatten)]
    terms: TermsArgs,
    /// Not before this time: 2026-05-01T09:00:00Z, or without a zone in this machine's
    #[arg(long, value_name = "TIME", conflicts_with = "delay", value_parser = times::moment)]
    at: Option<Millis>,
    /// Not before so long from now: 90s, 10m, 2h, 1d
    #[arg(long, visible_alias = "in", value_name = "TIME", value_parser = times::span)]
    delay: Option<Millis>,
    /// The queue it waits in
    #[arg(long, default_value = DEFAULT_QUEUE, value_name = "NAME")]
    queue: String,
    /// Only if no job with this key is waiting or running; else that job is named, and --if-held says what
    /// becomes of it
    #[arg(long, value_name = "KEY", conflicts_with = "jsonl")]
    unique: Option<String>,
    /// Nor if one has completed within so long: 10m, 2h, 1d
    #[arg(long, value_name = "TIME", requires = "unique", value_parser = times::span)]
    unique_for: Option<Millis>,
    /// When a job that has not begun holds the key: `keep` it, `replace` what it is to do by this, or
    /// `debounce`: replace it and have it due when this one is (--delay). One that has begun is never changed
    #[arg(long, value_name = "RULE", requires = "unique", value_parser = one_of(RULES))]
    if_held: Option<HeldChoice>,
    /// It is due no later than so long after the first one was enqueued; only with --if-held debounce
    #[arg(long, value_name = "TIME", requires = "if_held", value_parser = times::span)]
    debounce_at_most: Option<Millis>,
    /// Limits per key count it with the jobs of the same key (posse limit)
    #[arg(long, value_name = "KEY")]
    concurrency_key: Option<String>,
    /// Not before these jobs have completed, whose answers it is told; they must be there already, so no cycle can be made
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    after: Vec<i64>,
    /// Not before every job of this group has completed, those too that join it while this one waits; it is told
    /// their answers. May be given more than once
    #[arg(long, value_name = "NAME")]
    after_group: Vec<String>,
    /// When one of those is cancelled or discarded: `cancel` this job too, `run` it all the same, or
    /// have it `wait` until that one is re-run and completes
    #[arg(long, value_name = "RULE", default_value_t)]
    on_failed_dependency: OnFailed,
    /// The group it is counted in (posse group show NAME)
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// A word to find it by; may be given more than once
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// What you want to be kept with it; may be given more than once
    #[arg(long, value_name = "KEY=VALUE", value_parser = filter::meta)]
    meta: Vec<(String, String)>,
    /// Many jobs: a file with one JSON object in each line; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["goal", "after", "after_group"])]
    jsonl: Option<PathBuf>,
    /// Remember under this name how far the file is, so that the same command again goes on after
    /// the last line that was stored and stores nothing twice
    #[arg(long, value_name = "NAME", requires = "jsonl")]
    batch: Option<String>,
    /// What is to be done, in your words; `-` reads it from standard input
    #[arg(required_unless_present = "jsonl", value_name = "GOAL")]
    goal: Vec<String>,
}

const MANY_HELP: &str = "\
Many jobs at once:
  posse enqueue --jsonl jobs.jsonl --batch monday
A line has \"goal\", and may have role, queue, priority, max_attempts, max_crashes, retry, retry_wait,
retry_wait_most, workspace, model, at, delay, unique, unique_for, if_held, debounce_at_most, concurrency_key, group, tags, meta, after,
after_group, on_failed_dependency, as the flags of this command, which stand in where it has not; and name, by which
later lines can name it in after:
  {\"name\": \"fetch\", \"role\": \"researcher\", \"goal\": \"...\", \"tags\": [\"a\"], \"meta\": {\"k\": 1}}
  {\"role\": \"scribe\", \"goal\": \"...\", \"after\": [\"fetch\", 41]}
A file is checked whole before anything is stored. Lines are stored 1,000 at a time, all or none of them.";

pub async fn enqueue(cx: &Context, args: EnqueueArgs) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let intake = intake(&settings, wire::sources(&settings).look()?.1);
    let now = wire::now();
    let unique = match args.unique {
        Some(key) => {
            let if_held = args.if_held.unwrap_or_default().rule(args.debounce_at_most)?;
            Some(Unique { key, for_ms: args.unique_for, if_held })
        }
        None => None,
    };
    let terms = args.terms;
    let mut request = EnqueueRequest {
        role: args.role.unwrap_or_default(),
        queue: args.queue,
        unique,
        concurrency_key: args.concurrency_key,
        run_at: args.at.or(args.delay.map(|delay| now + delay)),
        after: args.after.iter().map(|id| After::Job(JobId(*id))).collect(),
        after_groups: args.after_group,
        on_failed: args.on_failed_dependency,
        group: args.group,
        tags: args.tag,
        meta: args.meta.into_iter().map(|(key, value)| (key, value.into())).collect(),
        ..terms.request(&settings)?
    };
    if let Some(file) = args.jsonl {
        return enqueue_many(cx, &settings, &intake, &file, args.batch, (request, terms.retry())).await;
    }
    request.goal = read_goal(args.goal)?;
    let retry = terms.retry();
    // What cannot be a job makes no database.
    intake.accept(request.clone(), &retry, &[])?;
    let store = wire::open_store(&settings)?;
    let job = intake.job(&*store, request, &retry).await?;
    let enqueued = store.enqueue(vec![job.clone()], now).await?[0];
    let (Enqueued { id, became }, existing) = (enqueued, enqueued.existed());
    if cx.out.json {
        return cx.out.document(&EnqueuedView::new(job, enqueued));
    }
    let (word, note) = match became {
        Became::Stored => ("", ""),
        Became::Kept => ("existing", "it holds that key; nothing was enqueued"),
        Became::Begun => ("existing", "it holds that key and has begun; nothing was enqueued, and it was not changed"),
        Became::Replaced => ("replaced", "it holds that key and had not begun; it is this job now"),
        Became::Debounced => ("debounced", "it holds that key and had not begun; it is this job now, and due anew"),
    };
    if existing {
        cx.out.line(format!("{}  {word}", cx.out.paint.bold(format!("job {id}"))))?;
        cx.out.hint(format!("{note} · posse show {id} shows it"));
        return Ok(Exit::Ok);
    }
    let due = run_at_in_words(job.run_at, now);
    let mut ids: Vec<_> = args.after.iter().map(ToString::to_string).collect();
    ids.extend(job.after_groups.iter().map(|group| format!("group {}", visible(group))));
    let waits = if ids.is_empty() { String::new() } else { format!(", after {}", ids.join(", ")) };
    cx.out.line(format!("{}  {}{due}{waits}", cx.out.paint.bold(format!("job {id}")), cx.out.paint.cyan(&job.role)))?;
    cx.out.hint(format!("posse work runs it · posse job watch {id} follows it · posse show {id}"));
    Ok(Exit::Ok)
}

fn run_at_in_words(run_at: Option<Millis>, now: Millis) -> String {
    run_at.filter(|at| *at > now).map(|at| format!(", due {}", moment(at))).unwrap_or_default()
}

impl TermsArgs {
    /// When a job is to be tried again.
    pub fn retry(&self) -> RetryAsked {
        RetryAsked { strategy: self.retry, wait: self.retry_wait, wait_most: self.retry_wait_most }
    }

    /// A request on these terms, for nobody and for nothing yet.
    pub fn request(&self, settings: &Settings) -> Result<EnqueueRequest> {
        let folder = self.workspace.as_deref().map(|folder| workspace::accepted(settings, folder)).transpose()?;
        let (workspace, workspace_id) = folder.map(|(path, id)| (path, Some(id))).unwrap_or_default();
        Ok(EnqueueRequest {
            priority: self.priority,
            max_attempts: self.max_attempts,
            max_crashes: self.max_crashes,
            workspace,
            workspace_id,
            model: self.model.clone(),
            ..EnqueueRequest::default()
        })
    }
}

pub fn intake(settings: &Settings, personas: Personas) -> Intake {
    let models = settings.models.keys().cloned().collect();
    let priority_step_ms = settings.priority_step.as_millis() as Millis;
    Intake { personas, models, priority_step_ms, max_crashes: settings.max_crashes }
}

/// A goal as it is written on the command line.
pub fn read_goal(words: Vec<String>) -> Result<String> {
    read_words("goal", words, MAX_GOAL_BYTES)
}

/// What is written on the command line, or, where that is `-`, on standard input. `what` is its name, `most` the
/// most bytes it may have.
pub fn read_words(what: &str, words: Vec<String>, most: usize) -> Result<String> {
    if words != ["-"] {
        return Ok(words.join(" "));
    }
    let mut bytes = Vec::new();
    // One byte more than is allowed tells that it is too much, without reading all of it. A line's end is no part of it.
    let read = std::io::stdin().lock().take(most as u64 + 2).read_to_end(&mut bytes);
    read.map_err(|e| usage(format!("standard input cannot be read: {e}")))?;
    let ends_in_line = bytes.last() == Some(&b'\n');
    if bytes.len() - usize::from(ends_in_line) > most {
        let most = plural(most as u64, "byte");
        return Err(usage(format!(
            "{what} on standard input has more than {most}, the most allowed. Put the text in a file and name it"
        )));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        usage(format!("{what} on standard input is not valid UTF-8 at byte {at}; convert it to UTF-8 first"))
    })?;
    let without_end = text.strip_suffix('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    Ok(without_end.map(str::to_owned).unwrap_or(text))
}

/// Enqueues the lines of `file`; `defaults` stand in where they have nothing.
async fn enqueue_many(
    cx: &Context,
    settings: &Settings,
    intake: &Intake,
    file: &Path,
    batch: Option<String>,
    (request, retry): (EnqueueRequest, RetryAsked),
) -> Result<Exit> {
    if let Some(name) = &batch {
        accept_label("batch", name)?;
    }
    let is_stdin = file == Path::new("-");
    let name = if is_stdin { "standard input".to_owned() } else { file.display().to_string() };
    let open = || -> Result<Box<dyn BufRead + Send>> {
        if is_stdin {
            return Ok(Box::new(BufReader::new(std::io::stdin())));
        }
        let opened = File::open(file).map_err(|error| usage(format!("{name} cannot be read: {error}")))?;
        Ok(Box::new(BufReader::new(opened)))
    };
    let workspace = |folder: &Path| workspace::accepted(settings, folder);
    let lines =
        batch::File { name: &name, intake, request: &request, retry, workspace: &workspace, clock: &SystemClock };
    if !is_stdin {
        lines.check(open()?)?;
    }
    let input = open()?;
    let store = wire::open_store(settings)?;
    let mut progress = Progress { out: &cx.out, began: Instant::now(), told: 0 };
    let stored = lines.store(&*store, input, batch, &mut |jobs| progress.tell(jobs)).await;
    progress.end();
    let stored = stored?;
    if cx.out.json {
        return cx.out.document(&stored);
    }
    let Stored { jobs, existing, changed, first, last, resumed_after_line, jobs_before, seconds, .. } = stored;
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
    if resumed_after_line > 0 {
        let (lines, before) = (count(resumed_after_line), plural(jobs_before, "job"));
        cx.out.note(format!("lines 1 to {lines} were stored before, as {before}"));
    }
    Ok(Exit::Ok)
}

struct Progress<'a> {
    out: &'a Out,
    began: Instant,
    told: u64,
}

impl Progress<'_> {
    fn tell(&mut self, jobs: u64) {
        let rate = count((jobs as f64 / self.began.elapsed().as_secs_f64().max(0.001)) as u64);
        let line = format!("{} stored ({rate}/s)", plural(jobs, "job"));
        if std::io::stderr().is_terminal() {
            self.told = jobs;
            self.out.moving_line(&line);
        } else if jobs - self.told >= 10 * CHUNK as u64 {
            self.told = jobs;
            self.out.note(line);
        }
    }

    fn end(&self) {
        if self.told > 0 && std::io::stderr().is_terminal() {
            self.out.moving_line("");
        }
    }
}
