//! What models were asked, and which endpoints are out, for all processes together.

use super::driver::{BreakerRow, Driver};
use super::seal::{Keys, Place};
use super::{Done, Tx};
use crate::clock::Millis;
use crate::model::breaker::{Breaker, Leave};
use crate::queue::rate::{Bucket, EndpointState, ModelRates, ModelUse, Pass, RequestOutcome, Whom};

/// What is known of a model's endpoint and of the model there, in this order; that all is well where there is no row.
pub fn breakers<D: Driver>(db: &mut D, keys: &Keys, about: &ModelUse) -> Done<[EndpointState; 2]> {
    let names = about.names();
    let mut found: Vec<_> = db.breakers(&names)?.into_iter().map(|row| to_state(keys, row)).collect();
    Ok(names.map(|endpoint| match found.iter().position(|state| state.endpoint == endpoint) {
        Some(at) => found.swap_remove(at),
        None => EndpointState { endpoint, breaker: Breaker::default(), reason: None },
    }))
}

/// Endpoints that have failed since they last answered.
pub fn failing<D: Driver>(db: &mut D, keys: &Keys) -> Done<Vec<EndpointState>> {
    Ok(db.failing()?.into_iter().map(|row| to_state(keys, row)).collect())
}

fn to_state(keys: &Keys, BreakerRow { endpoint, breaker, reason }: BreakerRow) -> EndpointState {
    let reason = reason.map(|reason| keys.show(Place::endpoint(&endpoint), &reason));
    EndpointState { endpoint, breaker, reason }
}

fn store_breaker<D: Driver>(tx: &mut Tx<'_, D>, endpoint: &str, breaker: &Breaker, reason: Option<&str>) -> Done<()> {
    if *breaker == Breaker::default() {
        return tx.db.forget_breaker(endpoint);
    }
    let reason = reason.map(|reason| tx.keys.seal(Place::endpoint(endpoint), reason));
    tx.db.set_breaker(endpoint, breaker, reason.as_ref())
}

/// The buckets of a model; both full where there is no row.
fn buckets<D: Driver>(db: &mut D, about: &ModelUse) -> Done<[Option<Bucket>; 2]> {
    let ModelRates { requests_per_minute, tokens_per_minute } = about.rates;
    let (requests, tokens) = db.rates(&about.endpoint, &about.model)?;
    Ok([requests_per_minute.map(|n| Bucket::paced(n, requests)), tokens_per_minute.map(|n| Bucket::whole(n, tokens))])
}

fn store_buckets<D: Driver>(db: &mut D, about: &ModelUse, buckets: [Option<Bucket>; 2]) -> Done<()> {
    let [requests, tokens] = buckets.map(|bucket| bucket.map_or(0, |bucket| bucket.full_at_us));
    db.set_rates(&about.endpoint, &about.model, requests, tokens)
}

/// Whether both may be asked. Where one is out that says why; what is probed has changed.
pub fn ask(states: &mut [EndpointState; 2], about: &ModelUse, now: Millis) -> Leaves {
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
#[derive(Debug)]
pub enum Leaves {
    /// Ask.
    Go,
    /// Ask, and find out by it whether it is well again.
    Probe,
    /// Do not ask.
    Out(Pass),
}

/// Asks leave for a request; see [`crate::port::RateLimiter::reserve`].
pub fn reserve<D: Driver>(tx: &mut Tx<'_, D>, about: &ModelUse, patience_ms: Millis, now: Millis) -> Done<Pass> {
    let before = breakers(tx.db, tx.keys, about)?;
    let mut states = before.clone();
    let is_probe = match ask(&mut states, about, now) {
        Leaves::Out(pass) => return Ok(pass),
        Leaves::Probe => true,
        Leaves::Go => false,
    };
    let [mut requests, mut tokens] = buckets(tx.db, about)?;
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
        store_buckets(tx.db, about, [requests, tokens])?;
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

/// Says what a request came to; see [`crate::port::RateLimiter::settle`].
pub fn settle<D: Driver>(
    tx: &mut Tx<'_, D>,
    reserved: &ModelUse,
    used: &ModelUse,
    went: &RequestOutcome,
    now: Millis,
) -> Done<Option<Millis>> {
    let [mut requests, mut tokens] = buckets(tx.db, reserved)?;
    let correct = |bucket: &mut Option<Bucket>, before: u64, after: u64| {
        if let Some(bucket) = bucket.as_mut().filter(|_| before != after) {
            bucket.give_back(before);
            bucket.take(after, now);
        }
    };
    correct(&mut requests, reserved.requests, used.requests);
    correct(&mut tokens, reserved.tokens, used.tokens);
    if requests.is_some() || tokens.is_some() {
        store_buckets(tx.db, reserved, [requests, tokens])?;
    }
    let [endpoint, model] = breakers(tx.db, &Keys::default(), reserved)?;
    let mut rest = None;
    let put = |tx: &mut Tx<'_, D>, state: EndpointState, said: Option<&str>, change: &mut dyn FnMut(&mut Breaker)| {
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
