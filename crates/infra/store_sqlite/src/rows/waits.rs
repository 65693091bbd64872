//! Rows of `dependencies` and `group_waits`, and what `job_data` says of who belongs to whom.

use diesel::prelude::*;
use posse_core::job::dependency::{Dependency, GroupWait, OnFailed};
use posse_core::job::{JobId, JobState};
use posse_core::store::driver::{Family, WaitRows};
use posse_core::store::{Done, Unreadable};

use super::{Rows, state};
use crate::literal::{IsGroupOpen, IsOpen, update};
use crate::schema::{dependencies, group_waits, job_data, jobs};

/// A rule as stored.
pub(crate) fn rule(name: &str) -> Done<OnFailed> {
    name.parse().map_err(|unknown| Unreadable(unknown).into())
}

/// Jobs, each with its rule.
fn ruled(rows: Vec<(i64, String)>) -> Done<Vec<(JobId, OnFailed)>> {
    rows.into_iter().map(|(job, name)| Ok((JobId(job), rule(&name)?))).collect()
}

/// Stores on which jobs one depends, and whether it waits for them.
fn write_down<const N: usize>(
    connection: &mut SqliteConnection,
    job: JobId,
    others: &[(JobId, bool); N],
    on_failed: OnFailed,
) -> QueryResult<()> {
    let rows = others.map(|(on, open)| {
        (
            dependencies::job_id.eq(job.0),
            dependencies::on_job_id.eq(on.0),
            dependencies::on_failed.eq(on_failed.as_str()),
            dependencies::open.eq(open),
        )
    });
    // It may come to wait for the same job again: a parent by a unique key, others by their group.
    diesel::replace_into(dependencies::table).values(rows).execute(connection).map(drop)
}

impl WaitRows for Rows {
    fn waiting_for(&mut self, on: JobId) -> Done<Vec<(JobId, OnFailed)>> {
        ruled(
            dependencies::table
                .filter(IsOpen)
                .filter(dependencies::on_job_id.eq(on.0))
                .order(dependencies::job_id)
                .select((dependencies::job_id, dependencies::on_failed))
                .load(&mut self.0)?,
        )
    }

    fn waits_on(&mut self, job: JobId) -> Done<Vec<JobId>> {
        let open = dependencies::table.filter(dependencies::job_id.eq(job.0)).filter(IsOpen);
        let ids: Vec<i64> = open.select(dependencies::on_job_id).load(&mut self.0)?;
        Ok(ids.into_iter().map(JobId).collect())
    }

    fn is_waiting(&mut self, job: JobId) -> Done<bool> {
        let open: Option<i64> = dependencies::table
            .filter(dependencies::job_id.eq(job.0))
            .filter(IsOpen)
            .select(dependencies::on_job_id)
            .first(&mut self.0)
            .optional()?;
        Ok(open.is_some())
    }

    fn dependencies(&mut self, job: JobId) -> Done<Vec<Dependency>> {
        type Row = (i64, String, bool, Option<String>);
        let rows: Vec<Row> = dependencies::table
            .left_join(jobs::table.on(jobs::id.eq(dependencies::on_job_id)))
            .filter(dependencies::job_id.eq(job.0))
            .order(dependencies::on_job_id)
            .select((dependencies::on_job_id, dependencies::on_failed, dependencies::open, jobs::state.nullable()))
            .load(&mut self.0)?;
        let dependency = |(on, name, open, is): Row| {
            let state = is.as_deref().map(state).transpose()?;
            Ok(Dependency { on: JobId(on), state, open, on_failed: rule(&name)? })
        };
        rows.into_iter().map(dependency).collect()
    }

    fn wait_for(&mut self, job: JobId, others: &[(JobId, bool)], on_failed: OnFailed) -> Done<()> {
        // In blocks: a group may have a great many jobs.
        let (blocks, rest) = others.as_chunks::<32>();
        for block in blocks {
            write_down(&mut self.0, job, block, on_failed)?;
        }
        for other in rest {
            write_down(&mut self.0, job, std::array::from_ref(other), on_failed)?;
        }
        Ok(())
    }

