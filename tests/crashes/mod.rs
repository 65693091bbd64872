//! `kill -9` at random moments: nothing is lost, nothing is finished twice, no effect is repeated.
//!
//! Each seed is one job that appends lines to a file with a tool that must not run twice. Its worker
//! is killed once or more, at moments the seed decides: a number of microseconds after a certain model
//! request, which spreads the kills over the reply's commit, the tool's effect and its result's commit,
//! or at the sight of the effect. A new worker must bring the job to its end.
//!
//! `POSSE_CRASH_SEEDS=10000` runs more; `POSSE_CRASH_SEED=17` runs one again.

mod children;
mod memory;
mod model;
mod programs;

use crate::support::dice::{Dice, number};
use crate::support::wait::wait_async;
use model::{KillPoint, Moment, StubModel};
use posse_core::job::{JobId, JobState};
use posse_core::port::JobQueries;
use posse_core::run::journal::CallState;
use posse_infra::sqlite::{Keys, Options, SqliteStore};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const STEPS: u32 = 6;

/// A project folder with its database, and at most one worker process.
struct Project {
    folder: TempDir,
    store: SqliteStore,
    model: StubModel,
    worker: Option<Child>,
}

impl Project {
    fn new() -> Project {
        let folder = TempDir::new().expect("a temporary folder");
        let model = StubModel::start();
        let root = folder.path();
        std::fs::create_dir_all(root.join("config/personas")).expect("folders");
        std::fs::create_dir(root.join("ws")).expect("a workspace");
        let config = format!(
            "database = \"posse.db\"\nslots = 2\ndefault_model = \"stub\"\n\n[models.stub]\nbase_url = \"{}\"\n\
             model = \"stub\"\ntool_calling = \"native\"\nstream = false\n",
            model.base_url()
        );
        std::fs::write(root.join("config/posse.toml"), config).expect("the configuration");
        let persona =
            r#"{"role": "tester", "goal": "append lines", "tools": ["filesystem"], "limits": {"max_turns": 100}}"#;
        std::fs::write(root.join("config/personas/tester.json"), persona).expect("the persona");
        std::fs::write(root.join("config/personas/lead.json"), children::LEAD).expect("the persona");
        std::fs::write(root.join("config/personas/programmer.json"), programs::PROGRAMMER).expect("the persona");
        std::fs::write(root.join("config/personas/keeper.json"), memory::KEEPER).expect("the persona");
        drop(SqliteStore::open(&root.join("posse.db"), Options::default()).expect("a new database"));
        let store =
            SqliteStore::open_read_only(&root.join("posse.db"), Keys::default()).expect("the database is there");
        Project { folder, store, model, worker: None }
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }

    fn file(&self, seed: u64) -> PathBuf {
        self.root().join(format!("ws/s{seed}.txt"))
    }

    fn size(&self, seed: u64) -> u64 {
        std::fs::metadata(self.file(seed)).map_or(0, |file| file.len())
    }

    /// Until the job's file is longer than `size` bytes; given up after a while, since the request
    /// may have been the last one.
    fn wait_for_effect(&self, seed: u64, size: u64) {
        let deadline = Instant::now() + Duration::from_millis(100);
        while self.size(seed) <= size && Instant::now() < deadline {
            std::hint::spin_loop();
        }
    }

    fn enqueue(&self, seed: u64) -> JobId {
        self.enqueue_for("tester", &format!("STEPS={STEPS} FILE=s{seed}.txt"))
    }

