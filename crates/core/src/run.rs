//! A run: an agent's work on a job, across attempts, as a pure machine over its journal.
//!
//! [`Run`] is a projection: it changes only by [`Run::apply`], one journal entry at a time, so
//! applying a stored journal gives the state that the live run had. What to do next follows from
//! the state alone ([`machine::step`]), which is why a run can be picked up cold at any entry.

mod call;
pub mod checkpoint;
mod claims;
pub mod code;
pub mod compaction;
mod cycle;
pub mod finish;
mod fit;
pub mod fork;
pub mod hook;
pub mod journal;
mod limits;
pub mod machine;
pub mod memory;
pub mod phase;
pub(crate) mod phased;
mod program;
pub mod prompt;
mod repeats;
mod request;
pub mod results;
pub mod sent;
pub mod signals;
pub mod spoken;
mod state;
pub mod structured;
pub mod survey;
pub mod tasks;
pub mod wish;
mod worked;

pub use call::OpenCall;
pub use claims::{Seen, asks_for_new_file};
pub use cycle::Asked;
pub use program::Program;
pub use state::{Ended, Run};
