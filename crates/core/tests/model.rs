//! What is decided about models, whichever is asked.

mod breaker;
mod tokens;
