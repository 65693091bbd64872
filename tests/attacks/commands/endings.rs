//! How commands end, and that nothing of them is left then.

use std::time::Duration;

use posse_core::stop::{StopReason, stop_pair};
use posse_core::tool::ToolErrorCategory;
use serde_json::json;

use crate::support::{Bench, marker, processes_with, until};

pub fn exit_codes_signals_and_both_outputs_are_told() {
    let bench = Bench::new();
    let said = bench.run("echo out; echo err >&2; exit 3");
    assert!(said.starts_with("exit code 3, after "), "{said}");
    assert!(said.ends_with("\n[stdout]\nout\n[stderr]\nerr"), "{said}");
    assert!(bench.run("kill -TERM $$").starts_with("ended by signal 15, after "));
    assert!(bench.run("true").ends_with("\nno output"));
    assert!(bench.run("printf 'caf\\351'").ends_with("[not UTF-8: shown as Latin-1]\ncafé"));
    assert!(bench.run("head -c 100 /dev/zero").contains("[100 bytes of binary data, unknown type: not shown]"));
    // An exit code that the sandbox has a use for too.
    assert!(bench.run("exit 127").starts_with("exit code 127"));
}

pub fn long_outputs_are_bounded_and_never_block() {
    let bench = Bench::new();
    let said = bench.run("echo first; yes | head -c 50000000; echo last; echo err >&2");
    assert!(said.len() < 20_000, "{}", said.len());
    assert!(said.contains("[stdout]\nfirst\ny\n") && said.contains("\nlast\n[stderr]\nerr"), "{said}");
    assert!(said.contains("[... 47.7 MiB left out ...]"), "{said}");
}

pub fn long_outputs_are_cut_between_characters() {
    const HALF: usize = 8 * 1024;
    let bench = Bench::new();
    let shown = |command: &str| bench.run(command).split_once("[stdout]\n").unwrap().1.to_owned();
    assert_eq!(shown("python3 -c 'print(\"ä\" * 8192, end=\"\")'"), "ä".repeat(HALF), "as much as is kept");
    let said = shown("python3 -c 'print(\"a\" + \"数\" * 1000000 + \"z\", end=\"\")'");
    let long = format!("a{}z", "数".repeat(1_000_000));
    let (head, rest) = said.split_once("\n[... ").unwrap();
    let (left_out, tail) = rest.split_once(" left out ...]\n").unwrap();
    assert_eq!(left_out, "2.8 MiB");
    assert!(long.starts_with(head) && head.len() > HALF - 4 && head.len() <= HALF, "{}", head.len());
    assert!(long.ends_with(tail) && tail.len() > HALF - 4 && tail.len() <= HALF, "{}", tail.len());
}

pub fn outputs_that_are_no_text_are_named() {
    let bench = Bench::new();
    for (command, named) in [
        ("printf '\\177ELF\\0\\0\\0'", "[7 bytes of binary data, ELF program: not shown]"),
        ("head -c 8292 /dev/zero | tr '\\0' x; printf '\\0'", "[8,293 bytes of binary data: not shown]"),
        ("head -c 16384 /dev/zero | tr '\\0' x; printf '\\0'", "[16.0 KiB of binary data, unknown type: not shown]"),
    ] {
        let said = bench.run(command);
        assert!(said.ends_with(named), "{command}: {said}");
    }
}

/// D07: what a command leaves in the background holds nobody up, and is gone with it.
pub fn nothing_is_left_when_the_shell_ends() {
    let bench = Bench::new();
    let marker = marker();
    for command in [
        format!("sleep {marker} & echo hi"),
        format!("(setsid sleep {marker} &) ; echo hi"),
        format!("nohup sleep {marker} >/dev/null & echo hi"),
        format!("(trap '' TERM HUP; sleep {marker}) & echo hi"),
        format!("(setsid sh -c 'sleep {marker} & sleep {marker}' >/dev/null 2>&1 &); echo hi"),
    ] {
        // Were it waited for, it would end by its time.
        let said = bench.run(&command);
        assert!(said.starts_with("exit code 0") && said.contains("[stdout]\nhi"), "{command}: {said}");
        assert_eq!(processes_with(&marker), 0, "{command}");
    }
}

