//! Rows of `dependencies` and `group_waits`.

use diesel::prelude::*;
use posse_core::job::JobId;
use posse_core::job::dependency::{GroupWait, OnFailed};
use posse_core::store::driver::{Closing, GroupWaitsOf, WaitRow, WaitRows, WaitsOf};
use posse_core::store::{Done, Unreadable};

use super::Rows;
use crate::literal::{IsGroupOpen, IsOpen, update};
use crate::schema::{dependencies, group_waits};

fn rule(name: &str) -> Done<OnFailed> {
    name.parse().map_err(|unknown| Unreadable(unknown).into())
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
    fn waits(&mut self, of: WaitsOf) -> Done<Vec<WaitRow>> {
        type Row = (i64, i64, String, bool);
        let waits = dependencies::table.order((dependencies::job_id, dependencies::on_job_id));
        let rows: Vec<Row> = match of {
            WaitsOf::Job(job) => waits.filter(dependencies::job_id.eq(job.0)).load(&mut self.0)?,
            WaitsOf::OpenOf(job, most) => {
                let open = waits.filter(dependencies::job_id.eq(job.0)).filter(IsOpen);
                open.limit(i64::from(most)).load(&mut self.0)?
            }
            WaitsOf::OpenOn(on, most) => {
                let open = waits.filter(IsOpen).filter(dependencies::on_job_id.eq(on.0));
                open.limit(i64::from(most)).load(&mut self.0)?
            }
        };
        let wait =
            |(job, on, name, open): Row| Ok(WaitRow { job: JobId(job), on: JobId(on), open, on_failed: rule(&name)? });
        rows.into_iter().map(wait).collect()
    }

    fn group_waits(&mut self, of: GroupWaitsOf<'_>) -> Done<Vec<(JobId, GroupWait)>> {
        type Row = (i64, String, String, bool);
        let waits = group_waits::table.order((group_waits::job_id, group_waits::group_name));
        let rows: Vec<Row> = match of {
            GroupWaitsOf::Job(job) => waits.filter(group_waits::job_id.eq(job.0)).load(&mut self.0)?,
            GroupWaitsOf::OpenOn(group) => {
                waits.filter(IsGroupOpen).filter(group_waits::group_name.eq(group)).load(&mut self.0)?
            }
        };
        let wait = |(job, group, name, open): Row| Ok((JobId(job), GroupWait { group, open, on_failed: rule(&name)? }));
        rows.into_iter().map(wait).collect()
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

    fn wait_for_group(&mut self, job: JobId, group: &str, on_failed: OnFailed, open: bool) -> Done<()> {
        let row = (
            group_waits::job_id.eq(job.0),
            group_waits::group_name.eq(group),
            group_waits::on_failed.eq(on_failed.as_str()),
            group_waits::open.eq(open),
        );
        self.run(diesel::insert_into(group_waits::table).values(row))
    }

    fn close_waits(&mut self, job: JobId, which: Closing) -> Done<()> {
        let waits = dependencies::job_id.eq(job.0);
        let group_waits = group_waits::job_id.eq(job.0);
        let closed = dependencies::open.eq(false);
        match which {
            Closing::On(on) => {
                self.run(update(dependencies::table, waits.and(dependencies::on_job_id.eq(on.0)), closed))
            }
            Closing::Groups => {
                self.run(update(group_waits::table, group_waits.and(IsGroupOpen), group_waits::open.eq(false)))
            }
            Closing::All => {
                self.close_waits(job, Closing::Groups)?;
                self.run(update(dependencies::table, waits.and(IsOpen), closed))
            }
            Closing::Forgotten => {
                self.run(diesel::delete(group_waits::table.filter(group_waits)))?;
                self.run(diesel::delete(dependencies::table.filter(waits)))
            }
        }
    }
}
