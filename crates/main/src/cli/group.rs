//! `posse group`: jobs that are counted together.

use anyhow::Result;
use clap::Subcommand;
use posse_app::Code;
use posse_app::groups::GroupView;
use posse_app::json::listed;
use posse_core::job::GroupStanding;

use super::Context;
use crate::exit::{Exit, fail};
use crate::output::table::{plain, render};
use crate::output::text::{count, one_line, plural, visible};
use crate::wire;

/// Groups of jobs
#[derive(Subcommand)]
pub enum GroupCommand {
    /// All groups, with how far they are
    List,
    /// One group: its jobs by state, the part that has ended, what it used
    Show {
        /// Its name
        name: String,
    },
}

/// Does what was asked.
pub async fn dispatch(cx: &Context, command: GroupCommand) -> Result<Exit> {
    match command {
        GroupCommand::List => list(cx).await,
        GroupCommand::Show { name } => show(cx, name).await,
    }
}

async fn list(cx: &Context) -> Result<Exit> {
    let groups = match wire::open_reader(&cx.plain_settings()?)? {
        Some(queries) => queries.groups().await?,
        None => Vec::new(),
    };
    if cx.out.json {
        let items = listed(groups.into_iter().map(|group| GroupView::new(group, None)), false)?;
        cx.out.list("groups", items, None)?;
        return Ok(Exit::Ok);
    }
    if groups.is_empty() {
        cx.out.note("no groups; posse enqueue --group NAME puts a job into one");
        return Ok(Exit::Ok);
    }
    let row = |group: &GroupStanding| {
        let share = format!("{:.0} %", group.share() * 100.0);
        vec![plain(one_line(&group.group, 40)), plain(count(group.jobs())), plain(share), plain(by_state(group))]
    };
    let rows = groups.iter().map(row).collect();
    for line in render(&["GROUP", "JOBS", "ENDED", "STATES"], rows, cx.out.width, |title| cx.out.paint.dim(title)) {
        cx.out.line(line)?;
    }
    Ok(Exit::Ok)
}

async fn show(cx: &Context, name: String) -> Result<Exit> {
    let nothing = || fail(Code::GroupNotFound, format!("there is no group '{}' (posse group list)", visible(&name)));
    let queries = wire::open_reader(&cx.plain_settings()?)?.ok_or_else(nothing)?;
    let (standing, used) = queries.group(name.clone()).await?.ok_or_else(nothing)?;
    if cx.out.json {
        cx.out.document(&GroupView::new(standing, Some(used)))?;
        return Ok(Exit::Ok);
    }
    let paint = cx.out.paint;
    let field = |name: &str, value: String| cx.out.field(name, value);
    cx.out.line(format!("{}  {}", paint.bold(visible(&standing.group)), plural(standing.jobs(), "job")))?;
    field(
        "ended",
        format!("{:.0} % ({} of {})", standing.share() * 100.0, count(standing.ended()), count(standing.jobs())),
    )?;
    field("states", by_state(&standing))?;
    let cost = match used.cost_microusd {
        0 => String::new(),
        cost => format!(", ${:.4}", cost as f64 / 1e6),
    };
    let (turns, sent, written) =
        (plural(used.turns, "turn"), plural(used.input_tokens, "token"), count(used.output_tokens));
    field("used", format!("{turns}, {sent} in, {written} out{cost}"))?;
    cx.out.note(cx.out.note_paint.dim(format!("posse list --group '{}' names its jobs", visible(&standing.group))));
    Ok(Exit::Ok)
}

fn by_state(group: &GroupStanding) -> String {
    group.states.iter().map(|(state, jobs)| format!("{} {state}", count(*jobs))).collect::<Vec<_>>().join(", ")
}
