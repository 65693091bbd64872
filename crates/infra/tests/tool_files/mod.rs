//! The file tools, called as a worker calls them, on a real file system.
#![allow(clippy::unwrap_used)]

mod attacks;
mod confinement;
mod filesystem;
mod lack;
mod support;
