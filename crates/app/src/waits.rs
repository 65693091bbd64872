//! Why jobs that have not ended do not run.

use std::collections::HashMap;

use posse_core::clock::Millis;
use posse_core::job::{Job, JobId, JobState};
use posse_core::port::{QuestionFilter, Store};
use posse_core::queue::rules::Held;
use posse_core::text::{ago, count, plural, visible};
use schemars::JsonSchema;
use serde::Serialize;

use crate::Result;

/// What a job waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Waits {
    /// `time`, `retry`, `pause`, `limit`, `worker`, `person`, `jobs` or `event`.
    #[serde(rename = "for")]
    kind: &'static str,
    /// The same in a sentence, with what a person can do about it.
    pub text: String,
    /// The sentence alone, for whoever tells elsewhere what can be done.
    #[serde(skip)]
    pub said: String,
    /// The same in two words; empty where the state says enough.
    #[serde(skip)]
    pub brief: String,
    /// Jobs and groups that the sentence names.
    #[serde(skip)]
    pub named: (Vec<JobId>, Vec<String>),
}

impl Waits {
    fn new(kind: &'static str, text: String, brief: String) -> Waits {
        Waits { kind, said: text.clone(), text, brief, named: Default::default() }
    }

    /// Whether the jobs that it names are all among these, and it names nothing else.
    pub fn is_for_some_of(&self, jobs: &[JobId]) -> bool {
        let (named, groups) = &self.named;
        !named.is_empty() && groups.is_empty() && named.iter().all(|job| jobs.contains(job))
    }

    /// Whether a rule holds the job: a pause or a limit.
    pub fn is_by_rule(&self) -> bool {
        ["pause", "limit"].contains(&self.kind)
    }
}

/// Suspended jobs of one list that are looked at closely; of others their reason tells.
const CLOSELY: usize = 500;
/// Jobs that are named.
const NAMED: usize = 5;

/// Why each of `jobs` waits, of those that do.
pub async fn why(reader: &dyn Store, jobs: &[Job], now: Millis) -> Result<HashMap<JobId, Waits>> {
    let mut all = HashMap::new();
    let is_ruled = jobs.iter().any(|job| job.state == JobState::Available) && !reader.rules().await?.is_empty();
    // What holds a job holds every one of its role, queue and key.
    let mut held: HashMap<(&str, &str, Option<&str>), Option<Held>> = HashMap::new();
    let mut looked_at = 0;
    for job in jobs {
        let waits = match job.state {
            JobState::Scheduled | JobState::Retryable => due(job, now),
            JobState::Available => {
                let kind = (job.role.as_str(), job.queue.as_str(), job.concurrency_key.as_deref());
                let by = match held.get(&kind) {
                    Some(by) => by.clone(),
                    None if is_ruled => {
                        let by = reader.held(job.id, now).await?;
                        held.insert(kind, by.clone());
                        by
                    }
                    None => None,
                };
                by.as_ref().map_or_else(for_a_worker, by_rule)
            }
            JobState::Suspended => {
                looked_at += 1;
                suspended(reader, job, looked_at <= CLOSELY).await?
            }
            _ => continue,
        };
        all.insert(job.id, waits);
    }
    Ok(all)
}

/// What a job waits for that may start by the rules.
fn for_a_worker() -> Waits {
    Waits::new("worker", "waiting for a worker".into(), String::new())
}

fn due(job: &Job, now: Millis) -> Waits {
    let when = ago(job.run_at, now);
    let reason = job.reason.as_deref().map(|reason| format!(": {}", visible(reason))).unwrap_or_default();
    match job.state {
        JobState::Retryable => Waits::new("retry", format!("next attempt {when}{reason}"), when),
        _ => Waits::new("time", format!("due {when}{reason}"), when),
    }
}

fn by_rule(held: &Held) -> Waits {
    let (kind, brief) = match held {
        Held::Paused { .. } => ("pause", "paused"),
        Held::Full { .. } | Held::FullKey { .. } => ("limit", "at its limit"),
        Held::TooFast { .. } => ("limit", "at its rate"),
    };
    Waits::new(kind, visible(&held.to_string()), brief.into())
}

async fn suspended(reader: &dyn Store, job: &Job, closely: bool) -> Result<Waits> {
    let reason = visible(job.reason.as_deref().unwrap_or("waits for an event"));
    if !closely {
        return Ok(Waits::new("event", reason, String::new()));
    }
    let filter = QuestionFilter { settled: false, job: Some(job.id), limit: 1000 };
    let questions = reader.questions(filter).await?;
    if let Some(first) = questions.first() {
        let (id, several) = (first.id, plural(questions.len() as u64, "question"));
        let (brief, said, way_out) = match questions.len() {
            1 => (
                format!("question {id}"),
                format!("waits for an answer to question {id}"),
                format!("posse question answer {id} \"<answer>\""),
            ),
            _ => {
                let said = format!("waits for answers to {several}");
                (several, said, format!("posse question list --job {}", job.id))
            }
        };
        return Ok(Waits { text: format!("{said}: {way_out}"), said, ..Waits::new("person", String::new(), brief) });
    }
    let open: Vec<_> = reader.dependencies(job.id).await?.into_iter().filter(|on| on.open).collect();
    let groups: Vec<_> = reader.awaited_groups(job.id).await?.into_iter().filter(|wait| wait.open).collect();
    let brief = match (&open[..], &groups[..]) {
        ([], []) => return Ok(Waits::new("event", reason, String::new())),
        ([one], []) => format!("job {}", one.on),
        ([], [one]) => format!("group {}", visible(&one.group)),
        ([], several) => plural(several.len() as u64, "group"),
        (several, _) => plural(several.len() as u64, "job"),
    };
    let mut words: Vec<_> = groups.iter().map(|wait| format!("all of group {}", visible(&wait.group))).collect();
    words.extend(open.iter().take(NAMED).map(|on| match (on.on, on.state) {
        (id, Some(state)) if state.is_final() => format!("job {id} ({state}; posse job retry {id} runs it again)"),
        (id, Some(state)) => format!("job {id} ({state})"),
        (id, None) => format!("job {id} (deleted)"),
    }));
    if open.len() > NAMED {
        words.push(format!("{} more", count((open.len() - NAMED) as u64)));
    }
    let named =
        (open.iter().take(NAMED).map(|on| on.on).collect(), groups.into_iter().map(|wait| wait.group).collect());
    Ok(Waits { named, ..Waits::new("jobs", format!("waits for {}", words.join(", ")), brief) })
}
