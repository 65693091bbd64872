//! What models were asked, and which endpoints are out, for all processes together.

use super::driver::{BreakerRow, BreakersOf, Driver, Forgets, Rates};
use super::seal::{Keys, Place};
use super::{Done, Tx};
use crate::clock::Millis;
use crate::model::breaker::{Breaker, Leave};
use crate::queue::rate::{Bucket, EndpointState, ModelRates, ModelUse, Pass, RequestOutcome, Whom};

/// What is known of a model's endpoint and of the model there, in this order; that all is well where there is no row.
pub fn breakers<D: Driver>(db: &mut D, about: &ModelUse) -> Done<[BreakerRow; 2]> {
    let names = about.names();
    let mut found: Vec<BreakerRow> = db.kept(BreakersOf::Either(&names))?;
    Ok(names.map(|endpoint| match found.iter().position(|row| row.endpoint == endpoint) {
        Some(at) => found.swap_remove(at),
        None => BreakerRow { endpoint, breaker: Breaker::default(), reason: None },
    }))
}

/// Endpoints that have failed since they last answered.
pub fn failing<D: Driver>(db: &mut D, keys: &Keys) -> Done<Vec<EndpointState>> {
    let state = |row: BreakerRow| {
        let reason = said(keys, &row);
        EndpointState { endpoint: row.endpoint, breaker: row.breaker, reason }
    };
    Ok(db.kept(BreakersOf::All)?.into_iter().map(state).collect())
}

fn said(keys: &Keys, row: &BreakerRow) -> Option<String> {
    row.reason.as_ref().map(|reason| keys.show(Place::endpoint(&row.endpoint), reason))
}

/// Stores a breaker that changed. Where nothing is said, what was said before stays.
fn store_breaker<D: Driver>(tx: &mut Tx<'_, D>, row: &mut BreakerRow, said: Option<&str>) -> Done<()> {
    if row.breaker == Breaker::default() {
        Forgets::<BreakerRow>::forget(tx.db, &row.endpoint)?;
        return Ok(());
    }
    if let Some(said) = said {
        row.reason = Some(tx.keys.seal(Place::endpoint(&row.endpoint), said));
    }
    tx.db.keep(row)
}

/// The buckets of a model, for requests and for tokens, as far as it has rates; full where there is no row.
fn buckets<D: Driver>(db: &mut D, about: &ModelUse) -> Done<[Option<Bucket>; 2]> {
    let ModelRates { requests_per_minute, tokens_per_minute } = about.rates;
    let known: Option<Rates> = db.kept((about.endpoint.as_str(), about.model.as_str()))?.pop();
    let (requests, tokens) = known.map_or((0, 0), |known| (known.requests_us, known.tokens_us));
    Ok([requests_per_minute.map(|n| Bucket::paced(n, requests)), tokens_per_minute.map(|n| Bucket::whole(n, tokens))])
}

fn store_buckets<D: Driver>(db: &mut D, about: &ModelUse, buckets: [Option<Bucket>; 2]) -> Done<()> {
    if buckets == [None; 2] {
        return Ok(());
    }
    let [requests_us, tokens_us] = buckets.map(|bucket| bucket.map_or(0, |bucket| bucket.full_at_us));
    let ModelUse { endpoint, model, .. } = about.clone();
    db.keep(&Rates { endpoint, model, requests_us, tokens_us })
}

/// Whether both may be asked. Where one is out that says why; what is probed has changed.
pub fn ask(rows: &mut [BreakerRow; 2], keys: &Keys, about: &ModelUse, now: Millis) -> Leaves {
    let mut asked = [rows[0].breaker, rows[1].breaker];
    let leaves = asked.each_mut().map(|breaker| breaker.ask(now));
    let longest = [0, 1].into_iter().filter_map(|i| match leaves[i] {
        Leave::Wait(ms) => Some((ms, &rows[i])),
        Leave::Go | Leave::Probe => None,
    });
    if let Some((ms, row)) = longest.max_by_key(|(ms, _)| *ms) {
        return Leaves::Out(is_out(keys, about, row, ms));
    }
    [rows[0].breaker, rows[1].breaker] = asked;
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
    let mut rows = breakers(tx.db, about)?;
    let before = [rows[0].breaker, rows[1].breaker];
    let is_probe = match ask(&mut rows, tx.keys, about, now) {
        Leaves::Out(pass) => return Ok(pass),
        Leaves::Probe => true,
        Leaves::Go => false,
    };
    let mut buckets = buckets(tx.db, about)?;
    let counts = [about.requests, about.tokens];
    let waits = [0, 1].map(|i| buckets[i].map_or(0, |bucket| bucket.wait_ms(counts[i], now)));
    let after_ms = waits[0].max(waits[1]);
    if after_ms > patience_ms {
        let (limit, what) = match waits[0] >= waits[1] {
            true => (about.rates.requests_per_minute, "requests"),
            false => (about.rates.tokens_per_minute, "tokens"),
        };
        let (model, limit) = (&about.model, limit.unwrap_or_default());
        let reason = format!("the model {model} may be sent {limit} {what} a minute, and as many were");
        return Ok(Pass::Wait { ms: after_ms, reason });
    }
    for (bucket, count) in buckets.iter_mut().zip(counts) {
        bucket.iter_mut().for_each(|bucket| bucket.take(count, now));
    }
    store_buckets(tx.db, about, buckets)?;
    if !is_probe {
        return Ok(Pass::Go { after_ms });
    }
    for (row, _) in rows.iter_mut().zip(before).filter(|(row, before)| row.breaker != *before) {
        store_breaker(tx, row, None)?;
    }
    Ok(Pass::Probe)
}

fn is_out(keys: &Keys, about: &ModelUse, row: &BreakerRow, ms: Millis) -> Pass {
    let ModelUse { endpoint, model, .. } = about;
    let what = match row.endpoint == *endpoint {
        true => format!("the endpoint {endpoint} is out"),
        false => format!("the endpoint {endpoint} takes nothing for {model} now"),
    };
    let said = said(keys, row).map(|said| format!(", since the last that was asked there: {said}"));
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
    let mut buckets = buckets(tx.db, reserved)?;
    let counts = [(reserved.requests, used.requests), (reserved.tokens, used.tokens)];
    for (bucket, (before, after)) in buckets.iter_mut().zip(counts).filter(|(_, (before, after))| before != after) {
        if let Some(bucket) = bucket {
            bucket.give_back(before);
            bucket.take(after, now);
        }
    }
    store_buckets(tx.db, reserved, buckets)?;
    let [endpoint, model] = breakers(tx.db, reserved)?;
    let mut rest = None;
    let put = |tx: &mut Tx<'_, D>, mut row: BreakerRow, said: Option<&str>, change: &mut dyn FnMut(&mut Breaker)| {
        let before = row.breaker;
        change(&mut row.breaker);
        if row.breaker == before { Ok(()) } else { store_breaker(tx, &mut row, said) }
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
