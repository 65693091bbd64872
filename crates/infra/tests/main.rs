//! The adapters, each against what it adapts: real files, servers on loopback, a real database. One program for all of
//! it: linking is most of what a test program costs.

mod agent;
mod any_history;
mod conversation;
mod host_recognise;
mod local_model;
mod minilm;
mod models;
mod skill_fields;
mod skill_loading;
mod support {
    pub mod entries;
    #[path = "../../../../tests/support/expire.rs"]
    pub mod expire;
    pub mod model_server;
    pub mod rules;
    pub mod tools;
    #[path = "../../../../tests/support/tree.rs"]
    pub mod tree;
    #[path = "../../../../tests/support/wait.rs"]
    pub mod wait;
}
mod calculator;
mod hooks;
mod host;
mod http_fetch;
mod persona_files;
mod tool_annotations;
mod tool_arguments;
mod tool_commands;
mod tool_files;
mod tool_functions;
mod tool_registry;
mod tool_schema;
