//! What a folder's files say is done only where somebody trusts them.

use std::os::unix::fs::PermissionsExt;

use crate::support::{Ended, Project};

/// A folder as an agent's command leaves it for a person to walk into: each of these files would change what happens.
fn planted(below: &str) -> Project {
    let project = Project::empty().untrusted();
    project.write(&format!("{below}config/posse.toml"), "database = \"planted.db\"\n");
    project.write(&format!("{below}.posse/posse.db"), "planted");
    // Says that it was loaded, by failing.
    project.write(&format!("{below}sqlite_extensions/vec0.so"), "planted");
    project
}

fn in_folder(project: &Project, below: &str, args: &[&str]) -> Ended {
    let output = project.command(args).current_dir(project.path().join(below)).output().expect("started");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ended { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

#[test]
fn nothing_that_was_planted_is_used() {
    let project = planted("");
    for args in [&["list"][..], &["doctor"], &["enqueue", "-r", "scribe", "x"], &["up"], &["persona", "list"]] {
        let refused = project.posse(args).expect(2);
        for words in ["is not trusted", "config/posse.toml", "sqlite_extensions", "posse trust"] {
            assert!(refused.err.contains(words), "{args:?}: {}", refused.err);
        }
    }
    assert!(!project.path().join("planted.db").exists());
    let given = project.posse(&["trust"]).ok();
    assert!(given.out.contains("config/posse.toml, .posse, sqlite_extensions"), "{}", given.out);
    let loads = project.posse(&["enqueue", "-r", "scribe", "x"]);
    assert!(loads.err.contains("cannot be used as sqlite-vec"), "{}", loads.err);
    project.posse(&["trust", "revoke"]).ok();
    assert!(project.posse(&["list"]).expect(2).err.contains("is not trusted"));
    project.posse(&["trust", "revoke"]).expect(3);
}

#[test]
fn what_a_person_names_is_trusted_for_that_command() {
    let project = planted("");
    std::fs::remove_dir_all(project.path().join("sqlite_extensions")).expect("ours");
    project.posse(&["--config", "config/posse.toml", "list"]).ok();
    project.posse(&["list"]).expect(2);
    let env = project.command(&["list"]).env("POSSE_TRUST", project.path()).output().expect("started");
    assert!(env.status.success());
    let relative = project.command(&["list"]).env("POSSE_TRUST", ".").output().expect("started");
    assert!(String::from_utf8_lossy(&relative.stderr).contains("no absolute path"));
}

#[test]
fn a_folder_without_a_project_is_no_nuisance() {
    let project = Project::empty().untrusted();
    project.posse(&["list"]).ok();
    project.posse(&["enqueue", "-r", "scribe", "x"]).ok();
    assert!(project.posse(&["list"]).ok().out.contains("scribe"), "whoever made the database may use it");
    // What comes to lie beside it is left out, and is no reason to stop.
    project.write("sqlite_extensions/vec0.so", "planted");
    project.write(".agents/skills/evil/SKILL.md", "---\nname: evil\ndescription: d\n---\nDo.\n");
    assert!(project.posse(&["list"]).ok().out.contains("scribe"));
    let skills = project.posse(&["skill", "list"]).ok();
    assert!(!skills.out.contains("evil") && skills.err.contains("left out"), "{}{}", skills.out, skills.err);
    project.posse(&["--db", "other.db", "enqueue", "-r", "scribe", "x"]).ok();
    // A database that came with the folder is another matter.
    let brought = Project::empty().untrusted();
    brought.write(".posse/posse.db", "planted");
    assert!(brought.posse(&["list"]).expect(2).err.contains("is not trusted"));
    brought.posse(&["--db", "mine.db", "list"]).ok();
}

#[test]
fn init_trusts_what_it_writes_and_nothing_that_was_there() {
    let project = Project::empty().untrusted();
    assert!(!project.posse(&["init"]).ok().err.contains("not trusted"));
    project.posse(&["enqueue", "-r", "scribe", "x"]).ok();
    let file = project.state().join("posse/trust.json");
    assert_eq!(file.metadata().expect("there").permissions().mode() & 0o777, 0o600);
    assert!(project.posse(&["trust", "list"]).ok().out.contains("all of it"));

    let hostile = Project::empty().untrusted();
    hostile.write("sqlite_extensions/vec0.so", "planted");
    let begun = hostile.posse(&["init", "--json"]).ok();
    assert!(
        begun.json()["trusted"] == false && begun.err.contains("sqlite_extensions was there before"),
        "{}",
        begun.err
    );
    hostile.posse(&["list"]).expect(2);
}

#[test]
fn a_folder_in_a_workspace_of_another_project_is_never_trusted() {
    let project = planted("sub/");
    project.posse(&["init"]).ok();
    let refused = in_folder(&project, "sub", &["list"]).expect(2);
    assert!(refused.err.contains("where agents of the project"), "{}", refused.err);
    let refused = project.posse(&["trust", "sub"]).expect(4);
    assert!(refused.err.contains("cannot be trusted"), "{}", refused.err);
    // Whatever it is called, and by whatever begins a project there.
    std::os::unix::fs::symlink("sub", project.path().join("link")).expect("made");
    project.posse(&["trust", "link"]).expect(4);
    let begun = project.posse(&["init", "new", "--json"]).ok();
    assert_eq!(begun.json()["trusted"], false, "{}", begun.err);
    in_folder(&project, "new", &["list"]).expect(2);
    // The folder in it belongs to the project around it until then.
    std::fs::create_dir(project.path().join("plain")).expect("made");
    in_folder(&project, "plain", &["list"]).ok();
}

#[test]
fn a_folder_is_not_trusted_for_what_was_in_its_place() {
    let project = Project::empty().untrusted();
    project.posse(&["init", "a"]).ok();
    project.posse(&["init", "b"]).ok();
    std::fs::rename(project.path().join("a"), project.path().join("old")).expect("moved");
    std::fs::rename(project.path().join("b"), project.path().join("a")).expect("moved");
    let refused = in_folder(&project, "a", &["list"]).expect(2);
    assert!(refused.err.contains("another folder was there"), "{}", refused.err);
    assert!(project.posse(&["trust", "list"]).ok().out.contains("not now"));
    project.posse(&["trust", "a"]).ok();
    in_folder(&project, "a", &["list"]).ok();
}

#[test]
fn a_workspace_is_remembered_as_one_whatever_the_settings_say() {
    let project = Project::empty().untrusted();
    project.posse(&["init", "p"]).ok();
    for folder in ["p/ws/sub", "p/other", "p/third"] {
        std::fs::create_dir_all(project.path().join(folder)).expect("made");
    }
    let refused = project.posse(&["trust", "p/ws/sub"]).expect(4);
    assert!(refused.err.contains("agents of the project"), "{}", refused.err);
    // Its settings say that they work elsewhere, until a job names the folder.
    project.write("p/config/posse.toml", "workspace = 'ws'\n");
    project.posse(&["trust", "p/other"]).ok();
    project.posse(&["trust", "revoke", "p/other"]).ok();
    in_folder(&project, "p", &["enqueue", "-r", "scribe", "--workspace", "other", "x"]).ok();
    let refused = project.posse(&["trust", "p/other"]).expect(4);
    assert!(refused.err.contains("agents of the project"), "{}", refused.err);
    project.posse(&["trust", "p/third"]).ok();
    in_folder(&project, "p", &["list"]).ok();
}

#[test]
fn a_file_that_others_can_write_is_not_believed() {
    let project = Project::empty().untrusted();
    project.posse(&["init"]).ok();
    let file = project.state().join("posse/trust.json");
    let set = |mode| std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).expect("ours");
    set(0o666);
    assert!(project.posse(&["list"]).expect(2).err.contains("only you can write"));
    set(0o600);
    std::fs::write(&file, "{").expect("written");
    assert!(project.posse(&["list"]).expect(2).err.contains("is damaged"));
}
