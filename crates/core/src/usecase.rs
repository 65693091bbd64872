//! What people ask of Posse where something is decided. Plain reads go to the port directly.

pub mod checkpoint;
pub mod enqueue;
pub mod fork;
pub mod requests;
