//! Programs of agents: the process that one runs in, and what it and the worker say to each other.

mod engine;
mod memory;
mod wire;

pub(crate) use engine::live;
pub(crate) use wire::{Bound, Bounds, Line, Program, Said};
