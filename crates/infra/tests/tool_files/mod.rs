//! The file tools, called as a worker calls them, on a real file system.
#![allow(clippy::unwrap_used)]

mod attacks;
mod changes;
mod confinement;
mod contents;
mod editing;
mod filesystem;
mod lack;
mod long;
mod paths;
mod protection;
mod query_tables;
mod support;
mod survey;
