//! What several adapters need to know of the host: its clocks and processes, its folders, and which of its files are
//! databases of Posse.

pub mod folder;
pub mod lack;
pub mod process;
pub mod recognise;
