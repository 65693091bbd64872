//! Rows of `sessions`, `session_jobs`, `session_summaries` and `memory_items`.

use diesel::dsl::{count_star, exists, max, not, sql};
use diesel::prelude::*;
use diesel::sql_types::{self, Bool};
use posse_core::clock::Millis;
use posse_core::job::{JobId, JobState};
use posse_core::session::{Session, SessionId, Stretch};
use posse_core::store::Done;
use posse_core::store::driver::{ArchivedRow, ExchangeRow, Forgets, Keeps, SessionRows, SummaryRow};
use posse_core::store::seal::Sealed;

use super::{Rows, state};
use crate::literal::update;
use crate::schema::{job_data, jobs, memory_items, session_jobs, session_summaries, sessions};
use crate::sealed_text::Text;

type Row = (i64, Option<String>, String, Option<i64>, Option<i64>, i64, i64);

/// The columns of a [`Row`], of sessions that are somebody's.
macro_rules! there {
    () => {
        sessions::table.filter(sessions::deleted_at.is_null()).select((
            sessions::id,
            sessions::name,
            sessions::role,
            sessions::previous_id,
            sessions::previous_job,
            sessions::created_at,
            sessions::used_at,
        ))
    };
}

/// The condition that a job is planned for later and was never claimed.
macro_rules! planned {
    () => {
        jobs::state.eq(JobState::Scheduled.as_str()).and(jobs::lease_token.eq(0))
    };
}

impl Rows {
    fn with_exchanges(&mut self, row: Row) -> Done<Session> {
        let (id, name, role, previous, through, created_at, used_at) = row;
        let exchanges: i64 =
            session_jobs::table.filter(session_jobs::session_id.eq(id)).select(count_star()).first(&mut self.0)?;
        let previous = previous.zip(through);
        let previous =
            previous.map(|(session, through)| Stretch { session: SessionId(session), through: JobId(through) });
        Ok(Session {
            id: SessionId(id),
            name,
            role,
            previous,
            created_at,
            used_at,
            exchanges: exchanges.unsigned_abs(),
        })
    }
}

impl SessionRows for Rows {
    fn session(&mut self, id: SessionId) -> Done<Option<Session>> {
        let row: Option<Row> = there!().filter(sessions::id.eq(id.0)).first(&mut self.0).optional()?;
        row.map(|row| self.with_exchanges(row)).transpose()
    }

    fn session_named(&mut self, name: &str) -> Done<Option<Session>> {
        let exact: Option<Row> = there!().filter(sessions::name.eq(name)).first(&mut self.0).optional()?;
        let row = match exact {
            Some(row) => Some(row),
            None => {
                // Names become folders, and not every file system tells case apart.
                let alike = sql::<Bool>("lower(name) = lower(").bind::<sql_types::Text, _>(name).sql(")");
                there!()
                    .filter(sessions::name.is_not_null())
                    .filter(alike)
                    .order(sessions::id)
                    .first(&mut self.0)
                    .optional()?
            }
        };
        row.map(|row| self.with_exchanges(row)).transpose()
    }

    fn sessions(&mut self, role: Option<&str>, most: u32) -> Done<Vec<Session>> {
        let mut query =
            there!().order((sessions::used_at.desc(), sessions::id.desc())).limit(i64::from(most)).into_boxed();
        if let Some(role) = role {
            query = query.filter(sessions::role.eq(role));
        }
        let rows: Vec<Row> = query.load(&mut self.0)?;
        rows.into_iter().map(|row| self.with_exchanges(row)).collect()
    }

    fn begin_session(
        &mut self,
        name: Option<&str>,
        role: &str,
        remembers: Option<Stretch>,
        at: Millis,
    ) -> Done<SessionId> {
        let id = diesel::insert_into(sessions::table)
            .values((
                sessions::name.eq(name),
                sessions::role.eq(role),
                sessions::previous_id.eq(remembers.map(|of| of.session.0)),
                sessions::previous_job.eq(remembers.map(|of| of.through.0)),
                sessions::created_at.eq(at),
                sessions::used_at.eq(at),
            ))
            .returning(sessions::id)
            .get_result(&mut self.0)?;
        Ok(SessionId(id))
    }

