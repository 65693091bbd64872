//! What a run is told of the jobs before it.

use posse_core::job::{Job, JobState};
use posse_core::run::results::{ResultCounts, page, told};
use serde_json::json;

fn answered(id: i64, answer: &str) -> Job {
    let usage = json!({"input": 1, "output": 1});
    let job = json!({
        "id": id, "queue": "default", "role": "pilot", "state": "completed", "priority": 5, "run_at": 0, "attempt": 1,
        "max_attempts": 5, "crashes": 0, "cancel_requested": false, "payload": {"goal": "Look."}, "created_at": 0,
        "output": {"text": answer, "status": "completed", "tools_used": [], "turns": 1, "usage": usage},
        "tags": [], "meta": {},
    });
    serde_json::from_value(job).expect("a job")
}

#[test]
fn no_text_leaves_its_quotes() {
    let hostile = "a\rb\u{2028}c\u{85}d\r\n\ne\u{b}f\u{1b}[2Jg\u{202e}h";
    let page = page(&answered(7, hostile), 0);
    let (_, quoted) = page.split_once(":\n").expect("what it is of");
    assert_eq!(quoted, "| a\n| b\n| c\n| d\n|\n| e\n| f\u{fffd}[2Jg\u{fffd}h");
}

#[test]
fn short_answers_leave_their_room_to_long_ones() {
    let jobs = [answered(1, &"s".repeat(10)), answered(2, &"m".repeat(2_000)), answered(3, &"l".repeat(3_000))];
    let counts = ResultCounts { states: vec![(JobState::Completed, 3)], deleted: 0 };
    let frames = 3 * (80 + "Look.".len());
    let of = |room: usize| {
        let (text, is_all) = told(&counts, &jobs, frames + room);
        ["s", "m", "l"].map(|letter| text.matches(&letter.repeat(50)).count() * 50).map(|long| (long, is_all))
    };
    assert_eq!(of(6_000), [(0, true), (2_000, true), (3_000, true)]);
    assert_eq!(of(2_410), [(0, false), (1_200, false), (1_200, false)], "what the first leaves, the others share");
    assert!(told(&ResultCounts::default(), &[], 0).1);
}
