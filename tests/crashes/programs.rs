//! The same inside a program: however often its worker is killed, each line is written once, and each call that had ended
//! gives what it gave.

use super::*;
use posse_core::port::JobQueries as _;

/// Who has programs.
pub const PROGRAMMER: &str = r#"{"role": "programmer", "goal": "append lines", "tools": ["filesystem", "code"],
    "limits": {"max_turns": 100}}"#;

#[derive(Default, Debug)]
struct Killed {
    kills: u32,
    /// Of these, in the middle of a program.
    in_programs: u32,
    unknown: u32,
}

async fn run_program(project: &mut Project, seed: u64, killed: &mut Killed) {
    let mut dice = Dice(seed ^ 0xc0de);
    let file = format!("p{seed}.txt");
    let id = project.enqueue_for("programmer", &format!("PROGRAM=yes STEPS={STEPS} FILE={file}"));
    let path = project.root().join(format!("ws/{file}"));
    for _ in 0..1 + dice.below(2) {
        project.model.arm(&file);
        project.start_worker();
        // A worker that goes on with a program asks no model first, so what is looked at is what it has done.
        let lines = dice.below(u64::from(STEPS));
        let deadline = Instant::now() + Duration::from_secs(3);
        let written = || std::fs::read_to_string(&path).map_or(0, |text| text.lines().count() as u64);
        while written() < lines && Instant::now() < deadline {
            std::hint::spin_loop();
        }
        std::thread::sleep(Duration::from_micros(dice.below(if lines == 0 { 150_000 } else { 8000 })));
        project.kill_worker();
        killed.kills += 1;
        let ledger = project.store.ledger(id).await.expect("readable");
        let runs = ledger.iter().any(|row| row.tool == "execute_code" && row.state == CallState::Started);
        killed.in_programs += u32::from(runs);
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
    let lines = std::fs::read_to_string(&path).unwrap_or_default();
    let wanted: String = (1..=STEPS).map(|step| format!("step-{step};\n")).collect();
    assert_eq!(lines, wanted, "{about}: every effect once, in order");
    let answer = job.output.map(|output| output.text).unwrap_or_default();
    assert_eq!(answer, format!("it gave {}", 2 * STEPS), "{about}");

    let journal = project.store.journal(id, 0).await.expect("readable");
    assert_eq!(journal.iter().filter(|r| r.entry.kind() == "program_began").count(), 1, "{about}: it begins once");
    let ledger = project.store.ledger(id).await.expect("readable");
    let programs: Vec<_> = ledger.iter().filter(|row| row.tool == "execute_code").map(|row| row.state).collect();
    assert_eq!(programs, [CallState::Done], "{about}: one program, which ended");
    let appended = ledger.iter().filter(|row| row.tool == "append_file");
    let (done, unknown): (Vec<_>, Vec<_>) = appended.partition(|row| row.state == CallState::Done);
    assert!(unknown.iter().all(|row| row.state == CallState::Unknown), "{about}: {unknown:?}");
    assert!(done.len() as u32 <= STEPS && (done.len() + unknown.len()) as u32 >= STEPS, "{about}");
    killed.unknown += unknown.len() as u32;
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_minus_nine_inside_programs_repeats_nothing() {
    let seeds = match number("POSSE_CRASH_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("POSSE_CRASH_SEEDS").map_or(20, |seeds| seeds.min(200)),
    };
    let many = seeds.end - seeds.start;
    let mut project = Project::new();
    if !project.can_run_programs() {
        eprintln!("SKIPPED, for this host cannot make sandboxes");
        return;
    }
    let mut killed = Killed::default();
    let began = Instant::now();
    for seed in seeds {
        run_program(&mut project, seed, &mut killed).await;
    }
    eprintln!("{many} programs in {:.1} s: {killed:?}", began.elapsed().as_secs_f32());
    if many >= 20 {
        assert!(u64::from(killed.in_programs) >= many / 4, "many kills met a program at work: {killed:?}");
    }
}
