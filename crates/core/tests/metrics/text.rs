//! Numbers in Prometheus' text format, version 0.0.4.

use posse_core::job::JobState;
use posse_core::metrics::{JobsIn, Metrics, ModelTallies, ProcessCounts, Standing};

#[test]
fn parts_are_printed_exactly() {
    let shown =
        [(0, "0"), (5, "0.005"), (25, "0.025"), (100, "0.1"), (1_000, "1"), (2_500, "2.5"), (3_600_000, "3600")];
    let tallies = ModelTallies::default();
    _ = tallies.model("e", "m");
    let mut models = tallies.read();
    models[0].cost_microusd = u64::MAX;
    models[0].took.up_to_ms = shown.map(|(ms, _)| (ms, 1)).into();
    let text = Metrics { standing: None, process: Some(ProcessCounts { models, ..ProcessCounts::default() }) }.text();
    for (_, bound) in shown {
        assert!(text.contains(&format!("le=\"{bound}\"}} 1\n")), "{bound}: {text}");
    }
    assert!(text.contains("} 18446744073709.551615\n"), "{text}");
}

#[test]
fn a_name_cannot_end_its_line() {
    let queue = "a\"} 1\nposse_jobs 7\\".to_owned();
    let jobs = vec![JobsIn { role: "r".into(), queue, state: JobState::Available, jobs: 2 }];
    let standing = Some(Standing { jobs, ..Standing::default() });
    let text = Metrics { standing, process: None }.text();
    let row = r#"posse_jobs{role="r",queue="a\"} 1\nposse_jobs 7\\",state="available"} 2"#;
    assert!(text.lines().any(|line| line == row), "{text}");
}
