//! Rows that a database is cared for by: `duties`, `clock_jumps`, `retention`, and what is old enough to be deleted.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use diesel::dsl::{count_star, exists, max, min};
use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::lease::WorkerId;
use posse_core::job::{JobId, JobState};
use posse_core::port::{ClockJump, DueJobs, HeldJob};
use posse_core::session::SessionId;
use posse_core::store::Done;
use posse_core::store::driver::{CareRows, Duty, Ended, ExchangeLeft, Forgets, KeepFor, Keeps, Queues};

use super::{Rows, state};
use crate::literal::{IsAvailable, IsRunning, IsWaiting, among};
use crate::schema::{blobs, clock_jumps, duties, jobs, retention, session_jobs, sessions, steps};

static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

fn limit(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}

impl CareRows for Rows {
    fn elapsed(&self) -> Duration {
        BEGUN.elapsed()
    }

    fn held_jobs(&mut self) -> Done<Vec<HeldJob>> {
        type Row = (i64, String, Option<String>, Option<i64>, Option<i64>);
        let rows: Vec<Row> = jobs::table
            .filter(IsRunning)
            .order((jobs::leased_by, jobs::id))
            .select((jobs::id, jobs::role, jobs::leased_by, jobs::lease_until, jobs::claimed_at))
            .load(&mut self.0)?;
        let held = |(id, role, worker, lease_until, since): Row| {
            let last: Option<(i64, String, i64)> = steps::table
                .filter(steps::job_id.eq(id))
                .order(steps::seq.desc())
                .select((steps::seq, steps::kind, steps::created_at))
                .first(&mut self.0)
                .optional()?;
            let (entries, last_entry, last_entry_at) = match last {
                Some((seq, kind, at)) => (seq.unsigned_abs() + 1, Some(kind), Some(at)),
                None => (0, None, None),
            };
            let (worker, lease_until) = (worker.unwrap_or_default(), lease_until.unwrap_or(0));
            let since = since.unwrap_or(0);
            Ok(HeldJob { job: JobId(id), role, worker, since, lease_until, entries, last_entry, last_entry_at })
        };
        rows.into_iter().map(held).collect()
    }

    fn due_by_role(&mut self, now: Millis) -> Done<Vec<DueJobs>> {
        type Row = (String, i64, Option<i64>);
        let summary = (jobs::role, count_star(), min(jobs::run_at));
        let available: Vec<Row> =
            jobs::table.filter(IsAvailable).group_by(jobs::role).select(summary).load(&mut self.0)?;
        let waiting: Vec<Row> = jobs::table
            .filter(IsWaiting)
            .filter(jobs::run_at.le(now))
            .group_by(jobs::role)
            .select(summary)
            .load(&mut self.0)?;
        let due = |(role, jobs, oldest): Row| DueJobs {
            role,
            jobs: jobs.unsigned_abs(),
            oldest_due_at: oldest.unwrap_or(now),
        };
        Ok(available.into_iter().chain(waiting).map(due).collect())
    }

    /// Jobs are found in the order of their ids, which is the order in which they were enqueued. A job cannot have ended
    /// before it was enqueued; so the search ends at the first id that is too young, and no index by the time of the end
    /// is needed, which every end would have to write.
    fn ended(&mut self, how: Ended<'_>, now: Millis, most: usize) -> Done<Vec<JobId>> {
        let mut ended = jobs::table
            .filter(jobs::state.eq(how.state.as_str()))
            // Spells the condition of the index that has these in order.
            .filter(jobs::finalized_at.is_not_null())
            .filter(jobs::finalized_at.lt(how.before))
            // Others still wait for it, and would for ever.
            .filter(jobs::awaited.eq(false))
            // An exchange stays as long as its session does.
            .filter(diesel::dsl::not(exists(session_jobs::table.filter(session_jobs::job_id.eq(jobs::id)))))
            // Its row is what holds its unique key; see [`posse_core::job::holds_key`].
            .filter(
                jobs::state
                    .ne(JobState::Completed.as_str())
                    .or(jobs::unique_ms.is_null())
                    .or((jobs::finalized_at + jobs::unique_ms).le(now)),
            )
            .order(jobs::id)
            .limit(limit(most))
            .select(jobs::id)
            .into_boxed();
        ended = match how.among {
            Some(ids) => ended.filter(among(ids)),
            None => match first_younger(&mut self.0, how.before)? {
                Some(younger) => ended.filter(jobs::id.lt(younger)),
                None => return Ok(Vec::new()),
            },
        };
        ended = match how.queues {
            Queues::AllBut([]) => ended,
            Queues::AllBut(names) => ended.filter(jobs::queue.ne_all(names)),
            Queues::Only(name) => ended.filter(jobs::queue.eq(name)),
        };
        Ok(ended.load(&mut self.0)?.into_iter().map(JobId).collect())
    }

