//! A repository as simple as it can be: jobs in a list, and every rule looked up in all of them. What it
//! knows of jobs, keys, ranks and limits is written down here once more; the core's state machine has to
//! agree with it at every step.

use std::collections::BTreeMap;

use posse_core::clock::Millis;
use posse_core::job::dependency::{After, OnFailed};
use posse_core::job::transition::{Event, Standing, transition};
use posse_core::job::unique::Became;
use posse_core::job::{IfHeld, JobId, JobState, NewJob, Unique};
use posse_core::port::{Cancelled, Enqueued, Reach};
use posse_core::queue::rules::{Limits, Scope};

mod life;
mod starting;

use life::{Meaning, meaning, moved};

/// A job, and what it was enqueued as; `new` changes when it is edited.
#[derive(Debug, Clone)]
pub struct Job {
    pub id: JobId,
    pub new: NewJob,
    pub standing: Standing,
    pub created_at: Millis,
    pub ended_at: Option<Millis>,
    pub token: i64,
    pub lease: Option<(String, Millis)>,
    /// Jobs it waits for or waited for: by which rule, and whether it still does.
    pub waits: BTreeMap<JobId, (OnFailed, bool)>,
    pub parent: Option<JobId>,
    pub is_deleted: bool,
    /// Another job has taken its key since it completed.
    key_is_over: bool,
}

/// What holds for a scope.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rule {
    pub paused: bool,
    pub limits: Limits,
    full_at_us: i64,
}

/// When a job is due, the first of its key at `first`.
fn due(new: &NewJob, first: Millis, now: Millis) -> Millis {
    let most = match new.unique.as_ref().map(|unique| unique.if_held) {
        Some(IfHeld::Debounce { at_most_ms }) => at_most_ms,
        _ => None,
    };
    let asked = new.run_at.unwrap_or(now);
    most.map_or(asked, |most| asked.min(first + most))
}

/// A job was to become one that waits for itself.
#[derive(Debug)]
pub struct WaitsForItself;

/// All there is.
#[derive(Debug, Clone, Default)]
pub struct Simple {
    pub jobs: Vec<Job>,
    pub rules: BTreeMap<Scope, Rule>,
    /// For how long jobs of a queue that ended in a state are kept, where that queue says so.
    pub keep: BTreeMap<(&'static str, &'static str), Option<Option<Millis>>>,
    /// Of a role, in a queue or (empty) over all: the lane that was served last.
    last_served: BTreeMap<(String, String), (String, String)>,
}

impl Simple {
    /// The jobs that are there.
    pub fn there(&self) -> impl Iterator<Item = &Job> {
        self.jobs.iter().filter(|job| !job.is_deleted)
    }

    pub fn job(&self, id: JobId) -> &Job {
        &self.jobs[id.0 as usize - 1]
    }

    fn job_mut(&mut self, id: JobId) -> &mut Job {
        &mut self.jobs[id.0 as usize - 1]
    }

    fn state(&self, id: JobId) -> JobState {
        self.job(id).standing.state
    }

    /// Moves a job by the state machine; whether it could be.
    fn step(&mut self, id: JobId, event: Event, at: Millis, now: Millis) -> bool {
        let job = self.job_mut(id);
        let moved = moved(job.standing, event, at);
        let by_core = transition(job.standing, event, at).ok();
        assert_eq!(by_core.map(|change| change.to), moved, "job {id} by {event:?}");
        let (Some(to), Some(change)) = (moved, by_core) else { return false };
        assert_eq!(change.frees_lease, to.state != JobState::Running);
        job.standing = to;
        job.ended_at = to.state.is_final().then_some(now);
        if to.state != JobState::Running {
            job.lease = None;
        }
        if to.state.is_final() {
            job.waits.values_mut().for_each(|(_, open)| *open = false);
        }
        true
    }

    /// Who holds `key`.
    pub fn holder(&self, key: &str, now: Millis) -> Option<JobId> {
        let holds = |job: &&Job| {
            let Some(unique) = job.new.unique.as_ref().filter(|unique| unique.key == key) else { return false };
            match (job.standing.state, job.ended_at, unique.for_ms) {
                (JobState::Completed, Some(at), Some(for_ms)) => !job.key_is_over && now < at + for_ms,
                (_, ended_at, _) => ended_at.is_none(),
            }
        };
        self.there().find(holds).map(|job| job.id)
    }

