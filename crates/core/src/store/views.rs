//! Jobs as people see them, from their rows.

use std::borrow::Cow;

use serde::de::DeserializeOwned;

use super::driver::{DataRow, JobRow, StoredJob};
use super::fault::not_ours;
use super::seal::{Keys, Place, Sealed};
use crate::job::retry::RetryPolicy;
use crate::job::{Job, JobState, Meta, Output, Payload};

/// A stored job as the core sees it, as far as it can be read.
pub fn to_job(keys: &Keys, (row, data): StoredJob) -> Job {
    let (content, damage) = readable(keys, row.id.0, &data, row.output.as_ref());
    Job { damage, ..job(keys, row, data, content) }
}

/// A stored job whose content was read.
pub fn job(keys: &Keys, row: JobRow, data: DataRow, content: Content) -> Job {
    let standing = row.standing;
    let is_running = standing.state == JobState::Running;
    Job {
        id: row.id,
        queue: row.queue,
        role: row.role,
        state: standing.state,
        priority: row.priority,
        run_at: standing.run_at,
        attempt: standing.attempt,
        max_attempts: standing.max_attempts,
        crashes: standing.crashes,
        retry: content.retry,
        unique_key: row.unique_key,
        concurrency_key: Some(row.concurrency_key).filter(|key| !key.is_empty()),
        leased_by: row.leased_by.filter(|_| is_running),
        lease_until: row.lease_until,
        cancel_requested: standing.cancel_requested,
        payload: content.payload,
        output: content.output,
        reason: row.reason.map(|reason| keys.show(Place::reason(row.id.0), &reason)),
        created_at: row.created_at,
        finalized_at: row.finalized_at,
        parent: data.parent,
        root: data.root,
        group: data.group,
        tags: content.tags,
        meta: content.meta,
        progress: None,
        damage: None,
    }
}

/// What of a job is stored as JSON.
pub struct Content {
    /// What is to be done.
    pub payload: Payload,
    /// What came of it.
    pub output: Option<Output>,
    /// Its own way of trying again.
    pub retry: Option<RetryPolicy>,
    /// What it is found by.
    pub tags: Vec<String>,
    /// What programs say of it.
    pub meta: Meta,
}

/// Reads it; the error is in words.
pub fn content(keys: &Keys, job: i64, data: &DataRow, output: Option<&Sealed>) -> Result<Content, String> {
    fn part<T: DeserializeOwned>(text: &str) -> Result<T, String> {
        serde_json::from_str(text).map_err(|error| not_ours(&error))
    }
    fn opened<T: DeserializeOwned>(keys: &Keys, place: Place<'_>, stored: &Sealed) -> Result<T, String> {
        part(&keys.open(place, stored).map_err(|closed| closed.to_string())?)
    }
    Ok(Content {
        payload: opened(keys, Place::payload(job), &data.payload)?,
        output: output.map(|output| opened(keys, Place::output(job), output)).transpose()?,
        retry: data.retry.as_deref().map(part).transpose()?,
        tags: data.tags.as_deref().map(part).transpose()?.unwrap_or_default(),
        meta: data.meta.as_deref().map(part).transpose()?.unwrap_or_default(),
    })
}

/// Reads what of it can be read, and tells what cannot. One damaged row must not hide the others of a list.
fn readable(keys: &Keys, job: i64, data: &DataRow, output: Option<&Sealed>) -> (Content, Option<String>) {
    fn part<T: Default + DeserializeOwned>(name: &str, text: Option<&str>, damage: &mut Vec<String>) -> T {
        let read = text.map(serde_json::from_str).transpose();
        read.inspect_err(|error| damage.push(format!("its {name} cannot be read: {error}")))
            .ok()
            .flatten()
            .unwrap_or_default()
    }
    let damage = &mut Vec::new();
    let mut opened = |name: &str, place, stored: &'_ Sealed| {
        let text = keys.open(place, stored).map(Cow::into_owned);
        text.inspect_err(|closed| damage.push(format!("its {name} is {closed}")))
    };
    let payload = opened("payload", Place::payload(job), &data.payload);
    let output = output.and_then(|output| opened("output", Place::output(job), output).ok());
    let payload = match &payload {
        Ok(text) => part("payload", Some(text), damage),
        Err(closed) => Payload { goal: format!("({closed})"), ..Payload::default() },
    };
    let content = Content {
        payload,
        output: part("output", output.as_deref(), damage),
        retry: part("retry policy", data.retry.as_deref(), damage),
        tags: part("tags", data.tags.as_deref(), damage),
        meta: part("metadata", data.meta.as_deref(), damage),
    };
    (content, (!damage.is_empty()).then(|| damage.join("; ")))
}
