//! What people, other programs and the operating system do to Posse, through its doors. One program for all of it, with
//! the binary beside it: linking is most of what a test program costs.

mod cli;
mod crashes;
mod faults;
mod fleet;
mod stores;
mod support;
