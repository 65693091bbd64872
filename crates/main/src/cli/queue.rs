//! `posse queue`: where jobs wait.

use posse_app::queues::{self, KeepView, QueueDocument};
use posse_app::{Error, retention, times};
use posse_core::clock::Millis;
use posse_core::port::Store;
use posse_core::queue::retention::{Kept, Retention};
use posse_core::queue::rules::{QueueState, Rule};
use posse_core::queue::{Queue, QueueChange, QueueDefaults};

use super::prelude::*;
use super::rules::{OrNone, in_words, number, or_none, paused};
use crate::output::table::{painted, plain};
use crate::output::text::{count, plural, visible};

#[derive(Subcommand)]
pub enum QueueCommand {
    /// Queues with jobs that have not ended, or of which something is said: how many are where, what is paused or limited
    List,
    /// One queue: its jobs, pause and limits, what its jobs begin with, how long they are kept
    Show {
        /// The queue
        name: String,
    },
    /// Say what jobs of a queue begin with and how long they are kept; what is not named stays as it is
    Set(SetArgs),
}

#[derive(Args)]
#[command(after_help = "\
What a job begins with is what whoever asks for it says, else its persona, else its queue, else what
is usual: priority 5, 5 attempts, and the step of config/posse.toml. Jobs that are stored stay as they
are, and so do schedules.
A queue's own times for keeping jobs win over the database's (posse db retention). Jobs of a session
are kept as long as the session, wherever they waited.
Pauses and limits: posse pause --queue NAME, posse limit set --queue NAME.")]
pub struct SetArgs {
    /// The queue
    name: String,
    /// The priority of its jobs: 1 (first) to 9 (last)
    #[arg(long, value_name = "N|none", value_parser = or_none(number::<u8>))]
    priority: Option<OrNone<u8>>,
    /// How much waiting a step of priority is worth to them: 90s, 10m
    #[arg(long, value_name = "TIME|none", value_parser = or_none(times::span))]
    priority_step: Option<OrNone<Millis>>,
    /// Attempts they get
    #[arg(long, value_name = "N|none", value_parser = or_none(number::<u32>))]
    max_attempts: Option<OrNone<u32>>,
    /// How long those are kept that are done: 12h, 30d, forever
    #[arg(long, value_name = "TIME|none", value_parser = or_none(times::keep))]
    keep_completed: Option<OrNone<Option<Millis>>>,
    /// How long those that were stopped on request
    #[arg(long, value_name = "TIME|none", value_parser = or_none(times::keep))]
    keep_cancelled: Option<OrNone<Option<Millis>>>,
    /// How long those that were given up
    #[arg(long, value_name = "TIME|none", value_parser = or_none(times::keep))]
    keep_discarded: Option<OrNone<Option<Millis>>>,
}

/// Does what was asked.
pub async fn dispatch(cx: &Context, command: QueueCommand) -> Result<Exit> {
    match command {
        QueueCommand::List => list(cx).await,
        QueueCommand::Show { name } => show(cx, &name).await,
        QueueCommand::Set(args) => set(cx, args).await,
    }
}

async fn list(cx: &Context) -> Result<Exit> {
    let all = async |store: &dyn Store| Ok::<_, Error>((queues::list(store).await?, queues::all_paused(store).await?));
    let (queues, is_all_paused) = cx.read(all).await?;
    let (now, paint) = (wire::now(), cx.out.paint);
    let none = "no queue has a job that has not ended";
    let titles = ["QUEUE", "AVAILABLE", "SCHEDULED", "RUNNING", "SUSPENDED", "RULE"];
    cx.out.list_or_table(("queues", false), &queues, none, &titles, |queue| {
        vec![
            painted(visible(&queue.queue), move |text| paint.cyan(text)),
            plain(count(queue.available)),
            plain(count(queue.scheduled)),
            plain(count(queue.running)),
            plain(count(queue.suspended)),
            painted(rule_in_words(queue.rule.as_ref(), now), move |text| paint.yellow(text)),
        ]
    })?;
    if is_all_paused && !queues.is_empty() && !cx.out.json {
        cx.out.warn("everything is paused (posse resume --all)");
    }
    Ok(Exit::Ok)
}

fn rule_in_words(rule: Option<&Rule>, now: Millis) -> String {
    rule.map_or(String::new(), |rule| {
        let words = [paused(rule.paused_at, now), in_words(&rule.limits)];
        words.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(", ")
    })
}

async fn show(cx: &Context, name: &str) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    QueueChange::default().check(name)?;
    let queue = match wire::open_reader(&settings)? {
        Some(store) => queues::show(&*store, name).await?,
        None => {
            let state = QueueState { queue: Queue::named(name), ..QueueState::default() };
            QueueDocument::new(state, Retention::default().with(&settings.retention))
        }
    };
    tell(cx, &queue)
}

async fn set(cx: &Context, args: SetArgs) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let SetArgs { name, priority, priority_step, max_attempts, keep_completed, keep_cancelled, keep_discarded } = args;
    let keep =
        [(Kept::Completed, keep_completed), (Kept::Cancelled, keep_cancelled), (Kept::Discarded, keep_discarded)];
    let change = QueueChange {
        priority: priority.map(|said| said.0),
        priority_step_ms: priority_step.map(|said| said.0),
        max_attempts: max_attempts.map(|said| said.0),
        keep: keep.into_iter().filter_map(|(kind, said)| Some((kind, said?.0))).collect(),
    };
    queues::check(&name, &change)?;
    let store = wire::open_store(&settings)?;
    tell(cx, &queues::set(&*store, &name, change, wire::now()).await?)
}

fn tell(cx: &Context, queue: &QueueDocument) -> Result<Exit> {
    if cx.out.json {
        return cx.out.document(queue);
    }
    let QueueDocument { view, defaults, kept, .. } = queue;
    cx.out.line(cx.out.paint.bold(visible(&view.queue)))?;
    let states = [
        (view.available, "available"),
        (view.scheduled, "scheduled"),
        (view.running, "running"),
        (view.suspended, "suspended"),
    ];
    let rule = rule_in_words(view.rule.as_ref(), wire::now());
    let kept = kept.iter().map(|(kind, KeepView { keep_ms, is_own })| {
        let whose = if *is_own { "" } else { " (as the database)" };
        format!("{} {}{whose}", kind.as_str(), retention::words(*keep_ms))
    });
    cx.out.fields([
        ("jobs", Some(states.map(|(jobs, state)| format!("{} {state}", count(jobs))).join(", "))),
        ("starts", Some(if rule.is_empty() { "as everywhere".into() } else { rule })),
        ("defaults", Some(defaults_in_words(defaults))),
        ("kept", Some(kept.collect::<Vec<_>>().join(", "))),
    ])?;
    Ok(Exit::Ok)
}

fn defaults_in_words(defaults: &QueueDefaults) -> String {
    let QueueDefaults { priority, priority_step_ms, max_attempts } = *defaults;
    let words = [
        priority.map(|n| format!("priority {n}")),
        priority_step_ms.map(|ms| format!("a step of priority is worth {}", retention::words(Some(ms)))),
        max_attempts.map(|n| plural(n.into(), "attempt")),
    ];
    let words: Vec<_> = words.into_iter().flatten().collect();
    if words.is_empty() { "none".into() } else { words.join(", ") }
}
