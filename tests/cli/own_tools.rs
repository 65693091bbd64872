//! Tools of a project's own, `config/tools/NAME.toml`, checked, tried and called by agents through the binary.

use crate::support::{ModelServer, Project, Say};
use serde_json::{Value, json};

const ECHO: &str = r#"
description = "Says what it was given."
command = 'cat; echo; echo "key=$POSSE_EFFECT_KEY job=$POSSE_JOB path=$ARG_path n=$ARG_n"; echo noise >&2; cat /tool/help.txt; echo " $SHOWN/$HIDDEN."'
effect = "idempotent"
[sandbox]
files = ["help.txt"]
environment = ["SHOWN"]
[parameters]
type = "object"
required = ["path"]
additionalProperties = false
properties.path = { type = "string", description = "A path." }
properties.n = { type = "integer", description = "A number." }
"#;

fn project() -> Project {
    let mut project = Project::begun();
    project.set("SHOWN", "yes");
    project.set("HIDDEN", "no");
    project.write("config/tools/echo.toml", ECHO);
    project.write("config/tools/help.txt", "how to");
    project
}

/// A tool with this command, and what else its file says.
fn tool(project: &Project, name: &str, command: &str, more: &str) {
    let command = json!(command);
    project.write(&format!("config/tools/{name}.toml"), format!("description = \"d\"\ncommand = {command}\n{more}\n"));
}

