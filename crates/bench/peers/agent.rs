//! Posse as a peer of the agent benchmark: `--mode b1|b2|b3 --base URL --db FILE --steps N
//! --agents N --latency MS [--resume] [--toolfile FILE] [--toolsleep S]`, and `b4`, which the
//! harness does not have: one long run, CPU at marks along the way, then its size, its cold resume, and
//! what keeping it costs by itself. `--style phased` has it work by phases, with a view of its working
//! memory at the end of every request.

use anyhow::{Context, bail};
use clap::Parser;
use posse_bench::{fleet, open, resources};
use posse_core::clock::Clock;
use posse_core::job::lease::WorkerId;
use posse_core::job::{JobId, JobState, NewJob, Payload};
use posse_core::model::{Model, ModelError, Models};
use posse_core::persona::{ContextRules, PersonaTemplate, RunLimits, Style};
use posse_core::port::{ClaimRequest, JobQueries, JobRepository};
use posse_core::run::Run;
use posse_core::run::journal::{Entry, Recorded};
use posse_core::tool::{EffectClass, ToolError};
use posse_core::worker::{Fleet, Progress, WorkerService, maintain};
use posse_infra::agent::GenericAgentExecutor;
use posse_infra::model::openai::{OpenAiConfig, OpenAiModel, ToolCallingChoice};
use posse_infra::model::secret::Secret;
use posse_infra::process::SystemClock;
use posse_infra::process::monotonic_ns;
use posse_infra::sqlite::Keys;
use posse_infra::sqlite::SqliteStore;
use posse_infra::tool::{FnTool, ToolRegistry};
use serde::Deserialize;
use std::collections::HashSet;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

const ROLE: &str = "bench";

/// A step by phases that runs the tool; the stand-in puts its number in.
const ACT: &str = r#"{"phase":"act","thinking":"I run it.","summary":"Ran it.","action":{"tool_name":"noop","tool_input":{"step":$STEP,"out_bytes":200}}}"#;

/// The last one.
const END: &str = r#"{"phase":"end","thinking":"","end_status":"solved","end_message":"done"}"#;

/// Flags of the harness.
#[derive(Parser)]
struct Args {
    #[arg(long)]
    mode: String,
    #[arg(long)]
    base: String,
    #[arg(long)]
    db: String,
    #[arg(long, default_value_t = 5)]
    steps: u64,
    #[arg(long, default_value_t = 1)]
    agents: usize,
    #[arg(long, default_value_t = 0)]
    latency: u64,
    #[arg(long)]
    resume: bool,
    #[arg(long, default_value = "")]
    toolfile: String,
    #[arg(long, default_value_t = 0.0)]
    toolsleep: f64,
    /// Works by phases where this is `phased`
    #[arg(long, default_value = "direct")]
    style: String,
}

impl Args {
    fn style(&self) -> Style {
        if self.style == "phased" { Style::Phased } else { Style::Direct }
    }
}

/// The harness's tool: 200 bytes out; in the crash test, first one line in a file, then a sleep.
#[derive(Deserialize, schemars::JsonSchema)]
struct NoopArgs {
    step: i64,
    out_bytes: i64,
}

fn registry(toolfile: String, toolsleep: f64) -> anyhow::Result<Arc<ToolRegistry>> {
    let noop = FnTool::new("noop", "Does nothing.", EffectClass::Once, move |_cx, args: NoopArgs| {
        let toolfile = toolfile.clone();
        async move {
            if !toolfile.is_empty() {
                let line = format!("{} {}\n", args.step, std::process::id());
                let file = std::fs::OpenOptions::new().create(true).append(true).open(&toolfile);
                if let Ok(mut file) = file {
                    let _ = file.write_all(line.as_bytes());
                }
                tokio::time::sleep(Duration::from_secs_f64(toolsleep)).await;
            }
            Ok::<_, ToolError>("x".repeat(args.out_bytes.clamp(0, 1 << 20) as usize).into())
        }
    });
    let mut registry = ToolRegistry::new();
    registry.register("bench", Arc::new(noop))?;
    Ok(Arc::new(registry))
}

struct OneModel(Arc<OpenAiModel>);

impl Models for OneModel {
    fn get(&self, _name: Option<&str>) -> Result<Arc<dyn Model>, ModelError> {
        Ok(self.0.clone())
    }
}

struct Bench {
    store: Arc<SqliteStore>,
    fleet: Arc<Fleet>,
    args: Args,
}

