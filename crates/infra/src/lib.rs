//! Posse's adapters: the world outside, in the words of `posse_core`.

pub mod model;
