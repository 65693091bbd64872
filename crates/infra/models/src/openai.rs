//! One model behind an OpenAI-compatible endpoint: its tries, and what they teach.

mod adapt;
mod probe;
mod rendering;

use async_trait::async_trait;
use posse_core::model::{
    Author, CallRequest, Delta, DeltaSink, FailedTry, Finish, Model, ModelError, ModelErrorKind, ModelProfile,
    ModelReply, ModelRequest, Reasoning, TokenCounter, Usage,
};
use posse_core::stop::{Stop, StopReason};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::OnceCell;

use super::error::Failure;
use super::sse::SseParser;
use super::stream::{Broken, StreamAssembler, WholeReply};
use super::tokenizer::{self, PATIENCE, PatientCounter, ServerTokenizer};
use super::transport::{ApiCall, Reply, Transport, strike};
use super::wire::{Body, Dialect, Purpose};
use super::{backoff, locked};

pub use super::config::{MaxTokens, OpenAiConfig, TokenizerChoice, ToolCallingChoice};

/// Largest reply that is read.
const MAX_REPLY: usize = 64 << 20;

/// How long the count of tokens is waited for, once the reply itself is complete.
const USAGE_GRACE: Duration = Duration::from_secs(5);

/// Longest reasoning that is kept, in bytes; what is longer is kept up to there.
const MAX_REASONING: usize = 1 << 20;

/// Most adaptations that one request may make; more than a server has fields to refuse.
const MAX_ADAPTATIONS: usize = 8;

pub struct OpenAiModel {
    config: OpenAiConfig,
    endpoint: String,
    author: Author,
    transport: Arc<Transport>,
    /// What the server is known to take.
    dialect: Mutex<Dialect>,
    profile: OnceCell<ModelProfile>,
    tokenizer: Option<Arc<dyn TokenCounter>>,
}

impl std::fmt::Debug for OpenAiModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenAiModel").field("config", &self.config).finish_non_exhaustive()
    }
}

impl OpenAiModel {
    /// A model as configured. Fails where the configuration could never make a request; asks
    /// nothing of the endpoint yet.
    pub fn new(config: OpenAiConfig) -> Result<Self, ModelError> {
        let transport = Arc::new(Transport::new(&config)?);
        let tokenizer: Option<Arc<dyn TokenCounter>> = match &config.tokenizer {
            TokenizerChoice::None => None,
            TokenizerChoice::Server => {
                let server = ServerTokenizer::new(Arc::clone(&transport), config.clone());
                Some(Arc::new(PatientCounter::new(server, &config.name, PATIENCE)))
            }
            TokenizerChoice::File(path) => {
                let file = tokenizer::of_file(path).map_err(|why| config.unusable(&why))?;
                Some(Arc::new(PatientCounter::new(file, &config.name, PATIENCE)))
            }
        };
        Ok(OpenAiModel {
            endpoint: match &config.base_url_from {
                Some(from) => format!("{} ({from})", config.endpoint()),
                None => config.endpoint(),
            },
            author: config.author(),
            tokenizer,
            transport,
            dialect: Mutex::new(config.dialect()),
            profile: OnceCell::new(),
            config,
        })
    }

    /// Its server's tokenizer, whether or not the configuration says that there is one.
    pub fn server_tokenizer(&self) -> ServerTokenizer {
        ServerTokenizer::new(Arc::clone(&self.transport), self.config.clone())
    }

