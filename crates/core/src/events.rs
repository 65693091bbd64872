//! What happens, for whoever shows or records it: job events (what becomes of a job: claimed, an entry of its journal,
//! its attempt's end, its own) and run events (what the entries mean: messages, tools, questions, the answer).
//!
//! One [`Follower`] reads a job as it goes on and gives its job events; run events are made from those. Whoever follows many
//! jobs, and only where they are, uses [`states`].

pub mod run;
pub mod states;

mod follow;

pub use follow::{Follower, JobEvent};
