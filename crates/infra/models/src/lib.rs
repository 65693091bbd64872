//! Language models behind OpenAI-compatible endpoints.
//!
//! Strict in what is sent, lenient in what is read. The connection is async-openai's; every wire
//! type is our own, because that crate's types lose a whole reply over one unknown word.
//!
//! What holds here:
//!
//! - **Only whole replies leave this module.** A stream without a terminal signal is an error; a
//!   tool call whose arguments were cut is never mended into one that looks whole.
//! - **A key is never text.** It lives in a [`secret::Secret`], goes into one header, and is struck
//!   from whatever a provider echoes.
//! - **Waiting is bounded.** Between two pieces of a reply by an idle limit, between two tries by a
//!   cap, and all of it ends at once when a stop is asked for.
//!
//! Reading order: [`embedder`] (texts to vectors) is by itself; [`openai`] (one model, its tries), `transport` (one request), `wire` (what is
//! sent and read), `stream` over `sse` (pieces to a reply), `error` (what a failure means).

mod backoff;
mod config;
pub mod embedder;
mod error;
pub mod fallback;
pub mod openai;
pub mod outage;
pub mod rate_limited;
pub mod secret;
mod sse;
mod stream;
pub mod tokenizer;
mod transport;
pub mod watched;
mod wire;

use posse_core::model::{FailedTry, ModelError, Usage};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a mutex holds, also where a thread panicked with it: what is kept here is whole at every moment.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The last try that came to this error, for those who are told that there is another.
fn last_try(error: &ModelError) -> FailedTry {
    error.failed_tries.last().cloned().unwrap_or_else(|| FailedTry {
        model: "unknown".to_owned(),
        reason: error.message.clone(),
        usage: Usage { estimated: true, ..Usage::default() },
    })
}
