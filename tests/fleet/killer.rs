//! One job among others that kills whatever process works it, while processes are killed at random too.

use std::time::{Duration, Instant};

use posse_core::clock::Clock as _;
use posse_core::job::{JobState, NewJob, Payload};
use posse_core::port::{JobQueries as _, JobRepository as _};
use posse_infra::process::SystemClock;

use super::host::Host;
use super::worker::{KILLER, SLEEPER, host_now};
use crate::support::dice::{Dice, number};

const INNOCENTS: usize = 150;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_kills_is_discarded_and_every_other_one_completes() {
    let seed = number("POSSE_FLEET_SEED").unwrap_or(SystemClock.now() as u64 % 1_000_000);
    eprintln!("POSSE_FLEET_SEED={seed}");
    let mut dice = Dice(seed);
    let mut host = Host::new();
    let innocent = NewJob { role: SLEEPER.into(), ..NewJob::default() };
    let payload = Payload { goal: KILLER.into(), ..Payload::default() };
    let killer = NewJob { payload, max_attempts: 50, ..innocent.clone() };
    let mut jobs = vec![innocent; INNOCENTS];
    let at = dice.below(INNOCENTS as u64) as usize;
    jobs.insert(at, killer);
    let ids: Vec<_> = host
        .store()
        .enqueue(jobs, host_now(host.root()))
        .await
        .expect("is stored")
        .into_iter()
        .map(|enqueued| enqueued.id)
        .collect();
    (0..3).for_each(|_| host.start_worker());
    let until = Instant::now() + Duration::from_secs(90);
    let mut by_chance = 5;
    loop {
        for worker in 0..host.workers.len() {
            if by_chance > 0 && dice.below(100) == 0 {
                host.replace(worker);
                by_chance -= 1;
            } else if host.workers[worker].try_wait().expect("can be asked").is_some() {
                host.restart(worker);
            }
        }
        let mut left = 0;
        for id in &ids {
            let job = host.store().job(*id).await.expect("readable").expect("is there");
            left += usize::from(!job.state.is_final());
        }
        if left == 0 {
            break;
        }
        assert!(Instant::now() < until, "seed {seed}: {left} jobs have not ended\n{}", host.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for (place, id) in ids.iter().enumerate() {
        let job = host.store().job(*id).await.expect("readable").expect("is there");
        let want = if place == at { JobState::Discarded } else { JobState::Completed };
        assert_eq!(job.state, want, "seed {seed}: job {id}: {:?}", job.reason);
        if place == at {
            let said = job.reason.unwrap_or_default();
            assert!(said.contains("max_crashes, is 3") && job.crashes == 3, "{said}");
        }
    }
}
