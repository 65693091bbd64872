//! What every door of Posse says alike, through the application's own door. All of it is one program, as the core's.

mod bench;
mod files;
mod given_out;
mod schemas;
mod written;
