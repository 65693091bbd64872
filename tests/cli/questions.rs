//! `posse question`: what agents ask, listed, shown and answered through the binary.

use crate::support::{ModelServer, Project, Say};
use serde_json::{Value, json};

/// An agent that asks two questions and then gives its answer.
fn painter() -> ModelServer {
    let questions = json!(["Blue or green?", "Which\u{1b}[2J ship?"]);
    ModelServer::start(vec![
        Say::Call("finish", json!({"final_summary": "", "clarifying_questions": questions})),
        Say::Call("finish", json!({"final_summary": "painted"})),
    ])
}

/// A project with a job that waits for answers, and no worker.
fn waiting(server: &ModelServer) -> Project {
    let project = Project::with_model(server);
    let worker = project.start(&["work", "--role", "researcher"]);
    project.posse(&["enqueue", "--role", "researcher", "Paint it"]).ok();
    project.wait_for_state(1, "suspended");
    worker.terminate();
    worker.wait().ok();
    project
}

fn texts(listed: &Value) -> Vec<&str> {
    listed["questions"].as_array().expect("a list").iter().map(|q| q["text"].as_str().expect("a text")).collect()
}

#[test]
fn questions_are_listed_shown_and_answered_without_a_worker() {
    let server = painter();
    let project = waiting(&server);
    let listed = project.posse(&["question", "list", "--json"]).ok().json();
    assert_eq!(texts(&listed), ["Blue or green?", "Which\u{1b}[2J ship?"]);
    let first = &listed["questions"][0];
    assert_eq!((&first["id"], &first["job"], &first["role"]), (&1.into(), &1.into(), &"researcher".into()));
    assert_eq!((&first["state"], &first["answer"]), (&"open".into(), &Value::Null));
    assert!(first["created_at"].is_i64());

    let human = project.posse(&["question", "list"]).ok();
    assert!(human.out.contains("Blue or green?") && human.out.contains("researcher"), "{}", human.out);
    assert!(!human.out.contains('\x1b'), "nothing that an agent says reaches the terminal as it is: {:?}", human.out);
    assert!(human.err.contains("posse question answer ID"), "{}", human.err);
    let shown = project.posse(&["question", "show", "2"]).ok().out;
    assert!(
        shown.contains("question 2") && shown.contains("of job 1 asks  open") && !shown.contains('\x1b'),
        "{shown}"
    );
    assert_eq!(project.posse(&["question", "show", "1", "--json"]).ok().json(), *first);
    let job = project.posse(&["show", "1"]).ok().out;
    assert!(job.contains("suspended") && job.contains("waits      for answers to 2 questions"), "{job}");
    assert!(job.contains("question 2: Which") && job.contains("posse question answer 2"), "{job}");
    let tags = project.posse(&["show", "1", "--json"]).ok().json()["annotations"][0]["tags"].clone();
    assert_eq!(tags, json!(["clarification_needed", "job:1"]));
    assert!(job.contains("[clarification_needed, job:1]"), "{job}");

    let saved = project.posse(&["question", "answer", "2", "the", "old", "one"]).ok().out;
    assert!(saved.contains("saved; job 1 waits for 1 more"), "{saved}");
    let accepted = project.posse(&["question", "answer", "1", "--by", "kim", "--json", "blue"]).ok().json();
    assert_eq!(accepted, json!({"outcome": "accepted", "job": 1, "open": 0}));
    assert!(texts(&project.posse(&["question", "list", "--json"]).ok().json()).is_empty());
    assert!(project.posse(&["question", "list"]).ok().err.contains("nobody asks anything"));
    assert_eq!(texts(&project.posse(&["question", "list", "--all", "--job", "1", "--json"]).ok().json()).len(), 2);
    assert!(project.posse(&["question", "show", "1"]).ok().out.contains("answered by kim"));

    let again = project.posse(&["question", "answer", "1", "green"]).expect(4);
    assert!(again.err.contains("question 1 is already answered: blue"), "{}", again.err);
    assert!(again.out.is_empty());
    let again = project.posse(&["question", "answer", "1", "green", "--json"]).expect(4).json();
    assert_eq!((&again["outcome"], &again["question"]["answer"]), (&"settled".into(), &"blue".into()));

    let worker = project.start(&["work", "--role", "researcher"]);
    let watched = project.posse(&["job", "watch", "1"]).ok();
    assert!(watched.out.contains("painted"), "{}", watched.out);
    worker.terminate();
    worker.wait().ok();
    let requests = server.requests();
    let told = requests.last().expect("it was asked")["messages"].as_array().expect("messages").last().cloned();
    let told = told.expect("a message")["content"].as_str().expect("a text").to_owned();
    let answers = "Question: Blue or green?\nAnswer: blue\n\nQuestion: Which\u{1b}[2J ship?\nAnswer: the old one";
    assert!(told.ends_with(answers), "{told:?}");
}

