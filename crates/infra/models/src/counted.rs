//! A model whose requests are counted.

use std::sync::Arc;

use async_trait::async_trait;
use posse_core::clock::Clock;
use posse_core::metrics::ModelTally;
use posse_core::model::{DeltaSink, Model, ModelError, ModelProfile, ModelReply, ModelRequest, TokenCounter};
use posse_core::stop::Stop;

/// Counts what a model is asked and what comes of it, its tries included.
pub struct CountedModel {
    inner: Arc<dyn Model>,
    tally: Arc<ModelTally>,
    clock: Arc<dyn Clock>,
}

impl CountedModel {
    pub fn new(inner: Arc<dyn Model>, tally: Arc<ModelTally>, clock: Arc<dyn Clock>) -> Self {
        CountedModel { inner, tally, clock }
    }
}

#[async_trait]
impl Model for CountedModel {
    async fn profile(&self) -> Result<ModelProfile, ModelError> {
        self.inner.profile().await
    }

    async fn complete(
        &self,
        request: &ModelRequest,
        deltas: &DeltaSink<'_>,
        stop: &Stop,
    ) -> Result<ModelReply, ModelError> {
        let began = self.clock.elapsed();
        let answer = self.inner.complete(request, deltas, stop).await;
        self.tally.count(self.clock.elapsed() - began, &answer);
        answer
    }

    fn tokenizer(&self) -> Option<Arc<dyn TokenCounter>> {
        self.inner.tokenizer()
    }
}
