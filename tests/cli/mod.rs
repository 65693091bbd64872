//! The program as people and scripts use it: what it prints, how it ends, what it leaves.

mod agents;
mod care;
mod certificates;
mod chat;
mod chat_terminal;
mod commands;
mod descriptors;
mod disk_full;
mod hostile;
mod lists;
mod metrics;
mod models;
mod output;
mod questions;
mod queues;
mod rules;
mod sealed;
mod sessions;
mod settings;
mod skills;
mod staff;
mod terminal;
mod together;
mod told;
mod trust;
mod workspaces;
