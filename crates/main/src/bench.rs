//! How fast the queue is on this machine: what a job costs that does nothing.

pub mod peer;
pub mod queue;
