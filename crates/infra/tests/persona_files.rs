//! Files of personas: what is read, and what is told of the rest.

use std::fs;
use std::os::unix::fs::symlink;

use posse_core::persona::{PersonaFileProblem, Personas, Severity};
use posse_infra::persona::{MAX_FILE_BYTES, load_all};
use serde_json::json;

fn load(files: &[(&str, &[u8])]) -> Personas {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).expect("written");
    }
    let mut loaded = load_all(folder.path()).expect("readable");
    for p in &mut loaded.problems {
        p.file = p.file.file_name().expect("a name").into();
        p.message = p.message.replace(&format!("{}/", folder.path().display()), "");
    }
    loaded
}

fn check(text: &str, expected: &str) {
    let loaded = load(&[("a.json", text.as_bytes())]);
    let said: Vec<_> = loaded.problems.iter().map(ToString::to_string).collect();
    assert!(loaded.personas.is_empty(), "{text}");
    assert!(said.join("\n").contains(expected), "{said:?} lacks {expected}");
}

#[test]
fn messages_name_file_line_field_and_the_way_out() {
    check("", "a.json: is empty; posse persona new");
    check("{\n\"role\": \"a\",\n}", "a.json:3: is no valid JSON: trailing comma");
    check("{\"role\": \"a\"", "is no valid JSON: EOF");
    check("{\"goal\": \"g\"}", "a.json: role is missing");
    check(
        "{\"role\":\"a\",\"goal\":\"g\",\n\"tolls\":[]}",
        "a.json:2: tolls is no field of a persona; did you mean tools?",
    );
    check("{\"role\":\"a\",\"goal\":\"g\",\"limits\":{\"turns\":1}}", "limits.turns is no field");
    let many = "{\"role\":\"a\",\"tolls\":[],\n\"temperature\":3,\"limits\":{\n\"max_turns\":\"many\",\n\"max_tokens\":-1,\"max_secs\":1}}";
    for words in [
        "a.json: goal is missing",
        "a.json:1: tolls is no field of a persona; did you mean tools?",
        "a.json:2: temperature is 3",
        "a.json:3: limits.max_turns is \"many\"; it must be a number from 1",
        "a.json:4: limits.max_tokens is -1; it must be a number from 1",
        "a.json:4: limits.max_secs is no field of limits",
    ] {
        check(many, words);
    }
    check(
        "{\"role\":\"a\",\"goal\":\"g\",\"limits\":{\"max_turns\":0}}",
        "limits.max_turns is 0, so nothing could run",
    );
    check("{\"role\":\"a\",\"goal\":\"g\",\"tools\":[\"x\",7]}", "tools[1] is 7; it must be a text");
    check(
        "{\"role\":\"a\",\"goal\":\"Say here in one sentence what a a is for.\"}",
        "goal is still what posse persona new wrote",
    );
    check("{\"role\":\"a\",\n\"goal\": 7}", "a.json:2: goal is 7; it must be a text");
    check("{\"role\":\"Big/Boss\",\"goal\":\"g\"}", "a.json:1: role 'big/boss' contains '/'");
    check("{\"role\":\"a\",\n\"goal\":\" \",\n\"temperature\":3}", "a.json:2: goal is empty");
    check("{\"role\":\"a\",\n\"goal\":\" \",\n\"temperature\":3}", "a.json:3: temperature is 3");
}

#[test]
fn a_persona_of_another_shape_is_read_and_noted() {
    let text = "{\"id\": \"reviewer-v1\",\n\"role\": \"Code  REVIEWER\",\n\"goal\": \"g\",\n\"backstory\": \"b\",\n\
                \"toolNames\": [\"filesystem\"]}";
    let loaded = load(&[("Code Reviewer.json", text.as_bytes())]);
    assert_eq!(loaded.roles(), ["code-reviewer"]);
    let persona = &loaded.get("CODE reviewer").expect("found as it is written").persona;
    assert_eq!((persona.tools.as_slice(), &persona.id), (&["filesystem".to_owned()][..], &None));
    let said: Vec<_> = loaded.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "Code Reviewer.json:2: role 'Code  REVIEWER' is read as 'code-reviewer': jobs are addressed to that",
            "Code Reviewer.json:1: id 'reviewer-v1' is read and means nothing: jobs are addressed to the role, \
             'code-reviewer'",
            "Code Reviewer.json:5: toolNames is read as 'tools'",
        ]
    );
    assert!(loaded.problems.iter().all(|p| p.severity == Severity::Note));
    let twice =
        load(&[("a.json", b"{\"role\": \"a\", \"goal\": \"g\"}"), ("b.json", b"{\"role\": \"A\", \"goal\": \"g\"}")]);
    assert_eq!(twice.roles(), ["a"], "two spellings are one role");
    assert!(twice.problems.iter().any(|p| p.severity == Severity::Error && p.message.contains("played by a.json")));
}

