//! What models were asked, and which endpoints are out, for all processes together.

use async_trait::async_trait;
use diesel::prelude::*;
use posse_core::breaker::{Breaker, Leave};
use posse_core::clock::Millis;
use posse_core::port::RepositoryError;
use posse_core::rate::{Bucket, EndpointState, ModelRates, ModelUse, Outcome as Went, Pass, RateLimiter};

use super::SqliteStore;
use super::fault::Outcome;
use super::schema::{breakers, rates};
use super::seal::{Keys, Place, Sealed};
use super::writer::Transaction;

/// Roughly what a change takes, in bytes.
const ROW: usize = 300;

/// An endpoint's breaker; one that is well where there is no row.
fn breaker(connection: &mut SqliteConnection, endpoint: &str) -> QueryResult<Breaker> {
    let row: Option<BreakerRow> = breakers::table.find(endpoint).first(connection).optional()?;
    Ok(row.map(|row| to_state(&Keys::default(), row).breaker).unwrap_or_default())
}

type BreakerRow = (String, i64, i64, i64, i64, i64, Option<Sealed>);

fn to_state(keys: &Keys, row: BreakerRow) -> EndpointState {
    let (endpoint, failures, failed_at, rests, out_until, probe_until, reason) = row;
    let reason = reason.map(|reason| keys.show(Place::endpoint(&endpoint), &reason));
    let [failures, rests] = [failures, rests].map(|n| u32::try_from(n).unwrap_or(u32::MAX));
    EndpointState { endpoint, breaker: Breaker { failures, failed_at, rests, out_until, probe_until }, reason }
}

fn store_breaker(tx: &mut Transaction<'_>, endpoint: &str, breaker: &Breaker, reason: Option<&str>) -> QueryResult<()> {
    if *breaker == Breaker::default() {
        return diesel::delete(breakers::table.find(endpoint)).execute(tx.connection).map(drop);
    }
    let state = (
        breakers::failures.eq(i64::from(breaker.failures)),
        breakers::failed_at.eq(breaker.failed_at),
        breakers::rests.eq(i64::from(breaker.rests)),
        breakers::out_until.eq(breaker.out_until),
        breakers::probe_until.eq(breaker.probe_until),
    );
    // What was said stays until something else is said.
    let reason = reason.map(|reason| tx.keys.seal(Place::endpoint(endpoint), reason));
    let said = reason.as_ref().map(|reason| breakers::reason.eq(reason));
    diesel::insert_into(breakers::table)
        .values((breakers::endpoint.eq(endpoint), state, breakers::reason.eq(&reason)))
        .on_conflict(breakers::endpoint)
        .do_update()
        .set((state, said))
        .execute(tx.connection)
        .map(drop)
}

/// The buckets of a model; both full where there is no row.
fn buckets(connection: &mut SqliteConnection, about: &ModelUse) -> QueryResult<[Option<Bucket>; 2]> {
    let ModelRates { requests_per_minute, tokens_per_minute } = about.rates;
    let row: Option<(i64, i64)> = rates::table
        .find((&about.endpoint, &about.model))
        .select((rates::requests_full_at_us, rates::tokens_full_at_us))
        .first(connection)
        .optional()?;
    let (requests, tokens) = row.unwrap_or_default();
    Ok([requests_per_minute.map(|n| Bucket::paced(n, requests)), tokens_per_minute.map(|n| Bucket::whole(n, tokens))])
}

fn store_buckets(
    connection: &mut SqliteConnection,
    about: &ModelUse,
    [requests, tokens]: [Option<Bucket>; 2],
) -> QueryResult<()> {
    let full_at = |bucket: Option<Bucket>| bucket.map_or(0, |bucket| bucket.full_at_us);
    diesel::replace_into(rates::table)
        .values((
            rates::endpoint.eq(&about.endpoint),
            rates::model.eq(&about.model),
            rates::requests_full_at_us.eq(full_at(requests)),
            rates::tokens_full_at_us.eq(full_at(tokens)),
        ))
        .execute(connection)
        .map(drop)
}

