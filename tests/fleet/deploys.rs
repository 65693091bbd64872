//! Rolling deploys of the program itself: workers with other settings, with logs that nobody reads, with few open files.
//!
//! The newer deploy knows a model and a persona that the older one does not, and its persona of an old role may do more. It
//! comes while jobs are at work, is taken back in the middle of them, and comes again. A job that names what its worker
//! lacks waits, also one that was begun where it was known; a run goes on as it began, whatever is allowed where it is
//! now; nobody's log or number of files fails a job; and every worker ends in time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use posse_core::clock::Clock as _;
use posse_infra::process::SystemClock;
use serde_json::{Value, json};

use crate::support::dice::{Dice, number};
use crate::support::{ModelServer, Project, Say, until};

/// Calls of a short run, as many as the older deploy allows turns, and of a long one, more than those.
const SHORT: usize = 3;
const LONG: usize = 200;

/// Whose settings a worker has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deploy {
    Older,
    Newer,
}

/// What a job needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Needs {
    /// Nothing that is not everywhere.
    Little,
    /// More turns than the older deploy's persona has, on a model that both know.
    Turns,
    /// A model of the newer deploy.
    Model,
    /// A persona of the newer deploy.
    Persona,
}

impl Needs {
    fn calls(self) -> usize {
        if matches!(self, Needs::Turns | Needs::Model) { LONG } else { SHORT }
    }
}

/// How a worker fares beside its work.
#[derive(Debug, Clone, Copy)]
struct Lot {
    /// Nobody reads what it says, and the pipes are full.
    is_unheard: bool,
    /// How many files it may have open.
    files: Option<u64>,
}

/// What happened; to see that it did.
#[derive(Debug, Default)]
struct Tally {
    /// Jobs that waited for what their workers lacked, before they had begun and in the middle.
    waited: usize,
    waited_midway: usize,
    /// Runs that were begun by the newer deploy and ended by the older one.
    carried: usize,
    unheard: usize,
    with_few_files: usize,
    slowest_end: Duration,
}

struct Worker {
    child: Child,
    _unread: Vec<OwnedFd>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Scene {
    project: Project,
    _servers: Vec<ModelServer>,
    jobs: BTreeMap<i64, Needs>,
    /// The processes of the older deploy.
    older: BTreeSet<u32>,
    dice: Dice,
    tally: Tally,
}

fn script(calls: usize) -> Vec<Say> {
    let append = |n| Say::Call("append_file", json!({"path": "out.txt", "text": format!("{n}\n")}));
    let mut script: Vec<_> = (1..=calls).map(append).collect();
    script.push(Say::Call("finish", json!({"final_summary": "written"})));
    script
}

impl Scene {
    fn new(seed: u64) -> Scene {
        let (short, long) = (ModelServer::start(script(SHORT)), ModelServer::start(script(LONG)));
        let project = Project::begun();
        let model = |name: &str, server: &ModelServer| {
            let url = &server.base_url;
            format!(
                "[models.{name}]\nbase_url = '{url}'\nmodel = '{name}'\napi_key_env = ''\ncontext_window = 1000000\n"
            )
        };
        let (mock, plodder) = (model("mock", &short), model("plodder", &long));
        let persona = |role: &str, tools: Value, turns: usize| {
            json!({"role": role, "goal": "g", "tools": tools, "limits": {"max_turns": turns}}).to_string()
        };
        let usual = "default_model = 'mock'\ngrace_seconds = 2\nlease_seconds = 3\n";
        project.write("config/posse.toml", format!("{usual}slots = 3\n{mock}{plodder}"));
        project.write("config/personas/writer.json", persona("writer", json!(["append_file"]), SHORT + 1));
        let newer = format!(
            "{usual}slots = 50\nmax_crashes = 7\ndatabase = '../.posse/posse.db'\n{mock}{plodder}{}",
            model("newer", &long)
        );
        project.write("newer/posse.toml", newer);
        for role in ["writer", "recruit"] {
            project
                .write(&format!("newer/config/personas/{role}.json"), persona(role, json!(["filesystem"]), 2 * LONG));
        }
        let (jobs, older, tally) = (BTreeMap::new(), BTreeSet::new(), Tally::default());
        Scene { project, _servers: vec![short, long], jobs, older, dice: Dice(seed), tally }
    }

