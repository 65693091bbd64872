//! Finding jobs, and telling how they stand.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

use super::driver::{Driver, ProgressRow, TextRow};
use super::seal::{Keys, Place, Sealed};
use super::views::to_job;
use super::{Done, Outcome, limits};
use crate::clock::Millis;
use crate::job::{GroupStanding, GroupUse, Job, JobId, JobProgress, JobState, Output, Payload};
use crate::port::{JobFilter, SEARCHED_AT_MOST, Waiting};
use crate::run::results::ResultCounts;

/// Texts looked at in one query.
const TEXTS_AT_ONCE: usize = 500;

/// One job.
pub fn job<D: Driver>(db: &mut D, keys: &Keys, id: JobId) -> Outcome<Option<Job>> {
    let mut job = db.whole_job(id)?.map(|row| to_job(keys, row));
    add_progress(db, keys, job.as_mut_slice())?;
    Ok(job)
}

/// Jobs by filter, newest first.
pub fn list<D: Driver>(db: &mut D, keys: &Keys, filter: &JobFilter) -> Outcome<Vec<Job>> {
    let ids = numbers(db, keys, filter)?;
    let mut found: Vec<_> = db.whole_jobs(&ids)?.into_iter().rev().map(|row| to_job(keys, row)).collect();
    add_progress(db, keys, &mut found)?;
    Ok(found)
}

/// The jobs a job has made, oldest first.
pub fn children<D: Driver>(db: &mut D, keys: &Keys, parent: JobId) -> Done<Vec<Job>> {
    let ids = db.children(parent)?;
    Ok(db.whole_jobs(&ids)?.into_iter().map(|row| to_job(keys, row)).collect())
}

/// Adds to jobs that are running how far they are.
fn add_progress<D: Driver>(db: &mut D, keys: &Keys, found: &mut [Job]) -> Done<()> {
    let running: Vec<_> = found.iter().filter(|job| job.state == JobState::Running).map(|job| job.id).collect();
    if running.is_empty() {
        return Ok(());
    }
    for ProgressRow { job: id, share, text, at } in db.kept(running.as_slice())? {
        if let Some(job) = found.iter_mut().find(|job| job.id == id) {
            let text = keys.show(Place::progress(id.0), &text);
            job.progress = Some(JobProgress { share, text, at });
        }
    }
    Ok(())
}

/// The numbers of jobs by filter, newest first.
pub fn numbers<D: Driver>(db: &mut D, keys: &Keys, filter: &JobFilter) -> Outcome<Vec<JobId>> {
    if filter.text.is_none() && filter.meta.is_none() {
        return Ok(ids(db, filter, filter.limit)?);
    }
    // Where texts are sealed, the database sees none: then it finds those whose metadata fit.
    let (seen, sealed) = match filter.text.as_deref() {
        text if keys.seals() => (None, text),
        text => (text, None),
    };
    let meta = filter.meta.as_ref().map(|(key, value)| (key.as_str(), value.as_str()));
    let limit = filter.limit as usize;
    let mut found = Vec::new();
    for page in ids(db, filter, SEARCHED_AT_MOST)?.chunks(TEXTS_AT_ONCE) {
        let ids = db.with_content(page, seen, meta)?;
        found.extend(match sealed {
            Some(text) => opened_with(db, keys, &ids, text)?,
            None => ids,
        });
        if found.len() >= limit {
            break;
        }
    }
    found.truncate(limit);
    Ok(found)
}

/// The newest jobs that fit, whatever their texts. One look for each state asked for: a state that is rare among a
/// million others is found without looking at them.
fn ids<D: Driver>(db: &mut D, filter: &JobFilter, limit: u32) -> Done<Vec<JobId>> {
    if filter.states.is_empty() {
        return db.fitting(filter, None, limit);
    }
    let mut found = Vec::new();
    for state in JobState::ALL.into_iter().filter(|state| filter.states.contains(state)) {
        found.extend(db.fitting(filter, Some(state), limit)?);
    }
    found.sort_by_key(|id| Reverse(*id));
    found.truncate(limit as usize);
    Ok(found)
}

/// Those of some jobs, newest first, that have a text in goal, reason or answer, once those are opened.
fn opened_with<D: Driver>(db: &mut D, keys: &Keys, ids: &[JobId], text: &str) -> Done<Vec<JobId>> {
    let wanted = text.to_ascii_lowercase();
    let has = |text: &str| text.to_ascii_lowercase().contains(&wanted);
    let fits = |TextRow { id: JobId(id), payload, output, reason }: &TextRow| {
        // What cannot be opened or read has no text, and hides nobody else's.
        let part = |place, stored: Option<&Sealed>| keys.open(place, stored?).ok().map(Cow::into_owned);
        part(Place::reason(*id), reason.as_ref()).is_some_and(|text| has(&text))
            || part(Place::payload(*id), Some(payload))
                .and_then(|text| serde_json::from_str(&text).ok())
                .is_some_and(|payload: Payload| has(&payload.goal))
            || part(Place::output(*id), output.as_ref())
                .and_then(|text| serde_json::from_str(&text).ok())
                .is_some_and(|output: Output| has(&output.text))
    };
    Ok(db.texts(ids)?.iter().filter(|row| fits(row)).map(|row| row.id).collect())
}

