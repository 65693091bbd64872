//! Rows of `breakers` and `rates`.

use diesel::prelude::*;
use posse_core::model::breaker::Breaker;
use posse_core::store::Done;
use posse_core::store::driver::{BreakerRow, BreakersOf, Forgets, Keeps, Rates};
use posse_core::store::seal::Sealed;

use super::Rows;
use crate::schema::{breakers, rates};
use crate::sealed_text::Text;

impl Keeps<BreakerRow> for Rows {
    fn kept(&mut self, of: BreakersOf<'_>) -> Done<Vec<BreakerRow>> {
        type Row = (String, i64, i64, i64, i64, i64, Option<Sealed>);
        let row = |(endpoint, failures, failed_at, rests, out_until, probe_until, reason): Row| {
            let [failures, rests] = [failures, rests].map(|n| u32::try_from(n).unwrap_or(u32::MAX));
            BreakerRow { endpoint, breaker: Breaker { failures, failed_at, rests, out_until, probe_until }, reason }
        };
        match of {
            // A list would be prepared on every use.
            BreakersOf::Either([one, other]) => {
                let of_either = breakers::endpoint.eq(one).or(breakers::endpoint.eq(other));
                self.load(breakers::table.filter(of_either), row)
            }
            BreakersOf::All => self.load(breakers::table.order(breakers::endpoint), row),
        }
    }

    fn keep(&mut self, row: &BreakerRow) -> Done<()> {
        let row = (
            breakers::endpoint.eq(&row.endpoint),
            breakers::failures.eq(i64::from(row.breaker.failures)),
            breakers::failed_at.eq(row.breaker.failed_at),
            breakers::rests.eq(i64::from(row.breaker.rests)),
            breakers::out_until.eq(row.breaker.out_until),
            breakers::probe_until.eq(row.breaker.probe_until),
            breakers::reason.eq(row.reason.as_ref().map(Text)),
        );
        self.run(diesel::replace_into(breakers::table).values(row))
    }
}

impl Forgets<BreakerRow> for Rows {
    fn forget(&mut self, endpoint: &str) -> Done<bool> {
        Ok(diesel::delete(breakers::table.find(endpoint)).execute(&mut self.0)? > 0)
    }
}

impl Keeps<Rates> for Rows {
    fn kept(&mut self, key: (&str, &str)) -> Done<Vec<Rates>> {
        let rates = |(endpoint, model, requests_us, tokens_us): (String, String, i64, i64)| Rates {
            endpoint,
            model,
            requests_us,
            tokens_us,
        };
        self.load(rates::table.find(key), rates)
    }

    fn keep(&mut self, row: &Rates) -> Done<()> {
        let row = (
            rates::endpoint.eq(&row.endpoint),
            rates::model.eq(&row.model),
            rates::requests_full_at_us.eq(row.requests_us),
            rates::tokens_full_at_us.eq(row.tokens_us),
        );
        self.run(diesel::replace_into(rates::table).values(row))
    }
}