    /// Enqueued by somebody with the newest settings.
    fn enqueue(&mut self, needs: Needs, jobs: usize) {
        for _ in 0..jobs {
            let workspace = format!("jobs/{}", self.jobs.len());
            std::fs::create_dir_all(self.project.path().join(&workspace)).expect("a workspace");
            let mut args =
                vec!["enqueue", "--config", "newer/posse.toml", "--json", "--workspace", &workspace, "write"];
            args.extend(["--role", if needs == Needs::Persona { "recruit" } else { "writer" }]);
            match needs {
                Needs::Turns => args.extend(["--model", "plodder"]),
                Needs::Model => args.extend(["--model", "newer"]),
                Needs::Little | Needs::Persona => {}
            }
            let id = self.project.posse(&args).ok().json()["id"].as_i64().expect("a number");
            assert_eq!(id as usize, self.jobs.len() + 1);
            self.jobs.insert(id, needs);
        }
    }

    fn start(&mut self, deploy: Deploy, lot: Lot) -> Worker {
        let mut args = vec!["work"];
        if deploy == Deploy::Newer {
            args.extend(["--config", "newer/posse.toml"]);
        }
        let posse = self.project.command(&args);
        let mut shell = Command::new("/bin/sh");
        let limit = lot.files.map(|files| format!("ulimit -n {files} && ")).unwrap_or_default();
        shell.arg("-c").arg(format!("{limit}exec \"$0\" \"$@\"")).arg(posse.get_program()).args(posse.get_args());
        shell.env_clear().envs(posse.get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell.current_dir(self.project.path()).stdin(Stdio::null());
        let mut unread = Vec::new();
        if lot.is_unheard {
            let mut full = || {
                let (read, write) = crate::support::full_pipe();
                unread.push(read);
                Stdio::from(write)
            };
            shell.env("POSSE_LOG", "trace").stdout(full()).stderr(full());
        } else {
            let log = || File::options().create(true).append(true).open(self.project.path().join("work.log"));
            shell.stdout(log().expect("a log")).stderr(log().expect("a log"));
        }
        self.tally.unheard += usize::from(lot.is_unheard);
        self.tally.with_few_files += usize::from(lot.files.is_some());
        let child = shell.spawn().expect("starts");
        if deploy == Deploy::Older {
            self.older.insert(child.id());
        }
        Worker { child, _unread: unread }
    }

    /// Asks all of these to end, which they do in time, whatever they are at and whoever hears them.
    fn end(&mut self, workers: Vec<Worker>) {
        let began = Instant::now();
        for worker in &workers {
            let pid = worker.child.id().to_string();
            assert!(Command::new("/bin/kill").args(["-TERM", &pid]).status().expect("kill runs").success());
        }
        for mut worker in workers {
            until("a worker ends", || worker.child.try_wait().expect("waited").is_some());
            assert_eq!(worker.child.wait().expect("ended").code(), Some(0), "{}", self.log());
        }
        assert!(began.elapsed() < Duration::from_secs(12), "it took {:?} to end", began.elapsed());
        self.tally.slowest_end = self.tally.slowest_end.max(began.elapsed());
    }

    /// Replaces each of the workers by another one, one after the other, while more comes to be done.
    fn roll(&mut self, workers: &mut Vec<Worker>, to: Deploy, lots: [Lot; 2]) {
        for lot in lots {
            self.enqueue(Needs::Little, 1);
            let next = self.start(to, lot);
            self.end(vec![workers.remove(0)]);
            workers.push(next);
        }
    }

    fn lot(&mut self) -> Lot {
        let files = (self.dice.below(2) == 0).then(|| self.few());
        Lot { is_unheard: self.dice.below(2) == 0, files }
    }

    fn few(&mut self) -> u64 {
        30 + self.dice.below(100)
    }

    fn job(&self, id: i64) -> Value {
        self.project.posse(&["show", &id.to_string(), "--json"]).ok().json()
    }

    fn needing(&self, needs: Needs) -> Vec<i64> {
        self.jobs.iter().filter(|(_, its)| **its == needs).map(|(id, _)| *id).collect()
    }

    /// The lines that a job has written.
    fn lines(&self, id: i64) -> Vec<String> {
        let file = self.project.path().join(format!("jobs/{}/out.txt", id - 1));
        std::fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// Waits until all of these wait for another worker, having spent nothing.
    fn until_they_wait(&self, ids: &[i64]) {
        for id in ids {
            until("it waits for a worker that has its model", || {
                let job = self.job(*id)["job"].clone();
                assert!(job["finalized_at"].is_null(), "{job}");
                job["state"] == "scheduled"
                    && job["reason"].as_str().is_some_and(|why| why.contains("no model 'newer'"))
            });
            let job = self.job(*id)["job"].clone();
            assert_eq!((&job["attempt"], &job["crashes"]), (&json!(0), &json!(0)), "{job}");
        }
    }

    /// A person has waiting jobs tried again now, and not in a minute.
    fn hurry(&self) {
        for job in self.project.posse(&["list", "--state", "scheduled", "-n", "1000", "--json"]).ok().json()["jobs"]
            .as_array()
            .expect("jobs")
        {
            self.project.posse(&["job", "edit", &job["id"].to_string(), "--in", "0s"]);
        }
    }

    fn log(&self) -> String {
        let log = std::fs::read_to_string(self.project.path().join("work.log")).unwrap_or_default();
        log.lines().rev().take(40).collect::<Vec<_>>().join("\n")
    }
}

#[test]
fn deploys_roll_forth_and_back_and_no_job_is_the_worse_for_it() {
    let seed = number("POSSE_FLEET_SEED").unwrap_or(SystemClock.now() as u64 % 1_000_000);
    eprintln!("POSSE_FLEET_SEED={seed}");
    let mut scene = Scene::new(seed);
    let easy = Lot { is_unheard: false, files: None };
    let mut workers = vec![scene.start(Deploy::Older, easy), scene.start(Deploy::Older, easy)];
    // What only the newer deploy has is asked for before that comes.
    scene.enqueue(Needs::Model, 2);
    scene.enqueue(Needs::Persona, 2);
    scene.enqueue(Needs::Little, 3);
    let waiting = scene.needing(Needs::Model);
    scene.until_they_wait(&waiting);
    scene.tally.waited = waiting.len();
    for id in scene.needing(Needs::Persona) {
        assert_eq!(scene.job(id)["attempts"], json!([]), "nobody takes what it has no persona for");
    }

    // Each hardship at least once; one of them has room for all that is long.
    let unheard = Lot { is_unheard: true, files: None };
    let few = Lot { files: Some(scene.few()), ..scene.lot() };
    let lots = if scene.dice.below(2) == 0 { [unheard, few] } else { [few, unheard] };
    scene.roll(&mut workers, Deploy::Newer, lots);
    // All of them begin together, so that all are at work together.
    scene.project.posse(&["pause", "--all"]).ok();
    scene.enqueue(Needs::Turns, 2);
    scene.hurry();
    scene.project.posse(&["resume", "--all"]).ok();
    let long: Vec<_> = [scene.needing(Needs::Model), scene.needing(Needs::Turns)].concat();
    until("all long runs have begun", || long.iter().all(|id| !scene.lines(*id).is_empty()));

    // Back, in the middle of runs that the older deploy could not begin.
    scene.end(std::mem::take(&mut workers));
    for lot in [scene.lot(), scene.lot()] {
        workers.push(scene.start(Deploy::Older, lot));
    }
    let mut midway = scene.needing(Needs::Model);
    midway.retain(|id| scene.lines(*id).len() < LONG);
    scene.until_they_wait(&midway);
    scene.tally.waited_midway = midway.len();
    for id in scene.needing(Needs::Turns) {
        until("it goes on as it began", || scene.job(id)["job"]["state"] == "completed");
        let by = scene.job(id)["attempts"].as_array().and_then(|all| all.last()?["worker"].as_str().map(str::to_owned));
        let by = by.expect("its last worker");
        scene.tally.carried += usize::from(scene.older.iter().any(|pid| by.contains(&format!("-{pid}-"))));
    }

    let lots = [scene.lot(), easy];
    scene.roll(&mut workers, Deploy::Newer, lots);
    scene.hurry();
    let ids: Vec<_> = scene.jobs.keys().copied().collect();
    for id in &ids {
        until("every job ends", || !scene.job(*id)["job"]["finalized_at"].is_null());
    }
    scene.end(workers);
    for id in ids {
        let shown = scene.job(id);
        let job = &shown["job"];
        assert_eq!(job["state"], "completed", "seed {seed}: {shown}\n{}", scene.log());
        assert_eq!((&job["attempt"], &job["crashes"]), (&json!(1), &json!(0)), "seed {seed}: {shown}");
        let outcomes: Vec<_> =
            shown["attempts"].as_array().expect("attempts").iter().map(|one| &one["outcome"]).collect();
        let is_no_failure = |outcome: &&Value| **outcome == "interrupted" || **outcome == "snoozed";
        let (last, before) = outcomes.split_last().expect("an attempt");
        assert!(**last == "completed" && before.iter().all(is_no_failure), "seed {seed}: {outcomes:?}");
        let want: Vec<_> = (1..=scene.jobs[&id].calls()).map(|n| n.to_string()).collect();
        assert_eq!(scene.lines(id), want, "seed {seed}: job {id}: each once, in order");
    }
    let Tally { waited, waited_midway, carried, unheard, with_few_files, .. } = scene.tally;
    let happened = [waited, waited_midway, carried, unheard, with_few_files];
    assert!(happened.iter().all(|times| *times > 0), "seed {seed}: {:?}", scene.tally);
    eprintln!("{} jobs: {:?}", scene.jobs.len(), scene.tally);
}
