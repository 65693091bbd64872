//! The test kit as its users use it.

mod ahead;
mod fleet;
mod scripted;
mod validate;
#[path = "../../../tests/support/wait.rs"]
mod wait;
