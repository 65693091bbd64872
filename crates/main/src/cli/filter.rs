//! Which jobs are meant: as flags of `posse list`, and as `--where` of what changes many.

use clap::Args;
use posse_app::filter;
use posse_core::clock::Millis;
use posse_core::job::JobState;
use posse_core::port::JobFilter;

use crate::wire;

/// Terms that jobs are chosen by
#[derive(Args)]
pub struct WhereArgs {
    /// Jobs for which all of this holds: `state=discarded role=scribe`. Keys: state, role, queue, group, tag,
    /// search, meta, since, until, ended-since, ended-until
    #[arg(id = "filter", long = "where", value_name = "KEY=VALUE")]
    pub terms: Vec<String>,
}

impl WhereArgs {
    pub fn filter(&self) -> Result<JobFilter, String> {
        filter::parse(&self.terms, wire::now()).map_err(|error| format!("--where: {error}"))
    }
}

/// Which jobs
#[derive(Args)]
pub struct FilterArgs {
    #[command(flatten)]
    terms: WhereArgs,
    /// Only in this state; may be given more than once
    #[arg(long, value_name = "STATE")]
    state: Vec<JobState>,
    /// Only of this role
    #[arg(long, short, value_name = "ROLE", value_parser = super::role)]
    role: Option<String>,
    /// Only of this queue
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// Only of this group
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Only with this tag
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// Only with this text in goal, reason or answer
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// Only with this in their metadata
    #[arg(long, value_name = "KEY=VALUE", value_parser = filter::meta)]
    meta: Option<(String, String)>,
    /// Only enqueued since then: 2h (ago), or 2026-05-01T09:00
    #[arg(long, value_name = "TIME", value_parser = parse_since)]
    since: Option<Millis>,
    /// Only enqueued before then
    #[arg(long, value_name = "TIME", value_parser = parse_since)]
    until: Option<Millis>,
    /// Only ended since then
    #[arg(long, value_name = "TIME", value_parser = parse_since)]
    ended_since: Option<Millis>,
    /// Only ended before then
    #[arg(long, value_name = "TIME", value_parser = parse_since)]
    ended_until: Option<Millis>,
}

impl FilterArgs {
    pub fn filter(&self) -> Result<JobFilter, String> {
        let mut filter = self.terms.filter()?;
        fn and<T: Clone>(flag: &str, value: &Option<T>, place: &mut Option<T>) -> Result<(), String> {
            match (value, &place) {
                (Some(_), Some(_)) => Err(format!("--{flag} is given, and --where says it too; say it once")),
                (Some(value), None) => {
                    *place = Some(value.clone());
                    Ok(())
                }
                (None, _) => Ok(()),
            }
        }
        filter.states.extend(&self.state);
        and("role", &self.role, &mut filter.role)?;
        and("queue", &self.queue, &mut filter.queue)?;
        and("group", &self.group, &mut filter.group)?;
        and("tag", &self.tag, &mut filter.tag)?;
        and("search", &self.search, &mut filter.text)?;
        and("meta", &self.meta, &mut filter.meta)?;
        and("since", &self.since, &mut filter.created_from)?;
        and("until", &self.until, &mut filter.created_before)?;
        and("ended-since", &self.ended_since, &mut filter.ended_from)?;
        and("ended-until", &self.ended_until, &mut filter.ended_before)?;
        Ok(filter)
    }

    pub fn is_given(&self) -> bool {
        let words = [&self.role, &self.queue, &self.group, &self.tag, &self.search];
        let times = [self.since, self.until, self.ended_since, self.ended_until];
        !self.terms.terms.is_empty()
            || !self.state.is_empty()
            || self.meta.is_some()
            || words.iter().any(|word| word.is_some())
            || times.iter().any(Option::is_some)
    }
}

fn parse_since(text: &str) -> Result<Millis, String> {
    filter::since(text, wire::now())
}
