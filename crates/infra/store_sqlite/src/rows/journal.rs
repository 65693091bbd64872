//! Rows of `steps`, `blobs` and `tool_calls`.

use diesel::dsl::count_star;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use posse_core::clock::Millis;
use posse_core::job::JobId;
use posse_core::job::deaths::Trail;
use posse_core::run::journal::CallState;
use posse_core::store::Done;
use posse_core::store::driver::{CallRow, JournalRows, LastStep, StepInsert, StepRow};
use posse_core::store::seal::Sealed;

use super::Rows;
use crate::literal::update;
use crate::schema::{blobs, steps, tool_calls};
use crate::sealed_text::Text;

impl JournalRows for Rows {
    fn last_step(&mut self, job: JobId) -> Done<Option<LastStep>> {
        let steps = steps::table.filter(steps::job_id.eq(job.0)).order(steps::seq.desc());
        let last: Option<(i64, String, i64)> =
            steps.select((steps::seq, steps::kind, steps::created_at)).first(&mut self.0).optional()?;
        Ok(last.map(|(seq, kind, at)| LastStep { seq, kind, at }))
    }

    fn journal(&mut self, job: JobId, from: i64) -> Done<Vec<StepRow>> {
        type Row = (i64, String, Sealed, i64, Option<Vec<u8>>, Option<Vec<u8>>);
        let steps = steps::table
            .left_join(blobs::table.on(steps::blob_hash.eq(blobs::hash.nullable())))
            .filter(steps::job_id.eq(job.0))
            .filter(steps::seq.ge(from))
            .order(steps::seq);
        let columns =
            (steps::seq, steps::kind, steps::data, steps::created_at, steps::blob_hash, blobs::bytes.nullable());
        let step = |(seq, kind, data, at, hash, blob): Row| StepRow { seq, kind, data, at, blob: hash.zip(blob) };
        self.load(steps.select(columns), step)
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

    fn append(&mut self, job: JobId, step: StepInsert<'_>) -> Done<()> {
        if let Some((hash, bytes)) = &step.blob {
            diesel::insert_into(blobs::table)
                .values((blobs::hash.eq(*hash), blobs::bytes.eq(&**bytes)))
                .on_conflict_do_nothing()
                .execute(&mut self.0)?;
        }
        self.run(diesel::insert_into(steps::table).values((
            steps::job_id.eq(job.0),
            steps::seq.eq(step.seq),
            steps::kind.eq(step.kind),
            steps::data.eq(Text(step.data)),
            steps::blob_hash.eq(step.blob.map(|(hash, _)| hash)),
            steps::created_at.eq(step.at),
        )))
    }

    fn copy_steps(&mut self, from: JobId, to: JobId, end: i64, but: &[i64]) -> Done<()> {
        let same = steps::table
            .filter(steps::job_id.eq(from.0))
            .filter(steps::seq.lt(end))
            .filter(steps::seq.ne_all(but.to_vec()))
            .select((
                to.0.into_sql::<BigInt>(),
                steps::seq,
                steps::kind,
                steps::data,
                steps::blob_hash,
                steps::created_at,
            ));
        self.run(diesel::insert_into(steps::table).values(same).into_columns(steps::all_columns))
    }

    fn calls(&mut self, job: JobId, id: Option<&str>) -> Done<Vec<CallRow>> {
        type Row = (i64, String, i64, String, String, String, i64, i32);
        let call = |(_, id, seq, tool, effect, state, at, position): Row| CallRow {
            id,
            seq,
            position,
            tool,
            effect,
            state,
            at,
        };
        let calls = tool_calls::table.filter(tool_calls::job_id.eq(job.0));
        match id {
            Some(id) => self.load(calls.filter(tool_calls::call_id.eq(id)), call),
            None => self.load(calls.order((tool_calls::seq, tool_calls::position)), call),
        }
    }

    fn propose(&mut self, job: JobId, row: &CallRow) -> Done<bool> {
        let added = diesel::insert_into(tool_calls::table)
            .values((
                tool_calls::job_id.eq(job.0),
                tool_calls::call_id.eq(&row.id),
                tool_calls::seq.eq(row.seq),
                tool_calls::tool.eq(&row.tool),
                tool_calls::effect_class.eq(&row.effect),
                tool_calls::state.eq(&row.state),
                tool_calls::changed_at.eq(row.at),
                tool_calls::position.eq(row.position),
            ))
            .on_conflict_do_nothing()
            .execute(&mut self.0)?;
        Ok(added > 0)
    }

    fn move_call(&mut self, job: JobId, id: &str, to: &str, at: Millis) -> Done<()> {
        let this = tool_calls::job_id.eq(job.0).and(tool_calls::call_id.eq(id));
        let moved = (tool_calls::state.eq(to), tool_calls::changed_at.eq(at));
        self.run(update(tool_calls::table, this, moved))
    }
}
