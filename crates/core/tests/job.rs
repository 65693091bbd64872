//! Jobs: their life, and what is decided about them.

mod change;
mod deaths;
mod dependency;
mod enqueue;
mod retry;
mod transition;
mod unique;
