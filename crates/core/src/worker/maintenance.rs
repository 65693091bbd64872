//! What keeps the fleet in order: each process's own part, and what one of them does for all.

use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::embedding::{ChosenEmbedder, Embedding, EmbeddingError, REST, Round, rest};
use super::fleet::{Fleet, Phase};
use crate::clock::Millis;
use crate::port::{Firing, RepositoryError};
use crate::schedule::Schedule;
use crate::text::plural;

/// How often schedules and other processes are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// How often what is kept too long is looked for.
const PRUNE_EVERY_MS: Millis = 60_000;

/// Between two small deletions, so that others who write come in between.
const PRUNE_PAUSE: Duration = Duration::from_millis(50);

/// For how long a process takes a duty at a time.
const DUTY_MS: Millis = 2 * PRUNE_EVERY_MS;

/// Keeps a process's part of the fleet in order until everything is given back: renews leases, hears of
/// cancellations and of its own drain, takes back what vanished workers held, makes the jobs of
/// schedules, deletes what was kept long enough, and gives what is remembered its vectors.
pub async fn maintain(fleet: Arc<Fleet>) {
    tokio::join!(keep_in_touch(&fleet), keep_in_order(&fleet), keep_embedded(&fleet));
}

async fn keep_in_touch(fleet: &Arc<Fleet>) {
    let mut wakes: watch::Receiver<u64> = fleet.store.wakes();
    let mut phase = fleet.phase();
    loop {
        wakes.borrow_and_update();
        if *phase.borrow_and_update() == Phase::Gone {
            return;
        }
        fleet.stop_if_lost();
        fleet.hear_cancellations().await;
        fleet.hear_drain().await;
        fleet.rescue().await;
        fleet.expire_questions().await;
        tokio::select! {
            _ = wakes.changed() => {
                // Enough to be felt as at once, and bounded under a flood of wake-ups.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            () = tokio::time::sleep(LOOK) => {}
            _ = phase.changed() => {}
        }
    }
}

async fn keep_in_order(fleet: &Arc<Fleet>) {
    let mut phase = fleet.phase();
    let mut pruned_at = fleet.clock.elapsed();
    loop {
        if *phase.borrow_and_update() != Phase::Working {
            return;
        }
        let mut done = fleet.fire_schedules().await.map(drop);
        if done.is_ok() && fleet.clock.elapsed() - pruned_at >= PRUNE_EVERY_MS {
            done = fleet.prune().await;
            pruned_at = fleet.clock.elapsed();
        }
        fleet.or_say(done);
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            _ = phase.changed() => {}
        }
    }
}

/// Gives what is remembered its vectors.
async fn keep_embedded(fleet: &Arc<Fleet>) {
    let Some(ChosenEmbedder { embedder, is_chosen }) = fleet.embedder.clone() else { return };
    let began = is_chosen.then_some(fleet.began_at());
    let (store, clock) = (fleet.store.clone(), Arc::clone(&fleet.clock));
    let mut embedding = Embedding::new(store, embedder, clock, fleet.worker.clone(), began);
    let mut phase = fleet.phase();
    let mut said = None;
    loop {
        if *phase.borrow_and_update() != Phase::Working {
            return;
        }
        let came = embedding.round().await;
        let (wait, says) = match came {
            Ok(Round::Made(_)) => (Duration::ZERO, None),
            Ok(Round::Idle | Round::Elsewhere) => (LOOK, None),
            Ok(Round::Other(space)) => {
                let what = "items have vectors of another model, which this process does not make";
                (REST, Some(format!("{what}: {} ({})", space.model, plural(space.dimension as u64, "number"))))
            }
            Err(EmbeddingError::Store(error)) => {
                fleet.or_say::<()>(Err(error));
                (LOOK, said.clone())
            }
            Err(EmbeddingError::Embedder(error)) => (rest(error.again), Some(error.message)),
        };
        if let Some(says) = says.as_ref().filter(|_| says != said) {
            // Where nobody asked for one, its absence is how things are.
            match is_chosen {
                true => warn!("what is saved is found by its words alone for now: {says}"),
                false => debug!("what is saved is found by its words alone for now: {says}"),
            }
        }
        said = says;
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = phase.changed() => {}
        }
    }
}

impl Fleet {
    /// Makes the jobs of all due schedules, and tells how many; a bad one holds up none of the others.
    pub async fn fire_schedules(&self) -> Result<usize, RepositoryError> {
        let now = self.clock.now();
        let mut made = 0;
        for schedule in self.store.due_schedules(now).await? {
            match self.fire(&schedule, now).await {
                Ok(jobs) => made += jobs,
                Err(error @ RepositoryError::Unavailable(_)) => return Err(error),
                Err(error) => warn!(schedule = schedule.name, "schedule {} makes no jobs: {error}", schedule.name),
            }
        }
        Ok(made)
    }

    async fn fire(&self, schedule: &Schedule, now: Millis) -> Result<usize, RepositoryError> {
        let name = &schedule.name;
        let due = schedule.fall_due(now).map_err(RepositoryError::Unusable)?;
        let jobs: Vec<_> = due.runs.iter().map(|run| (*run, schedule.job.clone())).collect();
        let firing = Firing { schedule: name.clone(), expected: schedule.next_at, next_at: due.next_at, jobs };
        let Some(ids) = self.store.fire(firing, now).await? else { return Ok(0) };
        if let Some(why) = due.left_out {
            info!(schedule = name, "schedule {name} leaves runs out: {why}");
        }
        for id in &ids {
            info!(schedule = name, job.id = id.0, "schedule {name} made job {id}");
        }
        Ok(ids.len())
    }

    /// Deletes all that was kept long enough by what the database says of it, a little at a time, if no other process does so now.
    pub async fn prune(&self) -> Result<(), RepositoryError> {
        if !self.store.has_prunable(self.clock.now()).await? {
            return Ok(());
        }
        let (mut jobs, mut contents, mut sessions, mut held_for) = (0, 0, 0, Millis::MIN / 2);
        loop {
            // Renewed long before it runs out, and not with every deletion.
            if self.clock.elapsed() - held_for >= DUTY_MS / 2 {
                let now = self.clock.now();
                if !self.store.take_duty("prune", self.worker.clone(), now + DUTY_MS, now).await? {
                    break;
                }
                held_for = self.clock.elapsed();
            }
            let pruned = self.store.prune(self.clock.now()).await?;
            (jobs, contents) = (jobs + pruned.jobs, contents + pruned.contents);
            sessions += pruned.sessions;
            if !pruned.more && !self.store.shrink().await? {
                break;
            }
            if *self.phase().borrow() != Phase::Working {
                break;
            }
            tokio::time::sleep(PRUNE_PAUSE).await;
        }
        if jobs > 0 || sessions > 0 {
            let (jobs, contents) = (plural(jobs, "job"), plural(contents, "content"));
            let sessions = plural(sessions, "session");
            info!("deleted {jobs} and {sessions} kept long enough, and {contents} that nothing else has");
        }
        Ok(())
    }

    /// Lets this process end with what is in hand, where somebody asked for that.
    async fn hear_drain(&self) {
        if self.or_say(self.store.drain_requested(self.worker.clone()).await) == Some(true) {
            self.finish();
        }
    }
}
