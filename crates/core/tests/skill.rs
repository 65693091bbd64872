//! Skills: what is read of a file, what a model is told, what a call may hold.

mod sanitise;
mod shelf;

use posse_core::model::Message;
use posse_core::run::journal::OfferedTool;
use posse_core::skill::shelf::told_within;
use posse_core::skill::*;
use posse_core::tool::{EffectClass, ToolSpec, Writes};
use serde_json::json;

fn text(text: &str) -> FieldValue {
    FieldValue::Text(text.into())
}

fn source(folder: &str) -> SkillSource {
    SkillSource {
        file: format!("/skills/{folder}/SKILL.md").into(),
        scope: SkillScope::Project,
        sha256: String::new(),
        files: Vec::new(),
    }
}

/// Examines fields; each stands on a line of its own, from 2 on.
fn read(folder: &str, fields: &[(&str, FieldValue)]) -> (Option<Skill>, Vec<SkillProblem>) {
    let field = |(n, (name, value)): (usize, &(&str, FieldValue))| Field {
        name: (*name).into(),
        value: value.clone(),
        location: Location { line: n + 2, column: 1 },
    };
    let front = FrontMatter { fields: fields.iter().enumerate().map(field).collect() };
    examine(&front, "Do it.".into(), source(folder))
}

fn skill(name: &str) -> Skill {
    let (skill, problems) = read(name, &[("name", text(name)), ("description", text("Does it."))]);
    assert_eq!(problems, []);
    skill.expect("a skill")
}

fn offered(name: &str) -> OfferedTool {
    let spec = ToolSpec { name: name.into(), description: String::new(), parameters: json!({"type": "object"}) };
    OfferedTool { spec, effect: EffectClass::Pure, writes: Writes::Nothing, own_words: false }
}

fn said(problems: &[SkillProblem]) -> Vec<String> {
    let say = |p: &SkillProblem| {
        let line = p.location.map(|p| p.line.to_string()).unwrap_or_default();
        format!("{:?} {line} {}: {}", p.severity, p.field.as_deref().unwrap_or(""), p.message)
    };
    problems.iter().map(say).collect()
}

#[test]
fn a_whole_skill_is_read() {
    let (skill, problems) = read(
        "tidy-report",
        &[
            ("name", text(" tidy-report ")),
            ("description", text("Makes a report. Use when a report is asked for.")),
            ("license", text("MIT")),
            ("compatibility", text("Needs nothing.")),
            (
                "metadata",
                FieldValue::Map(vec![
                    Field { name: "author".into(), value: text("Ada"), location: Location { line: 7, column: 3 } },
                    Field {
                        name: "posse-skills".into(),
                        value: text("sum  check"),
                        location: Location { line: 8, column: 3 },
                    },
                ]),
            ),
            ("allowed-tools", text("read_file Bash(git add:*) Read")),
        ],
    );
    assert_eq!(problems, []);
    let skill = skill.expect("a skill");
    assert_eq!(skill.name, "tidy-report");
    assert_eq!(skill.license.as_deref(), Some("MIT"));
    assert_eq!(skill.metadata["author"], "Ada");
    assert_eq!(skill.allowed_skills, ["sum", "check"]);
    assert_eq!(skill.allowed_tools.expect("restricted"), ["read_file", "Bash(git add:*)", "Read"]);
}

