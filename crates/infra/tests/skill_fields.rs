//! The fields of a skill's file: what is no YAML, what is read all the same, and what is never lost.

use std::fs;

use posse_core::skill::{Location, Severity, Skill, SkillProblem};
use posse_infra::skill::load_path;
use posse_infra::tool::ToolRegistry;

/// What becomes of a skill's file with this text, and what is told of it.
fn read(text: &str) -> (Option<Skill>, Vec<SkillProblem>) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("SKILL.md");
    fs::write(&file, text).expect("written");
    let mut loaded = load_path(&file, &ToolRegistry::builtin()).expect("there");
    (loaded.skills.pop(), loaded.problems.into_iter().map(|problem| problem.problem).collect())
}

#[test]
fn every_plain_value_is_a_text() {
    let (skill, problems) = read(
        "---\n# a comment\nname: a\ndescription: d\nmetadata:\n  a: yes\n  b: 1.0\n  c: ~\n  d:\n  e: |\n    x: y\n  \
         f: \"q: r\"\n  g: 2026-01-01 # not this\nallowed-tools: [a, b]\nother: 1.0\nmore:\n  x: y\n---\nbody",
    );
    let skill = skill.expect("read");
    let values: Vec<_> = skill.metadata.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let wanted =
        [("a", "yes"), ("b", "1.0"), ("c", ""), ("d", ""), ("e", "x: y\n"), ("f", "q: r"), ("g", "2026-01-01")];
    assert_eq!(values, wanted);
    assert_eq!((skill.allowed_tools, skill.body.as_str()), (Some(vec!["a".to_owned(), "b".to_owned()]), "body"));
    let location = |field: &str| problems.iter().find(|problem| problem.field.as_deref() == Some(field))?.location;
    assert_eq!(location("other"), Some(Location { line: 15, column: 1 }));
    assert_eq!(location("more"), Some(Location { line: 16, column: 1 }));
    for nothing in ["", "# nothing\n"] {
        let (skill, problems) = read(&format!("---\n{nothing}---\nbody"));
        assert!(
            skill.is_none() && problems.iter().any(|problem| problem.field.as_deref() == Some("name")),
            "{problems:?}"
        );
    }
}

#[test]
fn what_cannot_be_read_is_told_with_its_place() {
    let cases = [
        ("", 1, "does not begin with a line of ---"),
        ("\n---\na: b\n---\n", 1, "does not begin"),
        ("---\na: b\n", 1, "has no second line of ---"),
        ("---\na: [b\n---\n", 3, "is no YAML that a skill may have"),
        ("---\na: &x b\n---\n", 2, "anchors (&) and tags (!)"),
        ("---\na: !!str b\n---\n", 2, "anchors (&) and tags (!)"),
        ("---\na: &x b\nc: *x\n---\n", 2, "anchors"),
        ("---\njust words\n---\n", 2, "no fields"),
        ("---\n- a\n---\n", 2, "no fields"),
        ("---\na: {b: {c: {d: {e: f}}}}\n---\n", 2, "too deep"),
        ("---\n? [a]\n: b\n---\n", 2, "must be a text"),
        ("---\na: \"never closed\n---\n", 2, "is no YAML"),
        ("---\na: b\n c: d\n---\n", 3, "is no YAML"),
        ("---\na: b: c\n  goes on\n---\n", 2, "is no YAML"),
    ];
    for (file, line, expected) in cases {
        let (skill, problems) = read(file);
        let [problem] = &problems[..] else { panic!("{file:?}: {problems:?}") };
        assert!(skill.is_none() && problem.severity == Severity::Error, "{file:?}: {problem:?}");
        assert_eq!(problem.location.map(|p| p.line), Some(line), "{file:?}: {problem:?}");
        assert!(problem.message.contains(expected), "{file:?}: {problem:?}");
    }
}

#[test]
fn the_rest_of_the_line_is_the_value_where_a_colon_was_not_quoted() {
    let (skill, problems) =
        read("---\nname: a\ndescription: It's so. Use when: asked, e.g. # now\nallowed-tools: x\n---\nbody: b: c");
    let skill = skill.expect("read");
    assert_eq!(skill.description, "It's so. Use when: asked, e.g. # now");
    assert_eq!((skill.allowed_tools, skill.body.trim()), (Some(vec!["x".to_owned()]), "body: b: c"));
    let unquoted: Vec<_> = problems.iter().filter(|problem| problem.message.contains("unquoted")).collect();
    let [problem] = &unquoted[..] else { panic!("{problems:?}") };
    assert_eq!(problem.location, Some(Location { line: 3, column: 31 }));
    assert!(problem.message.ends_with("Write description: 'It''s so. Use when: asked, e.g. # now'"));
    // Right values are not touched by the rule, and a text of several lines is not guessed at.
    let (skill, problems) = read("---\nlicense: b: c\ndescription: |\n  e: f: g\nname: 'a'\n---\nb");
    assert_eq!(skill.expect("read").description.trim(), "e: f: g");
    assert!(problems.iter().any(|problem| problem.message.ends_with("Write license: 'b: c'")), "{problems:?}");
}

#[test]
fn a_restriction_is_never_lost() {
    for lost in [
        "description: >\n  words\n  allowed-tools: x",
        "description: words\n  allowed-tools: x",
        "metadata:\n  allowed-tools: x",
        "metadata:\n  \"Allowed Tools\": x",
        "description: 'a\nallowed-tools: x'",
    ] {
        let (skill, problems) = read(&format!("---\nname: a\n{lost}\n---\nb"));
        assert!(skill.is_none() && problems.iter().any(|problem| problem.severity == Severity::Error), "{lost}");
    }
    let allowed = |field: &str| {
        let (skill, problems) = read(&format!("---\nname: a\ndescription: d\n{field}\n---\nb"));
        skill.unwrap_or_else(|| panic!("{problems:?}")).allowed_tools
    };
    assert_eq!(allowed("# allowed-tools: x"), None);
    assert_eq!(allowed("\"allowed-tools\": x"), Some(vec!["x".to_owned()]));
}
