//! What the core decides, through its doors. All of it is one program: linking is most of what a test program costs.

mod agent_machine;
mod architecture;
mod circles;
mod clock;
mod compaction;
mod conversation;
mod doctor;
mod events;
mod job;
mod mcp;
mod memory;
mod metrics;
mod model;
mod phases;
mod prompt;
mod queue;
mod run;
mod run_machine;
mod schedule;
mod sealing;
mod sentences;
mod session;
mod skill;
mod survey;
mod text;
mod wish;
mod workspace;
mod support {
    pub mod parts;
    pub mod sendable;
    pub mod sources;
}
