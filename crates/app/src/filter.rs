//! The language that jobs are chosen by: `state=discarded role=scribe since=2h`.

use std::str::FromStr as _;

use posse_core::clock::Millis;
use posse_core::job::JobState;
use posse_core::job::name::role_name;
use posse_core::port::JobFilter;

use crate::times;

/// A time, or how long ago it was.
pub fn since(text: &str, now: Millis) -> Result<Millis, String> {
    match times::span(text) {
        Ok(ago) => Ok(now - ago),
        Err(_) => times::moment(text).map_err(|error| format!("{error}; or how long ago: 2h, 1d")),
    }
}

const KEYS: [&str; 11] =
    ["state", "role", "queue", "group", "tag", "search", "meta", "since", "until", "ended-since", "ended-until"];

/// A key and what it is to be, as people write it.
pub fn meta(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it as key=value")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// The filter that terms make: `key=value`, all of which must hold, with spaces between them or
/// given one by one. A value goes on to the next key, so that it may have spaces itself.
pub fn parse(terms: &[String], now: Millis) -> Result<JobFilter, String> {
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
            take(&mut filter, key, value, now).map_err(|error| format!("{key}: {error}"))?;
        }
    }
    Ok(filter)
}

fn take(filter: &mut JobFilter, key: &str, value: String, now: Millis) -> Result<(), String> {
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
        "meta" => match filter.meta.replace(meta(&value)?) {
            None => Ok(()),
            Some((first, _)) => Err(format!("is given twice ('{first}' before); one can be asked for")),
        },
        "since" => since(&value, now).map(|at| filter.created_from = Some(at)),
        "until" => since(&value, now).map(|at| filter.created_before = Some(at)),
        "ended-since" => since(&value, now).map(|at| filter.ended_from = Some(at)),
        _ => since(&value, now).map(|at| filter.ended_before = Some(at)),
    }
}
