//! Runs that go by phases: the steps, the working memory and its view, the signals. Snapshots are written anew by
//! `POSSE_UPDATE_SNAPSHOTS=1 cargo test -p posse-core --test core phases`.

use std::path::Path;

mod memory;
mod signals;
mod steps;
mod view;

/// Compares `text` with the stored snapshot.
fn check_snapshot(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name);
    let text = format!("{text}\n");
    if std::env::var_os("POSSE_UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &text).expect("the snapshot can be written");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, stored, "{} is stale; see the top of phases.rs", path.display());
}
