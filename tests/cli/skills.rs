//! Skills from the command line: what is there, what is wrong, what personas may name.

use crate::support::{ModelServer, Project, Say};
use serde_json::{Value, json};

const TIDY: &str = "---\nname: tidy-report\ndescription: Makes a report. Use when: the user wants a summary, e.g. weekly numbers.\n\
                    allowed-tools: files_read\n---\nStep 1: read numbers.txt. Step 2: write nothing.\n";

#[test]
fn a_new_project_has_a_skill_that_a_persona_uses() {
    let project = Project::begun();
    let listed = project.posse(&["skill", "list"]).ok();
    assert!(listed.out.contains("summarise-files") && listed.out.contains("config/skills/summarise-files"));
    assert_eq!(listed.err, "");
    let json = project.posse(&["skill", "list", "--json"]).ok().json()["skills"].clone();
    assert_eq!(json[0]["allowed_tools"], json!(["list_files", "read_file", "create_file"]));
    assert_eq!((&json[0]["scope"], &json[0]["tool"]), (&"project".into(), &"summarise-files".into()));
    assert_eq!(json[0]["sha256"].as_str().map(str::len), Some(64));
    assert!(project.posse(&["skill", "check"]).ok().out.contains("✓  summarise-files"));
    assert!(project.posse(&["persona", "show", "scribe"]).ok().out.contains("summarise-files"));
    // Without a project the same one is built in.
    let bare = Project::empty();
    assert!(bare.posse(&["skill", "list"]).ok().out.contains("built in"));
    bare.posse(&["persona", "check"]).ok();
}

#[test]
fn a_skill_that_is_read_leniently_is_loud_and_keeps_its_restriction() {
    let project = Project::begun();
    project.write("config/skills/tidy-report/SKILL.md", TIDY);
    let where_ = "config/skills/tidy-report/SKILL.md:3:38: description has an unquoted ': ' in its value";
    let listed = project.posse(&["skill", "list"]).ok();
    assert!(listed.err.contains(where_), "{}", listed.err);
    let row = listed.out.lines().find(|line| line.starts_with("tidy-report")).expect("listed").to_owned();
    assert!(row.contains("files_read") && row.contains("Makes a report. Use when: the user"), "{row}");
    assert!(listed.out.contains("summarise-files"));

    let checked = project.posse(&["skill", "check"]).expect(2);
    assert!(checked.out.contains(&format!("!  {where_}")), "{}", checked.out);
    assert!(checked.out.contains("Write description: 'Makes a report. Use when: the user wants"));
    assert!(checked.out.contains("'files_read', which is no tool here"), "{}", checked.out);
    assert!(
        checked.out.contains("✓  summarise-files") && checked.err.contains("2 problems found; 2 skills can be used")
    );
    let json = project.posse(&["skill", "check", "--json"]).expect(2).json();
    let first = &json["problems"][0];
    assert_eq!((&first["line"], &first["column"], &first["severity"]), (&3.into(), &38.into(), &"warning".into()));
    project.posse(&["skill", "check", "config/skills/summarise-files"]).ok();
    project.posse(&["skill", "check", "config/skills/summarise-files", "config/skills/tidy-report/SKILL.md"]).expect(2);
    project.posse(&["skill", "check", "nowhere"]).expect(3);
}

#[test]
fn a_skill_is_shown_as_an_agent_is_given_it() {
    let project = Project::begun();
    let text = "---\nname: links\ndescription: Checks links.\nmetadata:\n  posse-skills: summarise-files\n---\n\
                # Links\n<script>alert(1)</script>\nUse `<a>`, <b>always</b>.\n\u{1b}[2J\n";
    project.write(".agents/skills/links/SKILL.md", text);
    project.write(".agents/skills/links/references/list.md", "x");
    let shown = project.posse(&["skill", "show", "links"]).ok().out;
    for words in ["as its caller", "summarise-files", "references/list.md", "# Links", "Use `<a>`, always."] {
        assert!(shown.contains(words), "{words} is not in {shown}");
    }
    assert!(!shown.contains("alert") && !shown.contains('\u{1b}'));
    let json = project.posse(&["skill", "show", "links", "--json"]).ok().json();
    assert_eq!(
        (&json["name"], &json["tool"], &json["source"]["scope"]),
        (&"links".into(), &"links".into(), &"project".into())
    );
    let unknown = project.posse(&["skill", "show", "link"]).expect(3).err;
    assert!(unknown.contains("there is no skill 'link'; did you mean links?"), "{unknown}");
    project.write("config/skills/broken/SKILL.md", "---\nname: broken\n---\nx");
    let broken = project.posse(&["skill", "show", "broken"]).expect(3).err;
    assert!(broken.contains("description is missing"), "{broken}");
}

