//! Posse's adapters behind one name: how the world outside is reached.
//!
//! Each adapter is a crate of its own that knows `posse-core`, the host, and no other adapter. What needs several of
//! them is here: files of personas, skills and hooks, and a process as a worker of a fleet.

pub mod embedder;
pub mod fleet;
pub mod hook;
pub mod local;
pub mod persona;
pub mod skill;

pub use posse_agent as agent;
pub use posse_host::{folder, process};
pub use posse_local_model as local_model;
pub use posse_minilm as minilm;
pub use posse_models as model;
pub use posse_store_sqlite as sqlite;
pub use posse_tools as tool;
pub use posse_tools::sandbox;
