//! The parts of a run, each by itself.

mod audit;
mod results;
mod spoken;