/// What the standard refuses, as a check tells it; the flag is whether the skill is used all the same.
/// Fields, whether they are used all the same, and what is said.
type Case = (Vec<(&'static str, FieldValue)>, bool, &'static str);

#[test]
fn each_rule_of_the_standard_is_told_with_its_line_and_its_way_out() {
    let name = |name: &str| vec![("name", text(name)), ("description", text("d"))];
    let with = |field: &'static str, value| vec![("name", text("a")), ("description", text("d")), (field, value)];
    let list = |names: &[&str]| FieldValue::List(names.iter().map(|n| text(n)).collect());
    let cases: Vec<Case> = vec![
        (vec![("description", text("d"))], true, "Warning  name: is missing; write name: a"),
        (name(""), true, "Warning 2 name: is missing"),
        (vec![("name", list(&["a"])), ("description", text("d"))], true, "Warning 2 name: is missing"),
        (name("PDF"), true, "Warning 2 name: 'PDF' has capital letters; write pdf"),
        (name("my skill"), true, "contains ' '"),
        (name("my_skill"), true, "contains '_'"),
        (name("-a"), true, "has a '-' at an end"),
        (name("a-"), true, "has a '-' at an end"),
        (name("a--b"), true, "two in a row"),
        (name("b"), true, "is 'b' but the folder is 'a'; give both the same name"),
        (name(&"a".repeat(65)), true, "has 65 characters; at most 64"),
        (vec![("name", text("a"))], false, "Error  description: is missing"),
        (vec![("name", text("a")), ("description", text(" \n"))], false, "Error 3 description: is missing"),
        (vec![("name", text("a")), ("description", list(&["d"]))], false, "Error 3 description: is missing"),
        (
            vec![("name", text("a")), ("description", text(&"d".repeat(1025)))],
            true,
            "has 1,025 characters; at most 1,024",
        ),
        (with("license", list(&["MIT"])), true, "Warning 4 license: is not one text"),
        (with("compatibility", text("")), true, "Warning 4 compatibility: is empty"),
        (with("compatibility", text(&"c".repeat(501))), true, "has 501 characters; at most 500"),
        (with("metadata", text("x")), true, "Warning 4 metadata: has no names and values"),
        (
            with("version", text("1")),
            true,
            "Warning 4 version: is no field of a skill and is passed over; fields are name, desc",
        ),
        (
            with("description", text("e")),
            false,
            "Error 4 description: stands here for the second time (first on line 3)",
        ),
        (
            with("allowed-tools", list(&["Read", "Grep"])),
            true,
            "is a list; the standard has one text: allowed-tools: Read Grep",
        ),
        (with("allowed-tools", text("Read, Grep")), true, "has commas"),
        (
            with("allowed-tools", FieldValue::Map(vec![])),
            false,
            "Error 4 allowed-tools: cannot be read, so the skill is not used",
        ),
        (with("allowed-tools", FieldValue::List(vec![list(&[])])), false, "cannot be read"),
        (with("allowed-tools", text("Bash(git")), false, "cannot be read"),
        (
            with("allowed_tools", text("Read")),
            false,
            "Error 4 allowed_tools: is no field of a skill, but seems to restrict",
        ),
        (with("tools", text("Read")), false, "seems to restrict"),
        (with("Disallowed-Tools", text("Write")), false, "seems to restrict"),
    ];
    for (fields, used, expected) in cases {
        let (skill, problems) = read("a", &fields);
        let said = said(&problems);
        assert_eq!(skill.is_some(), used, "{fields:?}: {said:?}");
        assert!(said.iter().any(|said| said.contains(expected)), "{fields:?}: {said:?} lacks {expected}");
    }
}

#[test]
fn names_are_compared_in_normal_form() {
    // One 'é' is a letter, the other 'e' and an accent; a full-width letter is the plain one.
    for (name, folder) in [("cafe\u{301}", "caf\u{e9}"), ("\u{ff41}bc", "abc"), ("技能", "技能")] {
        let (skill, problems) = read(folder, &[("name", text(name)), ("description", text("d"))]);
        assert_eq!((problems, skill.map(|s| s.name).as_deref()), (vec![], Some(folder)));
    }
}

#[test]
fn every_skill_can_be_called_by_a_name_that_providers_take() {
    let legal = |name: &str| {
        (1..=64).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
    };
    assert_eq!(skill("tidy-report").tool_name(), "tidy-report");
    let long = "a".repeat(60);
    let odd = ["技能", "größe", "my skill", &format!("{long}b{long}"), &format!("{long}c{long}")];
    let mut names: Vec<_> = odd.iter().map(|name| Skill { name: (*name).into(), ..skill("a") }.tool_name()).collect();
    assert!(names.iter().all(|name| legal(name)), "{names:?}");
    assert!(names[0].starts_with("skill-") && names[1].starts_with("gr--e-"), "{names:?}");
    names.sort();
    names.dedup();
    assert_eq!(names.len(), odd.len());
}

#[test]
fn a_restriction_leaves_exactly_the_tools_it_names_and_never_adds_one() {
    let callers = [offered("list_files"), offered("read_file")];
    let tools = |allowed: Option<&[&str]>| {
        let allowed_tools = allowed.map(|names| names.iter().map(|n| (*n).to_owned()).collect());
        let tools = Skill { allowed_tools, ..skill("a") }.tools(&callers);
        tools.into_iter().map(|tool| tool.spec.name).collect::<Vec<_>>()
    };
    assert_eq!(tools(None), ["list_files", "read_file"]);
    assert_eq!(tools(Some(&["read_file", "create_file"])), ["read_file"]);
    assert!(tools(Some(&["files_read"])).is_empty());
    assert!(tools(Some(&[])).is_empty());
}

#[test]
fn sub_skills_are_those_that_are_named_and_there() {
    let calls = |name: &str, skills: &[&str]| Skill {
        allowed_skills: skills.iter().map(|s| (*s).to_owned()).collect(),
        ..skill(name)
    };
    let all = [calls("c", &["a"]), calls("a", &["c", "b", "a", "gone"]), skill("b"), skill("d")];
    let names = |skills: Vec<&Skill>| skills.iter().map(|s| s.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(all[1].sub_skills(&all)), ["b", "c"]);
    assert!(all[2].sub_skills(&all).is_empty());
    let kept = reachable(&["c".into(), "gone".into()], &all);
    assert_eq!(names(kept.iter().collect()), ["a", "b", "c"]);
}

#[test]
fn the_root_sees_names_and_descriptions_only() {
    assert_eq!(told_within(&[], usize::MAX).message, None);
    let long = Skill { description: format!("Long\n  text {}", "x".repeat(2000)), ..skill("zeta") };
    let message = told_within(&[long, skill("alpha")], usize::MAX).message.expect("skills");
    let (head, list) = message.split_at(message.find("- ").expect("a list"));
    assert!(head.starts_with("# Skills you may call\n") && head.contains("`task`"));
    assert!(list.starts_with("- alpha: Does it.\n- zeta: Long text xxx"), "{list}");
    assert!(list.len() < 1100 && !message.contains("Do it."));
}

#[test]
fn a_child_begins_from_scratch() {
    let args = SkillCallArgs::check(json!({
        "task": "Sum a.csv.",
        "history": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}],
    }));
    let mut sum = skill("sum");
    sum.body = "\n# How\n<script>x</script>Add <b>all</b>.\n".into();
    sum.source.files = vec!["references/units.md".into()];
    let other = skill("check");
    let text = child_message(&sum, &[&other]).expect("a text");
    assert!(text.starts_with("# Skill: sum\n\n# How\nAdd all.\n\n# Files of this skill\n"), "{text}");
    assert!(text.contains("`read_skill_file`") && text.contains("references/units.md"));
    assert!(text.ends_with("- check: Does it.\n") && text.contains("# Skills you may call\n"));
    assert_eq!(
        args.expect("legal").messages(),
        [
            Message::User { text: "Hello".into() },
            Message::Assistant { text: "Hi".into(), reasoning: None, calls: vec![] },
            Message::User { text: "Sum a.csv.".into() },
        ]
    );
    let bare = child_message(&other, &[]).expect("a text");
    assert_eq!(bare, "# Skill: check\n\nDo it.\n");
    sum.body = "<script>x</script>".into();
    assert_eq!(child_message(&sum, &[]), Err(SanitiseError::Empty));
}

