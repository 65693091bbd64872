//! The test kit as its users use it.

mod ahead;
mod fleet;
#[path = "../../../tests/support/wait.rs"]
mod wait;
