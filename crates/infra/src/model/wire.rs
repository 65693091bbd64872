//! The wire format of chat completions: what is sent, strictly, and what is read, leniently.

mod fault;
mod lenient;
mod reply;
mod request;

pub(super) use fault::Fault;
pub(super) use reply::{Answer, Arguments, CallPiece, Completion, Models, finish_of, settle};
pub(super) use request::{Body, Dialect, Format, MaxTokens, Purpose};