    fn close_wait(&mut self, job: JobId, on: JobId) -> Done<()> {
        let row = dependencies::job_id.eq(job.0).and(dependencies::on_job_id.eq(on.0));
        update(dependencies::table, row, dependencies::open.eq(false)).execute(&mut self.0)?;
        Ok(())
    }

    fn close_waits(&mut self, job: JobId) -> Done<()> {
        let open = dependencies::job_id.eq(job.0).and(IsOpen);
        update(dependencies::table, open, dependencies::open.eq(false)).execute(&mut self.0)?;
        Ok(())
    }

    fn close_group_waits(&mut self, job: JobId) -> Done<()> {
        let open = group_waits::job_id.eq(job.0).and(IsGroupOpen);
        update(group_waits::table, open, group_waits::open.eq(false)).execute(&mut self.0)?;
        Ok(())
    }

    fn forget_waits(&mut self, job: JobId) -> Done<()> {
        diesel::delete(group_waits::table.filter(group_waits::job_id.eq(job.0))).execute(&mut self.0)?;
        diesel::delete(dependencies::table.filter(dependencies::job_id.eq(job.0))).execute(&mut self.0)?;
        Ok(())
    }

    fn members(&mut self, group: &str, most: i64) -> Done<Vec<(JobId, JobState)>> {
        let rows: Vec<(i64, String)> = job_data::table
            .inner_join(jobs::table)
            .filter(job_data::group_name.eq(group))
            .filter(jobs::state.ne(JobState::Completed.as_str()))
            .order(job_data::job_id)
            .limit(most)
            .select((jobs::id, jobs::state))
            .load(&mut self.0)?;
        rows.into_iter().map(|(id, name)| Ok((JobId(id), state(&name)?))).collect()
    }

    fn has_members(&mut self, group: &str) -> Done<bool> {
        let of_group = job_data::table.inner_join(jobs::table).filter(job_data::group_name.eq(group));
        let any: Option<i64> = of_group.select(jobs::id).first(&mut self.0).optional()?;
        Ok(any.is_some())
    }

    fn waiting_for_group(&mut self, group: &str) -> Done<Vec<(JobId, OnFailed)>> {
        ruled(
            group_waits::table
                .filter(IsGroupOpen)
                .filter(group_waits::group_name.eq(group))
                .order(group_waits::job_id)
                .select((group_waits::job_id, group_waits::on_failed))
                .load(&mut self.0)?,
        )
    }

    fn awaited_groups(&mut self, job: JobId) -> Done<Vec<GroupWait>> {
        let rows: Vec<(String, bool, String)> = group_waits::table
            .filter(group_waits::job_id.eq(job.0))
            .order(group_waits::group_name)
            .select((group_waits::group_name, group_waits::open, group_waits::on_failed))
            .load(&mut self.0)?;
        let wait = |(group, open, name): (String, bool, String)| Ok(GroupWait { group, open, on_failed: rule(&name)? });
        rows.into_iter().map(wait).collect()
    }

    fn wait_for_group(&mut self, job: JobId, group: &str, on_failed: OnFailed, open: bool) -> Done<()> {
        diesel::insert_into(group_waits::table)
            .values((
                group_waits::job_id.eq(job.0),
                group_waits::group_name.eq(group),
                group_waits::on_failed.eq(on_failed.as_str()),
                group_waits::open.eq(open),
            ))
            .execute(&mut self.0)?;
        Ok(())
    }

    fn family(&mut self, job: JobId) -> Done<Option<Family>> {
        let row: Option<(Option<String>, Option<i64>)> = job_data::table
            .find(job.0)
            .select((job_data::group_name, job_data::root_id))
            .first(&mut self.0)
            .optional()?;
        Ok(row.map(|(group, root)| Family { group, root: root.map(JobId) }))
    }

    fn children(&mut self, parent: JobId) -> Done<Vec<JobId>> {
        let ids: Vec<i64> = job_data::table
            .filter(job_data::parent_id.eq(parent.0))
            .order(job_data::job_id)
            .select(job_data::job_id)
            .load(&mut self.0)?;
        Ok(ids.into_iter().map(JobId).collect())
    }
}
