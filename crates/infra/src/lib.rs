//! Posse's adapters: how the world outside is reached. Each module fills ports of `posse-core` and
//! decides nothing about jobs or runs.

// A failed `unwrap` is how a test fails.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod agent;
pub mod fleet;
pub mod folder;
pub mod hook;
pub mod local_model;
pub mod model;
pub mod persona;
pub mod process;
pub mod sandbox;
pub mod skill;
pub mod sqlite;
pub mod tool;
