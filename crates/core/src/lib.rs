//! Posse's core: it decides what happens next and performs no I/O.
//!
//! What holds here, and nowhere else needs to be checked:
//!
//! - **No I/O.** No files, sockets, processes, environment or wall clock; all of them come in
//!   through [`port`]s and [`clock::Clock`]. `tests/architecture.rs` holds the crate to it.
//! - **Two pure machines.** [`job::transition`] is the whole life of a job; [`run`] is the whole
//!   life of an agent's run. Both are functions from a state and an event to a state.
//! - **The journal is the only truth about a run.** [`run::Run`] changes only by
//!   [`run::Run::apply`]ing a journal entry, so a replay gives the same state.
//! - **Every write about a job carries its lease token.** See [`lease`].
//!
//! From the ground up, and none sees what comes after it: what everything is made of ([`id`], [`clock`], [`text`],
//! [`stop`], [`annotation`], [`memory`], [`workspace`]), [`tool`]s and [`model`]s, a [`job`] and its [`queue`], [`persona`]s,
//! [`schedule`]s and [`skill`]s, a [`session`], an agent's [`run`], what the world must offer ([`port`]), what onlookers see
//! ([`event`], [`events`], [`metrics`], [`doctor`]), and the [`worker`] that joins them.

#![warn(missing_docs)]

pub mod annotation;
pub mod clock;
pub mod doctor;
pub mod events;
pub mod id;
pub mod job;
pub mod memory;
pub mod metrics;
pub mod model;
pub mod panic;
pub mod persona;
pub mod port;
pub mod queue;
pub mod run;
pub mod schedule;
pub mod session;
pub mod skill;
pub mod stop;
pub mod store;
pub mod text;
pub mod tool;
pub mod worker;
pub mod workspace;
