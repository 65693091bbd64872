//! What models were asked, and which endpoints are out, for all processes together.

use async_trait::async_trait;
use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::model::breaker::{Breaker, Leave};
use posse_core::port::RateLimiter;
use posse_core::port::RepositoryError;
use posse_core::queue::rate::{Bucket, EndpointState, ModelRates, ModelUse, Pass, RequestOutcome, Whom};

use super::SqliteStore;
use super::fault::Outcome;
use super::schema::{breakers, rates};
use super::sealed_text::Text;
use super::writer::Transaction;
use posse_core::store::seal::{Keys, Place, Sealed};

/// Roughly what a change takes, in bytes.
const ROW: usize = 300;

/// What is known of these names, in their order; that all is well where there is no row.
fn breakers_of(connection: &mut SqliteConnection, keys: &Keys, about: &ModelUse) -> QueryResult<[EndpointState; 2]> {
    let names = about.names();
    // A list would be prepared on every use.
    let of_either = breakers::endpoint.eq(&names[0]).or(breakers::endpoint.eq(&names[1]));
    let rows: Vec<BreakerRow> = breakers::table.filter(of_either).load(connection)?;
    let mut found: Vec<_> = rows.into_iter().map(|row| to_state(keys, row)).collect();
    Ok(names.map(|endpoint| match found.iter().position(|state| state.endpoint == endpoint) {
        Some(at) => found.swap_remove(at),
        None => EndpointState { endpoint, breaker: Breaker::default(), reason: None },
    }))
}

/// Whether both may be asked. Where one is out that says why; what is probed has changed.
fn ask(states: &mut [EndpointState; 2], about: &ModelUse, now: Millis) -> Leaves {
    let mut asked = states.clone();
    let leaves = [0, 1].map(|i| asked[i].breaker.ask(now));
    let longest = [0, 1].into_iter().filter_map(|i| match leaves[i] {
        Leave::Wait(ms) => Some((ms, &states[i])),
        Leave::Go | Leave::Probe => None,
    });
    if let Some((ms, state)) = longest.max_by_key(|(ms, _)| *ms) {
        return Leaves::Out(is_out(about, state, ms));
    }
    *states = asked;
    if leaves.contains(&Leave::Probe) { Leaves::Probe } else { Leaves::Go }
}

/// What two breakers say together.
enum Leaves {
    Go,
    Probe,
    Out(Pass),
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
        return diesel::delete(breakers::table.find(endpoint)).execute(&mut tx.db.0).map(drop);
    }
    let state = (
        breakers::failures.eq(i64::from(breaker.failures)),
        breakers::failed_at.eq(breaker.failed_at),
        breakers::rests.eq(i64::from(breaker.rests)),
        breakers::out_until.eq(breaker.out_until),
        breakers::probe_until.eq(breaker.probe_until),
    );
    // What was said stays until something else is said.
    let reason = reason.map(|reason| Text(tx.keys.seal(Place::endpoint(endpoint), reason)));
    let said = reason.as_ref().map(|reason| breakers::reason.eq(reason));
    diesel::insert_into(breakers::table)
        .values((breakers::endpoint.eq(endpoint), state, breakers::reason.eq(&reason)))
        .on_conflict(breakers::endpoint)
        .do_update()
        .set((state, said))
        .execute(&mut tx.db.0)
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
    let before = breakers_of(&mut tx.db.0, tx.keys, about)?;
    let mut states = before.clone();
    let is_probe = match ask(&mut states, about, now) {
        Leaves::Out(pass) => return Ok(pass),
        Leaves::Probe => true,
        Leaves::Go => false,
    };
    let [mut requests, mut tokens] = buckets(&mut tx.db.0, about)?;
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
        store_buckets(&mut tx.db.0, about, [requests, tokens])?;
    }
    if !is_probe {
        return Ok(Pass::Go { after_ms });
    }
    for (state, before) in states.iter().zip(&before).filter(|(state, before)| state.breaker != before.breaker) {
        store_breaker(tx, &before.endpoint, &state.breaker, None)?;
    }
    Ok(Pass::Probe)
}

fn is_out(about: &ModelUse, state: &EndpointState, ms: Millis) -> Pass {
    let ModelUse { endpoint, model, .. } = about;
    let what = match state.endpoint == *endpoint {
        true => format!("the endpoint {endpoint} is out"),
        false => format!("the endpoint {endpoint} takes nothing for {model} now"),
    };
    let said = state.reason.as_deref().map(|said| format!(", since the last that was asked there: {said}"));
    Pass::Out { ms, reason: format!("{what}; it is left alone for a while{}", said.unwrap_or_default()) }
}

