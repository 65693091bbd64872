//! What is wrong with a fleet and its database, from what can be seen of them. One function a check.

use schemars::JsonSchema;
use serde::Serialize;

use crate::clock::Millis;
use crate::job::lease::WorkerId;
use crate::model::breaker;
use crate::port::{ClockJump, DueJobs, HeldJob, Storage, Waiting, WorkerRecord};
use crate::queue::rate::EndpointState;
use crate::queue::rules::{Rule, Scope};
use crate::schedule::{MISSED_AFTER_MS, Schedule};
use crate::text::{bytes, count, plural, rough_duration};

/// What to do about a database that is damaged.
pub const RESTORE: &str =
    "stop all workers (posse worker drain --all), then put the last backup in its place (posse db restore FILE)";

pub mod keys;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// All is well.
    Ok,
    /// Worth a look.
    Warning,
    /// Something does not work, or soon will not.
    Wrong,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finding {
    /// What was looked at, in one or two words.
    pub check: String,
    /// How bad it is.
    pub verdict: Verdict,
    /// What was found.
    pub message: String,
    /// What to do about it, where there is something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub way_out: Option<String>,
}

impl Finding {
    /// All is well.
    pub fn ok(check: &str, message: impl Into<String>) -> Finding {
        Finding { check: check.into(), verdict: Verdict::Ok, message: message.into(), way_out: None }
    }

    /// Worth a look.
    pub fn warning(check: &str, message: impl Into<String>, way_out: impl Into<String>) -> Finding {
        let way_out = Some(way_out.into());
        Finding { check: check.into(), verdict: Verdict::Warning, message: message.into(), way_out }
    }

    /// Something does not work.
    pub fn wrong(check: &str, message: impl Into<String>, way_out: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Wrong, ..Finding::warning(check, message, way_out) }
    }
}

/// What can be seen of a fleet.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// When it was looked at.
    pub now: Millis,
    /// Jobs that are due, by role.
    pub due: Vec<DueJobs>,
    /// Worker processes on the list.
    pub workers: Vec<WorkerRecord>,
    /// Those of them that are certainly gone.
    pub gone: Vec<WorkerId>,
    /// Jobs in workers' hands.
    pub held: Vec<HeldJob>,
    /// Schedules.
    pub schedules: Vec<Schedule>,
    /// Roles that some persona plays.
    pub roles: Vec<String>,
    /// Times at which the clock was set, newest first.
    pub jumps: Vec<ClockJump>,
    /// What there is on disk.
    pub storage: Storage,
    /// Jobs that hold unique keys and are not at work, and those they wait for.
    pub waiting: Vec<Waiting>,
    /// What is paused, and how many jobs may run.
    pub rules: Vec<Rule>,
    /// Endpoints of models that have failed since they last answered.
    pub endpoints: Vec<EndpointState>,
}

/// A job that is due for longer and has nobody to work it is a fault.
const UNSERVED_MS: Millis = 60_000;
/// A job that is due for longer is worth a look even where its role is served.
const WAITING_MS: Millis = 3_600_000;
/// A lease that ran out longer ago should have been taken back.
const OVERDUE_LEASE_MS: Millis = 15_000;
/// For how long a jump of the clock is told of.
const RECENT_MS: Millis = 24 * 3_600_000;
/// A log of more bytes is not kept small.
const LOG_BYTES: u64 = 96 << 20;
/// Less space than this is a fault, and less than that worth a look.
const LITTLE_SPACE: u64 = 64 << 20;
const SOME_SPACE: u64 = 1 << 30;
/// Less free space inside a database is used again soon.
const MUCH_INSIDE: u64 = 64 << 20;

impl Facts {
    /// All checks, in the order in which a person would look.
    pub fn findings(&self) -> Vec<Finding> {
        let checks = [
            Facts::due_jobs,
            Facts::pauses,
            Facts::processes,
            Facts::leases,
            keys::check,
            Facts::endpoints,
            Facts::schedules,
            Facts::clock,
            Facts::log,
            Facts::free_space_inside,
        ];
        checks.iter().flat_map(|check| check(self)).collect()
    }

    fn is_gone(&self, worker: &str) -> bool {
        self.gone.iter().any(|gone| gone.0 == worker)
    }

    /// Workers that are there and claim jobs.
    fn working(&self) -> impl Iterator<Item = &WorkerRecord> {
        let heard = |worker: &WorkerRecord| self.now - worker.heartbeat_at <= 2 * worker.lease_ms.max(1);
        self.workers
            .iter()
            .filter(move |worker| !self.is_gone(&worker.id) && worker.drain_requested_at.is_none() && heard(worker))
    }

