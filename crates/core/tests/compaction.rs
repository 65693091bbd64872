//! What compaction does to conversations, through its doors: every change keeps a conversation
//! legal, and doing what is decided until it may be sent ends.

// A failed `unwrap` is how a test fails.
#![allow(clippy::unwrap_used)]

mod any;
mod cases;
mod kit;