#[test]
fn a_tool_gets_its_arguments_and_gives_what_it_says() {
    let mut project = project();
    let run = |arguments: &str| project.posse(&["tool", "run", "echo", arguments]);
    let hostile = "a'; echo injected; $(touch x) \"`id`\"\n";
    let arguments = json!({"path": hostile, "n": 7}).to_string();
    let said = run(&arguments).ok().out;
    assert!(said.starts_with(&arguments), "{said}");
    assert!(
        said.contains(" job=0 path=a'; echo injected;") && said.contains("n=7") && said.contains("how to yes/."),
        "{said}"
    );
    assert!(!said.contains("noise") && !said.contains("key= "), "{said}");
    assert!(!project.path().join("x").exists());
    let refused = run(r#"{"path": 7, "m": 1}"#).expect(2);
    assert!(refused.err.contains("path") && refused.err.contains('m'), "{}", refused.err);

    let shown = project.posse(&["tool", "show", "echo", "--json"]).ok().json();
    assert_eq!((&shown["pack"], &shown["effect"]), (&"project".into(), &"idempotent".into()));

    // Where the variable is not set there is no such tool, and why is said.
    project.unset("SHOWN");
    assert!(project.posse(&["tool", "show", "echo"]).expect(3).err.contains("there is no tool 'echo'"));
    let wrong = project.posse(&["tool", "check"]).expect(2);
    assert!(wrong.out.contains("echo.toml: environment names SHOWN, which is not set here"), "{}", wrong.out);
}

#[test]
fn a_tools_file_is_told_what_is_wrong_with_it() {
    let project = Project::begun();
    for (name, text, wrong) in [
        ("a", "description = \"d\"\ncommand = \"x\"\ncomand = 1\n", "a.toml:3: unknown field 'comand'"),
        ("b", "description = \"\"\ncommand = \"x\"\n", "description must say"),
        ("c", "description = \"d\"\ncommand = \" \"\n", "command is empty"),
        ("d", "description = \"d\"\ncommand = \"x\"\neffect = \"never\"\n", "d.toml:3: unknown variant 'never'"),
        ("e", "description = \"d\"\ncommand = \"x\"\n[parameters]\ntype = \"string\"\n", "not of type object"),
        ("f", "description = \"d\"\ncommand = \"x\"\n[sandbox]\nfiles = [\"../posse.toml\"]\n", "name files right in"),
        (
            "g",
            "description = \"d\"\ncommand = \"x\"\n[sandbox]\nfiles = [\"gone.sh\"]\n",
            "files names 'gone.sh', which cannot be read",
        ),
        (
            "h",
            "description = \"d\"\ncommand = \"x\"\n[sandbox]\nseconds = 0\n",
            "seconds is 0; it must lie between 1 and 86400",
        ),
        (
            "i",
            "description = \"d\"\ncommand = \"x\"\n[sandbox]\nenvironment = [\"A B\"]\n",
            "'A B', which is no name of a variable",
        ),
        ("read_file", "description = \"d\"\ncommand = \"x\"\n", "there is a tool or a pack named 'read_file' already"),
        ("j k", "description = \"d\"\ncommand = \"x\"\n", "'j k' is no name"),
        ("l", "not toml", "l.toml:1: "),
    ] {
        project.write(&format!("config/tools/{name}.toml"), text);
        let checked = project.posse(&["tool", "check"]).expect(2);
        assert!(checked.out.contains(wrong), "{name}: {}", checked.out);
    }
    let checked = project.posse(&["tool", "check", "--json"]).expect(2).json();
    assert_eq!(checked["problems"].as_array().map(Vec::len), Some(12), "{checked}");
    assert_eq!(checked["tools"], json!(["count_lines"]), "the one that posse init writes is right");
    let listed = project.posse(&["tool", "list"]).ok();
    assert!(listed.out.contains("count_lines") && listed.err.contains("a.toml:3"), "{} {}", listed.out, listed.err);
    let counted = project.posse(&["tool", "run", "count_lines", r#"{"path": "examples/expenses.csv"}"#]).ok().out;
    assert!(counted.contains("examples/expenses.csv"), "{counted}");
}

#[test]
fn a_tool_is_confined_and_bounded() {
    let project = Project::begun();
    project.write("config/tools/secret.txt", "s3cret");
    tool(&project, "reader", "echo x > new; cat .posse/posse.db; exit 0", "effect = \"pure\"");
    tool(&project, "writer", "echo x > new; echo y > config/tools/more.toml; env", "");
    tool(&project, "sleeper", "sleep 60", "[sandbox]\nseconds = 1");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let connect = format!("import socket; print(socket.socket().connect_ex(('127.0.0.1', {port})) == 0)");
    let connect = format!("python3 -c \"{connect}\"");
    tool(&project, "alone", &connect, "");
    tool(&project, "connected", &connect, "[sandbox]\nnetwork = true");
    tool(&project, "failing", "echo out; echo why >&2; exit 3", "");
    tool(&project, "flood", "head -c 10000000 /dev/zero | tr '\\0' x", "");
    project.posse(&["enqueue", "--role", "scribe", "x"]).ok();
    let run = |name: &str| project.posse(&["tool", "run", name]);
    assert!(!run("reader").out.contains("SQLite"), "the database is not seen");
    assert!(!project.path().join("new").exists(), "one that says it only reads can do nothing else");
    let environment = run("writer").ok().out;
    assert!(project.path().join("new").exists() && !project.path().join("config/tools/more.toml").exists());
    assert!(environment.contains("POSSE_EFFECT_KEY=") && !environment.contains("POSSE_TRUST"), "{environment}");
    assert!(run("sleeper").expect(1).err.contains("timed out after 1 s"));
    assert!(run("failing").expect(1).err.contains("exit code 3"));
    let flood = run("flood").ok().out;
    assert!(flood.len() < 40_000 && flood.contains("left out"), "{}", flood.len());
    assert_eq!((run("alone").ok().out.trim(), run("connected").ok().out.trim()), ("False", "True"));
}

#[test]
fn agents_call_tools_of_the_project() {
    let server = ModelServer::start(vec![
        Say::Call("shout", json!({"word": "wool"})),
        Say::Call("finish", json!({"final_summary": "WOOL"})),
    ]);
    let project = Project::with_model(&server);
    let more = "[parameters]\ntype = \"object\"\nproperties.word = { type = \"string\", description = \"A word.\" }";
    tool(&project, "shout", "echo \"$ARG_word $POSSE_ROLE $POSSE_JOB\" | tr a-z A-Z", more);
    let persona = json!({"role": "crier", "goal": "Shouts.", "tools": ["shout"]});
    project.write("config/personas/crier.json", persona.to_string());
    project.posse(&["persona", "check"]).ok();
    project.posse(&["run", "--role", "crier", "Shout wool"]).ok();
    let document: Value = project.posse(&["show", "1", "--json"]).ok().json();
    let journal = document["journal"].as_array().expect("a journal");
    let ended = journal.iter().find(|entry| entry["kind"] == "call_ended").expect("it was called");
    assert_eq!(ended["text"], "WOOL CRIER 1\n");
}

#[test]
fn nobodys_folder_has_no_tools_of_its_own() {
    let project = Project::empty().untrusted();
    tool(&project, "shout", "echo", "");
    assert!(!project.posse(&["tool", "list"]).out.contains("shout"));
}
