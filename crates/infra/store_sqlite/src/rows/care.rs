//! Rows that a database is cared for by: `duties`, `clock_jumps` and `retention`.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use diesel::dsl::max;
use diesel::prelude::*;
use posse_core::job::lease::WorkerId;
use posse_core::port::ClockJump;
use posse_core::store::Done;
use posse_core::store::driver::{CareRows, Duty, Forgets, KeepFor, Keeps};

use super::Rows;
use crate::schema::{clock_jumps, duties, retention};

static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

impl CareRows for Rows {
    fn elapsed(&self) -> Duration {
        BEGUN.elapsed()
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
