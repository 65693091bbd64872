//! Which jobs are meant: as flags of `posse list`, and as `--where` of what changes many.

use std::str::FromStr as _;

use clap::Args;
use posse_app::times;
use posse_core::clock::Millis;
use posse_core::job::JobState;
use posse_core::job::name::role_name;
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
    /// The filter they make, without a limit.
    pub fn filter(&self) -> Result<JobFilter, String> {
        parse_where(&self.terms).map_err(|error| format!("--where: {error}"))
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
    #[arg(long, value_name = "KEY=VALUE", value_parser = super::enqueue::parse_meta)]
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
    /// The filter they make, without a limit.
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

    /// Whether any of them was given.
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

/// A time, or how long ago it was.
fn parse_since(text: &str) -> Result<Millis, String> {
    match times::span(text) {
        Ok(ago) => Ok(wire::now() - ago),
        Err(_) => times::moment(text).map_err(|error| format!("{error}; or how long ago: 2h, 1d")),
    }
}

const KEYS: [&str; 11] =
    ["state", "role", "queue", "group", "tag", "search", "meta", "since", "until", "ended-since", "ended-until"];

/// The filter that `--where` makes: `key=value`, all of which must hold, with spaces between them or
/// given one by one. A value goes on to the next key, so that it may have spaces itself.
pub fn parse_where(terms: &[String]) -> Result<JobFilter, String> {
    let mut filter = JobFilter::default();
    let known = format!("keys are {}", KEYS.join(", "));
    for term in terms {
        let mut parts: Vec<(&str, String)> = Vec::new();
        for word in term.split_whitespace() {
            match (word.split_once('='), parts.last_mut()) {
                (Some((key, value)), _) if KEYS.contains(&key) => parts.push((key, value.to_owned())),
                (_, Some((_, value))) => *value = format!("{value} {word}"),
                (Some((key, _)), None) => return Err(format!("'{key}' is no key; {known}")),
                (None, None) => return Err(format!("'{word}' is no key=value; {known}")),
            }
        }
        if parts.is_empty() {
            return Err(format!("it is empty; write key=value, {known}"));
        }
        for (key, value) in parts {
            take(&mut filter, key, value).map_err(|error| format!("{key}: {error}"))?;
        }
    }
    Ok(filter)
}

fn take(filter: &mut JobFilter, key: &str, value: String) -> Result<(), String> {
    if value.is_empty() {
        return Err("has no value".into());
    }
    let word = |place: &mut Option<String>, value: String| match place.replace(value) {
        None => Ok(()),
        Some(first) => Err(format!("is given twice ('{first}' before); all must hold")),
    };
    match key {
        // A job is in one state only, so several can only mean any of them.
        "state" => {
            for name in value.split(',') {
                filter.states.push(JobState::from_str(name.trim()).map_err(|error| error.to_string())?);
            }
            Ok(())
        }
        "role" => word(&mut filter.role, role_name(&value)),
        "queue" => word(&mut filter.queue, value),
        "group" => word(&mut filter.group, value),
        "tag" => word(&mut filter.tag, value),
        "search" => word(&mut filter.text, value),
        "meta" => match filter.meta.replace(super::enqueue::parse_meta(&value)?) {
            None => Ok(()),
            Some((first, _)) => Err(format!("is given twice ('{first}' before); one can be asked for")),
        },
        "since" => parse_since(&value).map(|at| filter.created_from = Some(at)),
        "until" => parse_since(&value).map(|at| filter.created_before = Some(at)),
        "ended-since" => parse_since(&value).map(|at| filter.ended_from = Some(at)),
        _ => parse_since(&value).map(|at| filter.ended_before = Some(at)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_make_a_filter_or_say_what_is_wrong() {
        let parse = |terms: &[&str]| parse_where(&terms.iter().map(ToString::to_string).collect::<Vec<_>>());
        let filter = parse(&["state=discarded,cancelled role=scribe search=the big one", "tag=a=b"]).expect("is fine");
        assert_eq!(filter.states, [JobState::Discarded, JobState::Cancelled]);
        assert_eq!((filter.role.as_deref(), filter.text.as_deref()), (Some("scribe"), Some("the big one")));
        assert_eq!(filter.tag.as_deref(), Some("a=b"));
        let meta = parse(&["meta=customer=7 role=scribe"]).expect("is fine").meta;
        assert_eq!(meta, Some(("customer".into(), "7".into())));
        assert_eq!(parse(&["since=1970-01-01T00:00:01Z"]).expect("is fine").created_from, Some(1000));
        for (wrong, words) in [
            ("colour=red", "'colour' is no key; keys are state, role"),
            ("everything", "'everything' is no key=value"),
            (" ", "it is empty"),
            ("state=done", "state: 'done' is no job state"),
            ("role=", "role: has no value"),
            ("role=a role=b", "role: is given twice"),
            ("since=soon", "since: write it as"),
        ] {
            let error = parse(&[wrong]).expect_err(wrong);
            assert!(error.contains(words), "{wrong}: {error}");
        }
    }
}
