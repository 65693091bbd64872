//! An embedder behind an OpenAI-compatible endpoint: `POST /embeddings`.
//!
//! Texts go in requests of bounded size, one after the other, each tried again as often as any request to a model. One
//! text that is too long for the model is no reason to give up: its request is made again with less of each.

use async_trait::async_trait;
use posse_core::model::ModelErrorKind;
use posse_core::model::embedder::{Again, EmbedError, Embedder, EmbedderProfile, Space, unit};
use posse_core::model::tokens;
use posse_core::text::plural;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::OnceCell;

use super::backoff;
use super::config::OpenAiConfig;
use super::error::Failure;
use super::transport::{ApiCall, Transport, strike};
use super::wire::Fault;

/// Texts in a request unless configured.
pub const BATCH: usize = 64;

/// Most texts that a request may be configured to hold.
pub const MOST_BATCH: usize = 512;

/// Most tokens in a request, about: a third of what OpenAI takes.
const MOST_TOKENS: u64 = 100_000;

/// Longest answer that is read, in bytes: the largest batch of the longest vectors has about this.
const MAX_ANSWER: usize = 64 << 20;

/// How often a request is made again with half of each text, where the model says that they are too long.
const HALVINGS: u32 = 5;

/// What OpenAI's own models are: how long their vectors are, and how many tokens they read.
const KNOWN: &[(&str, usize, usize)] = &[
    ("text-embedding-3-small", 1536, 8191),
    ("text-embedding-3-large", 3072, 8191),
    ("text-embedding-ada-002", 1536, 8191),
];

/// How an embedder is asked, beside where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbedderOptions {
    /// Ask for vectors of this length, of a model that makes them of any; else they are as long as the model has them.
    pub dimension: Option<usize>,
    /// Texts in a request, 1 to [`MOST_BATCH`].
    pub batch: usize,
    /// Tokens of a text that the model reads; known of OpenAI's models, and not cut to where it is not known.
    pub most_tokens: Option<usize>,
}

impl Default for EmbedderOptions {
    fn default() -> Self {
        EmbedderOptions { dimension: None, batch: BATCH, most_tokens: None }
    }
}

/// One embedder behind one endpoint.
pub struct EndpointEmbedder {
    transport: Transport,
    config: OpenAiConfig,
    options: EmbedderOptions,
    /// How long its vectors are.
    dimension: OnceCell<usize>,
}

#[derive(Serialize)]
struct Question<'a> {
    model: &'a str,
    input: &'a [&'a str],
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<usize>,
}

/// The answer; whatever else is in it is of no interest.
#[derive(Deserialize)]
struct Answer {
    data: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    /// Which text it is of. Left out by some; then they are in order.
    index: Option<usize>,
    embedding: Vec<f32>,
}

impl EndpointEmbedder {
    /// Checks the configuration; asks nothing yet. Of `config` it takes what an endpoint has: address, key, headers,
    /// times, tries.
    pub fn new(config: OpenAiConfig, options: EmbedderOptions) -> Result<Self, EmbedError> {
        let mended = |message| EmbedError { again: Again::Mended, message };
        let transport = Transport::new(&config).map_err(|error| mended(error.message))?;
        let is_openai = config.base_url.starts_with("https://api.openai.com/");
        let known = KNOWN.iter().find(|(model, ..)| is_openai && *model == config.model);
        let dimension = options.dimension.or(known.map(|(_, dimension, _)| *dimension));
        let most_tokens = options.most_tokens.or(known.map(|(_, _, tokens)| *tokens));
        let batch = options.batch.clamp(1, MOST_BATCH);
        let options = EmbedderOptions { batch, most_tokens, ..options };
        Ok(EndpointEmbedder {
            transport,
            config,
            options,
            dimension: dimension.map(OnceCell::from).unwrap_or_default(),
        })
    }

    /// The vectors of the texts of one request, as long as the model makes them.
    async fn ask(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let (mut retries, mut halvings) = (0, 0);
        let longest = texts.iter().map(|text| text.len()).max().unwrap_or(0);
        loop {
            let shortened: Vec<&str> = texts.iter().map(|text| beginning(text, longest >> halvings)).collect();
            let failure = match self.try_once(&shortened).await {
                Ok(vectors) => return Ok(vectors),
                Err(failure) => failure,
            };
            if failure.kind == ModelErrorKind::ContextOverflow && halvings < HALVINGS {
                halvings += 1;
                continue;
            }
            let wait = backoff::wait(retries, self.config.backoff, failure.retry_after, rand::random())
                .filter(|_| failure.is_worth_another_try() && retries < self.config.retries);
            let Some(wait) = wait else { return Err(self.error(&failure)) };
            retries += 1;
            tracing::warn!(
                reason = %self.sentence(&failure), wait_ms = wait.as_millis() as u64, retry = retries,
                "a request for embeddings failed and is made again"
            );
            tokio::time::sleep(wait).await;
        }
    }

