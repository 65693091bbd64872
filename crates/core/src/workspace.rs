//! The folder that a job's agent works in.

pub mod folder;
pub mod protected;
