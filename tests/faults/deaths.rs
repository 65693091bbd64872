//! Workers that die again and again.

use serde_json::json;

use crate::support::{ModelServer, Project, Say, until};

const STEPS: usize = 40;

fn writing(settings: &str) -> (ModelServer, Project) {
    let mut script = vec![Say::Call("append_file", json!({"path": "out.txt", "text": "x\n"})); STEPS];
    script.push(Say::Call("finish", json!({"final_summary": "written"})));
    let server = ModelServer::start(script);
    let project = super::project(&server, settings);
    (server, project)
}

fn lines(project: &Project) -> usize {
    std::fs::read_to_string(project.path().join("out.txt")).map_or(0, |text| text.lines().count())
}

#[test]
fn a_job_that_gets_further_between_deaths_comes_to_its_end() {
    let (_server, project) = writing("");
    project.posse(&["enqueue", "--role", "writer", "x"]).ok();
    let mut kills = 0;
    while lines(&project) + 6 < STEPS {
        let before = lines(&project);
        let worker = project.start(&["work", "--quiet", "--role", "writer"]);
        until("it gets further", || lines(&project) >= before + 3);
        // Dropped, it is killed.
        drop(worker);
        kills += 1;
    }
    assert!(kills > 3, "{kills} kills");
    let worker = project.start(&["work", "--quiet", "--role", "writer"]);
    project.wait_for_state(1, "completed");
    let shown = project.posse(&["show", "1", "--json"]).ok().json();
    assert_eq!((&shown["job"]["attempt"], &shown["job"]["crashes"]), (&json!(1), &json!(kills)), "{shown}");
    drop(worker);
}

#[test]
fn deaths_at_the_same_place_discard_a_job_by_its_limit_and_it_says_so() {
    let server = ModelServer::start(vec![Say::Silence]);
    let project = Project::with_model(&server);
    project.write("config/posse.toml", "max_crashes = 2\n");
    project.write(
        "config/personas/hardy.json",
        json!({"role": "hardy", "goal": "g", "limits": {"max_crashes": 4}}).to_string(),
    );
    for args in [
        &["enqueue", "--role", "scribe", "by the settings"][..],
        &["enqueue", "--role", "hardy", "by its persona"],
        &["enqueue", "--role", "scribe", "--max-crashes", "1", "by itself"],
    ] {
        project.posse(args).ok();
    }
    assert!(
        project
            .posse(&["enqueue", "--role", "scribe", "--max-crashes", "0", "x"])
            .expect(2)
            .err
            .contains("max_crashes")
    );
    for (job, role, limit) in [(3, "scribe", 1), (1, "scribe", 2), (2, "hardy", 4)] {
        if job == 1 {
            // The first two of a role are worked at once, so the other one shared its first death.
            project.wait_for_state(3, "discarded");
        }
        let mut died = project.posse(&["show", &job.to_string(), "--json"]).ok().json()["job"]["crashes"].clone();
        while died.as_i64() < Some(limit) {
            let asked = server.requests().len();
            let worker = project.start(&["work", "--quiet", "--role", role]);
            project.wait_for_state(job, "running");
            until("it asks", || server.requests().len() > asked);
            drop(worker);
            // Another worker sees it.
            let other = project.start(&["work", "--quiet", "--role", "reviewer"]);
            until("the death is seen", || {
                let now = project.posse(&["show", &job.to_string(), "--json"]).ok().json()["job"].clone();
                now["state"] != "running" && now["crashes"] != died
            });
            other.terminate();
            other.wait().ok();
            died = project.posse(&["show", &job.to_string(), "--json"]).ok().json()["job"]["crashes"].clone();
        }
        let shown = project.posse(&["show", &job.to_string(), "--json"]).ok().json();
        assert_eq!(shown["job"]["state"], "discarded", "{shown}");
        let reason = shown["job"]["reason"].as_str().expect("a reason");
        assert!(reason.contains(&format!("max_crashes, is {limit}")), "{reason}");
        assert!(reason.contains(&format!("posse job retry {job}")), "{reason}");
    }
}
