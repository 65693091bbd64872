//! The core decides and performs no I/O: what it may not name, it does not name (row M28).

use std::path::{Path, PathBuf};

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

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    files
}
