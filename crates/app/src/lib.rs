//! Posse's application: what a person or a program can ask for, whatever door it comes through.
//!
//! A door (the command line, later HTTP and MCP) reads what is asked, calls this crate and shows what comes back.
//! Everything between is here, once: checks, previews, views, codes of errors. Nothing here reads flags, prints, or
//! knows an adapter; the database, files and time come in through the core's ports.

#![warn(missing_docs)]

pub mod batch;
pub mod bench;
pub mod change;
pub mod doctor;
pub mod enqueue;
pub mod error;
pub mod events;
pub mod filter;
pub mod groups;
pub mod jobs;
pub mod json;
mod jsonl;
pub mod mcp;
pub mod memory;
pub mod models;
pub mod personas;
pub mod queues;
pub mod retention;
pub mod schedules;
pub mod sessions;
pub mod staff;
pub mod status;
pub mod times;
pub mod waits;
pub mod workers;

pub use error::{Code, Error, Kind, Result};
