//! What holds for jobs that wait: who may start, how fast, and what is kept.

mod rate;
mod retention;
mod rules;
