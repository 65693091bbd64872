//! `posse limit`, `posse pause`, `posse resume`: whether jobs may start.

use std::str::FromStr;

use posse_app::queues;
use posse_core::queue::rules::{Limits, LimitsChange, Scope};

use super::prelude::*;
use crate::output::table::{painted, plain};
use crate::output::text::{ago, visible};
use crate::settings::Settings;

/// Which jobs
#[derive(Args)]
#[group(required = true, multiple = false)]
pub struct ScopeArgs {
    /// All jobs
    #[arg(long)]
    all: bool,
    /// Jobs of this queue
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// Jobs of this role
    #[arg(long, short, value_name = "ROLE", value_parser = super::role)]
    role: Option<String>,
    /// Jobs with this concurrency key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

impl ScopeArgs {
    fn named(self) -> Scope {
        let named = [self.queue.map(Scope::Queue), self.role.map(Scope::Role), self.key.map(Scope::Key)];
        named.into_iter().flatten().next().unwrap_or(Scope::All)
    }

    /// The scope that is meant, checked.
    fn scope(self, cx: &Context, settings: &Settings) -> Result<Scope> {
        let scope = self.named();
        queues::check_limits(&scope, &Limits::default())?;
        warn_of_role(cx, settings, &scope)?;
        Ok(scope)
    }
}

/// Warns of a role that nobody plays here: another project may work on the same database.
fn warn_of_role(cx: &Context, settings: &Settings, scope: &Scope) -> Result<()> {
    if let Scope::Role(role) = scope
        && !wire::sources(settings).look()?.1.roles().contains(role)
    {
        cx.out.warn(format!("no persona of this project plays the role '{role}' (posse persona list)"));
    }
    Ok(())
}

#[derive(Subcommand)]
pub enum LimitCommand {
    /// Limit how many jobs run or start, over all processes, from now on
    Set(SetArgs),
    /// Limits and pauses there are
    List,
    /// Take the limits of a scope off; a pause stays
    Remove(ScopeArgs),
}

#[derive(Args)]
pub struct SetArgs {
    #[command(flatten)]
    scope: ScopeArgs,
    /// At most so many run at once; none takes this limit off, as of the others
    #[arg(long, value_name = "N|none", value_parser = or_none(number::<u32>))]
    running: Option<OrNone<u32>>,
    /// At most so many run at once with the same concurrency key
    #[arg(long, value_name = "N|none", value_parser = or_none(number::<u32>))]
    running_per_key: Option<OrNone<u32>>,
    /// At most so many start in a minute: a tenth of them at once, the rest evenly
    #[arg(long, value_name = "N|none", value_parser = or_none(number::<u32>))]
    per_minute: Option<OrNone<u32>>,
    /// Concurrency keys take turns, one job each: who has a few jobs does not wait behind who has
    /// thousands, whatever their priority; --fair=none takes it off
    #[arg(long, value_name = "none", num_args = 0..=1, require_equals = true, default_missing_value = "yes", value_parser = yes_or_none)]
    fair: Option<bool>,
}

/// What is set on the command line, or that it is taken off.
#[derive(Debug, Clone, Copy)]
pub struct OrNone<T>(pub Option<T>);

/// Reads what `read` does, or none.
pub fn or_none<T>(read: fn(&str) -> Result<T, String>) -> impl Fn(&str) -> Result<OrNone<T>, String> + Clone {
    move |text| match text {
        "none" => Ok(OrNone(None)),
        text => read(text).map(|said| OrNone(Some(said))),
    }
}

/// Reads a whole number.
pub fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "write a whole number, or none".into())
}

fn yes_or_none(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "none" | "no" => Ok(false),
        _ => Err("write --fair, or --fair=none".into()),
    }
}

/// Does what was asked.
pub async fn limit(cx: &Context, command: LimitCommand) -> Result<Exit> {
    match command {
        LimitCommand::Set(args) => set(cx, args).await,
        LimitCommand::List => list(cx).await,
        LimitCommand::Remove(args) => remove(cx, args).await,
    }
}

