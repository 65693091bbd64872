//! The agent at work: a real database, real tools, the real worker service, and a scripted model
//! that judges every request.

mod cases;
mod kit;
mod lease;