#[test]
fn personas_name_only_skills_and_hooks_that_are_there() {
    let project = Project::begun();
    let persona = |fields: &str| {
        project.write("config/personas/a.json", format!("{{\"role\": \"a\", \"goal\": \"g\",\n{fields}}}"));
        project.posse(&["persona", "check"])
    };
    for good in [r#""skills": ["summarise-files"]"#, r#""skills": ["*"]"#, r#""hooks": ["project_rules"]"#] {
        persona(good).ok();
    }
    for (bad, said) in [
        (r#""skills": ["summarize-files"]"#, "a.json:2: skills names 'summarize-files', but there is no skill"),
        (r#""skills": ["*", "summarise-files"]"#, "a.json:2: skills has '*', which is all skills, beside names"),
        (r#""skills": ["summarise-files", "summarise-files"]"#, "skills names 'summarise-files' twice"),
        (r#""hooks": ["project_rulez"]"#, "a.json:2: hooks names 'project_rulez', but there is no hook"),
    ] {
        let checked = persona(bad).expect(2);
        assert!(checked.out.contains(said), "{said} is not in {}", checked.out);
    }
}

#[test]
fn a_run_tells_what_is_wrong_with_the_skills_it_has_and_no_others() {
    let server = ModelServer::start(vec![Say::Call("finish", json!({"final_summary": "Done"}))]);
    let project = Project::with_model(&server);
    for name in ["mine", "other"] {
        let text = format!("---\nname: {name}\ndescription: Looks.\nflavour: odd\n---\nLook.\n");
        project.write(&format!("config/skills/{name}/SKILL.md"), text);
    }
    project.write("config/personas/a.json", r#"{"role": "a", "goal": "g", "skills": ["mine"]}"#);
    let told = project.posse(&["run", "--role", "a", "look"]).ok().err;
    assert!(told.contains("mine/SKILL.md") && told.contains("flavour"), "{told}");
    assert!(!told.contains("other/SKILL.md"), "{told}");
}

#[test]
fn an_agent_with_the_hook_is_told_the_rules_of_the_project() {
    let server = ModelServer::start(vec![Say::Call("finish", json!({"final_summary": "Bonjour"}))]);
    let project = Project::with_model(&server);
    project.write("AGENTS.md", "Answer in French.\n");
    let persona = r#"{"role": "a", "goal": "g", "hooks": ["project_rules"]}"#;
    project.write("config/personas/a.json", persona);
    project.posse(&["run", "--role", "a", "greet"]).ok();
    let requests = server.requests();
    let system = |request: &Value| request["messages"][0]["content"].as_str().unwrap_or_default().to_owned();
    let told = |request| system(request).ends_with("# Rules of this project (AGENTS.md)\nAnswer in French.\n");
    // What a model can do is asked of it before; that is not the run.
    assert!(requests.iter().any(told), "{requests:#?}");
}

#[test]
fn what_will_surprise_somebody_about_a_persona_is_said() {
    let project = Project::begun();
    let persona =
        r#"{"role": "writer", "goal": "Write about {topic}.", "backstory": "You are {{ name }}.", "skills": ["*"]}"#;
    project.write("config/personas/writer.json", persona);
    project.write("config/personas/editor.yaml", "role: editor\n");
    project.write("config/personas/critic.md", "# Critic\n");
    project.write("config/personas/README.md", "What is here.\n");
    for n in 0..100 {
        let text = format!("---\nname: skill-{n}\ndescription: {}\n---\n\nDo it.\n", "x".repeat(900));
        project.write(&format!("config/skills/skill-{n}/SKILL.md"), text);
    }
    let expected = [
        "writer.json:1: goal holds {topic}, which nothing fills in",
        "backstory holds {{ name }}, which nothing fills in",
        "editor.yaml: is not read: a persona is a JSON file",
        "critic.md: is not read: a persona is a JSON file",
        "and a quarter of the model's window, go to skills",
        "find others with find_skills",
    ];
    let checked = project.posse(&["persona", "check"]);
    let listed = project.posse(&["persona", "list"]);
    let doctor = project.posse(&["doctor", "--json"]);
    for words in expected {
        assert!((checked.out.clone() + &checked.err).contains(words), "{words}: {}{}", checked.out, checked.err);
        assert!(listed.err.contains(words), "{words}: {}", listed.err);
        assert!(doctor.out.contains(words), "{words}: {}", doctor.out);
    }
    assert!(!listed.err.contains("README"), "{}", listed.err);
    assert!(listed.out.contains("writer"), "it works all the same: {}", listed.out);
}