async fn set(cx: &Context, args: SetArgs) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let SetArgs { scope, running, running_per_key, per_minute, fair } = args;
    let [running, running_per_key, per_minute] = [running, running_per_key, per_minute].map(|limit| limit.map(|l| l.0));
    let change = LimitsChange { running, running_per_key, per_minute, fair };
    let scope = scope.named();
    queues::check_limits_change(&scope, change)?;
    warn_of_role(cx, &settings, &scope)?;
    let rule = queues::set_limits(&*wire::open_store(&settings)?, &scope, change, wire::now()).await?;
    let words = rule.as_ref().map(|rule| in_words(&rule.limits)).filter(|words| !words.is_empty());
    let words = words.unwrap_or_else(|| "no limits".into());
    cx.out.say(&rule, format!("{}: {words}", visible(&scope.to_string())))
}

async fn remove(cx: &Context, args: ScopeArgs) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let scope = args.scope(cx, &settings)?;
    queues::remove_limits(&*wire::open_store(&settings)?, &scope, wire::now()).await?;
    cx.out.say(&json!({"removed": scope}), format!("{}: no limits", visible(&scope.to_string())))
}

async fn list(cx: &Context) -> Result<Exit> {
    let rules = cx.read(async |store| store.rules().await).await?;
    let (now, paint) = (wire::now(), cx.out.paint);
    let number = |limit: Option<u32>| plain(limit.map_or("-".into(), |n| n.to_string()));
    let none = "no limits, nothing paused; posse limit set --queue NAME --running N sets one";
    let titles = ["SCOPE", "NAME", "RUNNING", "PER KEY", "PER MINUTE", "FAIR", "PAUSED"];
    cx.out.list_or_table(("limits", false), &rules, none, &titles, |rule| {
        vec![
            plain(rule.scope.kind()),
            painted(visible(rule.scope.name()), move |text| paint.cyan(text)),
            number(rule.limits.running),
            number(rule.limits.running_per_key),
            number(rule.limits.per_minute),
            plain(if rule.limits.fair { "yes" } else { "-" }),
            painted(paused(rule.paused_at, now), move |text| paint.yellow(text)),
        ]
    })
}

/// Since when something is paused, for people; empty when it is not.
pub fn paused(at: Option<posse_core::clock::Millis>, now: posse_core::clock::Millis) -> String {
    at.map_or(String::new(), |at| format!("paused {}", ago(at, now)))
}

/// Limits, for people; empty when there are none.
pub fn in_words(limits: &Limits) -> String {
    let Limits { running, running_per_key, per_minute, fair } = limits;
    let words = [
        running.map(|n| format!("at most {n} at once")),
        running_per_key.map(|n| format!("at most {n} at once for each key")),
        per_minute.map(|n| format!("at most {n} a minute")),
        fair.then(|| "keys take turns".into()),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Lets no job of a scope start; running ones go on.
pub async fn pause(cx: &Context, args: ScopeArgs) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let scope = args.scope(cx, &settings)?;
    let is_new = wire::open_store(&settings)?.pause(scope.clone(), wire::now()).await?;
    let shown = visible(&scope.to_string());
    let line = if is_new { format!("{shown} is paused") } else { format!("{shown} was paused before") };
    cx.out.say(&json!({"paused": scope, "new": is_new}), line)?;
    if !cx.out.json {
        cx.out.hint("running jobs go on · posse resume takes it back");
    }
    Ok(Exit::Ok)
}

/// Takes a pause back.
pub async fn resume(cx: &Context, args: ScopeArgs) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let scope = args.scope(cx, &settings)?;
    let was_paused = wire::open_store(&settings)?.resume(scope.clone()).await?;
    let shown = visible(&scope.to_string());
    let line = if was_paused { format!("{shown} goes on") } else { format!("{shown} was not paused") };
    cx.out.say(&json!({"resumed": scope, "was_paused": was_paused}), line)
}
