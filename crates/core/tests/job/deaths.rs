//! Workers that died while they held a job: which of these deaths count, and what follows.

use posse_core::job::deaths::*;
use posse_core::job::transition::Event;
use posse_core::job::{JobId, JobState};
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
