//! What people are told to type can be typed.

use crate::support::Project;

/// The words of a command as a shell would make them.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in command.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, ' ') => words.push(std::mem::take(&mut word)),
            (_, c) => word.push(c),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn commands_that_people_are_told_to_type_can_be_typed() {
    let readme = include_str!("../../README.md");
    let quickstart = include_str!("../../quickstart").replace("\\\"", "\"");
    let help = Project::empty().posse(&["--help"]).ok().out;
    let is_command = |line: &&str| line.starts_with("    posse ") || line.starts_with("    OPENAI_API_KEY=... posse");
    let mut typed = 0;
    for line in readme.lines().filter(is_command).chain(quickstart.lines()).chain(help.lines()) {
        let line = line.split("  #").next().unwrap_or_default().split("   # ").next().unwrap_or_default();
        // Where the command ends and its description begins.
        let line = line.trim_start().split("   ").next().unwrap_or_default();
        let line = line.strip_prefix("OPENAI_API_KEY=... ").unwrap_or(line);
        for command in line.split(" && ").filter(|command| command.starts_with("posse ")) {
            let words = words(command.trim());
            let mut args: Vec<_> = words[1..].iter().map(String::as_str).collect();
            if !args.iter().any(|arg| ["--help", "--version"].contains(arg)) {
                // Settings that are not there end a command that was understood, with another code than one that was not.
                args.extend(["--config", "/nowhere/posse.toml"]);
            }
            let ended = Project::empty().posse(&args);
            assert_ne!(ended.code, 2, "{command}: {}", ended.err);
            typed += 1;
        }
    }
    assert!(typed > 15, "only {typed} commands were found");
}
