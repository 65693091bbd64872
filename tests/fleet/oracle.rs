//! What must have become of every job, whatever happened.

use std::collections::BTreeMap;

use posse_core::job::{JobId, JobState};
use posse_core::port::JobQueries as _;
use posse_core::run::journal::CallState;
use posse_core::run::journal::disagreement;

use super::host::Host;
use super::strike::Tally;
use super::world::Seen;

/// The jobs there are to be, and what of theirs counts no more.
#[derive(Default)]
pub struct Book {
    pub ids: Vec<JobId>,
    /// Jobs that a backup did not have.
    pub undone: usize,
    /// What had come of each job that began anew when a backup was restored: exactly that may come again.
    pub forgiven: BTreeMap<i64, Seen>,
}

/// How far a job is, as the database says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    pub state: String,
    /// Whether its call has begun, so that it is not run again.
    pub is_struck: bool,
}

/// How far each job is.
pub fn standings(host: &Host) -> BTreeMap<i64, Standing> {
    let database = rusqlite::Connection::open(host.database()).expect("opens");
    let sql =
        "SELECT id, state, EXISTS (SELECT 1 FROM tool_calls WHERE job_id = jobs.id AND tool_calls.state <> 'proposed')
               FROM jobs";
    let mut rows = database.prepare(sql).expect("is SQL");
    let row = |row: &rusqlite::Row| Ok((row.get(0)?, Standing { state: row.get(1)?, is_struck: row.get(2)? }));
    rows.query_map([], row).expect("works").map(|row| row.expect("a row")).collect()
}

fn is_final(standing: &Standing) -> bool {
    JobState::ALL.into_iter().any(|state| state.is_final() && state.to_string() == standing.state)
}

impl Book {
    /// A backup took the place of the database. `before` is how jobs stood before it was made, and `since` came after
    /// it. Gives how many jobs had come further since then.
    pub fn rewound(&mut self, host: &Host, before: &BTreeMap<i64, Standing>, since: &[JobId]) -> usize {
        let now = standings(host);
        let seen = host.world.seen();
        let mut again = 0;
        self.ids.retain(|id| {
            let came = seen.get(&id.0).copied().unwrap_or_default();
            let Some(standing) = now.get(&id.0) else {
                assert!(since.contains(id), "job {id} was there before the backup, and is lost");
                self.undone += 1;
                // Where nothing is left of the old database its number is given again.
                self.forgiven.insert(id.0, came);
                return false;
            };
            assert!(!since.contains(id), "job {id} came after the backup, and is {standing:?}");
            let then = &before[&id.0];
            assert!(
                !is_final(then) || then == standing,
                "job {id} was {then:?} before the backup, and is {standing:?}"
            );
            assert!(!then.is_struck || standing.is_struck, "the call of job {id} had begun before the backup");
            assert_ne!(standing.state, "running", "job {id} is in nobody's hands");
            let forgiven = self.forgiven.entry(id.0).or_default();
            let was = *forgiven;
            if !standing.is_struck {
                forgiven.struck = came.struck;
            }
            if standing.state != "completed" {
                forgiven.told = came.told;
            }
            again += usize::from(*forgiven != was);
            true
        });
        again
    }

    /// What is wrong with how the jobs ended; nothing, if each ended once, its effect happened at most once in what is
    /// not undone, whoever was told of its end was told what is so, and its ledger says what its journal says.
    pub async fn problems(&self, host: &Host, tally: &mut Tally) -> Vec<String> {
        let seen = host.world.seen();
        let mut problems = Vec::new();
        for id in &self.ids {
            let mut must = |is_right: bool, else_said: String| {
                if !is_right {
                    problems.push(format!("job {id}: {else_said}"));
                }
            };
            let store = host.store();
            let Some(job) = store.job(*id).await.expect("readable") else {
                must(false, "it is lost".into());
                continue;
            };
            must(job.state.is_final() && job.leased_by.is_none(), format!("it is {}", job.state));
            let attempts = store.attempts(*id).await.expect("readable");
            let ended_as = |outcome| attempts.iter().filter(|a| a.outcome.as_deref() == Some(outcome)).count();
            must(attempts.iter().all(|attempt| attempt.outcome.is_some()), "an attempt has no end".into());
            // A worker's name ends with the number of its process.
            let was_killed = |worker: &str| host.killed.iter().any(|pid| worker.ends_with(&format!("-{pid}")));
            let lost = attempts.iter().filter(|attempt| attempt.outcome.as_deref() == Some("worker_lost"));
            let charged: Vec<_> = lost.filter(|attempt| !was_killed(&attempt.worker)).collect();
            must(charged.is_empty(), format!("a death of a worker that was not killed: {charged:?}"));
            match job.state {
                JobState::Completed => must(ended_as("completed") == 1, "it did not end once".into()),
                // A job that meets death too often is given up, and says so.
                JobState::Discarded => {
                    let said = job.reason.as_deref().unwrap_or_default();
                    must(
                        ended_as("completed") == 0 && said.contains("its worker was lost"),
                        format!("discarded: {said}"),
                    );
                    tally.discarded += 1;
                }
                _ => {}
            }
            must(ended_as("worker_lost") as u32 == job.crashes, "not every lost attempt is counted".into());
            must(ended_as("failed") == 0, format!("an attempt failed: {:?}", job.reason));
            let (journal, ledger) =
                (store.journal(*id, 0).await.expect("readable"), store.ledger(*id).await.expect("readable"));
            if let Some(said) = disagreement(store.installation(), *id, &journal, &ledger) {
                must(false, said);
            }
            let (came, forgiven) = (seen.get(&id.0).copied(), self.forgiven.get(&id.0).copied());
            let (came, forgiven) = (came.unwrap_or_default(), forgiven.unwrap_or_default());
            let (struck, told) = (came.struck - forgiven.struck, came.told - forgiven.told);
            must(struck <= 1, format!("its effect happened {struck} times"));
            must(told <= 1, format!("its end was told {told} times"));
            must(
                told == 0 || job.state == JobState::Completed,
                format!("it was told to be completed, and is {}", job.state),
            );
            if let Some(row) = ledger.first() {
                must(row.state != CallState::Done || struck == 1, "its effect is done, and never happened".into());
                tally.unknown += u32::from(row.state == CallState::Unknown);
            }
            tally.crashes += job.crashes;
        }
        if let Some(said) = host.whole_log().lines().find(|line| line.contains("open files")) {
            problems.push(format!("few open files are too few: {said}"));
        }
        problems
    }
}
