//! Changing jobs: one, with what becomes of it; or many, which are shown before anything is done and changed a few at a
//! time.

use std::collections::BTreeMap;

use posse_core::clock::Clock;
use posse_core::job::change::Change;
use posse_core::job::{Job, JobId, JobState};
use posse_core::port::{Cancelled, Forfeit, HeldJob, JobFilter, ProcessProbe, Reach, RepositoryError, Store};
use posse_core::text::{count, visible};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{Code, Error, Result};

/// Jobs changed in one transaction; others write between two of them.
const AT_ONCE: usize = 200;

/// Jobs shown before many are changed.
pub const SAMPLE: u32 = 5;

/// Who changes jobs, and when: what a change needs besides the store.
#[derive(Clone, Copy)]
pub struct Hand<'a> {
    /// Where the jobs are.
    pub store: &'a dyn Store,
    /// Tells which workers are gone.
    pub processes: &'a dyn ProcessProbe,
    /// The time.
    pub clock: &'a dyn Clock,
}

/// What became of a request to cancel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cancelling {
    /// What became of the job that was named.
    pub became: Cancelled,
    /// The worker that held it and was gone, if one was.
    pub gone: Option<String>,
    /// Others of its tree that are or will be cancelled with it.
    pub with: Vec<(JobId, Cancelled)>,
}

/// Asks for the end of a job, and of what `reach` says. What a worker held that is gone is ended here and now.
pub async fn cancel(hand: Hand<'_>, job: JobId, reach: Reach, reason: String) -> Result<Cancelling> {
    let Hand { store, clock, .. } = hand;
    let mut told = store.cancel_within(job, reach, reason, clock.now()).await?;
    let mut gone = None;
    if told.iter().any(|(_, became)| *became == Cancelled::Requested) {
        gone = end_for_the_dead(hand, told.iter().map(|(id, _)| *id).collect()).await?;
        for (id, became) in &mut told {
            let is_cancelled = |job: Option<Job>| job.is_some_and(|job| job.state == JobState::Cancelled);
            if *became == Cancelled::Requested && is_cancelled(store.job(*id).await?) {
                *became = Cancelled::Now;
            }
        }
    }
    let (_, became) = told.remove(0);
    told.retain(|(_, became)| matches!(became, Cancelled::Now | Cancelled::Requested));
    Ok(Cancelling { became, gone, with: told })
}

/// Makes a job that ended available again.
pub async fn retry(hand: Hand<'_>, job: JobId) -> Result<()> {
    hand.store.retry(job, hand.clock.now()).await.map_err(|error| match error {
        RepositoryError::Illegal(illegal) => {
            let way_out = format!("only a job that ended can be re-run (posse job cancel {job} ends it)");
            Error::new(Code::JobState, format!("job {job} is {}; {way_out}", illegal.state))
        }
        error => error.into(),
    })
}

/// Changes one job.
pub async fn one(hand: Hand<'_>, job: JobId, change: Change) -> Result<()> {
    let done = change.done();
    let told = hand.store.change(vec![job], change, hand.clock.now()).await?;
    match &told.first().ok_or(RepositoryError::NoSuchJob(job))?.refused {
        Some(why) => Err(Error::new(Code::JobState, format!("job {job} was not {done}: {why}"))),
        None => Ok(()),
    }
}

/// A job that was not changed.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct RefusedChange {
    /// Its number.
    pub id: JobId,
    /// Why, in words.
    pub why: String,
}

/// Many jobs that are to be changed, or were: the document of such a command.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Preview {
    /// Jobs that are meant.
    pub jobs: u64,
    /// How many of them are in each state.
    pub states: BTreeMap<&'static str, u64>,
    /// Jobs that fit too and are left out, by state: they can be changed, and only where that is said.
    pub left_out: BTreeMap<&'static str, u64>,
    /// What is to be done to them.
    pub change: &'static str,
    /// Whether it was.
    pub done: bool,
    /// The newest of them, as they were.
    pub sample: Vec<Job>,
    /// Jobs that were changed.
    pub changed: u64,
    /// Jobs that were not, since their state was another by then.
    pub refused: Vec<RefusedChange>,
    #[serde(skip)]
    ids: Vec<JobId>,
}

