//! What limits work: rules for jobs, and what endpoints of models can take; and the numbers to watch all of it by.

use async_trait::async_trait;

use crate::clock::Millis;
use crate::job::JobId;
use crate::model::breaker::Breaker;
use crate::port::{MetricsQueries, QueueRepository, RateLimiter, Result, Rules, Standing, Written};
use crate::queue::rate::{EndpointState, ModelRates, ModelUse, Pass, RequestOutcome};
use crate::queue::rules::{Held, Limits, LimitsChange, QueueState, Rule, Scope};
use crate::queue::{Queue, QueueChange};
use crate::store::driver::Keeps as _;
use crate::store::endpoints::{self, Leaves};
use crate::store::engine::Engine;
use crate::store::{ROW, care, limits};

/// Roughly what a rule takes, in bytes.
const RULE: usize = 200;

#[async_trait]
impl<E: Engine> Rules for E {
    async fn set_limits(&self, scope: Scope, limits: Limits, now: Millis) -> Result<()> {
        self.write(RULE, move |tx| limits::change(tx, &scope, Some(now), |rule| rule.limits = limits)).await
    }

    async fn change_limits(&self, scope: Scope, wanted: LimitsChange, now: Millis) -> Result<Limits> {
        let changed = move |rule: &mut Rule| {
            rule.limits = wanted.apply(rule.limits);
            rule.limits
        };
        self.write(RULE, move |tx| limits::change(tx, &scope, Some(now), changed)).await
    }

    async fn pause(&self, scope: Scope, now: Millis) -> Result<bool> {
        let pause = move |rule: &mut Rule| {
            let is_new = rule.paused_at.is_none();
            rule.paused_at = rule.paused_at.or(Some(now));
            is_new
        };
        self.write(RULE, move |tx| limits::change(tx, &scope, Some(now), pause)).await
    }

    async fn resume(&self, scope: Scope) -> Result<bool> {
        self.write(RULE, move |tx| limits::change(tx, &scope, None, |rule| rule.paused_at.take().is_some())).await
    }

    async fn rules(&self) -> Result<Vec<Rule>> {
        self.read(|db, _| limits::rules(db)).await
    }

    async fn held(&self, job: JobId, now: Millis) -> Result<Option<Held>> {
        self.read(move |db, _| limits::held(db, job, now)).await
    }
}

#[async_trait]
impl<E: Engine> QueueRepository for E {
    async fn queue(&self, name: String) -> Result<Queue> {
        self.read(move |db, _| limits::queue(db, &name)).await
    }

    async fn queues(&self) -> Result<Vec<Queue>> {
        self.read(|db, _| db.kept(None)).await
    }

    async fn change_queue(&self, name: String, wanted: QueueChange, now: Millis) -> Result<Queue> {
        self.write(RULE, move |tx| limits::change_queue(tx, &name, &wanted, now)).await
    }

    async fn queue_states(&self) -> Result<Vec<QueueState>> {
        self.read(|db, _| limits::queue_states(db)).await
    }
}

#[async_trait]
impl<E: Engine> RateLimiter for E {
    async fn reserve(&self, about: ModelUse, patience_ms: Millis, now: Millis) -> Result<Pass> {
        if about.rates == ModelRates::default() {
            // Nothing is counted, so there is nothing to write while the endpoint is well or resting.
            let asked = about.clone();
            let known = self.read(move |db, _| endpoints::breakers(db, &asked));
            match endpoints::ask(&mut known.await?, self.sealing_keys(), &about, now) {
                Leaves::Go => return Ok(Pass::Go { after_ms: 0 }),
                Leaves::Out(pass) => return Ok(pass),
                Leaves::Probe => {}
            }
        }
        self.write(ROW, move |tx| endpoints::reserve(tx, &about, patience_ms, now)).await
    }

    async fn settle(
        &self,
        reserved: ModelUse,
        used: ModelUse,
        went: RequestOutcome,
        now: Millis,
    ) -> Result<Option<Millis>> {
        if reserved.rates == ModelRates::default() && matches!(went, RequestOutcome::Answered | RequestOutcome::Unknown)
        {
            let asked = reserved.clone();
            let known = self.read(move |db, _| endpoints::breakers(db, &asked)).await?;
            if known.iter().all(|row| row.breaker == Breaker::default()) {
                return Ok(None);
            }
        }
        self.write(ROW, move |tx| endpoints::settle(tx, &reserved, &used, &went, now)).await
    }

    async fn failing_endpoints(&self) -> Result<Vec<EndpointState>> {
        self.read(endpoints::failing).await
    }
}

#[async_trait]
impl<E: Engine> MetricsQueries for E {
    async fn standing(&self, now: Millis) -> Result<Standing> {
        let mut standing = self.read_at_once(move |db, keys| care::standing(db, keys, now)).await?;
        standing.storage = self.space().await?;
        Ok(standing)
    }

    fn written(&self) -> Written {
        self.tally()
    }
}
