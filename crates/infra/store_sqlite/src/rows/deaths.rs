//! Rows of `deaths`, and what they are weighed by.

use diesel::dsl::count_star;
use diesel::prelude::*;
use posse_core::job::JobId;
use posse_core::job::deaths::{Deaths, Trail};
use posse_core::run::journal::CallState;
use posse_core::store::Done;
use posse_core::store::driver::{DeathRow, DeathRows, DeathsOf, Forgets, Keeps};

use super::{Rows, count, stored};
use crate::literal::IsSuspect;
use crate::schema::{deaths, job_data, steps, tool_calls};

impl DeathRows for Rows {
    fn death_limit(&mut self, job: JobId) -> Done<Option<u32>> {
        let limit: Option<Option<i32>> =
            job_data::table.find(job.0).select(job_data::max_crashes).first(&mut self.0).optional()?;
        Ok(limit.flatten().map(count))
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
}

impl Keeps<DeathRow> for Rows {
    fn kept(&mut self, of: DeathsOf) -> Done<Vec<DeathRow>> {
        type Row = (i64, i32, i64, i64, i64, bool, Option<String>);
        let row = |(job, in_a_row, entries, settled, died_at, suspect, awaited_by): Row| {
            let trail = Trail { entries: entries.unsigned_abs(), settled: settled.unsigned_abs(), in_flight: false };
            let met = Deaths { in_a_row: count(in_a_row), trail };
            DeathRow { job: JobId(job), met, died_at, suspect, awaited_by }
        };
        match of {
            DeathsOf::Job(job) => self.load(deaths::table.find(job.0), row),
            DeathsOf::Suspects => self.load(deaths::table.filter(IsSuspect), row),
        }
    }

    fn keep(&mut self, row: &DeathRow) -> Done<()> {
        let row = (
            deaths::job_id.eq(row.job.0),
            deaths::in_a_row.eq(stored(row.met.in_a_row)),
            deaths::entries.eq(row.met.trail.entries.cast_signed()),
            deaths::settled.eq(row.met.trail.settled.cast_signed()),
            deaths::died_at.eq(row.died_at),
            deaths::suspect.eq(row.suspect),
            deaths::awaited_by.eq(&row.awaited_by),
        );
        self.run(diesel::replace_into(deaths::table).values(row))
    }
}

impl Forgets<DeathRow> for Rows {
    fn forget(&mut self, job: JobId) -> Done<bool> {
        Ok(diesel::delete(deaths::table.find(job.0)).execute(&mut self.0)? > 0)
    }
}
