//! Rows of `sessions`, `session_jobs` and `session_summaries`.

use diesel::dsl::{exists, not, sql};
use diesel::prelude::*;
use diesel::sql_types::{Bool, Text as SqlText};
use posse_core::clock::Millis;
use posse_core::job::JobId;
use posse_core::session::{Session, SessionId, Stretch};
use posse_core::store::Done;
use posse_core::store::driver::{Forgets, Keeps, SessionRows, SessionsOf, SummaryRow};
use posse_core::store::seal::Sealed;

use super::Rows;
use crate::literal::update;
use crate::schema::{jobs, session_jobs, session_summaries, sessions};
use crate::sealed_text::Text;

impl SessionRows for Rows {
    fn sessions(&mut self, of: SessionsOf<'_>) -> Done<Vec<Session>> {
        type Row = (i64, Option<String>, String, Option<i64>, Option<i64>, i64, i64, Option<i64>);
        let exchanges = session_jobs::table.filter(session_jobs::session_id.eq(sessions::id)).count().single_value();
        let all = sessions::table.select((
            sessions::id,
            sessions::name,
            sessions::role,
            sessions::previous_id,
            sessions::previous_job,
            sessions::created_at,
            sessions::used_at,
            exchanges,
        ));
        let there = all.filter(sessions::deleted_at.is_null());
        let rows: Vec<Row> = match of {
            SessionsOf::One(id) => there.filter(sessions::id.eq(id.0)).load(&mut self.0)?,
            SessionsOf::Named(name) => there.filter(sessions::name.eq(name)).load(&mut self.0)?,
            SessionsOf::Alike(name) => there
                .filter(sessions::name.is_not_null())
                .filter(sql::<Bool>("lower(name) = lower(").bind::<SqlText, _>(name).sql(")"))
                .order(sessions::id)
                .limit(1)
                .load(&mut self.0)?,
            SessionsOf::With(job) => {
                let of = session_jobs::table.filter(session_jobs::job_id.eq(job.0)).select(session_jobs::session_id);
                there.filter(sessions::id.eq_any(of)).load(&mut self.0)?
            }
            SessionsOf::Latest(role, most) => {
                let latest = there.order((sessions::used_at.desc(), sessions::id.desc())).limit(i64::from(most));
                match role {
                    Some(role) => latest.filter(sessions::role.eq(role)).load(&mut self.0)?,
                    None => latest.load(&mut self.0)?,
                }
            }
            SessionsOf::Unused(since, most) => {
                let later = diesel::alias!(sessions as later);
                let remembered = later
                    .filter(later.field(sessions::previous_id).eq(sessions::id.nullable()))
                    .filter(later.field(sessions::used_at).ge(since));
                let at_work = session_jobs::table
                    .inner_join(jobs::table)
                    .filter(session_jobs::session_id.eq(sessions::id))
                    .filter(jobs::finalized_at.is_null().or(jobs::finalized_at.ge(since)).or(jobs::awaited.eq(true)));
                there
                    .filter(sessions::used_at.lt(since))
                    .filter(not(exists(remembered)))
                    .filter(not(exists(at_work)))
                    .order(sessions::used_at)
                    .limit(i64::from(most))
                    .load(&mut self.0)?
            }
            SessionsOf::Deleted(most) => all
                .filter(sessions::deleted_at.is_not_null())
                .order(sessions::id)
                .limit(i64::from(most))
                .load(&mut self.0)?,
        };
        let session = |(id, name, role, previous, through, created_at, used_at, exchanges): Row| {
            let stretch = |(session, through)| Stretch { session: SessionId(session), through: JobId(through) };
            let (previous, exchanges) = (previous.zip(through).map(stretch), exchanges.unwrap_or(0).unsigned_abs());
            Session { id: SessionId(id), name, role, previous, created_at, used_at, exchanges }
        };
        Ok(rows.into_iter().map(session).collect())
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
        self.run(diesel::delete(of_session))
    }

    fn drop_empty_sessions(&mut self) -> Done<()> {
        let has_jobs = exists(session_jobs::table.filter(session_jobs::session_id.eq(sessions::id)));
        let done = sessions::deleted_at.is_not_null().and(not(has_jobs));
        self.run(diesel::delete(sessions::table.filter(done)))
    }

    fn join_session(&mut self, id: SessionId, job: JobId, at: Millis) -> Done<()> {
        diesel::insert_into(session_jobs::table)
            .values((session_jobs::session_id.eq(id.0), session_jobs::job_id.eq(job.0)))
            .execute(&mut self.0)?;
        self.run(update(sessions::table, sessions::id.eq(id.0), sessions::used_at.eq(at)))
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
    fn forget(&mut self, exchange: JobId) -> Done<bool> {
        let of_it = session_jobs::table.filter(session_jobs::job_id.eq(exchange.0)).select(session_jobs::session_id);
        let tells = session_summaries::session_id.eq_any(of_it).and(session_summaries::through_job.ge(exchange.0));
        Ok(diesel::delete(session_summaries::table.filter(tells)).execute(&mut self.0)? > 0)
    }
}