    fn unused_sessions(&mut self, since: Millis, most: usize) -> Done<Vec<SessionId>> {
        let later = diesel::alias!(sessions as later);
        let remembered = later
            .filter(later.field(sessions::previous_id).eq(sessions::id.nullable()))
            .filter(later.field(sessions::used_at).ge(since));
        let at_work = session_jobs::table
            .inner_join(jobs::table)
            .filter(session_jobs::session_id.eq(sessions::id))
            .filter(jobs::finalized_at.is_null().or(jobs::finalized_at.ge(since)).or(jobs::awaited.eq(true)));
        let unused: Vec<i64> = sessions::table
            .filter(sessions::deleted_at.is_null())
            .filter(sessions::used_at.lt(since))
            .filter(diesel::dsl::not(exists(remembered)))
            .filter(diesel::dsl::not(exists(at_work)))
            .order(sessions::used_at)
            .limit(limit(most))
            .select(sessions::id)
            .load(&mut self.0)?;
        Ok(unused.into_iter().map(SessionId).collect())
    }

    fn deleted_sessions(&mut self, most: usize) -> Done<Vec<SessionId>> {
        let deleted: Vec<i64> = sessions::table
            .filter(sessions::deleted_at.is_not_null())
            .order(sessions::id)
            .limit(limit(most))
            .select(sessions::id)
            .load(&mut self.0)?;
        Ok(deleted.into_iter().map(SessionId).collect())
    }

    /// In two statements: joined, SQLite would walk all jobs that have ended.
    fn exchanges_left(&mut self, session: SessionId, most: usize) -> Done<Vec<ExchangeLeft>> {
        let exchanges: Vec<i64> = session_jobs::table
            .filter(session_jobs::session_id.eq(session.0))
            .order(session_jobs::job_id)
            .limit(limit(most))
            .select(session_jobs::job_id)
            .load(&mut self.0)?;
        type Row = (i64, String, Option<i64>, bool, Option<i64>);
        let rows: Vec<Row> = jobs::table
            .filter(among(&exchanges))
            .select((jobs::id, jobs::state, jobs::finalized_at, jobs::awaited, jobs::unique_ms))
            .load(&mut self.0)?;
        let exchange = |(id, name, finalized_at, awaited, unique_ms): Row| {
            Ok(ExchangeLeft { job: JobId(id), state: state(&name)?, finalized_at, awaited, unique_ms })
        };
        rows.into_iter().map(exchange).collect()
    }

    fn delete_job(&mut self, id: JobId) -> Done<u64> {
        let contents: Vec<Option<Vec<u8>>> = steps::table
            .filter(steps::job_id.eq(id.0))
            .filter(steps::blob_hash.is_not_null())
            .select(steps::blob_hash)
            .load(&mut self.0)?;
        diesel::delete(jobs::table.find(id.0)).execute(&mut self.0)?;
        let mut deleted = 0;
        for hash in contents.into_iter().flatten() {
            let referred_to = exists(steps::table.filter(steps::blob_hash.eq(&hash)));
            if !diesel::select(referred_to).get_result::<bool>(&mut self.0)? {
                deleted += diesel::delete(blobs::table.find(&hash)).execute(&mut self.0)? as u64;
            }
        }
        Ok(deleted)
    }
}

