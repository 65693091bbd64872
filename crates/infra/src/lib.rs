//! Posse's adapters: how the world outside is reached. Each module fills ports of `posse-core` and
//! decides nothing about jobs or runs.

pub mod persona;
pub mod process;
pub mod sqlite;
pub mod tool;
