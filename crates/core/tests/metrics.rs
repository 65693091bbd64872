//! Numbers to watch a fleet by.

mod histogram;
mod tally;
mod text;

use async_trait::async_trait;
use posse_core::clock::Millis;
use posse_core::job::JobState;
use posse_core::metrics::*;
use posse_core::port::{JobsIn, MetricsQueries, RepositoryError, Standing, Written};

/// A store that tells this of itself.
struct Told(Standing);

#[async_trait]
impl MetricsQueries for Told {
    async fn standing(&self, _: Millis) -> Result<Standing, RepositoryError> {
        Ok(self.0.clone())
    }

    fn written(&self) -> Written {
        Written::default()
    }
}

fn bounded(told: Standing) -> Standing {
    futures::executor::block_on(standing(&Told(told), 0)).expect("is told")
}

#[test]
fn queues_beyond_the_most_are_counted_as_one() {
    let jobs = |n: usize, state, jobs| JobsIn { role: "r".into(), queue: format!("q{n}"), state, jobs };
    let mut all: Vec<_> = (0..MOST_QUEUES + 3).map(|n| jobs(n, JobState::Available, 1000 - 2 * n as u64)).collect();
    all.push(jobs(MOST_QUEUES, JobState::Running, 1));
    let most = bounded(Standing { jobs: all.clone(), ..Standing::default() });
    let sum = |jobs: &[JobsIn]| jobs.iter().map(|jobs| jobs.jobs).sum::<u64>();
    assert_eq!(sum(&most.jobs), sum(&all));
    assert_eq!(most.leases(), 1);
    let others: Vec<_> = most.jobs.iter().filter(|jobs| jobs.queue == OTHER_QUEUES).collect();
    assert_eq!(others.iter().map(|jobs| jobs.jobs).collect::<Vec<_>>(), [600 + 598 + 596, 1]);
    assert_eq!(most.jobs.len(), MOST_QUEUES + 2);
    let few = Standing { jobs: all[..3].to_vec(), ..Standing::default() };
    assert_eq!(bounded(few.clone()), few);
}
