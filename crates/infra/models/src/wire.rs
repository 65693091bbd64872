//! The wire format of chat completions: what is sent, strictly, and what is read, leniently.

mod fault;
pub(crate) mod lenient;
mod reply;
mod request;

pub(super) use fault::Fault;
pub(super) use reply::{Answer, CallPiece, Completion, finish_of, settle};
pub use request::MaxTokens;
pub(super) use request::{Body, Dialect, Format, Messages, Purpose, wire_message};