    /// Makes a request until it succeeds, may not be made again, or is stopped.
    async fn ask(
        &self,
        request: &ModelRequest,
        purpose: Purpose,
        deltas: &DeltaSink<'_>,
        stop: &Stop,
    ) -> Result<ModelReply, ModelError> {
        let mut failed_tries: Vec<FailedTry> = Vec::new();
        let (mut retries, mut adaptations) = (0, 0);
        loop {
            let dialect = *locked(&self.dialect);
            let body = self.body(request, purpose, &dialect)?;
            // What the try has cost so far. Outlives it, for a stop may drop it half way.
            let spent = Mutex::new(None);
            let outcome = tokio::select! {
                biased;
                // Dropping the other branch closes its connection.
                reason = stop.stopped() => Err(stopped(reason)),
                outcome = self.try_once(&body, deltas, &spent) => outcome,
            };
            let failure = match outcome {
                Ok(whole) => return Ok(self.reply(whole, body.bytes(), request.max_tokens, failed_tries)),
                Err(failure) => failure,
            };
            // An estimate of nothing for a request that was refused or never arrived.
            let usage = locked(&spent).unwrap_or_else(|| Usage::estimate(0, 0));
            let failed = FailedTry { model: self.config.model.clone(), reason: self.sentence(&failure), usage };
            failed_tries.push(failed.clone());

            let taught = failure.fault.as_ref().filter(|_| adaptations < MAX_ADAPTATIONS).and_then(|fault| {
                let asked = adapt::Asked { request, purpose, stream: self.config.stream, dialect: &dialect };
                adapt::to(fault, failure.kind, &asked, &self.config.dialect())
            });
            if let Some(next) = taught {
                tracing::info!(model = %self.config.model, ?next, "the endpoint refused a request and is asked otherwise");
                // Where another request has been taught something meanwhile, that is tried first.
                let mut known = locked(&self.dialect);
                if *known == dialect {
                    *known = next;
                }
                drop(known);
                adaptations += 1;
                deltas(Delta::Restarted(failed));
                continue;
            }
            let wait = backoff::wait(retries, self.config.backoff, failure.retry_after, rand::random())
                .filter(|_| failure.is_worth_another_try() && retries < self.config.retries);
            let Some(wait) = wait else {
                return Err(self.error(failure, failed_tries));
            };
            retries += 1;
            tracing::warn!(
                reason = %failed.reason, wait_ms = wait.as_millis() as u64, retry = retries,
                "a model request failed and is made again"
            );
            deltas(Delta::Restarted(failed));
            tokio::select! {
                biased;
                reason = stop.stopped() => return Err(self.error(stopped(reason), failed_tries)),
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn try_once(
        &self,
        body: &Body<'_>,
        deltas: &DeltaSink<'_>,
        spent: &Mutex<Option<Usage>>,
    ) -> Result<WholeReply, Failure> {
        let read = body.bytes();
        // If we leave before there is an answer, the provider may have read the request.
        *locked(spent) = Some(Usage::estimate(read, 0));
        let sent = self.transport.send(ApiCall::Chat(body)).await;
        let mut reply = sent.inspect_err(|_| *locked(spent) = None)?;
        let mut assembler = StreamAssembler::of(&self.author.provider);
        // From here on the provider is at work, and what it read is billed.
        let mut account = |assembler: &StreamAssembler| {
            let estimate = Usage::estimate(read, assembler.written());
            *locked(spent) = Some(assembler.usage().unwrap_or(estimate));
        };
        account(&assembler);
        let streamed = reply.is_events().unwrap_or(self.config.stream);
        if streamed {
            read_events(&mut reply, &mut assembler, deltas, &mut account).await?;
        } else {
            read_body(&mut reply, &mut assembler, deltas, &mut account).await?;
        }
        let nothing_said = assembler.written() == 0 && assembler.usage().is_none();
        let whole = if streamed { assembler.finish() } else { assembler.finish_body() };
        whole.map_err(|broken| match broken {
            Broken::Fault(fault) => {
                if nothing_said {
                    // An error in place of a reply is not billed.
                    *locked(spent) = None;
                }
                Failure::of_fault(&reply.waits, fault)
            }
            Broken::Cut(words) => Failure::plain(ModelErrorKind::Transient, words),
        })
    }

    fn body<'a>(
        &'a self,
        request: &'a ModelRequest,
        purpose: Purpose,
        dialect: &Dialect,
    ) -> Result<Body<'a>, ModelError> {
        let body = rendering::render(request, dialect.rules, &self.author).and_then(|messages| {
            Body::new(&self.config.model, request, messages, self.config.stream, purpose, dialect)
        });
        body.map_err(|error| {
            let words = format!("was not asked: the request is not JSON: {error}");
            self.error(Failure::plain(ModelErrorKind::Rejected, words), Vec::new())
        })
    }

    fn reply(&self, mut whole: WholeReply, read: usize, most: Option<u32>, failed_tries: Vec<FailedTry>) -> ModelReply {
        let usage = whole.usage.unwrap_or_else(|| {
            let calls = whole.calls.iter().map(|c| c.name.len() + c.arguments.len()).sum::<usize>();
            Usage::estimate(read, whole.text.len() + whole.reasoning.len() + calls)
        });
        // Some servers (vLLM) say `tool_calls` where the limit cut the call; the count of tokens shows it.
        let is_spent = most.is_some_and(|most| !usage.estimated && usage.output >= u64::from(most));
        if is_spent && matches!(whole.finish, Finish::ToolCalls | Finish::Other(_)) && whole.calls.iter().any(is_cut) {
            whole.finish = Finish::Length;
        }
        whole.reasoning.truncate(whole.reasoning.floor_char_boundary(MAX_REASONING));
        let reasoning = Reasoning { text: whole.reasoning, by: self.author.clone() };
        ModelReply {
            text: whole.text,
            reasoning: Some(reasoning).filter(|reasoning| !reasoning.text.is_empty()),
            calls: whole.calls,
            refusal: whole.refusal,
            finish: whole.finish,
            cost_microusd: self.config.cost(&usage),
            usage,
            model: whole.model.unwrap_or_else(|| self.config.model.clone()),
            failed_tries,
        }
    }

    fn error(&self, failure: Failure, failed_tries: Vec<FailedTry>) -> ModelError {
        ModelError {
            kind: failure.kind,
            message: self.sentence(&failure),
            retry_after: failure.retry_after,
            context_window: failure.context_window,
            failed_tries,
        }
    }

    fn sentence(&self, failure: &Failure) -> String {
        // Providers quote the key they were given, and proxies whole requests.
        strike(&self.config, &failure.sentence(&self.config.model, &self.endpoint))
    }
}

#[async_trait]
impl Model for OpenAiModel {
    async fn profile(&self) -> Result<ModelProfile, ModelError> {
        self.profile.get_or_try_init(|| self.find_profile()).await.cloned()
    }

