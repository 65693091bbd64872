//! Paths of models, and what they lead to in a workspace.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use posse_core::tool::ToolErrorCategory;
use posse_infra::tool::workspace::{Dir, Walk, Workspace, shown_entry, shown_name};

#[test]
fn a_walk_is_sorted_and_never_follows_a_symlink() {
    let dir = tempfile::tempdir().unwrap();
    for folder in ["b/deep", ".git", "a"] {
        std::fs::create_dir_all(dir.path().join(folder)).unwrap();
    }
    for file in ["b/deep/x", "b/y", ".git/config", "a.txt"] {
        std::fs::write(dir.path().join(file), "").unwrap();
    }
    symlink("b", dir.path().join("c")).unwrap();
    symlink("..", dir.path().join("b/up")).unwrap();
    let folder = Dir::at(dir.path()).unwrap();
    let mut walk = Walk::new(&folder, true);
    let names: Vec<_> = walk.by_ref().map(|(path, kind)| shown_entry(&path, kind)).collect();
    assert_eq!(names, [".git/", "a/", "a.txt", "b/", "b/deep/", "b/deep/x", "b/up", "b/y", "c"]);
    assert_eq!(walk.passed_over, [PathBuf::from(".git")]);
}

#[test]
fn names_cannot_forge_lines() {
    assert_eq!(shown_name(Path::new("größe.txt")), "größe.txt");
    assert_eq!(shown_name(Path::new("a\nb")), "\"a\\nb\"");
    let name = shown_name(Path::new(OsStr::from_bytes(b"a\xff")));
    assert_eq!(name, "a\\xff (not UTF-8: cannot be opened by name)");
}

#[test]
fn a_name_that_is_not_there_is_answered_with_those_that_are() {
    let dir = tempfile::tempdir().unwrap();
    let workspace = Workspace::open(dir.path()).unwrap();
    let message = |raw: &str| workspace.find(raw).err().map(|error| (error.category, error.message)).unwrap();
    let (category, text) = message("x");
    assert_eq!(category, ToolErrorCategory::NotFound);
    assert_eq!(text, "no such file or folder 'x'. There are no files at all");
    std::fs::create_dir_all(dir.path().join("docs/.git")).unwrap();
    for name in ["docs/a.txt", "docs/long-summary.md", "z.csv", "docs/.git/config"] {
        std::fs::write(dir.path().join(name), "").unwrap();
    }
    let all = "All the files there are: docs/a.txt, docs/long-summary.md, z.csv";
    for (raw, meant) in [
        ("docs/long-sumary.md", "docs/long-summary.md"),
        // In another folder, with another ending, in other letters, with other separators, a part of it.
        ("long-summary.md", "docs/long-summary.md"),
        ("docs/z.csv", "z.csv"),
        ("z.txt", "z.csv"),
        ("Docs/A.TXT", "docs/a.txt"),
        ("long summary.txt", "docs/long-summary.md"),
        ("docs/summary.md", "docs/long-summary.md"),
        ("docs.txt", "docs/"),
    ] {
        let told = format!("no such file or folder '{raw}'. Did you mean '{meant}'? {all}");
        assert_eq!(message(raw).1, told);
    }
    assert_eq!(message("no/q.csv").1, format!("no such file or folder 'no/q.csv'. {all}"));
    assert_eq!(message("z.csv/a.b").1, "no such file or folder 'z.csv/a.b': 'z.csv' is a file");
    for n in 0..30 {
        std::fs::write(dir.path().join(format!("docs/{n:02}")), "").unwrap();
    }
    let many = message("docs/q").1;
    assert!(many.starts_with("no such file or folder 'docs/q'. In 'docs' there are: docs/.git/, docs/00, "), "{many}");
    assert!(many.ends_with(", docs/18 and 13 more"), "{many}");
    assert_eq!(
        message("q/07").1,
        "no such file or folder 'q/07'. Did you mean 'docs/07'? In '.' there are: docs/, z.csv"
    );
}

