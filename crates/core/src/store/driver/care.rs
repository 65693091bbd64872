//! Rows that a database is cared for by.

use std::time::Duration;

use super::{Passing, Record};
use crate::clock::Millis;
use crate::job::lease::WorkerId;
use crate::port::ClockJump;

/// Rows that a database is cared for by.
pub trait CareRows {
    /// Time since a moment that stays the same while the process lives.
    fn elapsed(&self) -> Duration;
}

/// What one worker does at a time. Found by its name.
#[derive(Debug)]
pub struct Duty {
    /// What it is.
    pub name: String,
    /// Who has it.
    pub worker: WorkerId,
    /// Until when.
    pub until: Millis,
}

impl Record for Duty {
    type Of<'a> = &'a str;
}

/// For how long a kind is kept.
#[derive(Debug)]
pub struct KeepFor {
    /// The kind's name, which only a later version may know.
    pub kind: String,
    /// For how long, in milliseconds; for ever where that is absent.
    pub keep: Option<Millis>,
}

impl Record for KeepFor {
    type Of<'a> = ();
}

/// Each is kept beside the others. Newest first.
impl Record for ClockJump {
    type Of<'a> = ();
}

/// All but the last so many.
impl Passing for ClockJump {
    type Which<'a> = i64;
}
