//! Rows of jobs as people change them.

use diesel::prelude::*;
use posse_core::job::JobId;
use posse_core::store::Done;
use posse_core::store::driver::{ChangeRows, Edited};
use posse_core::store::seal::Sealed;

use super::{Rows, stored};
use crate::literal::IsOpen;
use crate::schema::{dependencies, job_data, jobs};
use crate::sealed_text::Text;

impl ChangeRows for Rows {
    fn payload(&mut self, id: JobId) -> Done<Sealed> {
        Ok(job_data::table.find(id.0).select(job_data::payload).first(&mut self.0)?)
    }

    fn set_payload(&mut self, id: JobId, payload: Sealed) -> Done<()> {
        diesel::update(job_data::table.find(id.0)).set(job_data::payload.eq(Text(payload))).execute(&mut self.0)?;
        Ok(())
    }

    fn edit_job(&mut self, id: JobId, to: &Edited<'_>) -> Done<()> {
        let edited = (
            jobs::role.eq(to.role),
            jobs::queue.eq(to.queue),
            jobs::priority.eq(i32::from(to.priority)),
            jobs::max_attempts.eq(stored(to.max_attempts)),
        );
        diesel::update(jobs::table.find(id.0)).set(edited).execute(&mut self.0)?;
        Ok(())
    }

    fn any_waiting_for(&mut self, id: JobId) -> Done<Option<JobId>> {
        let open = dependencies::table.filter(dependencies::on_job_id.eq(id.0)).filter(IsOpen);
        let waiting = open.select(dependencies::job_id).first(&mut self.0).optional()?;
        Ok(waiting.map(JobId))
    }

    fn delete_job_alone(&mut self, id: JobId) -> Done<()> {
        diesel::delete(jobs::table.find(id.0)).execute(&mut self.0)?;
        Ok(())
    }
}
