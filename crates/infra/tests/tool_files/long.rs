//! Files that are too long for whoever reads them.

use posse_core::tool::Reader;
use serde_json::json;

use super::support::Bench;

/// 400 lines about days, of which three are about a ferry.
fn log() -> String {
    let line = |day: usize| match day {
        120 => "day 120: the ferry Nora is late".to_owned(),
        121 => "day 121: Nora is repaired".to_owned(),
        333 => "day 333: a ferry is sold".to_owned(),
        _ => format!("day {day}: nothing to tell of the harbour"),
    };
    (1..=400).map(|day| line(day) + "\n").collect()
}

fn bench(task: &str, room: Option<usize>) -> Bench {
    let mut bench = Bench::new();
    bench.reader = Reader { task: task.into(), room, computes: false };
    bench.write("log.txt", log());
    bench
}

#[test]
fn a_long_file_is_shown_around_what_the_task_names() {
    let bench = bench("What became of the ferry Nora?", Some(700));
    let told = bench.call("read_file", json!({"path": "log.txt"})).unwrap();
    assert!(told.starts_with(
        "[log.txt is long: shown are its beginning and what is nearest to the task; read the other lines with start_line and \
         end_line]\n[log.txt, lines 1 to 5 of 400]\nday 1: nothing"
    ), "{told}");
    assert!(
        told.contains("\n[log.txt, lines 118 to 123 of 400]\nday 118: nothing to tell of the harbour\nday 119"),
        "{told}"
    );
    assert!(told.contains("\nday 120: the ferry Nora is late\nday 121: Nora is repaired\n"), "{told}");
    assert!(told.len() < 1000, "{told}");
    // Each line under its own number.
    let mut at = 0;
    for line in told.lines().skip(1) {
        if let Some(lines) = line.strip_prefix("[log.txt, line") {
            at = lines.trim_start_matches(|c: char| !c.is_ascii_digit()).split(' ').next().unwrap().parse().unwrap();
        } else {
            assert!(line.starts_with(&format!("day {at}: ")), "{line}");
            at += 1;
        }
    }
    let line = bench.call("read_file", json!({"path": "log.txt", "start_line": 200, "end_line": 200})).unwrap();
    assert_eq!(line, "[log.txt, line 200 of 400]\nday 200: nothing to tell of the harbour\n");
}

#[test]
fn what_has_room_or_nothing_of_the_task_is_shown_from_its_beginning() {
    for (task, room) in [
        ("What became of the ferry Nora?", None),
        ("What became of the ferry Nora?", Some(100_000)),
        ("What became of the ferry Nora?", Some(32 * 1024)),
        ("Who was Ada?", Some(700)),
        ("Tell of the harbour.", Some(700)),
        ("", Some(700)),
    ] {
        let bench = bench(task, room);
        assert_eq!(bench.call("read_file", json!({"path": "log.txt"})).unwrap(), log(), "{task} {room:?}");
    }
    let bench = bench("ferry", Some(700));
    bench.write("short.txt", "the ferry\n");
    assert_eq!(bench.call("read_file", json!({"path": "short.txt"})).unwrap(), "the ferry\n");
    bench.write("wide.txt", "the ferry ".repeat(200));
    assert_eq!(bench.call("read_file", json!({"path": "wide.txt"})).unwrap().len(), 2000);
}
