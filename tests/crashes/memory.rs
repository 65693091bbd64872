//! The same over what is remembered: however often its worker is killed, a job saves each fact once, and each change of an
//! item or a block is made once and in its order.

use super::*;
use posse_core::memory::{MemoryFilter, MemoryId};
use posse_core::port::MemoryQueries as _;
use serde_json::{Value, json};

/// Who remembers.
pub const KEEPER: &str = r#"{"role": "keeper", "goal": "remember", "tools": ["memory"], "limits": {"max_turns": 100}}"#;

/// The calls of a job, of which some need the number of an item that an earlier one saved.
const CALLS: usize = 6;

/// The next call of a job by its results so far; none once all were made.
pub fn next_call(of: &str, results: &[&str]) -> Option<(&'static str, Value)> {
    let saved = |at: usize| -> i64 {
        let told = results[at].strip_prefix("Saved as item ").and_then(|rest| rest.split('.').next());
        told.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{of}: a fact is saved: {}", results[at]))
    };
    let line = |n: u32| ("core_memory_edit", json!({"block": "notes", "text": format!("{of} line {n}")}));
    Some(match results.len() {
        0 => ("memory_save", json!({"text": format!("{of} fact 1")})),
        1 => line(1),
        2 => ("memory_save", json!({"text": format!("{of} fact 2")})),
        3 => ("memory_update", json!({"item": saved(2), "text": format!("{of} fact 2 anew")})),
        4 => line(2),
        5 => ("memory_forget", json!({"item": saved(0), "reason": format!("{of} is over")})),
        CALLS => return None,
        more => panic!("{of}: {more} results"),
    })
}

async fn run_memory(project: &mut Project, nth: u64, seed: u64) -> (u32, u32) {
    let mut dice = Dice(seed ^ 0x3e30);
    let mut kills: Vec<_> =
        (0..1 + dice.below(2)).map(|_| (1 + dice.below(CALLS as u64 + 1), dice.below(12_000))).collect();
    kills.sort_unstable();
    let of = format!("k{seed}");
    let id = project.enqueue_for("keeper", &format!("KEEP={of}"));
    let many = kills.len() as u32;
    for (request, us) in kills {
        project.model.arm(&of);
        project.start_worker();
        if project.model.wait_for_request(&of, request, Duration::from_secs(20)) {
            std::thread::sleep(Duration::from_micros(us));
        }
        project.kill_worker();
    }
    project.start_worker();
    let ended = wait_async(Duration::from_secs(30), async || {
        let job = project.store.job(id).await.expect("readable").expect("the job is there: nothing is lost");
        if job.state.is_final() { Ok(job) } else { Err(job) }
    });
    let about = format!("seed {seed} (POSSE_CRASH_SEED={seed} runs it again), job {id}");
    let job = ended.await.unwrap_or_else(|job| panic!("{about} is {} after 30 s\n{}", job.state, project.log()));
    project.kill_worker();
    assert_eq!(job.state, JobState::Completed, "{about}: {:?}\n{}", job.reason, project.log());

    let of_job = MemoryFilter { job: Some(id), ended: true, ..MemoryFilter::default() };
    let items = project.store.memory_items(of_job, MemoryId(i64::MAX), 99).await.expect("readable");
    let told: Vec<_> =
        items.iter().rev().map(|item| (item.text.rsplit('\n').next().unwrap_or_default(), item.version)).collect();
    let name = |text: &str| format!("{of} {text}");
    let versions = 2 * u32::try_from(nth).expect("few");
    let wanted = [
        (name("fact 1"), 1),
        (name("line 1"), versions + 1),
        (name("fact 2"), 1),
        (name("fact 2 anew"), 2),
        (name("line 2"), versions + 2),
    ];
    assert_eq!(
        told,
        wanted.each_ref().map(|(text, version)| (text.as_str(), *version)),
        "{about}: each once, in order"
    );
    let hold: Vec<_> = items.iter().rev().map(|item| item.ended_at.is_none()).collect();
    assert_eq!(hold, [false, false, false, true, true], "{about}: what was changed or forgotten holds no more");
    assert_eq!(items[4].reason.as_deref(), Some(name("is over").as_str()), "{about}");
    let ledger = project.store.ledger(id).await.expect("readable");
    assert!(ledger.len() == CALLS && ledger.iter().all(|row| row.state == CallState::Done), "{about}: {ledger:?}");
    (many, job.crashes)
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_minus_nine_while_remembering_saves_nothing_twice_and_loses_nothing() {
    let seeds = match number("POSSE_CRASH_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("POSSE_CRASH_SEEDS").unwrap_or(60),
    };
    let many = seeds.end - seeds.start;
    let mut project = Project::new();
    let began = Instant::now();
    let (mut kills, mut crashes) = (0, 0);
    for (nth, seed) in (0..).zip(seeds) {
        let met = run_memory(&mut project, nth, seed).await;
        (kills, crashes) = (kills + met.0, crashes + met.1);
    }
    eprintln!("{many} jobs in {:.1} s, {kills} kills, {crashes} of them at work", began.elapsed().as_secs_f32());
    assert!(many < 50 || u64::from(crashes) >= many / 2, "most kills met a running job");
}
