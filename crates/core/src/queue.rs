//! What decides when a queue's jobs may start, and how long they are kept.

pub mod rate;
pub mod retention;
pub mod rules;
