use super::*;
use posse_core::tool::ToolErrorCategory;
use std::os::unix::fs::symlink;

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
    let workspace = Workspace::open(dir.path()).unwrap();
    let mut walk = Walk::new(&workspace.root, true);
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
    assert_eq!(text, "no such file or folder 'x'; '.' is empty");
    std::fs::create_dir(dir.path().join("docs")).unwrap();
    for name in ["docs/a.txt", "docs/summary.md", "z.csv"] {
        std::fs::write(dir.path().join(name), "").unwrap();
    }
    assert_eq!(
        message("docs/sumary.md").1,
        "no such file or folder 'docs/sumary.md'; in 'docs' there are: summary.md, a.txt"
    );
    assert_eq!(message("no/x.csv").1, "no such file or folder 'no/x.csv'; in '.' there are: docs/, z.csv");
    for n in 0..30 {
        std::fs::write(dir.path().join(format!("docs/{n:02}")), "").unwrap();
    }
    assert!(message("docs/q").1.ends_with(" and 12 more"), "{}", message("docs/q").1);
}

#[test]
fn a_root_that_is_no_folder_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(Workspace::open(&dir.path().join("none")).is_err());
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(Workspace::open(&file).is_err());
}