pub fn input_is_empty_and_there_is_no_terminal() {
    let bench = Bench::new();
    assert!(bench.run("cat; echo over").ends_with("[stdout]\nover"));
    assert!(bench.run("tty || true").contains("not a tty"));
    assert!(bench.run("echo secret? > /dev/tty || echo none").contains("none"));
}

/// D07: whatever it waits for or ignores.
pub fn time_is_up() {
    let bench = Bench::new();
    let marker = marker();
    for command in [
        format!("echo before; trap '' TERM INT HUP; sleep {marker}"),
        format!("echo before; setsid sh -c 'trap \"\" TERM; sleep {marker}'"),
        format!("echo before; find / -name '*' 2>/dev/null | grep y >/dev/null; sleep {marker}"),
        "echo before; python3 -c 'while True: pass' || while :; do :; done".into(),
    ] {
        let said = bench.over(&command, 2);
        assert!(said.starts_with("timed out after 2 s; ask for more with timeout_s, up to 120."), "{command}: {said}");
        assert!(said.ends_with("[stdout]\nbefore"), "{command}: {said}");
        assert_eq!(processes_with(&marker), 0, "{command}");
    }
}

pub fn the_time_of_the_whole_run_counts() {
    let mut bench = Bench::new();
    bench.cx.time_left = Some(Duration::from_secs(1));
    let said = bench.over("sleep 300", 100);
    assert!(said.starts_with("timed out after 1 s, when the time of the whole task was used up"), "{said}");
}

pub fn a_stop_ends_it_and_says_that_nobody_knows() {
    for reason in [StopReason::Cancelled, StopReason::Shutdown, StopReason::LeaseLost] {
        let mut bench = Bench::new();
        let (stopper, stop) = stop_pair();
        bench.cx.stop = stop;
        let marker = marker();
        let command = format!("echo begun; (setsid sleep {marker} &); trap '' TERM; sleep {marker}; touch finished");
        let error = bench.runtime().block_on(async {
            let stopping = tokio::task::spawn_blocking({
                let marker = marker.clone();
                move || {
                    // Both sleeps are there.
                    until("it runs", || processes_with(&format!("sleep\0{marker}")) == 2);
                    stopper.stop(reason);
                }
            });
            let called = bench.call(json!({"command": command})).await;
            stopping.await.unwrap();
            called.expect_err("stopped")
        });
        assert_eq!(error.category, ToolErrorCategory::Interrupted);
        assert!(error.message.contains("[stdout]\nbegun"), "{error}");
        assert_eq!(processes_with(&marker), 0);
        assert!(!bench.ws("finished").exists());
    }
}

pub fn a_dropped_call_ends_it() {
    let bench = Bench::new();
    let marker = marker();
    bench.runtime().block_on(async {
        let looking = tokio::task::spawn_blocking({
            let marker = marker.clone();
            move || until("it runs", || processes_with(&marker) > 0)
        });
        tokio::select! {
            ended = bench.call(json!({"command": format!("setsid sleep {marker}")})) => panic!("{ended:?}"),
            looked = looking => looked.unwrap(),
        }
    });
    until("nothing of it is left", || processes_with(&marker) == 0);
}

pub fn arguments_that_make_no_sense_run_nothing() {
    let bench = Bench::new();
    for args in [
        json!({"command": ""}),
        json!({"command": " \n"}),
        json!({"command": "touch ran\u{0}"}),
        json!({"command": "touch ran", "timeout_s": 0}),
        json!({"command": "touch ran", "timeout_s": 121}),
        json!({"command": "touch ran", "cwd": "."}),
        json!({"command": format!("touch ran; : {}", "x".repeat(65_536))}),
    ] {
        let error = bench.run_with(args).expect_err("refused");
        assert!(error.category.says_nothing_was_done() || error.message.contains("Nothing was run"), "{error}");
    }
    assert!(!bench.ws("ran").exists());
}
