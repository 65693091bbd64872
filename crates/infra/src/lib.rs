//! Adapters: what the core asks for, done with real databases, models and files.

pub mod process;
pub mod sqlite;
