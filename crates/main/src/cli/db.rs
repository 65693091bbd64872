//! `posse db`: where the database is and whether it can be used.

use anyhow::Result;
use clap::Subcommand;
use posse_core::job::JobState;
use serde_json::json;

use super::Context;
use crate::exit::{Exit, not_found};
use crate::output::text::{bytes, plural, visible};
use crate::wire;

/// The database
#[derive(Subcommand)]
pub enum DbCommand {
    /// Print its path
    Path,
    /// Open it to read, and count what is in it
    Check,
}

/// Does what was asked.
pub async fn dispatch(cx: &Context, command: DbCommand) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let path = settings.database.display().to_string();
    match command {
        DbCommand::Path if cx.out.json => {
            cx.out.document(&json!({"path": path, "exists": settings.database.exists()}))?
        }
        DbCommand::Path => cx.out.line(visible(&path))?,
        DbCommand::Check => {
            let queries = wire::open_reader(&settings)?
                .ok_or_else(|| not_found(format!("there is no database at {path} yet; the first job makes it")))?;
            let counts = queries.counts().await?;
            let size = settings.database.metadata().map(|meta| meta.len()).unwrap_or(0);
            let mut totals: Vec<(JobState, u64)> = Vec::new();
            for state in JobState::ALL {
                let total: u64 = counts.iter().filter(|(_, s, _)| *s == state).map(|(_, _, n)| n).sum();
                if total > 0 {
                    totals.push((state, total));
                }
            }
            if cx.out.json {
                let jobs: serde_json::Map<_, _> = totals.iter().map(|(s, n)| (s.to_string(), json!(n))).collect();
                cx.out.document(&json!({"path": path, "bytes": size, "jobs": jobs}))?;
                return Ok(Exit::Ok);
            }
            cx.out.line(format!("{}  {}, can be read", visible(&path), bytes(size as usize)))?;
            let total: u64 = totals.iter().map(|(_, n)| n).sum();
            let parts: Vec<_> = totals.iter().map(|(s, n)| format!("{n} {s}")).collect();
            let parts = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
            cx.out.line(format!("{}{parts}", plural(total, "job")))?;
        }
    }
    Ok(Exit::Ok)
}
