//! The parts of a run, each by itself.

mod audit;
mod code;
mod results;
mod spoken;
