//! How a process's last request to a model failed: for a person who waits, and wants to know whether
//! waiting helps.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use posse_core::model::{
    DeltaSink, Model, ModelError, ModelErrorKind, ModelProfile, ModelReply, ModelRequest, TokenCounter,
};
use posse_core::stop::Stop;

/// How the last request failed; nothing if it did not.
#[derive(Debug, Default)]
pub struct LastFailure(Mutex<Option<ModelErrorKind>>);

impl LastFailure {
    pub fn kind(&self) -> Option<ModelErrorKind> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn note(&self, kind: Option<ModelErrorKind>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = kind;
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
