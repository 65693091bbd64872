//! What the core decides, through its doors. All of it is one program: linking is most of what a test program costs.

mod agent_machine;
mod architecture;
mod circles;
mod compaction;
mod conversation;
mod events;
mod phases;
mod prompt;
mod run_machine;
mod sentences;
mod skill;
mod support {
    pub mod parts;
    pub mod sendable;
    pub mod sources;
}
