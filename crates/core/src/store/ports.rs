//! The ports of a store, kept for every [`Engine`](super::engine::Engine): what is asked for becomes a command or a
//! read on its connections.

use crate::port::RepositoryError;

mod care;
mod limits;
mod memory;
mod queries;
mod work;

fn unwritable(error: serde_json::Error) -> RepositoryError {
    RepositoryError::Misused(format!("a value cannot be written as JSON: {error}"))
}
