//! Finding jobs, and telling how they stand.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use super::driver::{AsksOf, CountsOf, Driver, IdsOf, JobsOf, Number, ProgressRow, StoredJob, WaitRow, WaitsOf};
use super::seal::{Keys, Place, Sealed};
use super::views::to_job;
use super::{Done, Outcome, limits};
use crate::clock::Millis;
use crate::job::question::QuestionState;
use crate::job::{GroupStanding, GroupUse, Job, JobId, JobProgress, JobState, Meta, Output, Payload};
use crate::port::{Awaited, JobFilter, SEARCHED_AT_MOST, Waiting};
use crate::run::results::ResultCounts;

/// Texts looked at in one query.
const TEXTS_AT_ONCE: usize = 500;

/// One job.
pub fn job<D: Driver>(db: &mut D, keys: &Keys, id: JobId) -> Outcome<Option<Job>> {
    let mut job = db.whole_jobs(&[id])?.pop().map(|row| to_job(keys, row));
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

/// Jobs by their numbers, without how far they are.
pub fn those<D: Driver>(db: &mut D, keys: &Keys, of: IdsOf<'_>) -> Done<Vec<Job>> {
    let ids = db.ids(of)?;
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
    let limit = filter.limit as usize;
    let mut found = Vec::new();
    for page in ids(db, filter, SEARCHED_AT_MOST)?.chunks(TEXTS_AT_ONCE) {
        let rows = db.whole_jobs(page)?;
        found.extend(rows.iter().rev().filter(|row| has_content(keys, row, filter)).map(|(row, _)| row.id));
        if found.len() >= limit {
            break;
        }
    }
    found.truncate(limit);
    Ok(found)
}

/// Whether a job has the filter's text in goal, reason or answer, and its value in the metadata. What cannot be opened
/// or read has neither, and hides nobody else's.
fn has_content(keys: &Keys, (row, data): &StoredJob, filter: &JobFilter) -> bool {
    let id = row.id.0;
    let part = |place, stored: Option<&Sealed>| keys.open(place, stored?).ok().map(Cow::into_owned);
    let has_text = |wanted: &String| {
        let wanted = wanted.to_ascii_lowercase();
        let has = |text: &str| text.to_ascii_lowercase().contains(&wanted);
        part(Place::reason(id), row.reason.as_ref()).is_some_and(|text| has(&text))
            || part(Place::payload(id), Some(&data.payload))
                .and_then(|text| serde_json::from_str(&text).ok())
                .is_some_and(|payload: Payload| has(&payload.goal))
            || part(Place::output(id), row.output.as_ref())
                .and_then(|text| serde_json::from_str(&text).ok())
                .is_some_and(|output: Output| has(&output.text))
    };
    let has_meta = |(key, wanted): &(String, String)| {
        let meta: Meta = data.meta.as_deref().and_then(|meta| serde_json::from_str(meta).ok()).unwrap_or_default();
        let text = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        meta.get(key).is_some_and(|value| text(value) == *wanted)
    };
    filter.text.as_ref().is_none_or(has_text) && filter.meta.as_ref().is_none_or(has_meta)
}

/// The newest jobs that fit, whatever their texts. One look for each state asked for: a state that is rare among a
/// million others is found without looking at them.
fn ids<D: Driver>(db: &mut D, filter: &JobFilter, limit: u32) -> Done<Vec<JobId>> {
    if filter.states.is_empty() {
        return db.ids(IdsOf::Fitting(filter, None, limit));
    }
    let mut found = Vec::new();
    for state in JobState::ALL.into_iter().filter(|state| filter.states.contains(state)) {
        found.extend(db.ids(IdsOf::Fitting(filter, Some(state), limit))?);
    }
    found.sort_by_key(|id| Reverse(*id));
    found.truncate(limit as usize);
    Ok(found)
}

/// How many jobs of each role are in each state, in the order of a job's life.
pub fn counts<D: Driver>(db: &mut D) -> Done<Vec<(String, JobState, u64)>> {
    let mut counts = db.counts(CountsOf::Roles)?;
    counts.sort();
    Ok(counts)
}

/// Every group, by name.
pub fn groups<D: Driver>(db: &mut D) -> Done<Vec<GroupStanding>> {
    Ok(standings(db.counts(CountsOf::Groups(None))?))
}

/// One group, if it has jobs.
pub fn group<D: Driver>(db: &mut D, keys: &Keys, name: &str) -> Done<Option<(GroupStanding, GroupUse)>> {
    let Some(standing) = standings(db.counts(CountsOf::Groups(Some(name)))?).pop() else { return Ok(None) };
    Ok(Some((standing, group_use(db, keys, name)?)))
}

fn standings(rows: Vec<(String, JobState, u64)>) -> Vec<GroupStanding> {
    let mut groups: BTreeMap<String, Vec<(JobState, u64)>> = BTreeMap::new();
    for (group, state, jobs) in rows {
        groups.entry(group).or_default().push((state, jobs));
    }
    let standing = |(group, mut states): (String, Vec<(JobState, u64)>)| {
        states.sort();
        GroupStanding { group, states }
    };
    groups.into_iter().map(standing).collect()
}

/// What the jobs of a group used, by their answers.
fn group_use<D: Driver>(db: &mut D, keys: &Keys, name: &str) -> Done<GroupUse> {
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
    counts.states.sort();
    Ok(counts)
}

/// Jobs that hold unique keys and are not at work, and what they wait for: for whoever asks why a key does not come free.
/// See [`CareRepository::key_holders`](crate::port::CareRepository::key_holders).
pub fn key_holders<D: Driver>(db: &mut D, before: Millis, limit: u32) -> Done<Vec<Waiting>> {
    let mut level = db.jobs(JobsOf::KeyHolders(before, limit))?;
    let mut known: HashSet<JobId> = level.iter().map(|holder| holder.id).collect();
    let most = known.len() + limit as usize;
    let mut found = Vec::new();
    while !level.is_empty() {
        let mut next = Vec::new();
        for row in level {
            let (mut waits_for, mut asked_at) = (Vec::new(), None);
            if row.standing.state == JobState::Suspended {
                waits_for = awaited(db, row.id)?;
                let open = db.asks(AsksOf::Job(row.id))?.into_iter().filter(|ask| ask.state == QuestionState::Open);
                asked_at = open.map(|ask| ask.created_at).min();
            }
            for on in waits_for.iter().filter(|on| on.state.is_some_and(|state| !state.is_final())) {
                if known.len() < most && known.insert(on.job) {
                    next.push(on.job);
                }
            }
            found.push(Waiting {
                job: row.id,
                key: row.unique_key,
                role: row.role,
                queue: row.queue,
                concurrency_key: row.concurrency_key,
                state: row.standing.state,
                due_at: row.standing.run_at,
                waits_for,
                asked_at,
            });
        }
        level = db.jobs(JobsOf::Ids(&next))?;
        level.retain(|row| row.standing.state != JobState::Running);
    }
    Ok(found)
}

/// What a job has open waits for, by number.
fn awaited<D: Driver>(db: &mut D, job: JobId) -> Done<Vec<Awaited>> {
    let waits = db.waits(WaitsOf::OpenOf(job, u32::MAX))?;
    let ids: Vec<_> = waits.iter().map(|wait| wait.on).collect();
    let rows: HashMap<_, _> = db.jobs(JobsOf::Ids(&ids))?.into_iter().map(|row| (row.id, row)).collect();
    let awaited = |WaitRow { on, on_failed, .. }| {
        let is = rows.get(&on);
        let (state, ended_at) = (is.map(|is| is.standing.state), is.and_then(|is| is.finalized_at));
        Awaited { job: on, state, on_failed, ended_at }
    };
    Ok(waits.into_iter().map(awaited).collect())
}

/// The earliest time at which a waiting job becomes due, a lease expires, or, after `now`, a rule's
/// rate lets the next job start.
pub fn next_deadline<D: Driver>(db: &mut D, now: Millis) -> Done<Option<Millis>> {
    let due = db.number(Number::NextDue)?;
    let expiry = db.number(Number::NextLeaseEnd)?;
    let start = limits::rules(db)?.iter().filter_map(|rule| rule.next_start(now)).min();
    Ok(due.into_iter().chain(expiry).chain(start).min())
}
