//! The test kit as its users use it.

mod ahead;
mod fleet;
