//! Rows of `deaths`, and what they are weighed by.

use diesel::dsl::{count_star, exists};
use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::JobId;
use posse_core::job::deaths::{Deaths, Suspect, Trail};
use posse_core::run::journal::CallState;
use posse_core::store::Done;
use posse_core::store::driver::DeathRows;

use super::{Rows, count, state, stored};
use crate::literal::{IsRunning, IsSuspect, among, update};
use crate::schema::{deaths, job_data, jobs, steps, tool_calls, workers};

impl DeathRows for Rows {
    fn death_limit(&mut self, job: JobId) -> Done<Option<u32>> {
        let limit: Option<Option<i32>> =
            job_data::table.find(job.0).select(job_data::max_crashes).first(&mut self.0).optional()?;
        Ok(limit.flatten().map(count))
    }

    fn deaths(&mut self, job: JobId) -> Done<Option<Deaths>> {
        let known: Option<(i32, i64, i64)> = deaths::table
            .find(job.0)
            .select((deaths::in_a_row, deaths::entries, deaths::settled))
            .first(&mut self.0)
            .optional()?;
        Ok(known.map(|(in_a_row, entries, settled)| Deaths {
            in_a_row: count(in_a_row),
            trail: Trail { entries: entries.unsigned_abs(), settled: settled.unsigned_abs(), in_flight: false },
        }))
    }

    fn trail(&mut self, job: JobId) -> Done<Trail> {
        let entries: i64 = steps::table.filter(steps::job_id.eq(job.0)).select(count_star()).first(&mut self.0)?;
        let of_job = || tool_calls::table.filter(tool_calls::job_id.eq(job.0)).select(count_star());
        let is_settled =
            tool_calls::state.eq(CallState::Done.as_str()).or(tool_calls::state.eq(CallState::Failed.as_str()));
        let settled: i64 = of_job().filter(is_settled).first(&mut self.0)?;
        let in_flight: i64 = of_job().filter(tool_calls::state.eq(CallState::Started.as_str())).first(&mut self.0)?;
        Ok(Trail { entries: entries.unsigned_abs(), settled: settled.unsigned_abs(), in_flight: in_flight > 0 })
    }

    fn set_deaths(&mut self, job: JobId, met: &Deaths, died_at: Millis, suspect: bool) -> Done<()> {
        let known = (
            deaths::in_a_row.eq(stored(met.in_a_row)),
            deaths::entries.eq(met.trail.entries.cast_signed()),
            deaths::settled.eq(met.trail.settled.cast_signed()),
            deaths::died_at.eq(died_at),
            deaths::suspect.eq(suspect),
            deaths::awaited_by.eq(None::<String>),
        );
        if update(deaths::table, deaths::job_id.eq(job.0), known.clone()).execute(&mut self.0)? == 0 {
            diesel::insert_into(deaths::table).values((deaths::job_id.eq(job.0), known)).execute(&mut self.0)?;
        }
        Ok(())
    }

    fn suspects(&mut self) -> Done<Vec<Suspect>> {
        let ids: Vec<i64> = deaths::table.filter(IsSuspect).select(deaths::job_id).load(&mut self.0)?;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        type Row = (i64, String, String, String, Option<String>, i64, Option<String>);
        let rows: Vec<Row> = deaths::table
            .inner_join(jobs::table)
            .filter(among(&ids))
            .select((
                jobs::id,
                jobs::role,
                jobs::queue,
                jobs::state,
                jobs::leased_by,
                deaths::died_at,
                deaths::awaited_by,
            ))
            .load(&mut self.0)?;
        let suspect = |(id, role, queue, name, held_by, since, awaited_by): Row| {
            Ok(Suspect { job: JobId(id), role, queue, state: state(&name)?, held_by, since, awaited_by })
        };
        rows.into_iter().map(suspect).collect()
    }

    fn is_listed(&mut self, worker: &str) -> Done<bool> {
        Ok(diesel::select(exists(workers::table.find(worker))).get_result(&mut self.0)?)
    }

    fn has_jobs(&mut self, worker: &str) -> Done<bool> {
        let held = jobs::table.filter(IsRunning).filter(jobs::leased_by.eq(worker));
        Ok(diesel::select(exists(held)).get_result(&mut self.0)?)
    }

    fn await_empty_hands(&mut self, job: JobId, worker: &str) -> Done<()> {
        update(deaths::table, deaths::job_id.eq(job.0), deaths::awaited_by.eq(worker)).execute(&mut self.0)?;
        Ok(())
    }

    fn clear_suspect(&mut self, job: JobId) -> Done<()> {
        let cleared = (deaths::suspect.eq(false), deaths::in_a_row.eq(0));
        update(deaths::table, deaths::job_id.eq(job.0), cleared).execute(&mut self.0)?;
        Ok(())
    }

    fn forget_deaths(&mut self, job: JobId) -> Done<()> {
        diesel::delete(deaths::table.find(job.0)).execute(&mut self.0)?;
        Ok(())
    }
}
