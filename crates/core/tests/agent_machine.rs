//! The run machine in every way of working it has, with a crash between any two of its steps.

// A failed `unwrap` is how a test fails.
#![allow(clippy::unwrap_used)]

mod any_history;
mod asked;
mod compacting;
mod counting;
mod fallback;
mod histories;
mod kit;
mod limits;
mod mending;
mod phased;
mod questions;
mod replan;
mod skills;

use crate::support::{parts, sendable};