    fn delete_session(&mut self, id: SessionId, at: Millis) -> Done<()> {
        diesel::update(sessions::table.find(id.0))
            .set((
                sessions::deleted_at.eq(at),
                sessions::name.eq(None::<String>),
                sessions::previous_id.eq(None::<i64>),
                sessions::previous_job.eq(None::<i64>),
            ))
            .execute(&mut self.0)?;
        diesel::update(sessions::table.filter(sessions::previous_id.eq(id.0)))
            .set((sessions::previous_id.eq(None::<i64>), sessions::previous_job.eq(None::<i64>)))
            .execute(&mut self.0)?;
        let of_session = session_summaries::table.filter(session_summaries::session_id.eq(id.0));
        diesel::delete(of_session).execute(&mut self.0)?;
        Ok(())
    }

    fn drop_empty_sessions(&mut self) -> Done<()> {
        let has_jobs = exists(session_jobs::table.filter(session_jobs::session_id.eq(sessions::id)));
        let done = sessions::deleted_at.is_not_null().and(not(has_jobs));
        diesel::delete(sessions::table.filter(done)).execute(&mut self.0)?;
        Ok(())
    }

    fn last_exchange(&mut self, id: SessionId) -> Done<Option<JobId>> {
        let last: Option<i64> = session_jobs::table
            .filter(session_jobs::session_id.eq(id.0))
            .select(max(session_jobs::job_id))
            .first(&mut self.0)?;
        Ok(last.map(JobId))
    }

    fn open_exchange(&mut self, id: SessionId) -> Done<Option<JobId>> {
        let exchanges = session_jobs::table.filter(session_jobs::session_id.eq(id.0)).inner_join(jobs::table);
        let open = exchanges.filter(jobs::finalized_at.is_null()).select(jobs::id);
        Ok(open.first(&mut self.0).optional()?.map(JobId))
    }

    fn awaited_exchange(&mut self, id: SessionId) -> Done<Option<JobId>> {
        let exchanges = session_jobs::table.filter(session_jobs::session_id.eq(id.0)).inner_join(jobs::table);
        let awaited = exchanges.filter(jobs::awaited.eq(true)).select(jobs::id);
        Ok(awaited.first(&mut self.0).optional()?.map(JobId))
    }

    fn open_exchanges(&mut self, id: SessionId, but: JobId) -> Done<Vec<JobId>> {
        let ids: Vec<i64> = session_jobs::table
            .inner_join(jobs::table)
            .filter(session_jobs::session_id.eq(id.0))
            .filter(jobs::id.ne(but.0))
            .filter(jobs::finalized_at.is_null())
            .filter(jobs::cancel_requested.eq(false))
            .filter(not(planned!()))
            .order(session_jobs::job_id)
            .select(jobs::id)
            .load(&mut self.0)?;
        Ok(ids.into_iter().map(JobId).collect())
    }

    fn is_planned(&mut self, job: JobId) -> Done<bool> {
        let planned = jobs::table.filter(jobs::id.eq(job.0)).filter(planned!());
        Ok(diesel::select(exists(planned)).get_result(&mut self.0)?)
    }

