//! The core decides and performs no I/O: what it may not name, it does not name.

use std::path::{Path, PathBuf};

use crate::support::sources::rust_files;

/// Names that would mean I/O, a wall clock, or an adapter, with the reason each is kept out.
const FORBIDDEN: &[(&str, &str)] = &[
    ("std::fs", "files belong to adapters"),
    ("std::net", "sockets belong to adapters"),
    ("std::process", "processes belong to adapters"),
    ("std::env", "settings come in as values"),
    ("SystemTime::now", "time comes from the Clock port"),
    ("Instant::now", "time comes from the Clock port"),
    ("tokio::fs", "files belong to adapters"),
    ("tokio::net", "sockets belong to adapters"),
    ("tokio::process", "processes belong to adapters"),
    ("diesel", "databases are behind ports"),
    ("rusqlite", "databases are behind ports"),
    ("reqwest", "HTTP is behind the Model port"),
    ("async_openai", "providers are behind the Model port"),
    ("posse_infra", "the core knows no adapter"),
    ("anyhow", "errors are typed by what the caller will do"),
    ("println!", "output belongs to the CLI"),
];

#[test]
fn the_core_names_nothing_that_does_io() {
    let mut found = Vec::new();
    let mut files = 0;
    for file in rust_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        files += 1;
        let text = std::fs::read_to_string(&file).expect("a source file");
        for (i, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for (name, why) in FORBIDDEN {
                if code.contains(name) {
                    found.push(format!("{}:{}: {name} ({why})", file.display(), i + 1));
                }
            }
        }
    }
    assert!(files > 15, "only {files} source files were looked at");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_core_depends_on_no_adapter_library() {
    let manifest = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).expect("manifest");
    for library in ["diesel", "rusqlite", "reqwest", "async-openai", "axum", "posse-infra", "rustix", "anyhow"] {
        assert!(!manifest.contains(library), "crates/core/Cargo.toml names {library}");
    }
}

/// What the application may not name: it is what every door has in common, above any adapter.
const NOT_IN_THE_APPLICATION: &[&str] = &[
    "posse_infra",
    "posse_store",
    "clap",
    "anyhow",
    "diesel",
    "std::fs",
    "std::net",
    "std::process",
    "std::env",
    "println!",
];

