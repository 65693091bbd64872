//! One GGUF model behind a loopback OpenAI-compatible server.

pub mod args;
pub mod engine;
pub mod http;
mod memory;
pub mod prompt;
mod sampling;
pub mod text;
pub mod wire;
