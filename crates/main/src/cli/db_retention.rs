//! `posse db retention`: how long a database keeps what has ended.

use anyhow::Result;
use clap::Args;
use posse_app::{retention, times};
use posse_core::queue::retention::{Keep, Kept, Retention};
use serde_json::json;

use super::Context;
use crate::exit::{Exit, usage};
use crate::output::text::visible;
use crate::settings::Settings;
use crate::wire;

/// What to keep, and for how long: a time like 12h or 30d, or forever. Without any, it is shown
#[derive(Args)]
#[command(after_help = "\
It belongs to the database: every worker on it deletes by what is stored here. A database takes [retention] of the
settings of whoever makes it, over these: jobs 30d, sessions 365d. From then on only this command changes it; a worker
whose settings say otherwise says so. Turns of a session are kept as long as the session, which counts from its last
turn; posse session delete deletes one at once.")]
pub struct RetentionArgs {
    /// Jobs that are done, since their end
    #[arg(long, value_name = "TIME")]
    completed: Option<String>,
    /// Jobs that were stopped on request
    #[arg(long, value_name = "TIME")]
    cancelled: Option<String>,
    /// Jobs that were given up
    #[arg(long, value_name = "TIME")]
    discarded: Option<String>,
    /// Sessions with all that was said in them, since they were last used
    #[arg(long, value_name = "TIME")]
    sessions: Option<String>,
    /// What [retention] of the settings says
    #[arg(long, conflicts_with_all = ["completed", "cancelled", "discarded", "sessions"])]
    from_settings: bool,
}

impl RetentionArgs {
    fn said(&self, settings: &Settings) -> Result<Vec<Keep>> {
        if self.from_settings {
            return match settings.retention.is_empty() {
                true => Err(usage("the settings have no [retention]; name what to keep instead (--completed 7d)")),
                false => Ok(settings.retention.clone()),
            };
        }
        let all = [
            (Kept::Completed, &self.completed),
            (Kept::Cancelled, &self.cancelled),
            (Kept::Discarded, &self.discarded),
            (Kept::Sessions, &self.sessions),
        ];
        let named = all.into_iter().filter_map(|(kind, text)| Some((kind, text.as_deref()?)));
        let read = |(kind, text): (Kept, &str)| {
            let wrong = |why| usage(format!("--{} is '{}'; {why}", kind.as_str(), text.escape_debug()));
            times::keep(text).map(|keep| (kind, keep)).map_err(wrong)
        };
        named.map(read).collect()
    }
}

pub async fn dispatch(cx: &Context, args: RetentionArgs) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let said = args.said(&settings)?;
    let (kept, is_stored) = match said.is_empty() {
        false => (wire::open_store(&settings)?.set_retention(said).await?, true),
        true => match wire::open_reader(&settings)? {
            Some(store) => (store.retention().await?.unwrap_or_default(), true),
            None => (Retention::default().with(&settings.retention), false),
        },
    };
    if cx.out.json {
        return cx.out.document(&json!({"retention": kept, "is_stored": is_stored}));
    }
    if !is_stored {
        let path = settings.database.display().to_string();
        cx.out.note(format!("there is no database at {} yet; it would begin with this", visible(&path)));
    }
    for kind in Kept::ALL {
        cx.out.line(format!("{:<10} {}", kind.as_str(), retention::words(kept.of(kind))))?;
    }
    if let Some((what, way_out)) = retention::disagreement(&kept, &settings.retention) {
        cx.out.warn(format!("{what}; {way_out}"));
    }
    Ok(Exit::Ok)
}