    fn serves(&self, role: &str) -> bool {
        self.working().any(|worker| worker.roles.iter().any(|served| served == role))
    }

    fn due_jobs(&self) -> Vec<Finding> {
        let judge = |due: &DueJobs| {
            let DueJobs { role, jobs, oldest_due_at } = due;
            let waits = self.now - oldest_due_at;
            let what = format!("{} of role {role}, the oldest for {}", count(*jobs), rough_duration(waits));
            match self.serves(role) {
                false if waits >= UNSERVED_MS => Finding::wrong(
                    "due jobs",
                    format!("{what}, and no worker serves it"),
                    format!("posse work --role {role}"),
                ),
                true if waits >= WAITING_MS => Finding::warning(
                    "due jobs",
                    what,
                    "more slots or processes; posse worker list tells what is at work",
                ),
                _ => Finding::ok("due jobs", what),
            }
        };
        or_ok(self.due.iter().map(judge), "due jobs", "none waits")
    }

    /// What lets no job start: somebody may have forgotten it, and a worker that is there helps nothing.
    fn pauses(&self) -> Vec<Finding> {
        let judge = |rule: &Rule| {
            let scope = &rule.scope;
            let due: Vec<&DueJobs> = match scope {
                Scope::Role(role) => self.due.iter().filter(|due| due.role == *role).collect(),
                // Of a queue or a key it is not known which of the jobs that are due are its.
                Scope::All | Scope::Queue(_) | Scope::Key(_) => self.due.iter().collect(),
            };
            let oldest =
                due.iter().map(|due| self.now - due.oldest_due_at).max().filter(|waits| *waits >= UNSERVED_MS)?;
            let (what, way_out) = match (rule.paused_at, rule.limits.running) {
                (Some(at), _) => {
                    let flag = match scope {
                        Scope::All => "--all".into(),
                        scope => format!("--{} {}", scope.kind(), scope.name()),
                    };
                    (format!("is paused since {}", rough_duration(self.now - at)), format!("posse resume {flag}"))
                }
                (None, Some(0)) => ("has a limit of 0 at once".into(), "posse limit list tells of it".to_owned()),
                _ => return None,
            };
            let jobs = due.iter().map(|due| due.jobs).sum::<u64>();
            let them = match scope {
                Scope::All | Scope::Role(_) => {
                    format!("{} of it wait, the oldest for {}", count(jobs), rough_duration(oldest))
                }
                _ => format!("jobs are due, the oldest for {}", rough_duration(oldest)),
            };
            Some(Finding::warning("pauses", format!("{scope} {what}, and {them}"), way_out))
        };
        self.rules.iter().filter_map(judge).collect()
    }

    fn processes(&self) -> Vec<Finding> {
        let mut findings = vec![Finding::ok("workers", format!("{} at work", self.working().count()))];
        for WorkerRecord { id, pid, heartbeat_at, lease_ms, .. } in &self.workers {
            let silent = self.now - heartbeat_at;
            if self.is_gone(id) {
                let message = format!("{id} (process {pid}) is gone without having left the list");
                findings.push(Finding::warning("workers", message, "any worker process takes it off: posse work"));
            } else if silent > 2 * lease_ms.max(&1) {
                let message = format!("{id} (process {pid}) was last heard of {} ago", rough_duration(silent));
                findings.push(Finding::warning("workers", message, "see whether it hangs; its jobs are taken back"));
            }
        }
        findings
    }

    fn leases(&self) -> Vec<Finding> {
        let judge = |held: &HeldJob| {
            let HeldJob { job, worker, lease_until, .. } = held;
            let overdue = self.now - lease_until;
            let message = if self.is_gone(worker) {
                format!("job {job} is held by {worker}, which is gone")
            } else if overdue > OVERDUE_LEASE_MS {
                format!("the lease on job {job} ran out {} ago and was not taken back", rough_duration(overdue))
            } else {
                return None;
            };
            Some(Finding::wrong("leases", message, "any worker process takes the job back: posse work"))
        };
        or_ok(
            self.held.iter().filter_map(judge),
            "leases",
            format!("{} in hand", plural(self.held.len() as u64, "job")),
        )
    }

