//! Workers that died while they held a job: which of these deaths count, and what follows.
//!
//! What counts is a death without progress. A job that gets further between deaths is not what kills its workers,
//! however often that happens; one that dies again and again at the same place may be. Whoever dies takes all jobs of
//! its process along, so a job that met two such deaths is a **suspect**, and is worked with nothing beside it:
//! then it is told from those that only were there.

use super::JobState;
use super::transition::Event;
use crate::clock::Millis;
use crate::job::JobId;
use crate::text::plural;

/// Deaths in a row without progress after which a job is discarded, unless it asks for another number.
pub const DEFAULT_MAX_CRASHES: u32 = 3;

/// Most that may be asked for.
pub const MOST_CRASHES: u32 = 100;

/// Deaths in a row without progress after which a job is worked alone.
const SUSPECT_AFTER: u32 = 2;

/// How long a suspect waits for a process that has nothing in hand, before one of those that have something claims
/// nothing more until its hands are empty.
pub const SUSPECT_PATIENCE_MS: Millis = 60_000;

/// How far a job's work is, as far as its journal and its ledger tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Trail {
    /// Entries in its journal.
    pub entries: u64,
    /// Calls that ended, and are known to have.
    pub settled: u64,
    /// Whether a call has begun and not ended.
    pub in_flight: bool,
}

impl Trail {
    /// Whether work got further since it was at `before`. What is written about a call on the way to its start is no
    /// progress while that call is in flight, or a call that kills its worker would make some each time; nor is
    /// the first entry, which only says what is asked for.
    fn is_beyond(self, before: Trail) -> bool {
        self.settled > before.settled || (!self.in_flight && self.entries > before.entries.max(1))
    }
}

/// The deaths that a job met.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deaths {
    /// How many in a row came without progress.
    pub in_a_row: u32,
    /// How far its work was at the last one.
    pub trail: Trail,
}

impl Deaths {
    /// One more worker dies, and finds the work at `trail`: the deaths then, and what happens to the job. `limit` is
    /// how many in a row it may meet.
    pub fn meet(self, trail: Trail, limit: u32) -> (Deaths, Event) {
        if trail.is_beyond(self.trail) {
            return (Deaths { in_a_row: 0, trail }, Event::LostOnTheWay);
        }
        let in_a_row = self.in_a_row.saturating_add(1);
        let event = if in_a_row >= limit { Event::Deadly } else { Event::LeaseExpired };
        (Deaths { in_a_row, trail }, event)
    }

    /// Whether it is to be worked with nothing beside it: after the second death, and before the last one.
    pub fn is_suspect(self, limit: u32) -> bool {
        self.in_a_row > 0 && self.in_a_row >= SUSPECT_AFTER.min(limit.saturating_sub(1))
    }
}

/// Why a job was discarded that met `deaths`.
pub fn deadly(job: JobId, deaths: u32) -> String {
    let times = if deaths == 1 { "once".to_owned() } else { plural(deaths.into(), "time") + " in a row" };
    format!(
        "its worker was lost {times} while working on it, without the job getting any further (its limit, max_crashes, is \
         {deaths}); posse show {job} --full tells what it did last, and posse job retry {job} has it go on"
    )
}

/// Why a job was discarded whose last attempt ended with its worker.
pub fn died_in_last_attempt(job: JobId, attempts: u32) -> String {
    let which = match attempts {
        1 => "only attempt".to_owned(),
        attempts => format!("last of {}", plural(attempts.into(), "attempt")),
    };
    format!(
        "its worker was lost in its {which} (max_attempts), without the job getting any further; posse job retry {job} \
         has it go on"
    )
}

/// A suspect that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspect {
    /// The job.
    pub job: JobId,
    /// Its role.
    pub role: String,
    /// Its queue.
    pub queue: String,
    /// Where it is.
    pub state: JobState,
    /// The worker that holds it, while one does.
    pub held_by: Option<String>,
    /// When its worker died.
    pub since: Millis,
    /// The living worker that claims nothing until its hands are empty for this one.
    pub awaited_by: Option<String>,
}

/// What a worker may claim while there are suspects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimable {
    /// Whatever is next.
    All,
    /// One job: should it be a suspect, then nothing is beside it.
    One,
    /// All but suspects.
    Others,
    /// Nothing: a suspect is at work here.
    Nothing,
}

/// What `worker` may claim, whose hands are empty or not, of a role and queues (all, if none is named).
pub fn claimable(suspects: &[Suspect], worker: &str, has_jobs: bool, role: &str, queues: &[String]) -> Claimable {
    if suspects.iter().any(|suspect| suspect.held_by.as_deref() == Some(worker)) {
        return Claimable::Nothing;
    }
    let is_asked_for = |suspect: &&Suspect| {
        suspect.role == role && (queues.is_empty() || queues.contains(&suspect.queue)) && !suspect.state.is_final()
    };
    match suspects.iter().any(|suspect| is_asked_for(&suspect)) {
        false => Claimable::All,
        true if has_jobs => Claimable::Others,
        true => Claimable::One,
    }
}

