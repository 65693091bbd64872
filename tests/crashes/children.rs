//! The same over tasks: a job gives parts of its work to others and joins their answers. However often its workers are
//! killed, each part is given once, done once, and read.

use super::*;
use posse_core::port::JobQueries as _;

const PARTS: usize = 3;
const STEPS_EACH: u32 = 2;

/// Requests of a whole family: the first and the last of the one that splits, and those of each part.
const REQUESTS: u64 = 2 + PARTS as u64 * (STEPS_EACH as u64 + 1);

/// Who splits the work.
pub const LEAD: &str = r#"{"role": "lead", "goal": "split and join", "tools": ["tasks"], "may_delegate_to": ["tester"],
    "limits": {"max_turns": 100, "max_open_tasks": 3, "max_tasks": 3, "max_task_depth": 1}}"#;

/// As the main test, and apart from it: a family's requests are counted together.
async fn run_family(project: &mut Project, seed: u64) -> u32 {
    let mut dice = Dice(seed ^ 0x7a5c);
    // A third in a row that lets a part get no further would rightly discard it (max_crashes).
    let mut kills: Vec<_> = (0..1 + dice.below(2)).map(|_| (1 + dice.below(REQUESTS), dice.below(12_000))).collect();
    kills.sort_unstable();
    let family = format!("f{seed}");
    let goal = format!("PARTS={PARTS} STEPS={STEPS_EACH} FAMILY={family}");
    let id = project.enqueue_for("lead", &goal);
    let many = kills.len() as u32;
    for (request, us) in kills {
        project.model.arm(&family);
        project.start_worker();
        if project.model.wait_for_request(&family, request, Duration::from_secs(20)) {
            std::thread::sleep(Duration::from_micros(us));
        }
        project.kill_worker();
    }
    project.start_worker();
    let ended = wait_async(Duration::from_secs(60), async || {
        let job = project.store.job(id).await.expect("readable").expect("the job is there: nothing is lost");
        if job.state.is_final() { Ok(job) } else { Err(job) }
    });
    let about = format!("seed {seed} (POSSE_CRASH_SEED={seed} runs it again), job {id}");
    let job = ended.await.unwrap_or_else(|job| panic!("{about} is {} after 60 s\n{}", job.state, project.log()));
    project.kill_worker();
    assert_eq!(job.state, JobState::Completed, "{about}: {:?}\n{}", job.reason, project.log());
    let parts = project.store.children(id).await.expect("readable");
    assert_eq!(parts.len(), PARTS, "{about}: each part is given once");
    for (n, part) in (1..).zip(&parts) {
        assert_eq!(part.state, JobState::Completed, "{about}, part {n}: {:?}", part.reason);
        let lines = std::fs::read_to_string(project.root().join(format!("ws/{family}p{n}.txt"))).unwrap_or_default();
        let wanted: String = (1..=STEPS_EACH).map(|step| format!("step-{step};\n")).collect();
        assert_eq!(lines, wanted, "{about}, part {n}: every effect once, in order");
    }
    let ledger = project.store.ledger(id).await.expect("readable");
    let given = ledger.iter().filter(|row| row.tool == "task_create").collect::<Vec<_>>();
    assert!(given.len() == PARTS && given.iter().all(|row| row.state == CallState::Done), "{about}: {given:?}");
    let answer = job.output.map(|output| output.text).unwrap_or_default();
    assert_eq!(answer, format!("joined {PARTS}"), "{about}: it has read every answer");
    many
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_minus_nine_among_tasks_gives_none_twice_and_loses_no_answer() {
    let seeds = match number("POSSE_CRASH_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("POSSE_CRASH_SEEDS").unwrap_or(40),
    };
    let many = seeds.end - seeds.start;
    let mut project = Project::new();
    let began = Instant::now();
    let mut kills = 0;
    for seed in seeds {
        kills += run_family(&mut project, seed).await;
    }
    eprintln!("{many} families in {:.1} s, {kills} kills", began.elapsed().as_secs_f32());
}