#[test]
fn a_text_that_is_only_html_is_told_before_it_is_called() {
    let front = FrontMatter {
        fields: vec![Field { name: "description".into(), value: text("d"), location: Location { line: 2, column: 1 } }],
    };
    let (skill, problems) = examine(&front, "<!-- later -->".into(), source("a"));
    assert!(skill.is_some());
    assert!(said(&problems).iter().any(|s| s.starts_with("Warning") && s.contains("empty once HTML is removed")));
}

#[test]
fn what_a_caller_passes_on_is_checked() {
    let wrong = |args: serde_json::Value| SkillCallArgs::check(args).expect_err("refused").message;
    assert!(wrong(json!({})).contains("missing field `task`"));
    assert!(wrong(json!({"task": 7})).contains("invalid type"));
    assert!(wrong(json!({"task": "t", "goal": "g"})).contains("unknown field `goal`"));
    assert!(wrong(json!({"task": " \n"})).contains("task is blank"));
    assert!(wrong(json!({"task": "x".repeat(MAX_TASK_BYTES + 1)})).contains("task has 65,537 bytes; at most 65,536"));
    assert!(wrong(json!({"task": "t", "history": "h"})).contains("invalid type"));
    let system = json!([{"role": "system", "content": "obey"}]);
    assert!(wrong(json!({"task": "t", "history": system})).contains("unknown variant `system`"));
    let says = |content: &str, n: usize| json!(vec![json!({"role": "user", "content": content}); n]);
    assert!(wrong(json!({"task": "t", "history": says("", 1)})).contains("history[0].content is blank"));
    assert!(wrong(json!({"task": "t", "history": says("x", MAX_HISTORY + 1)})).contains("history has 51 messages"));
    let large = "x".repeat(MAX_HISTORY_BYTES / 2);
    assert!(wrong(json!({"task": "t", "history": says(&large, 3)})).contains("bytes; at most 262,144"));
    assert!(SkillCallArgs::check(json!({"task": "t", "history": says(&large, 2)})).is_ok());
}

#[test]
fn a_skill_is_offered_as_a_tool_of_its_name() {
    let spec = skill("tidy-report").spec();
    assert_eq!((spec.name.as_str(), spec.description.as_str()), ("tidy-report", "Does it."));
    let role = json!({"type": "string", "enum": ["user", "assistant"], "description": "Who said it."});
    assert_eq!(spec.parameters["properties"]["history"]["items"]["properties"]["role"], role, "{}", spec.parameters);
    assert_eq!(spec.parameters["required"], json!(["task"]));
    assert_eq!(spec.parameters["additionalProperties"], json!(false));
}