    fn enqueue_for(&self, role: &str, goal: &str) -> JobId {
        let out = posse(self.root())
            .args(["enqueue", "--json", "--role", role, "--max-attempts", "20", "--workspace", "ws", goal])
            .output()
            .expect("posse runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let answer: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
        JobId(answer["id"].as_i64().or_else(|| answer[0]["id"].as_i64()).expect("an id"))
    }

    fn start_worker(&mut self) {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.root().join("work.log"));
        let worker = posse(self.root())
            .arg("work")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("a log file"))
            .spawn();
        self.worker = Some(worker.expect("posse runs"));
    }

    /// Whether this host can make sandboxes.
    fn can_run_programs(&self) -> bool {
        let tried = posse(self.root()).args(["tool", "run", "execute_code", r#"{"code": "return 6 * 7;"}"#]).output();
        let said = tried.expect("posse runs");
        let (out, err) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
        assert!(out.contains("42") || err.contains("cannot run here"), "{out}{err}");
        out.contains("42")
    }

    fn kill_worker(&mut self) {
        if let Some(mut worker) = self.worker.take() {
            worker.kill().expect("SIGKILL");
            worker.wait().expect("it is reaped");
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.root().join("work.log")).unwrap_or_default()
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        self.kill_worker();
    }
}

fn posse(root: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_posse"));
    command.current_dir(root).env_remove("OPENAI_API_KEY").env_remove("OPENAI_BASE_URL").env("POSSE_LOG", "info");
    command.env("POSSE_TRUST", root);
    command
}

/// What happened over all seeds; to see that the kills met something.
#[derive(Default, Debug)]
struct Tally {
    kills: u32,
    crashes: u32,
    unknown: u32,
    redone: u32,
}

async fn run_seed(project: &mut Project, seed: u64, tally: &mut Tally) {
    let mut dice = Dice(seed);
    let mut kills: Vec<KillPoint> = (0..1 + dice.below(2))
        .map(|_| KillPoint {
            request: 1 + dice.below(u64::from(STEPS) + 1),
            then: if dice.below(3) == 0 { Moment::AtEffect } else { Moment::After(dice.below(12_000)) },
        })
        .collect();
    kills.sort_by_key(|kill| kill.request);
    let file = format!("s{seed}.txt");
    let id = project.enqueue(seed);
    for kill in kills {
        project.model.arm(&file);
        project.start_worker();
        if project.model.wait_for_request(&file, kill.request, Duration::from_secs(20)) {
            match kill.then {
                Moment::After(us) => std::thread::sleep(Duration::from_micros(us)),
                Moment::AtEffect => project.wait_for_effect(seed, project.size(seed)),
            }
        }
        project.kill_worker();
        tally.kills += 1;
    }
    project.start_worker();
    let ended = wait_async(Duration::from_secs(30), async || {
        let job = project.store.job(id).await.expect("readable").expect("the job is there: nothing is lost");
        if job.state.is_final() { Ok(job) } else { Err(job) }
    });
    let job = ended.await.unwrap_or_else(|job| {
        panic!("seed {seed}: job {id} is {} after 30 s\n{}", job.state, project.log());
    });
    project.kill_worker();
    check(project, seed, id, &job, tally).await;
}

async fn check(project: &Project, seed: u64, id: JobId, job: &posse_core::job::Job, tally: &mut Tally) {
    let about = format!("seed {seed} (POSSE_CRASH_SEED={seed} runs it again), job {id}");
    assert_eq!(job.state, JobState::Completed, "{about}: {:?}\n{}", job.reason, project.log());
    let lines = std::fs::read_to_string(project.file(seed)).unwrap_or_default();
    let wanted: String = (1..=STEPS).map(|step| format!("step-{step};\n")).collect();
    assert_eq!(lines, wanted, "{about}: every effect once, in order");

    let journal = project.store.journal(id, 0).await.expect("readable");
    let ends = journal.iter().filter(|r| r.entry.kind() == "ended").count();
    assert_eq!(ends, 1, "{about}: finished once");
    let seqs: Vec<_> = journal.iter().map(|r| r.seq).collect();
    assert_eq!(seqs, (0..journal.len() as u64).collect::<Vec<_>>(), "{about}: no gap in the journal");

    let ledger = project.store.ledger(id).await.expect("readable");
    let mut states: BTreeMap<&str, u32> = BTreeMap::new();
    for row in ledger.iter().filter(|row| row.tool == "append_file") {
        assert!(matches!(row.state, CallState::Done | CallState::Unknown), "{about}: {row:?}");
        *states.entry(row.state.as_str()).or_default() += 1;
    }
    let keys: std::collections::HashSet<_> = ledger.iter().map(|row| &row.effect_key).collect();
    assert_eq!(keys.len(), ledger.len(), "{about}: effect keys are unique");
    let (done, unknown) = (states.get("done").copied().unwrap_or(0), states.get("unknown").copied().unwrap_or(0));
    assert!(done <= STEPS && done + unknown >= STEPS, "{about}: {states:?}");
    tally.crashes += job.crashes;
    tally.unknown += unknown;
    tally.redone += done + unknown - STEPS;

    let attempts = project.store.attempts(id).await.expect("readable");
    let lost = attempts.iter().filter(|a| a.outcome.as_deref() == Some("worker_lost")).count();
    assert_eq!(lost as u32, job.crashes, "{about}: every lost attempt has its reason");
    assert_eq!(attempts.last().and_then(|a| a.outcome.as_deref()), Some("completed"), "{about}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_minus_nine_at_random_moments_loses_and_repeats_nothing() {
    let seeds = match number("POSSE_CRASH_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("POSSE_CRASH_SEEDS").unwrap_or(200),
    };
    let many = seeds.end - seeds.start;
    let mut project = Project::new();
    let mut tally = Tally::default();
    let began = Instant::now();
    for seed in seeds {
        run_seed(&mut project, seed, &mut tally).await;
    }
    eprintln!("{many} seeds in {:.1} s: {tally:?}", began.elapsed().as_secs_f32());
    if many >= 50 {
        assert!(u64::from(tally.crashes) >= many / 2, "most kills met a running job: {tally:?}");
        assert!(tally.unknown > 0, "some kills met a tool at work: {tally:?}");
    }
}
