//! The agent at work: a real database, real tools, the real worker service, and a scripted model
//! that judges every request.

mod blocks;
mod cases;
mod clock;
mod compaction;
mod counting;
mod cut;
mod forks;
mod honest;
mod hooks;
mod kit;
mod lease;
mod memory;
mod programs;
mod providers;
mod questions;
mod results;
mod seeds;
mod sessions;
mod skills;
mod survey;
mod tasks;
mod transcript;