impl Preview {
    /// Finds the jobs that are meant. Of those that fit, they are the ones that allow the change; nobody means by a group
    /// what has to be said.
    pub async fn find(store: &dyn Store, mut filter: JobFilter, change: &Change) -> Result<Preview> {
        let (allowed, meant) = (change.states(), change.usual_states());
        let unsaid: Vec<_> = match filter.states.is_empty() {
            true => allowed.iter().copied().filter(|state| !meant.contains(state)).collect(),
            false => Vec::new(),
        };
        filter.states = match filter.states.as_slice() {
            [] => meant,
            named => named.iter().copied().filter(|state| allowed.contains(state)).collect(),
        };
        let (ids, sample) = match filter.states.is_empty() {
            true => (Vec::new(), Vec::new()),
            false => {
                let sample = store.jobs(JobFilter { limit: SAMPLE, ..filter.clone() }).await?;
                (store.ids(JobFilter { limit: u32::MAX, ..filter.clone() }).await?, sample)
            }
        };
        let mut left_out = BTreeMap::new();
        for state in unsaid {
            let others = store.ids(JobFilter { states: vec![state], limit: u32::MAX, ..filter.clone() }).await?;
            if !others.is_empty() {
                left_out.insert(state.as_str(), others.len() as u64);
            }
        }
        let mut states = BTreeMap::new();
        for some in ids.chunks(AT_ONCE) {
            for row in store.states(some.to_vec()).await? {
                *states.entry(row.state.as_str()).or_insert(0) += 1;
            }
        }
        let (jobs, change) = (ids.len() as u64, change.done());
        Ok(Preview { jobs, states, left_out, change, done: false, sample, changed: 0, refused: Vec::new(), ids })
    }

    /// Changes those that were found, and none that came in the meantime; a few at a time, so that nobody's write waits
    /// for long.
    pub async fn apply(&mut self, hand: Hand<'_>, change: &Change) -> Result<()> {
        for some in self.ids.chunks(AT_ONCE) {
            for one in hand.store.change(some.to_vec(), change.clone(), hand.clock.now()).await? {
                match one.refused {
                    None => self.changed += 1,
                    Some(why) => self.refused.push(RefusedChange { id: one.job, why }),
                }
            }
        }
        if matches!(change, Change::Cancel { .. }) {
            end_for_the_dead(hand, self.ids.clone()).await?;
        }
        Ok(())
    }
}

/// Jobs by state, in words.
pub fn by_state(states: &BTreeMap<&str, u64>) -> String {
    let each: Vec<_> = states.iter().map(|(state, jobs)| format!("{} {state}", count(*jobs))).collect();
    each.join(", ")
}

/// Takes back what workers hold that are known to be gone, or whose lease has run out, where that is one of `jobs`:
/// those that are to be cancelled then are. Else they would stay running until some worker starts. Gives the worker
/// of the first of them.
async fn end_for_the_dead(Hand { store, processes, clock }: Hand<'_>, jobs: Vec<JobId>) -> Result<Option<String>> {
    let now = clock.now();
    let held = store.held_jobs().await?;
    let held: Vec<_> = held.into_iter().filter(|held| jobs.contains(&held.job)).collect();
    if held.is_empty() {
        return Ok(None);
    }
    let workers = store.workers().await?;
    let dead = processes.dead(&workers);
    let lease_of = |worker: &str| workers.iter().find(|known| known.id == worker).map_or(0, |known| known.lease_ms);
    let is_dead = |held: &HeldJob| dead.iter().any(|dead| dead.0 == held.worker);
    // Long enough after its end that no clock that was set, and no heartbeat under way, explains it.
    let is_over = |held: &HeldJob| held.lease_until + lease_of(&held.worker) < now;
    let Some(first) = held.iter().find(|held| is_dead(held) || is_over(held)) else { return Ok(None) };
    store.rescue_from(dead.clone(), now).await?;
    let alive = processes.alive(&workers);
    let is_among = |job: JobId| held.iter().any(|held| held.job == job && is_over(held));
    let overdue = store.overdue(now).await?.into_iter().filter(|overdue| is_among(overdue.lease.job));
    let forfeits = overdue.map(|overdue| Forfeit { is_alive: alive.contains(&overdue.worker), overdue }).collect();
    store.take_back(forfeits, now).await?;
    Ok(Some(format!("worker {}", visible(&first.worker))))
}
