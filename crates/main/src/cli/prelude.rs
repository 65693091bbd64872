//! What every command is written with.

pub(super) use anyhow::Result;
pub(super) use clap::{Args, Subcommand};
pub(super) use serde_json::json;

pub(super) use super::Context;
pub(super) use crate::exit::{Exit, fail, not_found, usage};
pub(super) use crate::wire;
