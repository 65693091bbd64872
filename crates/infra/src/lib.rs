
pub mod process;
pub mod sqlite;
