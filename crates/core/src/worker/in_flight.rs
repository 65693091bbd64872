//! What a service has in hand: jobs that wait for a slot, jobs at work, ends on their way to the database.

use std::sync::Arc;
use tokio::task::{JoinError, JoinSet};

use super::WorkerService;
use super::prefetch::{LeasedJob, Prefetch};
use crate::clock::Millis;
use crate::port::AttemptEnd;

/// Where jobs are short, so many commands that store ends may be under way; meanwhile further ends gather for the
/// next. The end of a longer job is on its way at once, whatever holds up those before it.
const STORING_AT_ONCE: usize = 2;

/// A job that was worked.
pub(super) struct Worked {
    /// In milliseconds.
    pub took: Millis,
    /// The attempt's end, unless that is stored.
    pub end: Option<AttemptEnd>,
}

/// See the module's documentation.
pub(super) struct InFlight {
    service: Arc<WorkerService>,
    prefetch: Prefetch,
    working: JoinSet<Worked>,
    over: Vec<AttemptEnd>,
    /// Each gives the number of its ends.
    storing: JoinSet<usize>,
    storing_ends: usize,
}

impl InFlight {
    pub fn new(service: Arc<WorkerService>) -> InFlight {
        let (working, storing) = (JoinSet::new(), JoinSet::new());
        InFlight { service, prefetch: Prefetch::new(), working, over: Vec::new(), storing, storing_ends: 0 }
    }

    /// How many jobs to claim now.
    pub fn room(&self) -> usize {
        let wanted = self.prefetch.wanted(self.service.slots);
        // A claim for a few costs as much as one for many, so all that wait are begun first.
        let may_claim = self.prefetch.is_empty() && !self.is_behind();
        if may_claim { (self.service.slots + wanted).saturating_sub(self.working.len()) } else { 0 }
    }

    /// Whether the database does not take what there is already.
    fn is_behind(&self) -> bool {
        self.over.len() + self.storing_ends > 2 * (self.service.slots + self.prefetch.wanted(self.service.slots))
    }

    /// Whether every slot is taken.
    pub fn is_full(&self) -> bool {
        self.working.len() >= self.service.slots
    }

    /// Has jobs worked that were claimed.
    pub fn take(&mut self, claimed: Vec<LeasedJob>) {
        self.prefetch.add(claimed);
        self.begin();
    }

    /// Begins jobs that wait, as far as there are slots.
    fn begin(&mut self) {
        while !self.is_full()
            && let Some(job) = self.prefetch.next()
        {
            let service = Arc::clone(&self.service);
            self.working.spawn(async move { service.work(job).await });
        }
    }

    /// Waits until there is something to settle, and tells whether there may be more room.
    pub async fn moved(&mut self) -> bool {
        let is_behind = self.is_behind();
        tokio::select! {
            Some(end) = self.working.join_next() => self.ended(end),
            Some(stored) = self.storing.join_next(), if is_behind || !self.over.is_empty() => {
                self.stored(stored);
                return is_behind;
            }
            () = self.prefetch.overdue() => self.give_back("its worker has no slot for it after all"),
        }
        true
    }

    fn ended(&mut self, worked: Result<Worked, JoinError>) {
        // It fails only with the runtime: panics of steps are outcomes.
        let Ok(Worked { took, end }) = worked else { return };
        self.prefetch.took(took);
        self.over.extend(end);
    }

    fn stored(&mut self, ends: Result<usize, JoinError>) {
        self.storing_ends -= ends.unwrap_or(0);
    }

    fn give_back(&mut self, why: &str) {
        for job in self.prefetch.give_back() {
            self.over.push(self.service.given_back(job, why));
        }
    }

    /// Has what is over stored, and begins what there is a slot for.
    pub async fn settle(&mut self) {
        self.gather();
        let are_short = self.prefetch.wanted(self.service.slots) > 0;
        if self.over.is_empty() || (are_short && self.storing.len() >= STORING_AT_ONCE) {
            return;
        }
        // Lets those end too that are about to, and those that wait in their places, until none ends any
        // more: the ends of many are stored by one command.
        loop {
            let before = self.over.len();
            tokio::task::yield_now().await;
            self.gather();
            if self.over.len() == before || self.prefetch.is_empty() {
                break;
            }
        }
        self.store();
    }

    fn gather(&mut self) {
        while let Some(end) = self.working.try_join_next() {
            self.ended(end);
        }
        while let Some(stored) = self.storing.try_join_next() {
            self.stored(stored);
        }
        self.begin();
    }

    fn store(&mut self) {
        if self.over.is_empty() {
            return;
        }
        let (service, ends) = (Arc::clone(&self.service), std::mem::take(&mut self.over));
        let count = ends.len();
        self.storing_ends += count;
        self.storing.spawn(async move {
            service.store(ends, false).await;
            count
        });
    }

    /// Waits until nothing is in hand any more. What waits for a slot is given back at once.
    pub async fn empty(mut self, why: &str) {
        self.give_back(why);
        self.store();
        while let Some(end) = self.working.join_next().await {
            self.ended(end);
            self.store();
        }
        while self.storing.join_next().await.is_some() {}
    }
}