impl Suspect {
    /// Whether `worker`, which has other jobs in hand, is to claim nothing more until it can take this one.
    pub fn is_worth_waiting(&self, worker: &str, now: Millis) -> bool {
        let is_free = self.awaited_by.as_deref().is_none_or(|by| by == worker);
        is_free && now.saturating_sub(self.since) >= SUSPECT_PATIENCE_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn trail(entries: u64, settled: u64, in_flight: bool) -> Trail {
        Trail { entries, settled, in_flight }
    }

    #[test]
    fn deaths_count_while_the_job_gets_no_further() {
        let mut deaths = Deaths::default();
        let mut meet = |now| {
            let (then, event) = deaths.meet(now, 3);
            deaths = then;
            (then.in_a_row, event, then.is_suspect(3))
        };
        // Each time eleven calls further, for ever.
        for step in 1..=40 {
            assert_eq!(meet(trail(33 * step, 11 * step, true)), (0, Event::LostOnTheWay, false));
        }
        // The same call kills its worker again and again; what is written on the way to it is no progress.
        assert_eq!(meet(trail(1323, 440, true)), (1, Event::LeaseExpired, false));
        assert_eq!(meet(trail(1326, 440, true)), (2, Event::LeaseExpired, true));
        assert_eq!(meet(trail(1329, 440, true)), (3, Event::Deadly, true));
    }

    #[test]
    fn a_beginning_is_no_progress_and_a_reply_is() {
        let first = Deaths::default().meet(trail(1, 0, false), 3);
        assert_eq!((first.0.in_a_row, first.1), (1, Event::LeaseExpired));
        assert_eq!(first.0.meet(trail(2, 0, false), 3).0.in_a_row, 0);
    }

    #[test]
    fn a_limit_of_one_allows_none_and_of_two_makes_a_suspect_of_the_first() {
        assert_eq!(Deaths::default().meet(Trail::default(), 1).1, Event::Deadly);
        let (deaths, event) = Deaths::default().meet(Trail::default(), 2);
        assert_eq!((event, deaths.is_suspect(2), deaths.is_suspect(3)), (Event::LeaseExpired, true, false));
    }

    /// A fleet on paper: processes with several jobs in hand each, which die at random, and by one job always.
    #[derive(Debug, Clone)]
    struct Paper {
        deaths: Deaths,
        left: u32,
        held_by: Option<usize>,
        is_over: Option<bool>,
        settled: u64,
    }

    const LIMIT: u32 = 3;

    fn suspects(jobs: &[Paper]) -> Vec<Suspect> {
        let suspect = |(i, job): (usize, &Paper)| Suspect {
            job: JobId(i as i64),
            role: "r".into(),
            queue: "q".into(),
            state: if job.held_by.is_some() { JobState::Running } else { JobState::Available },
            held_by: job.held_by.map(|w| w.to_string()),
            since: 0,
            awaited_by: None,
        };
        let is_suspect = |job: &Paper| job.is_over.is_none() && job.deaths.is_suspect(LIMIT);
        jobs.iter().enumerate().filter(|(_, job)| is_suspect(job)).map(suspect).collect()
    }

    proptest! {
        /// One job kills whatever works it. It is discarded, and every other one comes to its end.
        #[test]
        fn a_killer_among_innocents_is_found(
            killer in 0usize..12,
            works in prop::collection::vec(1u32..6, 12),
            luck in prop::collection::vec((0usize..3, 0u32..100), 4000),
        ) {
            let mut jobs: Vec<_> = works.iter().map(|left| Paper {
                deaths: Deaths::default(), left: *left, held_by: None, is_over: None, settled: 0,
            }).collect();
            for (worker, dice) in luck {
                // Claims what it may, up to four jobs.
                let has = |jobs: &[Paper]| jobs.iter().filter(|job| job.held_by == Some(worker)).count();
                let may = claimable(&suspects(&jobs), &worker.to_string(), has(&jobs) > 0, "r", &[]);
                let room = match may {
                    Claimable::All | Claimable::Others => 4usize.saturating_sub(has(&jobs)),
                    Claimable::One => 1,
                    Claimable::Nothing => 0,
                };
                let mut taken = 0;
                for job in &mut jobs {
                    let passes = may == Claimable::Others && job.deaths.is_suspect(LIMIT);
                    if taken < room && job.held_by.is_none() && job.is_over.is_none() && !passes {
                        job.held_by = Some(worker);
                        taken += 1;
                    }
                }
                let alone = jobs.iter().any(|job| job.held_by == Some(worker) && job.deaths.is_suspect(LIMIT));
                prop_assert!(!alone || has(&jobs) == 1, "a suspect has company");
                // Works one of them a step, and may die of it. By mere bad luck it dies after a step.
                let held: Vec<_> = (0..jobs.len()).filter(|i| jobs[*i].held_by == Some(worker)).collect();
                let Some(at) = held.get(dice as usize % held.len().max(1)).copied() else { continue };
                let is_killed = at == killer;
                if !is_killed {
                    jobs[at].settled += 1;
                    jobs[at].left -= 1;
                    if jobs[at].left == 0 {
                        (jobs[at].is_over, jobs[at].held_by) = (Some(true), None);
                    }
                }
                if is_killed || (dice < 10 && held.len() == 1) {
                    for job in jobs.iter_mut().filter(|job| job.held_by == Some(worker)) {
                        let now = Trail { entries: 3 * job.settled, settled: job.settled, in_flight: true };
                        let (deaths, event) = job.deaths.meet(now, LIMIT);
                        (job.deaths, job.held_by) = (deaths, None);
                        job.is_over = (event == Event::Deadly).then_some(false);
                    }
                }
            }
            for (i, job) in jobs.iter().enumerate() {
                prop_assert_eq!(job.is_over, Some(i != killer), "job {}: {:?}", i, job);
            }
        }
    }
}
