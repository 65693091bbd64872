//! What happens to hosts, disks and databases: nothing is lost, nobody is blamed for it, and it is said.
//!
//! `POSSE_FAULTS=full` takes the lengths of time that people have (`./check --full`).

mod deaths;
mod files;
mod restores;
mod stalls;

use crate::support::{ModelServer, Project};
use serde_json::json;

/// A project with these settings and a persona `writer`, whose conversations are never summed up: the server counts what
/// was said.
fn project(server: &ModelServer, settings: &str) -> Project {
    let project = Project::with_model(server);
    let model = format!(
        "default_model = 'mock'\n[models.mock]\nbase_url = '{}'\nmodel = 'mock'\napi_key_env = ''\ncontext_window = 1000000\n",
        server.base_url
    );
    project.write("config/posse.toml", format!("{settings}\n{model}"));
    let persona = json!({"role": "writer", "goal": "g", "tools": ["append_file"], "limits": {"max_turns": 200}});
    project.write("config/personas/writer.json", persona.to_string());
    project
}

/// Whether there is time for everything.
fn is_full() -> bool {
    std::env::var("POSSE_FAULTS").is_ok_and(|value| value == "full")
}
