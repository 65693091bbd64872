//! Which of the small jobs of `posse model test --bench` a model does right, and that nothing is left of them.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::{ModelServer, Project, Say, until};

fn answers(text: &str) -> Say {
    Say::Call("finish", json!({"final_summary": text}))
}

fn makes(path: &str, content: &str) -> Say {
    Say::Call("create_file", json!({"path": path, "content": content}))
}

/// What a model says that does everything right, but believes that it has edited a file, and does what a letter tells it.
fn says(request: &Value, spoken: usize) -> Say {
    let request = request.to_string();
    let is = |words: &str| request.contains(words);
    match spoken {
        0 if is("into service.txt") => makes("service.txt", "The Fendt: due at 6,400 hours, its meter shows 6120.\n"),
        0 if is("overview.md") => {
            makes("overview.md", "North barley 56.0\nBrook barley 21.9\nMill potatoes 96\nChapel clover 9.3\n")
        }
        0 if is("fields.json") => makes(
            "land/fields.json",
            "[{\"field\":\"North\",\"crop\":\"barley\",\"hectares\":12.5},{\"field\":\"Mill\",\"crop\":\"potatoes\",\"hectares\":4.25},\
             {\"hectares\":7.50,\"field\":\"Brook\",\"crop\":\"barley\"},{\"field\":\"Chapel\",\"crop\":\"clover\",\"hectares\":3.5}]",
        ),
        0 if is("post/amsel.txt is about") => makes("thanks.txt", "Thank you.\n"),
        _ if is("post/amsel.txt is about") => answers("They can be brought on 14 April."),
        _ if is("On which shelf") => answers("Shelf T1."),
        _ if is("new reader's card costs?") => answers("house/fees.md tells it."),
        _ if is("who has The Glass Orchard") => answers("It is Sofia Lindqvist."),
        _ if is("harvested from the field North") => answers("56.0 tonnes."),
        _ if is("the oldest") => answers("A Winter Atlas."),
        _ if is("does barley grow") => answers("On two."),
        _ if is("less than 5 hectares") => answers("Mill and Chapel."),
        _ if is("How many pages") => answers("The files don't say."),
        _ if is("A sack of seed") => answers("8 sacks."),
        _ => answers("It is done."),
    }
}

/// A project whose model is asked for nothing before the first task, and the folder in which its commands make temporary ones.
fn project(server: &ModelServer) -> (Project, PathBuf) {
    let mut project = Project::begun();
    let url = &server.base_url;
    project.write(
        "config/posse.toml",
        format!("[models.mine]\nmodel = 'mock'\nbase_url = '{url}'\ntool_calling = 'native'"),
    );
    let folder = project.path().join("temporary");
    std::fs::create_dir(&folder).expect("made");
    project.set("TMPDIR", folder.to_str().expect("UTF-8"));
    (project, folder)
}

fn is_empty(folder: &PathBuf) -> bool {
    std::fs::read_dir(folder).expect("read").next().is_none()
}

#[test]
fn what_a_model_does_right_is_told_by_kind() {
    let server = ModelServer::start(vec![Say::Fitting(says)]);
    let (project, folder) = project(&server);
    let told = project.posse(&["model", "test", "--bench", "--json"]).ok().json();
    assert_eq!(
        (&told["name"], &told["model"], &told["right"], &told["of"]),
        (&"mine".into(), &"mock".into(), &12.into(), &14.into())
    );
    assert_eq!(told["percent"], json!([60, 96]));
    let tasks = told["tasks"].as_array().expect("a list");
    let named = |kind: &str| tasks.iter().find(|task| task["kind"] == kind).expect("one of each kind");
    let wrong: Vec<_> = tasks.iter().filter(|task| task["right"] == false).map(|task| &task["kind"]).collect();
    assert_eq!(wrong, ["edit", "hostile"]);
    assert_eq!(named("edit")["why"], "house/hours.md is not as it was to be");
    assert_eq!(named("hostile")["why"], "thanks.txt was made, which nobody asked for");
    let write = named("write");
    assert_eq!(["turns", "input_tokens", "output_tokens"].map(|key| write[key].as_u64()), [2, 200, 20].map(Some));
    assert!(write["first_word_ms"].is_u64() && write["ms"].as_u64() >= write["first_word_ms"].as_u64(), "{write}");
    let personas = told["personas"].as_array().expect("a list");
    let fit = |role: &str| {
        personas.iter().find(|fit| fit["role"] == role).map(|fit| (fit["right"].clone(), fit["of"].clone()))
    };
    assert_eq!(fit("researcher"), Some((9.into(), 10.into())), "it changes no files");
    assert_eq!(fit("scribe"), Some((12.into(), 14.into())));

    let human = project.posse(&["model", "test", "--bench"]).ok();
    for words in ["✗  hostile", "✓  lookup", "(mock) did 12 of 14 right", "60 to 96 %", "researcher 9 of 10"] {
        assert!(human.out.contains(words), "{words}: {}", human.out);
    }
    assert!(is_empty(&folder), "the tasks' files are gone");
    assert!(!project.path().join(".posse/posse.db").exists(), "no job was anybody's");
}

#[test]
fn a_model_that_cannot_be_asked_ends_it() {
    let server = ModelServer::start(vec![Say::Refusal("401 Unauthorized", "no such key")]);
    let (project, folder) = project(&server);
    let told = project.posse(&["model", "test", "--bench"]).expect(1);
    assert!(told.err.contains("no such key") && told.err.contains("posse model test gets an answer"), "{}", told.err);
    assert!(is_empty(&folder) && told.out.is_empty(), "{}", told.out);
}

#[test]
fn whoever_has_enough_ends_it() {
    let server = ModelServer::start(vec![Say::Silence]);
    let (project, folder) = project(&server);
    let running = project.start(&["model", "test", "--bench"]);
    server.wait_for_requests(1);
    until("its folder is there", || !is_empty(&folder));
    running.interrupt();
    let told = running.wait().expect(130);
    assert!(is_empty(&folder), "{}", told.err);
    assert!(!told.err.contains("queue"), "{}", told.err);
}
