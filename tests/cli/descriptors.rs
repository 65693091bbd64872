//! Few open files, and many jobs at once.

use std::process::{Command, Stdio};

use crate::support::{self, ModelServer, Project, Say};
use serde_json::json;

const JOBS: usize = 150;

/// Limits that a shell set hold for the whole process, so the worker is started by one.
fn limited(project: &Project, limits: &str, args: &[&str]) -> Command {
    let posse = project.command(args);
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(format!("{limits}; exec \"$0\" \"$@\"")).arg(posse.get_program()).args(posse.get_args());
    shell.env_clear().envs(posse.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.current_dir(project.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell
}

fn with_jobs() -> (ModelServer, Project) {
    let read = json!({"path": "examples/suppliers/fjordtex.md"});
    let server = ModelServer::start(vec![
        Say::Call("read_file", read),
        Say::Call("finish", json!({"final_summary": "Bergen."})),
    ]);
    let project = Project::with_model(&server);
    let lines: String = (0..JOBS).map(|n| json!({"goal": format!("where is it? {n}")}).to_string() + "\n").collect();
    project.write("jobs.jsonl", lines);
    project.posse(&["enqueue", "-r", "researcher", "--jsonl", "jobs.jsonl"]).ok();
    (server, project)
}

/// Works all jobs, and gives what the worker said.
fn worked(project: &Project, limits: &str) -> String {
    let command = limited(project, limits, &["work", "--role", "researcher", "--slots", "1000", "--quiet"]);
    let worker = support::Running::of(command);
    support::until("all jobs have ended", || {
        let ended = project.posse(&["list", "--json", "--state", "completed", "-n", "200"]).ok().json();
        ended["jobs"].as_array().is_some_and(|jobs| jobs.len() == JOBS)
    });
    worker.terminate();
    for job in (1..=JOBS).step_by(4) {
        let shown = project.posse(&["show", &job.to_string(), "--full"]).ok().out;
        assert!(shown.contains("Bergen") && !shown.contains("open files"), "job {job}: {shown}");
    }
    worker.wait().ok().err
}

#[test]
fn a_low_soft_limit_is_raised() {
    let (_server, project) = with_jobs();
    let said = worked(&project, "ulimit -Sn 128");
    assert!(!said.contains("open files"), "{said}");
}

#[test]
fn jobs_at_once_are_bounded_by_open_files_and_nothing_fails_for_want_of_them() {
    let (_server, project) = with_jobs();
    let said = worked(&project, "ulimit -n 300");
    assert!(said.contains("this process may have 300") && said.contains("each role works 3 at once"), "{said}");
}

#[test]
fn slots_are_what_the_open_files_are_enough_for() {
    let project = Project::begun();
    let need = "1,000 jobs at once need 12,256 open files, and this process may have 1,024: each role works 64 at once";
    for (slots, roles, files, said) in [
        (4, 3, 1024, None),
        (1000, 1, 1024, Some(need)),
        (1000, 4, 1024, Some("each role works 16 at once")),
        // Never none.
        (5, 2, 64, Some("each role works 1 at once")),
        // Nothing less was asked for.
        (1, 2, 64, None),
    ] {
        let slots = slots.to_string();
        // It says so and ends before it works, for others are not shown its numbers.
        let mut args = vec!["work", "--metrics", "10.0.0.1:9", "--slots", &slots];
        args.extend(["researcher", "reviewer", "scribe", "triager"][..roles].iter().flat_map(|role| ["--role", *role]));
        let ended = limited(&project, &format!("ulimit -n {files}"), &args).output().expect("posse runs");
        let err = String::from_utf8(ended.stderr).expect("UTF-8");
        assert!(ended.status.code() == Some(2) && err.contains("10.0.0.1:9"), "{args:?}: {err}");
        match said {
            Some(said) => assert!(err.contains(said), "{args:?}: {err}"),
            None => assert!(!err.contains("open files"), "{args:?}: {err}"),
        }
    }
}