    /// From now on nobody's completion is in the way of `key`.
    fn take_over(&mut self, key: &str) {
        let of_key = |job: &&mut Job| job.new.unique.as_ref().is_some_and(|unique| unique.key == key);
        let completed = self.jobs.iter_mut().filter(of_key).filter(|job| job.standing.state == JobState::Completed);
        completed.for_each(|job| job.key_is_over = true);
    }

    /// What became of each; none if one would have waited for itself, and then this is not to be used on.
    pub fn enqueue(&mut self, new: &[NewJob], parent: Option<JobId>, now: Millis) -> Option<Vec<Enqueued>> {
        let mut made: Vec<Enqueued> = Vec::new();
        for new in new {
            let on = new.after.iter().map(|after| match *after {
                After::Job(id) => id,
                After::Earlier(place) => made[place].id,
            });
            let named: Vec<JobId> = on.collect();
            let on = |world: &Simple| world.with_groups(new, &named);
            if let Some(Unique { key, .. }) = &new.unique {
                if let Some(id) = self.holder(key, now) {
                    let (became, run_at) = self.met(id, new, now);
                    if let Some(run_at) = run_at {
                        let job = self.job_mut(id);
                        job.waits.clear();
                        job.new.group = None;
                        let on = on(self)?;
                        self.replace(id, new, &on, run_at, now)?;
                    }
                    made.push(Enqueued { id, became });
                    continue;
                }
                self.take_over(key);
            }
            let on = on(self)?;
            let id = JobId(self.jobs.len() as i64 + 1);
            let run_at = due(new, now, now);
            let (state, waits) = self.begins(new, &on, run_at, now);
            let max_attempts = new.max_attempts;
            self.jobs.push(Job {
                id,
                new: new.clone(),
                standing: Standing { state, attempt: 0, max_attempts, crashes: 0, cancel_requested: false, run_at },
                created_at: now,
                ended_at: state.is_final().then_some(now),
                token: 0,
                lease: None,
                waits,
                parent,
                is_deleted: false,
                key_is_over: false,
            });
            made.push(Enqueued { id, became: Became::Stored });
            self.join(id, now)?;
        }
        Some(made)
    }

    /// Where a job begins, and what it waits for.
    fn begins(
        &self,
        new: &NewJob,
        on: &[JobId],
        run_at: Millis,
        now: Millis,
    ) -> (JobState, BTreeMap<JobId, (OnFailed, bool)>) {
        let all: Vec<_> = on.iter().map(|on| meaning(self.state(*on), new.on_failed)).collect();
        let state = if all.contains(&Meaning::Cancels) {
            JobState::Cancelled
        } else if all.contains(&Meaning::Waits) {
            JobState::Suspended
        } else if run_at > now {
            JobState::Scheduled
        } else {
            JobState::Available
        };
        let open = |means: &Meaning| state == JobState::Suspended && *means == Meaning::Waits;
        (state, on.iter().zip(&all).map(|(on, means)| (*on, (new.on_failed, open(means)))).collect())
    }

    /// What follows for the holder of the key that `new` asks for, and when it is due if it becomes that.
    fn met(&self, holder: JobId, new: &NewJob, now: Millis) -> (Became, Option<Millis>) {
        let holder = self.job(holder);
        if holder.token > 0 || holder.ended_at.is_some() {
            return (Became::Begun, None);
        }
        match new.unique.as_ref().expect("has a key").if_held {
            IfHeld::Keep => (Became::Kept, None),
            IfHeld::Replace if new.run_at.is_none() && holder.standing.run_at <= now => {
                (Became::Replaced, Some(holder.standing.run_at))
            }
            IfHeld::Replace => (Became::Replaced, Some(new.run_at.unwrap_or(now))),
            IfHeld::Debounce { .. } => (Became::Debounced, Some(due(new, holder.created_at, now))),
        }
    }

    /// The jobs that `new` waits for: those named, and of its groups those that matter; none if one has no jobs.
    fn with_groups(&self, new: &NewJob, named: &[JobId]) -> Option<Vec<JobId>> {
        let mut on = named.to_vec();
        for group in &new.after_groups {
            let members: Vec<_> = self.there().filter(|job| job.new.group.as_ref() == Some(group)).collect();
            if members.is_empty() {
                return None;
            }
            let matter = |job: &&Job| meaning(job.standing.state, new.on_failed) != Meaning::Met;
            on.extend(members.into_iter().filter(matter).map(|job| job.id).filter(|id| !named.contains(id)));
        }
        Some(on)
    }

