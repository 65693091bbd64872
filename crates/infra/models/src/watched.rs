//! Models whose requests are watched: counted, or the last failure noted.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use posse_core::clock::Clock;
use posse_core::metrics::ModelTally;
use posse_core::model::{
    DeltaSink, Model, ModelError, ModelErrorKind, ModelProfile, ModelReply, ModelRequest, TokenCounter,
};
use posse_core::stop::Stop;

use super::locked;

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

/// How a process's last request failed; nothing if it did not. For a person who waits, and wants to know whether waiting
/// helps.
#[derive(Debug, Default)]
pub struct LastFailure(Mutex<Option<ModelErrorKind>>);

impl LastFailure {
    pub fn kind(&self) -> Option<ModelErrorKind> {
        *locked(&self.0)
    }

    pub fn note(&self, kind: Option<ModelErrorKind>) {
        *locked(&self.0) = kind;
    }
}

pub struct NotedModel {
    inner: Arc<dyn Model>,
    last: Arc<LastFailure>,
}

impl NotedModel {
    pub fn new(inner: Arc<dyn Model>, last: Arc<LastFailure>) -> Self {
        NotedModel { inner, last }
    }

    fn noted<T>(&self, answer: Result<T, ModelError>) -> Result<T, ModelError> {
        self.last.note(answer.as_ref().err().map(|error| error.kind));
        answer
    }
}

#[async_trait]
impl Model for NotedModel {
    async fn profile(&self) -> Result<ModelProfile, ModelError> {
        self.noted(self.inner.profile().await)
    }

    async fn complete(
        &self,
        request: &ModelRequest,
        deltas: &DeltaSink<'_>,
        stop: &Stop,
    ) -> Result<ModelReply, ModelError> {
        self.noted(self.inner.complete(request, deltas, stop).await)
    }

    fn tokenizer(&self) -> Option<Arc<dyn TokenCounter>> {
        self.inner.tokenizer()
    }
}
