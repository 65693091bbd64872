//! Which states jobs come into, as a stream, whoever changes them: for those who follow many.
//!
//! A stream looks at the jobs it follows whenever this process has committed something, and ten
//! times a second for what other processes did. Two changes between two looks are told as one. The
//! final state of a job is always told: it stays where it is until somebody looks. (But for a job
//! that ended, is re-run by hand and ends again, all between two looks: that is two looks at one end.)

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

use crate::job::{JobId, JobState};
use crate::port::{JobSearch, RepositoryError, StateRow};

/// How long what another process did may stay unseen.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Jobs asked about in one read.
const PAGE: u32 = 5_000;

/// Which jobs to follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Followed {
    /// These. The stream ends when all of them have ended.
    Jobs(Vec<JobId>),
    /// Those of this group, and all that join it. Never ends.
    Group(String),
    /// All. Never ends.
    All,
}

/// A job is in another state than when it was last looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateChange {
    /// The job whose state it is.
    pub job: JobId,
    /// Where it was; absent when it had not been looked at.
    pub from: Option<JobState>,
    /// Where it is; absent when it is not there any more.
    pub to: Option<JobState>,
    /// Attempts begun so far.
    pub attempt: u32,
}

/// A stream of changes. What is followed takes some 40 bytes for each job that has not ended, and
/// nothing is read ahead: a slow reader is told less often, and of no fewer ends.
pub struct StateChanges {
    jobs: Arc<dyn JobSearch>,
    followed: Followed,
    commits: watch::Receiver<u64>,
    /// Jobs that have not ended, as they were last told.
    live: BTreeMap<JobId, (JobState, u32)>,
    /// Jobs up to this one are known.
    seen: JobId,
    told: VecDeque<StateChange>,
    pause: Duration,
    is_first: bool,
}

impl StateChanges {
    /// Follows jobs from now on. Those named are told of as they are at first; of others, each later change.
    pub async fn follow(jobs: Arc<dyn JobSearch>, followed: Followed) -> Result<StateChanges, RepositoryError> {
        let commits = jobs.committed();
        let mut changes = StateChanges {
            jobs,
            followed,
            commits,
            live: BTreeMap::new(),
            seen: JobId(0),
            told: VecDeque::new(),
            pause: LOOK_EVERY,
            is_first: true,
        };
        match &changes.followed {
            Followed::Jobs(ids) => {
                let ids = ids.clone();
                let rows = changes.jobs.states(ids.clone()).await?;
                let there: Vec<_> = rows.iter().map(|row| row.job).collect();
                rows.into_iter().for_each(|row| changes.take(row));
                for job in ids.into_iter().filter(|id| there.binary_search(id).is_err()) {
                    changes.told.push_back(StateChange { job, from: None, to: None, attempt: 0 });
                }
            }
            Followed::Group(_) | Followed::All => {
                let (newest, rows) = changes.jobs.live(changes.group()).await?;
                changes.seen = newest;
                changes.live = rows.into_iter().map(|row| (row.job, (row.state, row.attempt))).collect();
            }
        }
        Ok(changes)
    }

    /// The next change; `None` after the last of the jobs named has ended. May be dropped at any time.
    pub async fn next(&mut self) -> Option<Result<StateChange, RepositoryError>> {
        loop {
            if let Some(change) = self.told.pop_front() {
                return Some(Ok(change));
            }
            if matches!(self.followed, Followed::Jobs(_)) && self.live.is_empty() {
                return None;
            }
            if !std::mem::take(&mut self.is_first) {
                tokio::select! {
                    changed = self.commits.changed() => {
                        // A flood of commits is looked at together. And a store that is closing
                        // says no more, but what it last committed can still be read.
                        tokio::time::sleep(if changed.is_ok() { self.pause / 20 } else { self.pause }).await;
                    }
                    () = tokio::time::sleep(self.pause) => {}
                }
            }
            self.commits.borrow_and_update();
            if let Err(error) = self.look().await {
                return Some(Err(error));
            }
        }
    }

    fn group(&self) -> Option<String> {
        match &self.followed {
            Followed::Group(group) => Some(group.clone()),
            Followed::Jobs(_) | Followed::All => None,
        }
    }

    async fn look(&mut self) -> Result<(), RepositoryError> {
        if !matches!(self.followed, Followed::Jobs(_)) {
            self.look_for_new().await?;
            // Those known and those that somebody has re-run; those that have ended are not among them.
            let (_, rows) = self.jobs.live(self.group()).await?;
            let live: BTreeSet<_> = rows.iter().map(|row| row.job).collect();
            rows.into_iter().for_each(|row| self.take(row));
            let ended = self.live.keys().copied().filter(|job| !live.contains(job)).collect();
            self.look_at(ended).await?;
        } else {
            self.look_at(self.live.keys().copied().collect()).await?;
        }
        // Many jobs are looked at less often, so that looking stays a small part of the work.
        self.pause = LOOK_EVERY * (1 + (self.live.len() as u32) / PAGE);
        Ok(())
    }

    /// Jobs that have not ended when they were last looked at.
    async fn look_at(&mut self, known: Vec<JobId>) -> Result<(), RepositoryError> {
        for page in known.chunks(PAGE as usize) {
            let rows = self.jobs.states(page.to_vec()).await?;
            let mut rows = rows.into_iter().peekable();
            for &job in page {
                match rows.next_if(|row| row.job == job) {
                    Some(row) => self.take(row),
                    None => {
                        let from = self.live.remove(&job).map(|(state, _)| state);
                        self.told.push_back(StateChange { job, from, to: None, attempt: 0 });
                    }
                }
            }
        }
        Ok(())
    }

    async fn look_for_new(&mut self) -> Result<(), RepositoryError> {
        loop {
            let rows = self.jobs.states_after(self.seen, self.group(), PAGE).await?;
            let is_last = rows.len() < PAGE as usize;
            for row in rows {
                self.seen = row.job;
                self.take(row);
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// Takes in what a look found; tells of it unless it was told before.
    fn take(&mut self, row: StateRow) {
        let StateRow { job, state, attempt } = row;
        let before = match state.is_final() {
            true => self.live.remove(&job),
            false => self.live.insert(job, (state, attempt)),
        };
        if before != Some((state, attempt)) {
            let from = before.map(|(state, _)| state);
            self.told.push_back(StateChange { job, from, to: Some(state), attempt });
        }
    }
}
