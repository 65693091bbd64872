//! Models that are watched: whoever watches is told how each question to one was answered.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use posse_core::clock::{Clock, Millis};
use posse_core::model::{
    DeltaSink, Model, ModelError, ModelErrorKind, ModelProfile, ModelReply, ModelRequest, TokenCounter,
};
use posse_core::stop::Stop;

use super::locked;

/// A question that was answered, its tries included.
pub enum Answered<'a> {
    Profile(&'a Result<ModelProfile, ModelError>),
    /// A request, and how long it took.
    Request(&'a Result<ModelReply, ModelError>, Millis),
}

impl Answered<'_> {
    /// How it failed; nothing if it did not.
    pub fn failure(&self) -> Option<ModelErrorKind> {
        match self {
            Answered::Profile(answer) => answer.as_ref().err(),
            Answered::Request(answer, _) => answer.as_ref().err(),
        }
        .map(|error| error.kind)
    }
}

/// A model, and who watches it.
pub struct WatchedModel<W> {
    pub inner: Arc<dyn Model>,
    pub clock: Arc<dyn Clock>,
    pub watch: W,
}

#[async_trait]
impl<W: Fn(Answered<'_>) + Send + Sync> Model for WatchedModel<W> {
    async fn profile(&self) -> Result<ModelProfile, ModelError> {
        let answer = self.inner.profile().await;
        (self.watch)(Answered::Profile(&answer));
        answer
    }

    async fn complete(
        &self,
        request: &ModelRequest,
        deltas: &DeltaSink<'_>,
        stop: &Stop,
    ) -> Result<ModelReply, ModelError> {
        let began = self.clock.elapsed();
        let answer = self.inner.complete(request, deltas, stop).await;
        (self.watch)(Answered::Request(&answer, self.clock.elapsed() - began));
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