/// Says what a request came to; see [`RateLimiter::settle`].
fn settle(
    tx: &mut Transaction<'_>,
    reserved: &ModelUse,
    used: &ModelUse,
    went: &RequestOutcome,
    now: Millis,
) -> Outcome<Option<Millis>> {
    let [mut requests, mut tokens] = buckets(&mut tx.db.0, reserved)?;
    let correct = |bucket: &mut Option<Bucket>, before: u64, after: u64| {
        if let Some(bucket) = bucket.as_mut().filter(|_| before != after) {
            bucket.give_back(before);
            bucket.take(after, now);
        }
    };
    correct(&mut requests, reserved.requests, used.requests);
    correct(&mut tokens, reserved.tokens, used.tokens);
    if requests.is_some() || tokens.is_some() {
        store_buckets(&mut tx.db.0, reserved, [requests, tokens])?;
    }
    let [endpoint, model] = breakers_of(&mut tx.db.0, &Keys::default(), reserved)?;
    let mut rest = None;
    let put =
        |tx: &mut Transaction<'_>, state: EndpointState, said: Option<&str>, change: &mut dyn FnMut(&mut Breaker)| {
            let mut after = state.breaker;
            change(&mut after);
            if after == state.breaker { Ok(()) } else { store_breaker(tx, &state.endpoint, &after, said) }
        };
    let is_probe = reserved.is_probe;
    match went {
        RequestOutcome::Answered => {
            put(tx, endpoint, None, &mut Breaker::succeed)?;
            put(tx, model, None, &mut Breaker::succeed)?;
        }
        RequestOutcome::Failed(said) => {
            put(tx, endpoint, Some(said), &mut |breaker| rest = breaker.fail(now, is_probe))?;
            if is_probe {
                put(tx, model, None, &mut Breaker::forget_probe)?;
            }
        }
        RequestOutcome::Limited { reason, ms } => {
            put(tx, endpoint, None, &mut Breaker::succeed)?;
            put(tx, model, Some(reason), &mut |breaker| rest = breaker.limit(*ms, now, is_probe))?;
        }
        RequestOutcome::Closed { reason, whom, ms } => {
            let (closed, other) = match whom {
                Whom::Everybody => (endpoint, model),
                Whom::Model => (model, endpoint),
            };
            put(tx, closed, Some(reason), &mut |breaker| rest = Some(breaker.close(*ms, now, is_probe)))?;
            match whom {
                // Whoever closes a door is there.
                Whom::Model => put(tx, other, None, &mut Breaker::succeed)?,
                Whom::Everybody if is_probe => put(tx, other, None, &mut Breaker::forget_probe)?,
                Whom::Everybody => {}
            }
        }
        // Somebody else's probe is still on its way.
        RequestOutcome::Unknown if !is_probe => {}
        RequestOutcome::Unknown => {
            put(tx, endpoint, None, &mut Breaker::forget_probe)?;
            put(tx, model, None, &mut Breaker::forget_probe)?;
        }
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
            let (asked, keys) = (about.clone(), self.keys.clone());
            let find = move |connection: &mut SqliteConnection| breakers_of(connection, &keys, &asked);
            match ask(&mut self.readers.run(find).await?, &about, now) {
                Leaves::Go => return Ok(Pass::Go { after_ms: 0 }),
                Leaves::Out(pass) => return Ok(pass),
                Leaves::Probe => {}
            }
        }
        self.writer()?.run(ROW, move |tx| reserve(tx, &about, patience_ms, now)).await
    }

    async fn settle(
        &self,
        reserved: ModelUse,
        used: ModelUse,
        went: RequestOutcome,
        now: Millis,
    ) -> Result<Option<Millis>, RepositoryError> {
        if reserved.rates == ModelRates::default() && matches!(went, RequestOutcome::Answered | RequestOutcome::Unknown)
        {
            let asked = reserved.clone();
            let find = move |connection: &mut SqliteConnection| breakers_of(connection, &Keys::default(), &asked);
            let known = self.readers.run(find).await?;
            if known.iter().all(|state| state.breaker == Breaker::default()) {
                return Ok(None);
            }
        }
        self.writer()?.run(ROW, move |tx| settle(tx, &reserved, &used, &went, now)).await
    }

    async fn failing_endpoints(&self) -> Result<Vec<EndpointState>, RepositoryError> {
        self.read(failing).await
    }
}
