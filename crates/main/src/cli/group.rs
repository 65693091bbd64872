//! `posse group`: jobs that are counted together.

use posse_app::Code;
use posse_app::groups::GroupView;
use posse_app::json::listed;
use posse_core::job::GroupStanding;

use super::prelude::*;
use crate::output::table::plain;
use crate::output::text::{count, one_line, plural, visible};

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

pub async fn dispatch(cx: &Context, command: GroupCommand) -> Result<Exit> {
    match command {
        GroupCommand::List => list(cx).await,
        GroupCommand::Show { name } => show(cx, name).await,
    }
}

async fn list(cx: &Context) -> Result<Exit> {
    let groups = cx.read(async |store| store.groups().await).await?;
    if cx.out.json {
        let items = listed(groups.into_iter().map(|group| GroupView::new(group, None)), false)?;
        return cx.out.list("groups", items, None);
    }
    let none = "no groups; posse enqueue --group NAME puts a job into one";
    cx.out.list_or_table(("groups", false), &groups, none, &["GROUP", "JOBS", "ENDED", "STATES"], |group| {
        let share = format!("{:.0} %", group.share() * 100.0);
        vec![plain(one_line(&group.group, 40)), plain(count(group.jobs())), plain(share), plain(by_state(group))]
    })
}

async fn show(cx: &Context, name: String) -> Result<Exit> {
    let nothing = || fail(Code::GroupNotFound, format!("there is no group '{}' (posse group list)", visible(&name)));
    let queries = wire::open_reader(&cx.plain_settings()?)?.ok_or_else(nothing)?;
    let (standing, used) = queries.group(name.clone()).await?.ok_or_else(nothing)?;
    if cx.out.json {
        return cx.out.document(&GroupView::new(standing, Some(used)));
    }
    let title = cx.out.paint.bold(visible(&standing.group));
    cx.out.line(format!("{title}  {}", plural(standing.jobs(), "job")))?;
    let (share, ended, jobs) = (standing.share() * 100.0, count(standing.ended()), count(standing.jobs()));
    let cost = match used.cost_microusd {
        0 => String::new(),
        cost => format!(", ${:.4}", cost as f64 / 1e6),
    };
    let (turns, sent, written) =
        (plural(used.turns, "turn"), plural(used.input_tokens, "token"), count(used.output_tokens));
    cx.out.fields([
        ("ended", Some(format!("{share:.0} % ({ended} of {jobs})"))),
        ("states", Some(by_state(&standing))),
        ("used", Some(format!("{turns}, {sent} in, {written} out{cost}"))),
    ])?;
    cx.out.hint(format!("posse list --group '{}' names its jobs", visible(&standing.group)));
    Ok(Exit::Ok)
}

fn by_state(group: &GroupStanding) -> String {
    group.states.iter().map(|(state, jobs)| format!("{} {state}", count(*jobs))).collect::<Vec<_>>().join(", ")
}
