//! What stores promise: one list of behaviours for all of them, and what only SQLite has.

mod behaviour;
mod plans;
mod sqlite_behaviour;
mod sqlite_care;
mod sqlite_extension;
mod sqlite_files;
mod sqlite_guest;
mod sqlite_open;
mod sqlite_sealed;
mod sqlite_statements;
mod sqlite_writer;
mod statements;