    /// Those who wait for a job's group wait for it too; none if it waits for one of them.
    fn join(&mut self, id: JobId, now: Millis) -> Option<()> {
        let Some(group) = self.job(id).new.group.clone() else { return Some(()) };
        // One that was never claimed is suspended for nothing else.
        let waits = |job: &&Job| {
            let begun = job.token > 0 || job.standing.state != JobState::Suspended;
            !begun && job.new.after_groups.contains(&group)
        };
        let waiting: Vec<_> = self.there().filter(waits).map(|job| (job.id, job.new.on_failed)).collect();
        for (waiting, rule) in waiting {
            if self.depends_on(id, waiting) {
                return None;
            }
            self.job_mut(waiting).waits.insert(id, (rule, true));
        }
        self.tell(id, now);
        Some(())
    }

    /// Makes a job what `new` is; none if it would wait for itself.
    fn replace(&mut self, id: JobId, new: &NewJob, on: &[JobId], run_at: Millis, now: Millis) -> Option<()> {
        if on.iter().any(|on| self.depends_on(*on, id)) {
            return None;
        }
        let (state, waits) = self.begins(new, on, run_at, now);
        let job = self.job_mut(id);
        job.standing = Standing { state, run_at, max_attempts: new.max_attempts, ..job.standing };
        (job.new, job.waits, job.ended_at) = (new.clone(), waits, state.is_final().then_some(now));
        self.join(id, now)?;
        self.tell(id, now);
        Some(())
    }

    /// Ends an attempt whose lease stands. Where the job is then; none if its state does not allow it. A
    /// child that would wait for itself is an error, and then this is not to be used on.
    pub fn finish(
        &mut self,
        id: JobId,
        event: Event,
        due_at: Millis,
        children: &[NewJob],
        now: Millis,
    ) -> Result<Option<JobState>, WaitsForItself> {
        let at = if matches!(event, Event::Fail | Event::Snooze) { due_at } else { now };
        if !self.step(id, event, at, now) {
            return Ok(None);
        }
        if self.state(id) == JobState::Running {
            // The first cancel only asks, and here the worker answers.
            self.step(id, event, at, now);
        }
        self.tell(id, now);
        if self.state(id) == JobState::Suspended && !children.is_empty() {
            let made = self.enqueue(children, Some(id), now).ok_or(WaitsForItself)?;
            if made.iter().any(|made| self.depends_on(made.id, id)) {
                self.cancel_within(id, Reach::Beneath, now);
                return Ok(Some(self.state(id)));
            }
            for Enqueued { id: on, .. } in made {
                let open = !self.state(on).is_final();
                self.job_mut(id).waits.insert(on, (OnFailed::Run, open));
            }
            self.go_on(id, now);
        }
        Ok(Some(self.state(id)))
    }

    /// Whether `job` is `on`, or waits for it, directly or not.
    fn depends_on(&self, job: JobId, on: JobId) -> bool {
        let open = self.job(job).waits.iter().filter(|(_, (_, open))| *open);
        job == on || open.map(|(other, _)| *other).any(|other| self.depends_on(other, on))
    }

    /// A suspended job goes on when nothing is left that it waits for.
    fn go_on(&mut self, id: JobId, now: Millis) {
        if self.job(id).waits.values().all(|(_, open)| !open) {
            self.step(id, Event::Decide, now, now);
        }
    }

    /// What the end of a job means for those that wait for it.
    fn tell(&mut self, ended: JobId, now: Millis) {
        let state = self.state(ended);
        if !state.is_final() {
            return;
        }
        let waits = |job: &&Job| job.waits.get(&ended).is_some_and(|(_, open)| *open);
        let waiting: Vec<_> = self.there().filter(waits).map(|job| (job.id, job.waits[&ended].0)).collect();
        for (id, rule) in waiting {
            match meaning(state, rule) {
                Meaning::Waits => {}
                Meaning::Met => {
                    self.job_mut(id).waits.insert(ended, (rule, false));
                    self.go_on(id, now);
                }
                Meaning::Cancels => {
                    self.step(id, Event::Cancel, now, now);
                    self.tell(id, now);
                }
            }
        }
    }

    /// Jobs taken back, by id.
    pub fn rescue(&mut self, dead: Option<&str>, now: Millis) -> Vec<JobId> {
        let lost = |job: &&Job| job.lease.as_ref().is_some_and(|(who, until)| *until <= now || Some(&**who) == dead);
        let lost: Vec<_> = self.there().filter(lost).map(|job| job.id).collect();
        for id in &lost {
            let event = if id.0 % 2 == 0 { Event::LostOnTheWay } else { Event::Deadly };
            assert!(self.step(*id, event, now, now));
            self.tell(*id, now);
        }
        lost
    }