impl Bench {
    async fn start(args: Args) -> anyhow::Result<Bench> {
        let store = open(&args.db, Keys::default())?;
        let slots = args.agents.max(4);
        let fleet = fleet(&store, ROLE, slots).await?;
        let config = OpenAiConfig {
            api_key: Some(Secret::new("none")),
            stream: false,
            tool_calling: ToolCallingChoice::Native,
            ..OpenAiConfig::new("bench", args.base.clone(), "standin")
        };
        let persona = PersonaTemplate {
            role: ROLE.into(),
            goal: "Run the tool until told to stop.".into(),
            tools: vec!["noop".into()],
            style: args.style(),
            limits: RunLimits { max_turns: u32::MAX, ..RunLimits::default() },
            // Measured is a conversation that grows.
            context: ContextRules { max_messages: Some(0), ..ContextRules::default() },
            ..PersonaTemplate::default()
        };
        let registry = registry(args.toolfile.clone(), args.toolsleep)?;
        let models = Arc::new(OneModel(Arc::new(OpenAiModel::new(config)?)));
        let executor = GenericAgentExecutor::new(persona, registry, models, std::env::temp_dir())?;
        let service = WorkerService {
            handles_role: ROLE.into(),
            queues: Vec::new(),
            slots,
            executor: Arc::new(executor),
            fleet: Arc::clone(&fleet),
        };
        tokio::spawn(Arc::new(service).run());
        tokio::spawn(maintain(Arc::clone(&fleet)));
        Ok(Bench { store, fleet, args })
    }

    fn goal(&self, id: &str, steps: u64, latency: u64) -> NewJob {
        let model = match self.args.style() {
            Style::Direct => "TOOL=noop OUT_BYTES=200".to_owned(),
            Style::Phased => format!("TOOL=agent_step TOOL_ARGS={ACT} FINISH_TOOL=agent_step FINISH_ARGS={END}"),
        };
        let goal = format!("Run the tool until told to stop. ID={id} STEPS={steps} LATENCY_MS={latency} {model}");
        NewJob { role: ROLE.into(), payload: Payload { goal, ..Payload::default() }, ..NewJob::default() }
    }

    /// Enqueues goals and waits for all of them; gives how many answered `done`.
    async fn run(&self, jobs: Vec<NewJob>) -> anyhow::Result<usize> {
        let mut watch = self.fleet.watch();
        let ids = self.enqueue(jobs).await?;
        self.wait(&mut watch, ids).await
    }

    async fn enqueue(&self, jobs: Vec<NewJob>) -> anyhow::Result<Vec<JobId>> {
        let enqueued = self.store.enqueue(jobs, SystemClock.now()).await?;
        Ok(enqueued.into_iter().map(|one| one.id).collect())
    }

    async fn wait(
        &self,
        watch: &mut tokio::sync::broadcast::Receiver<Progress>,
        ids: Vec<JobId>,
    ) -> anyhow::Result<usize> {
        let mut open: HashSet<_> = ids.iter().copied().collect();
        while !open.is_empty() {
            match watch.recv().await {
                Ok(Progress::Ended { job, state, .. }) if state.is_final() => {
                    open.remove(&job);
                }
                Ok(_) => {}
                // Fell behind: the database knows.
                Err(_) => {
                    for id in open.clone() {
                        if self.store.job(id).await?.is_none_or(|job| job.state.is_final()) {
                            open.remove(&id);
                        }
                    }
                }
            }
        }
        let mut done = 0;
        for id in ids {
            let job = self.store.job(id).await?.context("a job that was just enqueued")?;
            let answered = job.output.as_ref().is_some_and(|o| o.text == "done");
            if job.state == JobState::Completed && answered {
                done += 1;
            } else if done == 0 {
                eprintln!("job {id} is {}: {:?}", job.state, job.reason);
            }
        }
        Ok(done)
    }
}

fn written_bytes() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    io.lines().find_map(|l| l.strip_prefix("write_bytes: ")).and_then(|n| n.parse().ok()).unwrap_or_default()
}

fn report(began: (u64, f64, u64), ok: usize, errors: usize) {
    let (t0, cpu0, disk0) = began;
    let (cpu, rss) = resources();
    println!(
        r#"{{"wall_s":{:.4},"cpu_s":{:.4},"peak_rss_mb":{rss:.1},"disk_written_bytes":{},"ok":{ok},"errors":{errors},"final":"{}"}}"#,
        (monotonic_ns() - t0) as f64 / 1e9,
        cpu - cpu0,
        written_bytes() - disk0,
        if errors == 0 { "done" } else { "not done" },
    );
}

fn begin() -> (u64, f64, u64) {
    (monotonic_ns(), resources().0, written_bytes())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let bench = Bench::start(Args::parse()).await?;
    let args = &bench.args;
    if args.mode == "b3" {
        return crash(&bench).await;
    }
    bench.run(vec![bench.goal("warm", 3, 0)]).await?;
    println!("READY");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    match args.mode.as_str() {
        "b1" => {
            let began = begin();
            let ok = bench.run(vec![bench.goal("solo", args.steps, args.latency)]).await?;
            report(began, ok, 1 - ok);
        }
        "b2" => {
            let jobs: Vec<_> =
                (0..args.agents).map(|i| bench.goal(&format!("a{i}"), args.steps, args.latency)).collect();
            let began = begin();
            let ok = bench.run(jobs).await?;
            report(began, ok, args.agents - ok);
        }
        "b4" => long_run(&bench).await?,
        other => bail!("unknown mode '{other}'"),
    }
    std::process::exit(0);
}