    async fn complete(
        &self,
        request: &ModelRequest,
        deltas: &DeltaSink<'_>,
        stop: &Stop,
    ) -> Result<ModelReply, ModelError> {
        self.ask(request, Purpose::Work, deltas, stop).await
    }

    fn tokenizer(&self) -> Option<Arc<dyn TokenCounter>> {
        self.tokenizer.clone()
    }
}

async fn read_events(
    reply: &mut Reply,
    assembler: &mut StreamAssembler,
    deltas: &DeltaSink<'_>,
    account: &mut (dyn FnMut(&StreamAssembler) + Send),
) -> Result<(), Failure> {
    let mut parser = SseParser::default();
    let mut total = 0;
    while !assembler.over() {
        let limit = assembler.finished().then_some(USAGE_GRACE);
        let events = match reply.more(limit).await {
            Ok(Some(bytes)) => {
                total += bytes.len();
                if total > MAX_REPLY {
                    return Err(too_long());
                }
                parser.push(&bytes).map_err(|_| too_long())?
            }
            Ok(None) => {
                // The last blank line is often left out. Half a line is no JSON and counts as cut.
                if let Some(event) = parser.finish() {
                    assembler.event(&event).into_iter().for_each(deltas);
                }
                account(assembler);
                return Ok(());
            }
            // The reply is whole; only its count of tokens was still to come.
            Err(_) if assembler.finished() => return Ok(()),
            Err(failure) => return Err(failure),
        };
        for event in events {
            if assembler.over() {
                break;
            }
            assembler.event(&event).into_iter().for_each(deltas);
        }
        account(assembler);
    }
    Ok(())
}

async fn read_body(
    reply: &mut Reply,
    assembler: &mut StreamAssembler,
    deltas: &DeltaSink<'_>,
    account: &mut (dyn FnMut(&StreamAssembler) + Send),
) -> Result<(), Failure> {
    let body = reply.body(MAX_REPLY).await.map_err(|(failure, _)| failure)?;
    match serde_json::from_slice(&body) {
        Ok(value) => assembler.push(value).into_iter().for_each(deltas),
        Err(_) => {
            let fault = super::wire::Fault::in_body(&body);
            let excerpt: String = fault.message.chars().take(200).collect();
            if body.trim_ascii_start().starts_with(b"<") {
                let words = format!(
                    "answered with a web page: {excerpt} (check `base_url` for this model in config/posse.toml; it ends in \
                     /v1 nearly always)"
                );
                return Err(Failure::plain(ModelErrorKind::WorkerUnfit, words));
            }
            let words = format!("sent a reply that is not JSON: {excerpt}");
            return Err(Failure::plain(ModelErrorKind::Transient, words));
        }
    }
    account(assembler);
    Ok(())
}

/// Whether a call's arguments end before their JSON does.
fn is_cut(call: &CallRequest) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(&call.arguments).is_err_and(|error| error.is_eof())
}

fn too_long() -> Failure {
    let words = format!("sent a reply beyond all bounds ({MAX_REPLY} bytes)");
    Failure::plain(ModelErrorKind::Transient, words)
}

fn stopped(reason: StopReason) -> Failure {
    let words = match reason {
        StopReason::Cancelled => "was not asked further: the job is cancelled",
        StopReason::LeaseLost => "was not asked further: the lease on the job is lost",
        StopReason::Shutdown => "was not asked further: the worker is shutting down",
    };
    Failure::plain(ModelErrorKind::Stopped, words)
}