    fn exchanges(&mut self, id: SessionId, before: Option<JobId>) -> Done<Vec<ExchangeRow>> {
        type Row = (i64, String, i64, Option<i64>, Sealed, Option<Sealed>, Option<Sealed>);
        let rows: Vec<Row> = session_jobs::table
            .inner_join(jobs::table.inner_join(job_data::table))
            .filter(session_jobs::session_id.eq(id.0))
            .filter(session_jobs::job_id.lt(before.map_or(i64::MAX, |job| job.0)))
            .order(session_jobs::job_id)
            .select((
                jobs::id,
                jobs::state,
                jobs::created_at,
                jobs::finalized_at,
                job_data::payload,
                jobs::output,
                jobs::reason,
            ))
            .load(&mut self.0)?;
        let exchange = |(job, name, said_at, ended_at, payload, output, reason): Row| {
            let (job, state) = (JobId(job), state(&name)?);
            Ok(ExchangeRow { job, state, said_at, ended_at, payload, output, reason })
        };
        rows.into_iter().map(exchange).collect()
    }

    fn join_session(&mut self, id: SessionId, job: JobId, at: Millis) -> Done<()> {
        diesel::insert_into(session_jobs::table)
            .values((session_jobs::session_id.eq(id.0), session_jobs::job_id.eq(job.0)))
            .execute(&mut self.0)?;
        update(sessions::table, sessions::id.eq(id.0), sessions::used_at.eq(at)).execute(&mut self.0)?;
        Ok(())
    }
}

impl Keeps<SummaryRow> for Rows {
    fn kept(&mut self, of: Stretch) -> Done<Vec<SummaryRow>> {
        let summary = |(_, _, text, created_at): (i64, i64, Sealed, i64)| SummaryRow { of, text, created_at };
        self.load(session_summaries::table.find((of.session.0, of.through.0)), summary)
    }

    fn keep(&mut self, row: &SummaryRow) -> Done<()> {
        let row = (
            session_summaries::session_id.eq(row.of.session.0),
            session_summaries::through_job.eq(row.of.through.0),
            session_summaries::text.eq(Text(&row.text)),
            session_summaries::created_at.eq(row.created_at),
        );
        self.run(diesel::insert_or_ignore_into(session_summaries::table).values(row))
    }
}

impl Forgets<SummaryRow> for Rows {
    fn forget(&mut self, turn: JobId) -> Done<bool> {
        let of_turn = session_jobs::table.filter(session_jobs::job_id.eq(turn.0)).select(session_jobs::session_id);
        let tells = session_summaries::session_id.eq_any(of_turn).and(session_summaries::through_job.ge(turn.0));
        Ok(diesel::delete(session_summaries::table.filter(tells)).execute(&mut self.0)? > 0)
    }
}

impl Keeps<ArchivedRow> for Rows {
    fn kept(&mut self, of: JobId) -> Done<Vec<ArchivedRow>> {
        let rows = memory_items::table.filter(memory_items::job_id.eq(of.0)).order(memory_items::seq).select((
            memory_items::scope,
            memory_items::seq,
            memory_items::content,
            memory_items::created_at,
        ));
        self.load(rows, |(role, seq, content, created_at): (String, Option<i64>, Sealed, i64)| ArchivedRow {
            job: of,
            role,
            seq: seq.unwrap_or_default(),
            content,
            created_at,
        })
    }

    fn keep(&mut self, row: &ArchivedRow) -> Done<()> {
        let row = (
            memory_items::scope.eq(&row.role),
            memory_items::tier.eq("archival"),
            memory_items::content.eq(Text(&row.content)),
            memory_items::job_id.eq(row.job.0),
            memory_items::seq.eq(row.seq),
            memory_items::created_at.eq(row.created_at),
        );
        self.run(diesel::insert_or_ignore_into(memory_items::table).values(row))
    }
}

impl Forgets<ArchivedRow> for Rows {
    fn forget(&mut self, of: SessionId) -> Done<bool> {
        let of_session = session_jobs::table.filter(session_jobs::session_id.eq(of.0));
        let of_jobs = memory_items::job_id.eq_any(of_session.select(session_jobs::job_id.nullable()));
        Ok(diesel::delete(memory_items::table.filter(of_jobs)).execute(&mut self.0)? > 0)
    }
}
