//! Tokenizers of servers that run models: llama.cpp's, vLLM's, SGLang's and our own.

use async_trait::async_trait;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

use super::Tokenizer;
use crate::config::OpenAiConfig;
use crate::error::Failure;
use crate::transport::{ApiCall, Transport, strike};

/// Longest answer that is read: the numbers of all tokens of the longest text.
const MAX_ANSWER: usize = 8 << 20;

/// A server's `POST /tokenize`, which stands beside its `/v1`.
pub struct ServerTokenizer {
    transport: Arc<Transport>,
    config: OpenAiConfig,
}

/// The question in the words of all of them; each reads its own. llama.cpp takes `content`, vLLM and
/// SGLang `prompt`, and no token is to be put in front.
#[derive(Serialize)]
struct Question<'a> {
    model: &'a str,
    content: &'a str,
    prompt: &'a str,
    add_special: bool,
    add_special_tokens: bool,
}

/// The answer: the number, or the tokens themselves.
#[derive(Deserialize)]
struct Tokenized {
    count: Option<u64>,
    tokens: Option<Vec<IgnoredAny>>,
}

impl ServerTokenizer {
    pub(crate) fn new(transport: Arc<Transport>, config: OpenAiConfig) -> Self {
        ServerTokenizer { transport, config }
    }

    fn failed(&self, words: &str) -> String {
        strike(&self.config, &format!("POST /tokenize of {} {words}", self.config.endpoint()))
    }
}

#[async_trait]
impl Tokenizer for ServerTokenizer {
    async fn count(&self, text: &str) -> Result<u64, String> {
        let model = &self.config.model;
        let question = Question { model, content: text, prompt: text, add_special: false, add_special_tokens: false };
        let question = serde_json::to_vec(&question).map_err(|error| error.to_string())?;
        let failed = |failure: Failure| self.failed(&failure.words);
        let mut reply = self.transport.send(ApiCall::Tokenize(&question)).await.map_err(failed)?;
        let answer = reply.body(MAX_ANSWER).await.map_err(|(failure, _)| failed(failure))?;
        let Tokenized { count, tokens } = serde_json::from_slice(&answer)
            .map_err(|error| self.failed(&format!("gave an answer of another form: {error}")))?;
        let count = count.or(tokens.map(|tokens| tokens.len() as u64));
        count.ok_or_else(|| self.failed("gave an answer with neither count nor tokens"))
    }
}