#[test]
fn a_path_that_leads_outside_is_answered_with_what_it_may_mean_inside() {
    let base = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(base.path().join("ws/docs")).unwrap();
    std::fs::write(base.path().join("ws/docs/plan.md"), "").unwrap();
    std::fs::write(base.path().join("plans.md"), "").unwrap();
    let workspace = Workspace::open(&base.path().join("ws")).unwrap();
    for raw in ["/workspace/docs/plan.md", "/plan.md", "../plan.md"] {
        let error = workspace.find(raw).err().unwrap();
        assert_eq!(error.category, ToolErrorCategory::PermissionDenied);
        assert!(error.message.ends_with(". Did you mean 'docs/plan.md'?"), "{error}");
    }
    for raw in ["/etc/passwd", "../plans.md"] {
        let error = workspace.find(raw).err().unwrap();
        assert!(error.message.ends_with("or '.' for the root itself"), "{error}");
    }
}

#[test]
fn nothing_hidden_is_offered_and_no_name_forges_a_line() {
    let mut bench = super::support::Bench::new();
    bench.write("keys/plan.md", "");
    bench.write("a\nplan.md", "");
    bench.protected.hidden = vec![bench.ws("keys")];
    let error = bench.call("read_file", serde_json::json!({"path": "plan.md"})).unwrap_err();
    assert_eq!(
        error.message,
        "no such file or folder 'plan.md'. Did you mean '\"a\\nplan.md\"'? All the files there are: \"a\\nplan.md\""
    );
}

#[test]
fn a_root_that_is_no_folder_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(Workspace::open(&dir.path().join("none")).is_err());
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(Workspace::open(&file).is_err());
}

/// What a path is taken for in a workspace that was opened as `/link/ws` and is `/real/ws`, for short.
fn at(raw: &str) -> Result<String, String> {
    let base = tempfile::tempdir().unwrap();
    let base = base.path().canonicalize().unwrap();
    std::fs::create_dir_all(base.join("real/ws")).unwrap();
    symlink("real", base.join("link")).unwrap();
    let workspace = Workspace::open(&base.join("link/ws")).unwrap();
    let raw = if raw.len() > 1 && raw.starts_with('/') { format!("{}{raw}", base.display()) } else { raw.to_owned() };
    let path = workspace.relative(&raw).map_err(|error| error.message)?;
    Ok(path.to_str().unwrap().to_owned())
}

#[test]
fn plain_names_stay_as_they_are() {
    for raw in ["a", ".", "./sub/..", "%2e%2e/x", "..\\x", "../x", "a ~b", "x~/y", "a:b"] {
        assert_eq!(at(raw).unwrap(), raw);
    }
}

#[test]
fn absolute_paths_are_compared_by_component() {
    assert_eq!(at("/real/ws/a/b").unwrap(), "a/b");
    assert_eq!(at("/link//ws/./a").unwrap(), "a");
    assert_eq!(at("/real/ws/").unwrap(), ".");
    assert_eq!(at("/real/ws/../x").unwrap(), "../x");
    for raw in ["/", "/real/ws-evil/x", "/real", "/x/../real/ws/a"] {
        assert!(at(raw).unwrap_err().contains("outside the workspace"), "{raw}");
    }
}

#[test]
fn bad_shapes_are_named() {
    assert!(at("").unwrap_err().contains("'.' for the workspace root"));
    assert!(at("x\0/../../etc/passwd").unwrap_err().contains("NUL"));
    assert!(at(&"x/".repeat(2500)).unwrap_err().contains("5,000 bytes"));
    assert!(at(&"x".repeat(256)).unwrap_err().contains("256 bytes"));
    assert!(at("~/.ssh/id_ed25519").unwrap_err().contains("no home folder"));
    assert!(at("file:///etc/passwd").unwrap_err().contains("is a URL"));
}