/// B3: the run named `crash`; with `--resume` it is there already and is only waited for.
async fn crash(bench: &Bench) -> anyhow::Result<()> {
    let began = begin();
    let mut watch = bench.fleet.watch();
    let ids = match bench.args.resume {
        true => bench
            .store
            .jobs(posse_core::port::JobFilter { limit: 1, ..Default::default() })
            .await?
            .iter()
            .map(|j| j.id)
            .collect(),
        false => bench.enqueue(vec![bench.goal("crash", bench.args.steps, bench.args.latency)]).await?,
    };
    let ok = bench.wait(&mut watch, ids).await?;
    report(began, ok, 1 - ok);
    std::process::exit(0);
}

/// B4: what a step costs along one long run, what it leaves on disk, and what a cold resume takes.
async fn long_run(bench: &Bench) -> anyhow::Result<()> {
    let steps = bench.args.steps;
    let mut watch = bench.fleet.watch();
    let ids = bench.enqueue(vec![bench.goal("long", steps, 0)]).await?;
    let marks = [10, 100, steps];
    let mut measured = Vec::new();
    let (mut turns, mut before) = (0_u64, (0, resources().0));
    loop {
        match watch.recv().await? {
            Progress::Recorded { recorded, .. } if recorded.entry.kind() == "turn" => {
                turns += 1;
                // Over the last fifth of the way and 8 steps at least: fewer take less than the clock's noise.
                if marks.iter().any(|mark| turns + (mark / 5).max(8) == *mark) {
                    before = (turns, resources().0);
                }
                if marks.contains(&turns) {
                    let each = (resources().0 - before.1) * 1000.0 / (turns - before.0) as f64;
                    measured.push(format!(r#"{{"step":{turns},"cpu_ms_per_step":{each:.3}}}"#));
                }
            }
            Progress::Ended { .. } => break,
            _ => {}
        }
    }
    let content: usize = bench.store.journal(ids[0], 0).await?.iter().map(|r| content_bytes(&r.entry)).sum();
    let (rss0, t0) = (resources().1, monotonic_ns());
    let journal = bench.store.journal(ids[0], 0).await?;
    let run = Run::replay(&journal);
    let resume_ms = (monotonic_ns() - t0) as f64 / 1e6;
    let resume_rss = resources().1 - rss0;
    let kept = keep_again(bench, &journal).await?;
    println!(
        r#"{{"steps":{steps},"turns":{},"marks":[{}],"content_bytes":{content},"cold_resume_ms":{resume_ms:.1},"cold_resume_rss_mb":{resume_rss:.1},"durability":{kept}}}"#,
        run.turns(),
        measured.join(","),
    );
    Ok(())
}

/// What durability alone costs: the entries of a run are committed once more, to another job, as the run
/// committed them, and nothing else is done.
async fn keep_again(bench: &Bench, journal: &[Recorded]) -> anyhow::Result<String> {
    let role = "bench-keep".to_owned();
    bench.store.enqueue(vec![NewJob { role: role.clone(), ..NewJob::default() }], SystemClock.now()).await?;
    let (worker, now) = (WorkerId(role.clone()), SystemClock.now());
    let request = ClaimRequest { worker, role, queues: Vec::new(), limit: 1, now, lease_until: now + 3_600_000 };
    let lease = bench.store.claim(request).await?.first().context("the job just enqueued")?.lease;
    // A call's start is in the commit of what comes before it.
    let commits: Vec<&[Recorded]> =
        journal.chunk_by(|_, next| matches!(next.entry, Entry::CallStarted { .. })).collect();
    let (steps, mut seq) = (journal.iter().filter(|r| r.entry.kind() == "turn").count().max(1) as f64, 0);
    let (t0, cpu0, disk0) = begin();
    for commit in &commits {
        let entries: Vec<Entry> = commit.iter().map(|recorded| recorded.entry.clone()).collect();
        let many = entries.len() as u64;
        bench.store.append(lease, seq, entries, SystemClock.now()).await?;
        seq += many;
    }
    let (cpu_ms, wall_ms) = ((resources().0 - cpu0) * 1e3 / steps, (monotonic_ns() - t0) as f64 / 1e6 / steps);
    let (each, disk) = (commits.len() as f64 / steps, (written_bytes() - disk0) as f64 / steps);
    Ok(format!(
        r#"{{"commits_per_step":{each:.2},"cpu_ms_per_step":{cpu_ms:.3},"wall_ms_per_step":{wall_ms:.3},"disk_written_bytes_per_step":{disk:.0}}}"#
    ))
}

/// Bytes that a model or a tool brought into the world with this entry.
fn content_bytes(entry: &Entry) -> usize {
    match entry {
        Entry::Began { goal, .. } => goal.len(),
        Entry::Turn(turn) => {
            let calls = turn.calls.iter().map(|c| c.request.name.len() + c.request.arguments.len());
            turn.text.len() + calls.sum::<usize>()
        }
        Entry::CallEnded { text, .. } => text.len(),
        Entry::Ended { text, .. } => text.len(),
        _ => 0,
    }
}