    async fn try_once(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, Failure> {
        let question = Question { model: &self.config.model, input: texts, dimensions: self.options.dimension };
        let body = serde_json::to_vec(&question).map_err(|error| {
            Failure::plain(ModelErrorKind::Rejected, format!("was not asked: the request is not JSON: {error}"))
        })?;
        let mut reply = self.transport.send(ApiCall::Embeddings(&body)).await?;
        let body = reply.body(MAX_ANSWER).await.map_err(|(failure, _)| failure)?;
        let Ok(Answer { data }) = serde_json::from_slice(&body) else {
            let is_json = serde_json::from_slice::<&RawValue>(&body).is_ok();
            let mut fault = Fault::in_body(&body);
            if is_json && !body.windows(7).any(|word| word == b"\"error\"") {
                // The beginning of an answer of another form would be a page of numbers.
                fault.message = "its answer has no list of embeddings".into();
            }
            return Err(Failure::of_fault(&reply.waits, fault));
        };
        in_order(data, texts.len()).map_err(|words| Failure::plain(ModelErrorKind::Transient, words))
    }

    /// The vectors made comparable: of the length that is expected, and as long as 1.
    async fn checked(&self, vectors: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>, EmbedError> {
        let first = vectors.first().map_or(0, Vec::len);
        let dimension = *self.dimension.get_or_init(async || first).await;
        let check = |vector: Vec<f32>| {
            let length = vector.len();
            if length != dimension {
                let words = format!(
                    "answered with vectors of {length} numbers where there were {dimension}; set dimension in [embedder] \
                     of config/posse.toml to what the model has, or leave it out"
                );
                return Err(self.error(&Failure::plain(ModelErrorKind::WorkerUnfit, words)));
            }
            let no_direction =
                || Failure::plain(ModelErrorKind::Transient, "answered with a vector of nothing but zeros");
            unit(vector).ok_or_else(|| self.error(&no_direction()))
        };
        vectors.into_iter().map(check).collect()
    }

    fn sentence(&self, failure: &Failure) -> String {
        let endpoint = match &self.config.base_url_from {
            Some(from) => format!("{} ({from})", self.config.endpoint()),
            None => self.config.endpoint(),
        };
        // Providers quote the key they were given, and proxies whole requests.
        strike(&self.config, &failure.sentence(&self.config.model, &endpoint))
    }

    fn error(&self, failure: &Failure) -> EmbedError {
        use ModelErrorKind::*;
        let again = match failure.kind {
            Transient | Unreachable | RateLimited | Stopped | Unavailable => {
                Again::Later { after: failure.retry_after }
            }
            Unauthorized | OutOfCredit | WorkerUnfit => Again::Mended,
            ContextOverflow | InvalidToolCall | Rejected => Again::Never,
        };
        EmbedError { again, message: self.sentence(failure) }
    }

    /// How many of `texts` go into the next request.
    fn next(&self, texts: &[&str]) -> usize {
        let mut total = 0;
        let fits = texts.iter().take(self.options.batch).take_while(|text| {
            total += tokens::text(text);
            total <= MOST_TOKENS
        });
        fits.count().clamp(1, texts.len().max(1))
    }
}

#[async_trait]
impl Embedder for EndpointEmbedder {
    async fn profile(&self) -> Result<EmbedderProfile, EmbedError> {
        let ask = async || Ok(self.ask(&["dimension"]).await?.first().map_or(0, Vec::len));
        let dimension = *self.dimension.get_or_try_init(ask).await?;
        let space = Space { model: self.config.model.clone(), dimension };
        Ok(EmbedderProfile { space, most_tokens: self.options.most_tokens })
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let most = self.options.most_tokens.map_or(u64::MAX, |most| most as u64);
        let cut: Vec<&str> = texts.iter().map(|text| within(text, most)).collect();
        let mut vectors = Vec::with_capacity(texts.len());
        let mut rest = &cut[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(self.next(rest));
            vectors.extend(self.checked(self.ask(now).await?).await?);
            rest = later;
        }
        Ok(vectors)
    }
}

/// The vectors in the order of their texts, one for each of `count`.
fn in_order(data: Vec<Item>, count: usize) -> Result<Vec<Vec<f32>>, String> {
    let mut vectors: Vec<Option<Vec<f32>>> = vec![None; count];
    let found = data.len();
    for (at, item) in data.into_iter().enumerate() {
        if let Some(place) = vectors.get_mut(item.index.unwrap_or(at)) {
            *place = Some(item.embedding);
        }
    }
    let all: Option<Vec<_>> = vectors.into_iter().collect();
    all.filter(|_| found == count)
        .ok_or_else(|| format!("answered with {} where {count} were to come", plural(found as u64, "vector")))
}

/// The beginning of a text, about `most` tokens long. Never empty, for no provider takes an empty text.
fn within(text: &str, most: u64) -> &str {
    let mut text = if text.trim().is_empty() { " " } else { text };
    // Each round leaves about as much as fits: the estimate is in proportion to the text.
    while let total @ 1.. = tokens::text(text)
        && total > most
    {
        let fits = (text.len() as u128 * u128::from(most) / u128::from(total)) as usize;
        let shorter = beginning(text, fits.min(text.len() - 1));
        if shorter.len() == text.len() {
            break;
        }
        text = shorter;
    }
    text
}

/// The first `most` bytes of a text or a little less, and at least a character.
fn beginning(text: &str, most: usize) -> &str {
    let least = text.chars().next().map_or(0, char::len_utf8);
    &text[..text.floor_char_boundary(most).max(least)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_to_what_is_read() {
        assert_eq!((within("", 9), within("\n ", 9), within("one two", 9)), (" ", " ", "one two"));
        let long = "words of a text, ".repeat(10_000);
        let cut = within(&long, 8191);
        assert!(long.starts_with(cut) && (7000..=8191).contains(&tokens::text(cut)), "{}", tokens::text(cut));
        assert_eq!(within("山山山山", 1), "山");
        assert_eq!(beginning("山a", 0), "山");
    }
}
