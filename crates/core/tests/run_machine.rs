//! The run machine, through its one door.

mod any_history;
mod calls;
mod ends;
mod habits;
mod honest;
mod honest_any;
mod kit;
mod programs;
mod writing;

use crate::support::{parts, sendable};