#[test]
fn the_application_knows_no_adapter_and_no_door() {
    let mut found = Vec::new();
    for file in rust_files(&root().join("crates/app/src")) {
        let text = std::fs::read_to_string(&file).expect("a source file");
        for (i, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let named = NOT_IN_THE_APPLICATION.iter().find(|name| code.contains(**name));
            found.extend(named.map(|name| format!("{}:{}: {name}", file.display(), i + 1)));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The core's modules, each below all that it sees.
const FROM_THE_GROUND_UP: &[&str] = &[
    "id",
    "clock",
    "text",
    "stop",
    "panic",
    "annotation",
    "memory",
    "workspace",
    "tool",
    "model",
    "job",
    "queue",
    "persona",
    "schedule",
    "skill",
    "session",
    "run",
    "port",
    "store",
    "events",
    "metrics",
    "doctor",
    "worker",
];

#[test]
fn no_module_of_the_core_sees_one_above_it() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let place = |name: &str| FROM_THE_GROUND_UP.iter().position(|module| *module == name);
    let mut found = Vec::new();
    for file in rust_files(&src) {
        let inside = file.strip_prefix(&src).expect("beneath it").to_string_lossy().into_owned();
        let module = inside.split(['/', '.']).next().unwrap_or_default();
        if module == "lib" {
            continue;
        }
        let own = place(module).unwrap_or_else(|| panic!("where is {module} among the core's modules?"));
        let text = std::fs::read_to_string(&file).expect("a source file");
        for (i, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for seen in code.split("crate::").skip(1) {
                let seen = seen.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
                if place(seen).is_none_or(|place| place > own) {
                    found.push(format!("{inside}:{}: {module} sees {seen}", i + 1));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// What a driver of rows would decide with, or say to people.
const DECIDING: &[&str] = &[
    "transition(",
    "transition::{",
    "Event",
    "meaning(",
    "beginning(",
    "meet(",
    "Gate",
    "OnFailed::",
    "Keys",
    "Place::",
    ".notify(",
    "RepositoryError",
    "Fault",
    "refused(",
    "unusable(",
];

#[test]
fn a_driver_of_rows_decides_nothing() {
    let mut found = Vec::new();
    let mut files = 0;
    for file in rust_files(&root().join("crates/infra")) {
        let path = file.to_string_lossy().into_owned();
        if !path.contains("/store_") || !path.contains("/rows") {
            continue;
        }
        files += 1;
        let text = std::fs::read_to_string(&file).expect("a source file");
        for (i, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let decides = DECIDING.iter().filter(|name| code.contains(**name));
            found.extend(decides.map(|name| format!("{path}:{}: {name}", i + 1)));
        }
    }
    assert!(files >= 10, "only {files} files of drivers were looked at");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn no_adapter_depends_on_another() {
    let mut looked = 0;
    for entry in std::fs::read_dir(root().join("crates/infra")).expect("a folder") {
        let Ok(manifest) = std::fs::read_to_string(entry.expect("an entry").path().join("Cargo.toml")) else {
            continue;
        };
        // Tests may have a real store or tools beside what they test.
        let product = manifest.split("[dev-dependencies]").next().unwrap_or_default();
        let ours = product.lines().filter(|line| line.starts_with("posse-"));
        let others: Vec<_> = ours.filter(|line| !["posse-core", "posse-host"].contains(&name_of(line))).collect();
        let name = product.lines().find_map(|line| line.strip_prefix("name = ")).unwrap_or_default();
        assert!(others.is_empty(), "{name} knows other adapters: {others:?}");
        looked += 1;
    }
    assert!(looked >= 6, "only {looked} adapters were looked at");
}

/// The package that a line of a manifest's dependencies is about.
fn name_of(dependency: &str) -> &str {
    dependency.split(['.', ' ', '=']).next().unwrap_or_default()
}

/// What stands between backticks in a text, outside of blocks of code, up to the first `::`.
fn quoted(document: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(document).expect("a text");
    let prose: String = text.split("```").step_by(2).collect();
    let quoted = prose.split('`').skip(1).step_by(2);
    quoted.map(|quoted| quoted.split("::").next().unwrap_or_default().to_owned()).collect()
}

/// ARCHITECTURE.md, as what looks like a file or a folder of ours.
fn named_in_the_code_map() -> Vec<String> {
    let is_path = |name: &String| name.ends_with(".rs") || (name.ends_with('/') && name.len() > 1);
    quoted(&root().join("ARCHITECTURE.md")).into_iter().filter(is_path).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

#[test]
fn what_the_code_map_names_is_there() {
    let files = [rust_files(&root().join("crates")), rust_files(&root().join("tests"))].concat();
    let is_there = |name: &str| {
        let end = format!("/{}", name.trim_start_matches("crates/"));
        files.iter().any(|file| {
            let file = file.to_string_lossy();
            if end.ends_with('/') { file.contains(&end) } else { file.ends_with(&end) }
        })
    };
    let missing: Vec<_> = named_in_the_code_map().into_iter().filter(|name| !is_there(name)).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names {missing:?}, and nothing is called that");
}

#[test]
fn what_decisions_and_contributing_name_is_there() {
    /// What whoever follows CONTRIBUTING.md makes.
    const MADE_BY_THE_READER: &[&str] = &["crates/infra/tools/src/count_words.rs", "migrations/sqlite/NNNN_name"];
    const OURS: &[&str] = &["crates/", "tests/", "migrations/", "scripts/", "docs/", "deploy/"];
    let decisions = std::fs::read_dir(root().join("docs/decisions")).expect("docs/decisions");
    let documents = decisions.map(|entry| entry.expect("an entry").path()).chain([root().join("CONTRIBUTING.md")]);
    let files = [rust_files(&root().join("crates")), rust_files(&root().join("tests"))].concat();
    let (mut missing, mut looked) = (Vec::new(), 0);
    for document in documents {
        let names = quoted(&document).into_iter().filter(|name| !name.contains(' '));
        for name in names.filter(|name| !MADE_BY_THE_READER.contains(&name.as_str())) {
            let is_there = if OURS.iter().any(|folder| name.starts_with(folder)) {
                root().join(&name).exists()
            } else if name.ends_with(".rs") {
                files.iter().any(|file| file.ends_with(&name))
            } else {
                continue;
            };
            looked += 1;
            if !is_there {
                missing.push(format!("{}: {name}", document.display()));
            }
        }
    }
    assert!(looked > 100, "only {looked} names were looked at");
    assert!(missing.is_empty(), "nothing is called that:\n{}", missing.join("\n"));
}

#[test]
fn no_entry_of_the_code_map_stands_twice() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let mut entries: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("- `")?.split('`').next()).collect();
    let all = entries.len();
    entries.sort_unstable();
    entries.dedup();
    assert_eq!(entries.len(), all, "two entries of ARCHITECTURE.md have one name");
}

#[test]
fn every_module_of_the_core_is_in_the_code_map() {
    let named = named_in_the_code_map();
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).expect("a folder") {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        if name.ends_with(".rs") && name != "lib.rs" {
            let module = name.trim_end_matches("rs").trim_end_matches('.');
            let is_named = named.iter().any(|named| {
                *named == name || *named == format!("core/src/{name}") || named.starts_with(&format!("{module}/"))
            });
            assert!(is_named, "ARCHITECTURE.md does not say what crates/core/src/{name} is");
        }
    }
}

#[test]
fn decisions_are_short_and_have_one_form() {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(root().join("docs/decisions")).expect("docs/decisions") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a text");
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(text.lines().count() <= 30, "{name} has {} lines; at most 30", text.lines().count());
        let number = name.get(..4).unwrap_or_default();
        assert!(text.starts_with(&format!("# {number}. ")), "{name} begins with its number and its title");
        for heading in ["## Context", "## Decision", "## Consequences"] {
            assert!(text.lines().any(|line| line == heading), "{name} has no {heading}");
        }
        numbers.push(number.to_owned());
    }
    let all = numbers.len();
    numbers.sort();
    numbers.dedup();
    assert!(all > 30 && numbers.len() == all, "{all} decisions with {} numbers", numbers.len());
}