impl Keeps<Duty> for Rows {
    fn kept(&mut self, name: &str) -> Done<Vec<Duty>> {
        let duty = |(name, worker, until): (String, String, i64)| Duty { name, worker: WorkerId(worker), until };
        self.load(duties::table.find(name), duty)
    }

    fn keep(&mut self, duty: &Duty) -> Done<()> {
        let row = (duties::name.eq(&duty.name), duties::worker.eq(&duty.worker.0), duties::held_until.eq(duty.until));
        self.run(diesel::replace_into(duties::table).values(row))
    }
}

impl Keeps<KeepFor> for Rows {
    fn kept(&mut self, (): ()) -> Done<Vec<KeepFor>> {
        self.load(retention::table, |(kind, keep): (String, Option<i64>)| KeepFor { kind, keep })
    }

    fn keep(&mut self, row: &KeepFor) -> Done<()> {
        let row = (retention::kind.eq(&row.kind), retention::keep_ms.eq(row.keep));
        self.run(diesel::replace_into(retention::table).values(row))
    }
}

impl Keeps<ClockJump> for Rows {
    fn kept(&mut self, (): ()) -> Done<Vec<ClockJump>> {
        let jump = |(worker, noticed_at, by_ms): (String, i64, i64)| ClockJump { worker, noticed_at, by_ms };
        let columns = (clock_jumps::worker, clock_jumps::noticed_at, clock_jumps::by_ms);
        self.load(clock_jumps::table.order(clock_jumps::id.desc()).select(columns), jump)
    }

    fn keep(&mut self, jump: &ClockJump) -> Done<()> {
        let row = (
            clock_jumps::worker.eq(&jump.worker),
            clock_jumps::noticed_at.eq(jump.noticed_at),
            clock_jumps::by_ms.eq(jump.by_ms),
        );
        self.run(diesel::insert_into(clock_jumps::table).values(row))
    }
}

impl Forgets<ClockJump> for Rows {
    fn forget(&mut self, but: i64) -> Done<bool> {
        let last: Option<i64> = clock_jumps::table.select(max(clock_jumps::id)).first(&mut self.0)?;
        let too_old = clock_jumps::id.le(last.unwrap_or(0) - but);
        Ok(diesel::delete(clock_jumps::table.filter(too_old)).execute(&mut self.0)? > 0)
    }
}

/// The end of the ids of jobs that were enqueued before `cutoff`, found by halving; none if the very
/// first is younger. A clock that was set back makes it an earlier end, never a wrong deletion.
fn first_younger(connection: &mut SqliteConnection, cutoff: Millis) -> QueryResult<Option<i64>> {
    let (first, last): (Option<i64>, Option<i64>) =
        (jobs::table.select(min(jobs::id)).first(connection)?, jobs::table.select(max(jobs::id)).first(connection)?);
    let (Some(mut older), Some(last)) = (first, last) else { return Ok(None) };
    let mut is_older = |id: i64| -> QueryResult<Option<(i64, bool)>> {
        // Ids of deleted jobs are gaps.
        let next: Option<(i64, i64)> = jobs::table
            .filter(jobs::id.ge(id))
            .order(jobs::id)
            .select((jobs::id, jobs::created_at))
            .first(connection)
            .optional()?;
        Ok(next.map(|(id, created_at)| (id, created_at < cutoff)))
    };
    if !is_older(older)?.is_some_and(|(_, older)| older) {
        return Ok(None);
    }
    let mut younger = last + 1;
    while younger - older > 1 {
        let middle = older + (younger - older) / 2;
        match is_older(middle)? {
            Some((id, true)) => older = id.max(middle),
            _ => younger = middle,
        }
    }
    Ok(Some(younger))
}