    pub fn cancel_within(&mut self, id: JobId, reach: Reach, now: Millis) -> BTreeMap<JobId, Cancelled> {
        let mut top = id;
        while let Some(parent) = self.job(top).parent.filter(|_| reach == Reach::Tree) {
            top = parent;
        }
        let mut told = BTreeMap::from([(id, self.cancel(id, now))]);
        let mut level = if reach == Reach::Alone { Vec::new() } else { vec![top] };
        while let Some(at) = level.pop() {
            if at != id && !self.job(at).is_deleted {
                told.insert(at, self.cancel(at, now));
            }
            level.extend(self.there().filter(|job| job.parent == Some(at)).map(|job| job.id));
        }
        told
    }

    fn cancel(&mut self, id: JobId, now: Millis) -> Cancelled {
        let Standing { state, cancel_requested, .. } = self.job(id).standing;
        match state {
            JobState::Cancelled => Cancelled::Already,
            state if state.is_final() => Cancelled::TooLate(state),
            JobState::Running if cancel_requested => Cancelled::Requested,
            _ => {
                assert!(self.step(id, Event::Cancel, now, now));
                self.tell(id, now);
                if state == JobState::Running { Cancelled::Requested } else { Cancelled::Now }
            }
        }
    }

    /// Runs a job again that is at its end, unless somebody else holds its key: gives who does.
    pub fn retry(&mut self, id: JobId, now: Millis) -> Result<(), Option<JobId>> {
        let job = self.job(id);
        let key = job.new.unique.as_ref().map(|unique| unique.key.clone());
        let other = key.as_ref().and_then(|key| self.holder(key, now)).filter(|holder| *holder != id);
        if !job.standing.state.is_final() || other.is_some() {
            return Err(other.filter(|_| job.standing.state.is_final()));
        }
        if let Some(key) = key.filter(|key| self.holder(key, now).is_none()) {
            self.take_over(&key);
        }
        assert!(self.step(id, Event::Retry, now, now));
        self.join(id, now).expect("it waits for nothing");
        Ok(())
    }

    fn is_awaited(&self, id: JobId) -> bool {
        self.there().any(|job| job.waits.get(&id).is_some_and(|(_, open)| *open))
    }

    pub fn delete(&mut self, id: JobId) -> bool {
        let may = self.state(id).is_final() && !self.is_awaited(id);
        self.job_mut(id).is_deleted |= may;
        may
    }

    /// How many jobs go that were kept for as long as their queues say, or else for `keep`.
    pub fn prune(&mut self, keep: Millis, now: Millis) -> u64 {
        let holds = |job: &Job| {
            let key = job.new.unique.as_ref().map(|unique| &unique.key);
            key.and_then(|key| self.holder(key, now)) == Some(job.id)
        };
        let is_old = |job: &&Job| {
            let own = self.keep.get(&(job.new.queue.as_str(), job.standing.state.as_str())).copied().flatten();
            own.unwrap_or(Some(keep)).is_some_and(|keep| job.ended_at.is_some_and(|at| at < now - keep))
        };
        let goes = |job: &&Job| !self.is_awaited(job.id) && !holds(job);
        let gone: Vec<_> = self.there().filter(is_old).filter(goes).map(|job| job.id).collect();
        gone.iter().for_each(|id| self.job_mut(*id).is_deleted = true);
        gone.len() as u64
    }

    /// Whether it could be changed.
    pub fn edit(&mut self, id: JobId, queue: &str, priority: u8, run_at: Option<Millis>, now: Millis) -> bool {
        let state = self.state(id);
        let is_due_anew = run_at.is_some() && state.is_final();
        let may = !matches!(state, JobState::Running | JobState::Completed) && !is_due_anew;
        if may {
            if let Some(at) = run_at {
                assert!(self.step(id, Event::Postpone, at, now));
            }
            let new = &mut self.job_mut(id).new;
            (new.queue, new.priority) = (queue.into(), priority);
        }
        may
    }

    /// Jobs of each group in each state.
    pub fn groups(&self) -> BTreeMap<String, BTreeMap<&'static str, u64>> {
        let mut groups: BTreeMap<String, BTreeMap<_, _>> = BTreeMap::new();
        for job in self.there() {
            if let Some(group) = &job.new.group {
                *groups.entry(group.clone()).or_default().entry(job.standing.state.as_str()).or_default() += 1;
            }
        }
        groups
    }
}
