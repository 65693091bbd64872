//! The agent at work: a real database, real tools, the real worker service, and a scripted model
//! that judges every request.

mod cases;
mod kit;
mod lease;
#[path = "../support/model_server.rs"]
mod model_server;
mod providers;