/// A state's place in a job's life.
fn place(state: JobState) -> Option<usize> {
    JobState::ALL.iter().position(|known| *known == state)
}

/// How many jobs of each role are in each state, in the order of a job's life.
pub fn counts<D: Driver>(db: &mut D) -> Done<Vec<(String, JobState, u64)>> {
    let mut counts = db.counts()?;
    counts.sort_by(|(a_role, a, _), (b_role, b, _)| (a_role, place(*a)).cmp(&(b_role, place(*b))));
    Ok(counts)
}

/// Every group, by name.
pub fn groups<D: Driver>(db: &mut D) -> Done<Vec<GroupStanding>> {
    Ok(standings(db.group_counts(None)?))
}

/// One group, if it has jobs.
pub fn group<D: Driver>(db: &mut D, keys: &Keys, name: &str) -> Done<Option<(GroupStanding, GroupUse)>> {
    let Some(standing) = standings(db.group_counts(Some(name))?).pop() else { return Ok(None) };
    let used = if keys.seals() { opened_use(db, keys, name)? } else { db.group_use(name)? };
    Ok(Some((standing, used)))
}

fn standings(rows: Vec<(String, JobState, u64)>) -> Vec<GroupStanding> {
    let mut groups: BTreeMap<String, Vec<(JobState, u64)>> = BTreeMap::new();
    for (group, state, jobs) in rows {
        groups.entry(group).or_default().push((state, jobs));
    }
    let standing = |(group, mut states): (String, Vec<(JobState, u64)>)| {
        states.sort_by_key(|(state, _)| place(*state));
        GroupStanding { group, states }
    };
    groups.into_iter().map(standing).collect()
}

/// What a group used, where answers are sealed: the database cannot look into them.
fn opened_use<D: Driver>(db: &mut D, keys: &Keys, name: &str) -> Done<GroupUse> {
    let mut used = GroupUse::default();
    db.each_output(name, |job, sealed| {
        // What cannot be opened or read has used nothing that anybody knows of.
        let Ok(text) = keys.open(Place::output(job.0), &sealed) else { return };
        let Ok(output) = serde_json::from_str::<Output>(&text) else { return };
        used.turns += u64::from(output.turns);
        used.input_tokens += output.usage.input;
        used.output_tokens += output.usage.output;
        used.cost_microusd += output.cost_microusd.unwrap_or(0);
    })?;
    Ok(used)
}

/// How the jobs stand that a job waited for, by name or by group, and those it has made.
pub fn result_counts<D: Driver>(db: &mut D, of: JobId) -> Done<ResultCounts> {
    let mut counts = ResultCounts::default();
    for (state, jobs) in db.result_counts(of)? {
        match state {
            Some(state) => counts.states.push((state, jobs)),
            None => counts.deleted = jobs,
        }
    }
    counts.states.sort_by_key(|(state, _)| place(*state));
    Ok(counts)
}

/// Those with higher numbers than `after`, by number.
pub fn results<D: Driver>(db: &mut D, keys: &Keys, of: JobId, after: JobId, limit: u32) -> Done<Vec<Job>> {
    let ids = db.results(of, after, limit)?;
    Ok(db.whole_jobs(&ids)?.into_iter().map(|row| to_job(keys, row)).collect())
}

/// Jobs that hold unique keys and are not at work, and what they wait for: for whoever asks why a key does not come free.
/// See [`CareRepository::key_holders`](crate::port::CareRepository::key_holders).
pub fn key_holders<D: Driver>(db: &mut D, before: Millis, limit: u32) -> Done<Vec<Waiting>> {
    let holders = db.key_holders(before, limit)?;
    let mut known: HashSet<JobId> = holders.iter().map(|holder| holder.job).collect();
    let most = known.len() + limit as usize;
    let (mut found, mut level) = (Vec::new(), holders);
    while !level.is_empty() {
        let mut next = Vec::new();
        for mut waiting in level {
            if waiting.state == JobState::Suspended {
                waiting.waits_for = db.awaited(waiting.job)?;
                waiting.asked_at = db.asked_since(waiting.job)?;
            }
            let others = waiting.waits_for.iter().filter(|on| on.state.is_some_and(|state| !state.is_final()));
            for on in others {
                if known.len() < most && known.insert(on.job) {
                    next.push(on.job);
                }
            }
            found.push(waiting);
        }
        level = db.not_running(&next)?;
    }
    Ok(found)
}

/// The earliest time at which a waiting job becomes due, a lease expires, or, after `now`, a rule's
/// rate lets the next job start.
pub fn next_deadline<D: Driver>(db: &mut D, now: Millis) -> Done<Option<Millis>> {
    let due = db.next_due()?;
    let expiry = db.next_lease_end()?;
    let start = limits::rules(db)?.iter().filter_map(|rule| rule.next_start(now)).min();
    Ok(due.into_iter().chain(expiry).chain(start).min())
}