/// Asks leave for a request; see [`RateLimiter::reserve`].
fn reserve(tx: &mut Transaction<'_>, about: &ModelUse, patience_ms: Millis, now: Millis) -> Outcome<Pass> {
    let mut breaker = breaker(tx.connection, &about.endpoint)?;
    let leave = breaker.ask(now);
    if let Leave::Wait(ms) = leave {
        return Ok(is_out(about, ms));
    }
    let [mut requests, mut tokens] = buckets(tx.connection, about)?;
    let wait = |bucket: &Option<Bucket>, count| bucket.map_or(0, |bucket| bucket.wait_ms(count, now));
    let (for_requests, for_tokens) = (wait(&requests, about.requests), wait(&tokens, about.tokens));
    let after_ms = for_requests.max(for_tokens);
    if after_ms > patience_ms {
        let (limit, what) = if for_requests >= for_tokens {
            (about.rates.requests_per_minute, "requests")
        } else {
            (about.rates.tokens_per_minute, "tokens")
        };
        let (model, limit) = (&about.model, limit.unwrap_or_default());
        let reason = format!("the model {model} may be sent {limit} {what} a minute, and as many were");
        return Ok(Pass::Wait { ms: after_ms, reason });
    }
    if let Some(bucket) = &mut requests {
        bucket.take(about.requests, now);
    }
    if let Some(bucket) = &mut tokens {
        bucket.take(about.tokens, now);
    }
    if requests.is_some() || tokens.is_some() {
        store_buckets(tx.connection, about, [requests, tokens])?;
    }
    if leave == Leave::Probe {
        store_breaker(tx, &about.endpoint, &breaker, None)?;
    }
    Ok(Pass::Go { after_ms })
}

fn is_out(about: &ModelUse, ms: Millis) -> Pass {
    Pass::Wait { ms, reason: format!("the endpoint {} is out; it is left alone for a while", about.endpoint) }
}

/// Says what a request came to; see [`RateLimiter::settle`].
fn settle(
    tx: &mut Transaction<'_>,
    reserved: &ModelUse,
    used: &ModelUse,
    went: &Went,
    now: Millis,
) -> Outcome<Option<Millis>> {
    let [mut requests, mut tokens] = buckets(tx.connection, reserved)?;
    let correct = |bucket: &mut Option<Bucket>, before: u64, after: u64| {
        if let Some(bucket) = bucket.as_mut().filter(|_| before != after) {
            bucket.give_back(before);
            bucket.take(after, now);
        }
    };
    correct(&mut requests, reserved.requests, used.requests);
    correct(&mut tokens, reserved.tokens, used.tokens);
    if requests.is_some() || tokens.is_some() {
        store_buckets(tx.connection, reserved, [requests, tokens])?;
    }
    let before = breaker(tx.connection, &reserved.endpoint)?;
    let mut after = before;
    let (rest, said) = match went {
        Went::Answered => {
            after.succeed();
            (None, None)
        }
        Went::Failed(words) => (after.fail(now), Some(words.as_str())),
        Went::Unknown => {
            after.forget_probe();
            (None, None)
        }
    };
    if after != before {
        store_breaker(tx, &reserved.endpoint, &after, said)?;
    }
    Ok(rest)
}

/// Endpoints that have failed since they last answered.
pub(super) fn failing(connection: &mut SqliteConnection, keys: &Keys) -> Outcome<Vec<EndpointState>> {
    let rows: Vec<BreakerRow> = breakers::table.order(breakers::endpoint).load(connection)?;
    Ok(rows.into_iter().map(|row| to_state(keys, row)).collect())
}

#[async_trait]
impl RateLimiter for SqliteStore {
    async fn reserve(&self, about: ModelUse, patience_ms: Millis, now: Millis) -> Result<Pass, RepositoryError> {
        if about.rates == ModelRates::default() {
            // Nothing is counted, so there is nothing to write while the endpoint is well or resting.
            let endpoint = about.endpoint.clone();
            let mut breaker = self.readers.run(move |connection| Ok(breaker(connection, &endpoint)?)).await?;
            match breaker.ask(now) {
                Leave::Go => return Ok(Pass::Go { after_ms: 0 }),
                Leave::Wait(ms) => return Ok(is_out(&about, ms)),
                Leave::Probe => {}
            }
        }
        self.writer()?.run(ROW, move |tx| reserve(tx, &about, patience_ms, now)).await
    }

    async fn settle(
        &self,
        reserved: ModelUse,
        used: ModelUse,
        went: Went,
        now: Millis,
    ) -> Result<Option<Millis>, RepositoryError> {
        if reserved.rates == ModelRates::default() && !matches!(went, Went::Failed(_)) {
            let endpoint = reserved.endpoint.clone();
            let breaker = self.readers.run(move |connection| Ok(breaker(connection, &endpoint)?)).await?;
            if breaker == Breaker::default() {
                return Ok(None);
            }
        }
        self.writer()?.run(ROW, move |tx| settle(tx, &reserved, &used, &went, now)).await
    }

    async fn failing_endpoints(&self) -> Result<Vec<EndpointState>, RepositoryError> {
        self.read(failing).await
    }
}