#[test]
fn one_broken_file_leaves_the_others_working() {
    let good = |role: &str| format!("\u{feff}{{\"role\": \"{role}\", \"goal\": \"g\"}}").into_bytes();
    let (a, b, huge) = (good("a"), good("b"), vec![b' '; MAX_FILE_BYTES as usize + 1]);
    let loaded = load(&[
        ("b.json", &b),
        ("a.json", &a),
        ("a2.json", &a),
        ("bin.json", b"\xff\xfe\0"),
        ("huge.json", &huge),
        ("notes.txt", b"x"),
        (".hidden.json", b"x"),
    ]);
    assert_eq!(loaded.roles(), ["a", "b"]);
    let said: Vec<_> = loaded.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "a2.json: role 'a' is played by a.json already, so this file is left out; give each file its own role",
            "bin.json: is not UTF-8 text (byte 0 is the first that is not); save it as UTF-8",
            "huge.json: has more than 262144 bytes, which is no persona; shorten it",
            "notes.txt: is not read: a persona is a JSON file, and its name ends in .json; posse persona new ROLE writes \
             one, posse persona schema says what it may hold",
        ]
    );
    let other_name = load(&[("chief.json", &a)]);
    assert_eq!(other_name.roles(), ["a"]);
    assert_eq!(other_name.problems[0].severity, Severity::Warning);
}

#[test]
fn links_are_followed_and_odd_files_never_hang() {
    let folder = tempfile::tempdir().expect("a folder");
    let real = folder.path().join("real");
    fs::write(&real, r#"{"role": "a", "goal": "g"}"#).expect("written");
    symlink(&real, folder.path().join("a.json")).expect("linked");
    symlink(folder.path().join("gone"), folder.path().join("gone.json")).expect("linked");
    fs::create_dir(folder.path().join("dir.json")).expect("made");
    let fifo = std::ffi::CString::new(folder.path().join("pipe.json").into_os_string().into_encoded_bytes());
    // SAFETY: the path is a valid C string for the length of the call.
    assert_eq!(unsafe { libc::mkfifo(fifo.expect("no NUL").as_ptr(), 0o600) }, 0);
    let loaded = load_all(folder.path()).expect("readable");
    assert_eq!(loaded.roles(), ["a"]);
    assert_eq!(loaded.problems.len(), 4, "what is no persona is said to be none");
    assert!(load_all(&folder.path().join("nowhere")).is_err());
}

#[test]
fn placeholders_are_known_and_braces_are_not() {
    for (text, expected) in [
        ("You write about {topic}.", &["{topic}"][..]),
        ("{a} and {{ b }}, ${c} for %(d)s", &["{a}", "{{ b }}", "${c}", "%(d)s"]),
        (
            "<%= name %> {% if x %} {user.name} {{date | short}}",
            &["<%= name %>", "{% if x %}", "{user.name}", "{{date | short}}"],
        ),
        ("Über {Thema}", &["{Thema}"]),
        ("Ask for `{id}` in the address.", &[]),
        ("Answer as {\"a\": 1} or {}.", &[]),
        ("a { b", &[]),
        ("{1, 2}", &[]),
        ("100 % (all) of it", &[]),
    ] {
        let persona = json!({"role": "a", "goal": "g", "backstory": text}).to_string();
        let loaded = load(&[("a.json", persona.as_bytes())]);
        let told = |p: &PersonaFileProblem| {
            let found = p.message.strip_prefix("holds ")?.split_once(", which nothing fills in")?.0;
            (p.severity == Severity::Warning && p.field.as_deref() == Some("backstory")).then(|| found.to_owned())
        };
        let told: Vec<_> = loaded.problems.iter().map(told).collect();
        assert_eq!(told, expected.iter().map(|found| Some((*found).to_owned())).collect::<Vec<_>>(), "{text}");
    }
}
