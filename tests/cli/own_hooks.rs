//! Hooks of a project's own, `config/hooks/NAME.toml`, through the binary.

use crate::support::{ModelServer, Project, Say};
use serde_json::{Value, json};

fn crier(project: &Project, hooks: &[&str]) {
    let persona = json!({"role": "crier", "goal": "Shouts.", "tools": ["calculate", "list_files"], "hooks": hooks});
    project.write("config/personas/crier.json", persona.to_string());
}

/// The settings of a model that is asked in the usual way, without a look at what it can do.
fn model(name: &str, server: &ModelServer) -> String {
    let url = &server.base_url;
    format!("[models.{name}]\nbase_url = \"{url}\"\napi_key_env = \"\"\nmodel = \"m\"\ntool_calling = \"native\"\n")
}

fn says(text: &str) -> ModelServer {
    ModelServer::start(vec![Say::Call("finish", json!({"final_summary": text}))])
}

fn offered(request: &Value) -> Vec<&str> {
    let tools = request["tools"].as_array().expect("tools");
    tools.iter().map(|tool| tool["function"]["name"].as_str().expect("a name")).collect()
}

#[test]
fn hooks_change_what_a_run_begins_with_in_their_order() {
    let server = says("done");
    let project = Project::with_model(&server);
    project.write("config/posse.toml", format!("default_model = \"first\"\n{}", model("first", &server)));
    crier(&project, &["house", "more", "today"]);
    project.write(
        "config/hooks/house.toml",
        "[set]\ntools = { add = [\"read_file\"], remove = [\"list_files\"], describe = { calculate = \"Only sums.\" } }\n\
         [[set.system]]\nheading = \"House rules\"\ntext = \"Be brief.\"\n",
    );
    // It is told what the one before left, and says what else changes.
    let command = r#"input=$(cat); echo "$input" > /tmp/in; touch never 2>/dev/null
printf '{"tools": {"add": ["search_files"]}, "system": [{"heading": "More\\nrules", "text": "%s"}]}' \
  "$(grep -o '"tools":\[[^]]*\]' /tmp/in | tr -d '"')""#;
    project.write("config/hooks/more.toml", format!("command = '''{command}'''\n"));
    project.posse(&["hook", "check"]).ok();
    project.posse(&["persona", "check"]).ok();
    project.posse(&["run", "--role", "crier", "Shout wool"]).ok();
    let requests = server.requests();
    let request = requests.first().expect("it was asked");
    assert_eq!(offered(request), ["calculate", "finish", "read_file", "search_files"]);
    let system = request["messages"][0]["content"].as_str().expect("a system message");
    let rules = "\n# House rules\nBe brief.\n\n# More rules\ntools:[calculate,read_file]\n\n# The day\nToday is ";
    assert!(system.contains(rules), "{system}");
    assert!(request["tools"].to_string().contains("Only sums."), "{}", request["tools"]);
    assert!(!project.path().join("never").exists(), "before a run nothing can be changed");
}

#[test]
fn a_hook_names_the_model() {
    let (server, other) = (says("from the first"), says("from the other"));
    let project = Project::with_model(&server);
    let models = model("first", &server) + &model("other", &other);
    project.write("config/posse.toml", format!("default_model = \"first\"\n{models}"));
    project.write("config/hooks/cheap.toml", "[set]\nmodel = \"other\"\n");
    crier(&project, &["cheap"]);
    project.posse(&["run", "--role", "crier", "Shout wool"]).ok();
    assert_eq!((server.requests().len(), other.requests().len()), (0, 1));
}

#[test]
fn a_hook_hears_how_a_run_ended_and_its_failure_is_noted() {
    let server = says("the answer");
    let project = Project::with_model(&server);
    crier(&project, &["tell", "fail", "also"]);
    project.write(
        "config/hooks/tell.toml",
        "command = 'cat > heard.json; echo \"$POSSE_EFFECT_KEY\" > key'\nwhen = [\"after_run\"]\n",
    );
    project.write("config/hooks/fail.toml", "command = 'echo no >&2; exit 3'\nwhen = [\"after_run\"]\n");
    project.write("config/hooks/also.toml", "command = 'touch also'\nwhen = [\"after_run\"]\n");
    project.posse(&["run", "--role", "crier", "Shout wool"]).ok();
    let heard: Value =
        serde_json::from_slice(&std::fs::read(project.path().join("heard.json")).expect("heard")).expect("JSON");
    assert_eq!((&heard["event"], &heard["job"], &heard["role"]), (&"after_run".into(), &1.into(), &"crier".into()));
    assert_eq!((&heard["goal"], &heard["output"]["text"]), (&"Shout wool".into(), &"the answer".into()));
    assert_eq!(std::fs::read_to_string(project.path().join("key")).expect("a key").trim().len(), 32);
    assert!(project.path().join("also").exists(), "one hook's failure is no other's");
    let shown = project.posse(&["show", "1"]).ok().out;
    assert!(shown.contains("the hook 'fail' failed: exit code 3") && shown.contains("[hook_failed]"), "{shown}");
    assert_eq!(project.posse(&["show", "1", "--json"]).ok().json()["job"]["state"], "completed");
}

#[test]
fn a_hook_that_cannot_be_followed_keeps_the_run_from_beginning() {
    for (said, why) in [
        ("echo '{\"modell\": 1}'", "unknown field"),
        ("echo '{\"tools\": {\"add\": [\"none_such\"]}}'", "there is no tool or pack 'none_such'"),
        ("exit 1", "the hook 'bad' failed: exit code 1"),
        ("sleep 60", "timed out after 1 s"),
    ] {
        let server = says("x");
        let project = Project::with_model(&server);
        project.write("config/hooks/bad.toml", format!("command = {}\n[sandbox]\nseconds = 1\n", json!(said)));
        crier(&project, &["bad"]);
        project.posse(&["run", "--role", "crier", "--retry", "none", "Shout wool"]).expect(1);
        let shown = project.posse(&["show", "1"]).ok().out;
        assert!(shown.replace('\n', " ").contains(why), "{said}: {shown}");
        assert!(server.requests().is_empty());
    }
}

#[test]
fn a_hooks_file_is_told_what_is_wrong_with_it() {
    let project = Project::begun();
    for (name, text, wrong) in [
        ("a", "", "says nothing"),
        ("b", "[set]\nmodell = \"x\"\n", "b.toml:2: unknown field 'modell'"),
        ("c", "[set]\ntools = { add = [\"none_such\"] }\n", "there is no tool or pack 'none_such'"),
        ("d", "when = [\"after_run\"]\n[set]\nmodel = \"x\"\n", "when without a command"),
        ("e", "command = \"x\"\nwhen = []\n", "when is empty"),
        ("project_rules", "[set]\nmodel = \"x\"\n", "there is a hook named 'project_rules' already"),
    ] {
        project.write(&format!("config/hooks/{name}.toml"), text);
        let checked = project.posse(&["hook", "check"]).expect(2);
        assert!(checked.out.contains(wrong), "{name}: {}", checked.out);
    }
    let checked = project.posse(&["hook", "check", "--json"]).expect(2).json();
    assert_eq!(
        (checked["problems"].as_array().map(Vec::len), &checked["hooks"]),
        (Some(6), &json!(["project_rules", "today"]))
    );
    assert_eq!(project.posse(&["hook", "list", "--json"]).ok().json(), json!({"hooks": ["project_rules", "today"]}));
}