#[test]
fn a_cancelled_job_takes_no_answer() {
    let server = painter();
    let project = waiting(&server);
    project.posse(&["job", "cancel", "1"]).ok();
    assert!(texts(&project.posse(&["question", "list", "--json"]).ok().json()).is_empty());
    let refused = project.posse(&["question", "answer", "1", "blue"]).expect(4);
    assert!(refused.err.contains("question 1 is closed: job 1 was cancelled"), "{}", refused.err);
}

#[test]
fn what_is_no_answer_or_no_question_is_refused() {
    let project = Project::begun();
    let long = "x".repeat(65 * 1024);
    for (args, code, words) in [
        (&["question", "show", "7"][..], 3, "there is no question 7"),
        (&["question", "answer", "7", "blue"], 3, "there is no question 7"),
        (&["question", "answer", "7", " "], 2, "the answer is empty"),
        (&["question", "answer", "7"], 2, "TEXT"),
        (&["question", "answer", "7", &long], 2, "at most 65,536 are allowed"),
        (&["question", "answer", "7", "--by", " ", "blue"], 2, "--by must be a name"),
        (&["question", "answer", "seven", "blue"], 2, "invalid value 'seven'"),
        (&["question", "list", "-n", "0"], 2, "1..=10000"),
    ] {
        let ended = project.posse(args);
        assert_eq!(ended.code, code, "{args:?}: {}{}", ended.out, ended.err);
        assert!(ended.err.contains(words), "{words}: {}", ended.err);
        assert!(ended.out.is_empty(), "{}", ended.out);
    }
    assert_eq!(project.posse(&["question", "list", "--json"]).ok().json(), json!({"questions": [], "next": null}));
}

#[test]
fn a_dash_is_what_stands_on_standard_input() {
    let server = ModelServer::start(vec![
        Say::Call("finish", json!({"final_summary": "", "clarifying_questions": ["Which colour?"]})),
        Say::Call("finish", json!({"final_summary": "done"})),
    ]);
    let project = Project::with_model(&server);
    project.posse(&["enqueue", "-r", "scribe", "paint"]).ok();
    let worker = project.start(&["work"]);
    project.wait_for_state(1, "suspended");
    assert!(project.posse_with(&["question", "answer", "1", "-"], b"\n").expect(2).err.contains("is empty"));
    project.posse_with(&["question", "answer", "1", "-"], b"dark blue\r\n").ok();
    project.wait_for_state(1, "completed");
    worker.terminate();
    worker.wait().ok();
    let asked = project.posse(&["question", "show", "1", "--json"]).ok().json();
    assert!(asked.to_string().contains("\"dark blue\""), "{asked}");
    project.posse_with(&["job", "annotate", "1", "-"], b"seen by two\n").ok();
    let shown = project.posse(&["show", "1", "--json"]).ok().json();
    let remarks = shown["annotations"].as_array().expect("remarks");
    assert!(remarks.iter().any(|remark| remark["text"] == "seen by two"), "{remarks:?}");
}
