//! Rows of `breakers` and `rates`.

use diesel::prelude::*;
use posse_core::model::breaker::Breaker;
use posse_core::store::Done;
use posse_core::store::driver::{BreakerRow, EndpointRows};
use posse_core::store::seal::Sealed;

use super::Rows;
use crate::schema::{breakers, rates};
use crate::sealed_text::Text;

type Columns = (String, i64, i64, i64, i64, i64, Option<Sealed>);

fn row((endpoint, failures, failed_at, rests, out_until, probe_until, reason): Columns) -> BreakerRow {
    let [failures, rests] = [failures, rests].map(|n| u32::try_from(n).unwrap_or(u32::MAX));
    BreakerRow { endpoint, breaker: Breaker { failures, failed_at, rests, out_until, probe_until }, reason }
}

impl EndpointRows for Rows {
    fn breakers(&mut self, names: &[String; 2]) -> Done<Vec<BreakerRow>> {
        // A list would be prepared on every use.
        let of_either = breakers::endpoint.eq(&names[0]).or(breakers::endpoint.eq(&names[1]));
        let rows: Vec<Columns> = breakers::table.filter(of_either).load(&mut self.0)?;
        Ok(rows.into_iter().map(row).collect())
    }

    fn failing(&mut self) -> Done<Vec<BreakerRow>> {
        let rows: Vec<Columns> = breakers::table.order(breakers::endpoint).load(&mut self.0)?;
        Ok(rows.into_iter().map(row).collect())
    }

    fn set_breaker(&mut self, endpoint: &str, breaker: &Breaker, reason: Option<&Sealed>) -> Done<()> {
        let state = (
            breakers::failures.eq(i64::from(breaker.failures)),
            breakers::failed_at.eq(breaker.failed_at),
            breakers::rests.eq(i64::from(breaker.rests)),
            breakers::out_until.eq(breaker.out_until),
            breakers::probe_until.eq(breaker.probe_until),
        );
        let reason = reason.map(Text);
        let said = reason.map(|reason| breakers::reason.eq(reason));
        diesel::insert_into(breakers::table)
            .values((breakers::endpoint.eq(endpoint), state, breakers::reason.eq(reason)))
            .on_conflict(breakers::endpoint)
            .do_update()
            .set((state, said))
            .execute(&mut self.0)?;
        Ok(())
    }

    fn forget_breaker(&mut self, endpoint: &str) -> Done<()> {
        diesel::delete(breakers::table.find(endpoint)).execute(&mut self.0)?;
        Ok(())
    }

    fn rates(&mut self, endpoint: &str, model: &str) -> Done<(i64, i64)> {
        let row: Option<(i64, i64)> = rates::table
            .find((endpoint, model))
            .select((rates::requests_full_at_us, rates::tokens_full_at_us))
            .first(&mut self.0)
            .optional()?;
        Ok(row.unwrap_or_default())
    }

    fn set_rates(&mut self, endpoint: &str, model: &str, requests_us: i64, tokens_us: i64) -> Done<()> {
        diesel::replace_into(rates::table)
            .values((
                rates::endpoint.eq(endpoint),
                rates::model.eq(model),
                rates::requests_full_at_us.eq(requests_us),
                rates::tokens_full_at_us.eq(tokens_us),
            ))
            .execute(&mut self.0)?;
        Ok(())
    }
}
