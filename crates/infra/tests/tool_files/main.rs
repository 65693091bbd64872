//! The file tools, called as a worker calls them, on a real file system.

mod confinement;
mod filesystem;
mod support;