    fn schedules(&self) -> Vec<Finding> {
        let is_worked = self.working().next().is_some();
        let judge = |schedule: &Schedule| {
            let Schedule { name, job, next_at, .. } = schedule;
            let timetable = match schedule.timetable() {
                Ok(timetable) => timetable,
                Err(why) => {
                    let way_out = format!("posse schedule remove {name}, and add it with a rule that can be followed");
                    return Some(Finding::wrong("schedules", format!("{name} makes no jobs: {why}"), way_out));
                }
            };
            let overdue = self.now - next_at;
            if !self.roles.contains(&job.role) {
                let message = format!("{name} makes jobs for role {}, which no persona plays", job.role);
                let way_out = format!("posse persona new {}, or posse schedule remove {name}", job.role);
                Some(Finding::wrong("schedules", message, way_out))
            } else if schedule.paused_at.is_some() {
                None
            } else if overdue > MISSED_AFTER_MS {
                let message = format!("{name} was due {} ago", rough_duration(overdue));
                let way_out = "schedules are kept by worker processes: posse work";
                Some(if is_worked {
                    Finding::wrong("schedules", message, "see the log of a worker process for why it makes no job")
                } else {
                    Finding::warning("schedules", message, way_out)
                })
            } else if timetable.next_after(self.now).is_some_and(|next| next < *next_at) {
                let message = format!("{name} runs later than its rule says; the clock was wrong when it ran last");
                Some(Finding::warning("schedules", message, format!("posse schedule resume {name}")))
            } else {
                None
            }
        };
        or_ok(self.schedules.iter().filter_map(judge), "schedules", format!("{} kept", self.schedules.len()))
    }

    fn endpoints(&self) -> Vec<Finding> {
        let judge = |state: &EndpointState| {
            let EndpointState { endpoint, breaker, reason } = state;
            let ago = self.now - breaker.failed_at;
            let said = reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
            let failed = format!(
                "{} in a row, the last {} ago{said}",
                plural(breaker.failures.into(), "failure"),
                rough_duration(ago.abs())
            );
            let way_out =
                "posse model list tells when it is asked again, posse model test asks now; jobs that need it wait";
            match breaker.is_out() {
                true if ago <= RECENT_MS => {
                    Some(Finding::wrong("endpoints", format!("{endpoint} is out after {failed}"), way_out))
                }
                // Nobody has asked since, so nobody knows.
                true => Some(Finding::warning("endpoints", format!("{endpoint} was out after {failed}"), way_out)),
                false if ago <= breaker::WINDOW_MS => {
                    Some(Finding::warning("endpoints", format!("{endpoint} has had {failed}"), way_out))
                }
                false => None,
            }
        };
        or_ok(self.endpoints.iter().filter_map(judge), "endpoints", "none is failing")
    }

    fn clock(&self) -> Vec<Finding> {
        let recent = self.jumps.iter().find(|jump| (self.now - jump.noticed_at).abs() <= RECENT_MS);
        vec![match recent {
            None => Finding::ok("clock", "not set within a day"),
            Some(ClockJump { worker, by_ms, .. }) => {
                let (direction, by) = (if *by_ms > 0 { "forward" } else { "back" }, rough_duration(by_ms.abs()));
                let message = format!("it was set {direction} by {by}, as {worker} noticed");
                Finding::warning("clock", message, "keep it right by NTP; leases and schedules go by it")
            }
        }]
    }

    fn log(&self) -> Vec<Finding> {
        let size = bytes(self.storage.log_bytes);
        vec![match self.storage.log_bytes > LOG_BYTES {
            false => Finding::ok("log", format!("{size} not yet taken into the database")),
            true => {
                let message = format!("it has grown to {size}: some process reads without letting go");
                Finding::warning("log", message, "end whatever has the database open for long (a shell, a copy)")
            }
        }]
    }

    fn free_space_inside(&self) -> Vec<Finding> {
        let Storage { bytes: size, free_bytes, gives_back, .. } = self.storage;
        let is_much = free_bytes > MUCH_INSIDE && free_bytes > size / 4;
        if gives_back || !is_much {
            return Vec::new();
        }
        let message = format!(
            "{} of its {} are free, and it cannot give them back: it was made by an older posse",
            bytes(free_bytes),
            bytes(size)
        );
        vec![Finding::warning("space inside", message, "posse db compact, while no worker is at work")]
    }
}

/// What was found, or that all is well where that is nothing.
fn or_ok(found: impl Iterator<Item = Finding>, check: &str, ok: impl Into<String>) -> Vec<Finding> {
    let found: Vec<_> = found.collect();
    if found.is_empty() { vec![Finding::ok(check, ok)] } else { found }
}

/// What the space left for `what` at `path` means.
pub fn space(what: &str, path: &str, free: u64) -> Finding {
    let check = format!("space for {what}");
    let message = format!("{} free at {path}", bytes(free));
    match free {
        ..LITTLE_SPACE => {
            Finding::wrong(&check, message, "free some space: work stops when there is none, and goes on by itself")
        }
        LITTLE_SPACE..SOME_SPACE => Finding::warning(&check, message, "free some space"),
        _ => Finding::ok(&check, message),
    }
}
