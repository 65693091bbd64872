//! One request over async-openai's connection, and its answer as bytes.
//!
//! async-openai builds and sends the request. Its own reading of answers loses the status and the
//! body of most errors, cannot tell `[DONE]` from a connection that broke, and makes hidden
//! retries; so the HTTP service given to it hands every answer back unread, in the only way its
//! interface lets one through: as a boxed error, taken out again in [`Transport::send`].

use async_openai::Client;
use async_openai::config::Config;
use async_openai::error::OpenAIError;
use async_openai::middleware::{HttpRequestFactory, ReqwestService};
use posse_core::model::{ModelError, ModelErrorKind};
use posse_core::text::plural;
use reqwest::Response;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::SecretString;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};
use tower::Service;

use super::config::OpenAiConfig;
use super::error::{Failure, HeaderWaits};
use super::secret::Secret;
use super::wire::{Body, Fault};

mod unreached;

use unreached::{chain, network, proxy_for, without_client};

/// Longest body of an error that is read.
const MAX_ERROR_BODY: usize = 64 << 10;

pub(super) struct Transport {
    client: Client<Endpoint>,
    /// For what async-openai has no call for.
    http: reqwest::Client,
    idle: Duration,
    /// The proxy that the environment names for it, if it does.
    proxy: Option<String>,
}

#[derive(Clone, Copy)]
pub(super) enum ApiCall<'a> {
    /// `POST /chat/completions` with this body.
    Chat(&'a Body<'a>),
    Models,
    /// `POST /tokenize`, beside `/v1`, with this JSON.
    Tokenize(&'a [u8]),
    /// `POST /embeddings` with this JSON.
    Embeddings(&'a [u8]),
}

impl Transport {
    /// Checks everything that goes into a request once, so that sending cannot fail over it.
    pub fn new(config: &OpenAiConfig) -> Result<Self, ModelError> {
        // It fails if one is installed already, which is just as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let wrong = |what: String| config.unusable(&what);
        let url = reqwest::Url::parse(&config.base_url)
            .map_err(|error| wrong(format!("its base_url is not a URL: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong("its base_url is neither http nor https".to_owned()));
        }
        let mut builder = reqwest::Client::builder()
            .connect_timeout(config.connect_timeout)
            // A redirect could carry the key to another host. The error says where the endpoint has moved.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("posse/", env!("CARGO_PKG_VERSION")));
        if is_loopback(&url) {
            // A proxy cannot reach the loopback of this machine.
            builder = builder.no_proxy();
        }
        let proxy = if is_loopback(&url) { None } else { proxy_for(&url, &|name| std::env::var(name).ok()) };
        if url.scheme() == "http" && proxy.is_none() {
            // No certificate is checked, so a machine without certificate authorities can ask too.
            builder = builder.tls_certs_only([]);
        }
        let http = builder.build().map_err(|error| wrong(without_client(&chain(&error))))?;
        let (base, query) = config.base_url.split_once('?').unwrap_or((&config.base_url, ""));
        let endpoint = Endpoint {
            base: base.trim_end_matches('/').to_owned(),
            query: if query.is_empty() { String::new() } else { format!("?{query}") },
            beneath_v1: AtomicBool::new(false),
            headers: headers(config).map_err(wrong)?,
            unused: SecretString::default(),
        };
        Ok(Transport {
            client: Client::build(http.clone(), endpoint).with_http_service(Unread(ReqwestService::new(http.clone()))),
            http,
            idle: config.idle_timeout,
            proxy,
        })
    }

    /// Sends one request and gives its answer, if the status is one of success. Where an address names only a host,
    /// and nothing is there, it is asked once whether all is beneath `/v1`, as nearly everywhere.
    pub async fn send(&self, ask: ApiCall<'_>) -> Result<Reply, Failure> {
        let first = self.send_once(ask).await;
        let endpoint = self.client.config();
        let is_missing = |outcome: &Result<Reply, Failure>| {
            outcome.as_ref().is_err_and(|failure| {
                ["answered 404", "answered 405"].iter().any(|words| failure.words.starts_with(words))
            })
        };
        let may_be_beneath = !matches!(ask, ApiCall::Tokenize(_)) && endpoint.names_a_host();
        if !is_missing(&first) || !may_be_beneath || endpoint.beneath_v1.load(Relaxed) {
            return first;
        }
        endpoint.beneath_v1.store(true, Relaxed);
        let second = self.send_once(ask).await;
        if !is_missing(&second) {
            return second;
        }
        endpoint.beneath_v1.store(false, Relaxed);
        first.map_err(|failure| Failure {
            words: format!(
                "{}; nor is anything beneath /v1, which was tried too, as base_url names only a host",
                failure.words
            ),
            ..failure
        })
    }

    async fn post(&self, url: String, json: &[u8]) -> Result<Response, OpenAIError> {
        let post = self.http.post(url).headers(self.client.config().headers.clone());
        let post = post.header(CONTENT_TYPE, "application/json").body(json.to_vec());
        post.send().await.map_err(OpenAIError::Reqwest)
    }

    async fn send_once(&self, ask: ApiCall<'_>) -> Result<Reply, Failure> {
        let request = async {
            match ask {
                ApiCall::Chat(body) => {
                    self.client.chat().create_byot::<_, Never>(body).await.map(|never| match never {})
                }
                ApiCall::Models => self.client.models().list_byot::<Never>().await.map(|never| match never {}),
                ApiCall::Tokenize(body) => self.post(self.client.config().beside_v1("/tokenize"), body).await,
                ApiCall::Embeddings(body) => self.post(self.client.config().url("/embeddings"), body).await,
            }
        };
        let Ok(outcome) = tokio::time::timeout(self.idle, request).await else {
            return Err(silent(self.idle));
        };
        let response = match outcome {
            Ok(response) => response,
            Err(OpenAIError::Boxed(inside)) => match inside.downcast::<Answered>() {
                Ok(answered) => answered.0,
                Err(other) => return Err(Failure::plain(ModelErrorKind::Transient, format!("failed: {other}"))),
            },
            Err(OpenAIError::Reqwest(error)) => return Err(network(error, self.proxy.as_deref())),
            Err(other) => {
                return Err(Failure::plain(ModelErrorKind::Rejected, format!("was not asked: {other}")));
            }
        };
        let waits = HeaderWaits::read(response.headers(), SystemTime::now());
        let status = response.status();
        let mut reply = Reply { response, waits, idle: self.idle };
        if status.is_success() {
            return Ok(reply);
        }
        let fault = if status.is_redirection() {
            let target = reply.response.headers().get("location").and_then(|v| v.to_str().ok());
            Fault::words(format!(
                "it redirects to {}, which is not followed, since that could carry the key \
                 elsewhere; set base_url to where the endpoint is",
                target.unwrap_or("nowhere")
            ))
        } else {
            // An error whose body breaks off is still that error.
            let body = reply.body(MAX_ERROR_BODY).await;
            Fault::in_body(&body.unwrap_or_else(|(_, partial)| partial))
        };
        Err(Failure::of_status(status.as_u16(), &waits, fault))
    }
}

/// An answer with a status of success, its body still to be read.
pub(super) struct Reply {
    response: Response,
    /// What its headers say about waiting, should the body turn out to be an error.
    pub waits: HeaderWaits,
    idle: Duration,
}

impl Reply {
    /// Whether the server says that the body is a stream of events; `None` if it says neither.
    pub fn is_events(&self) -> Option<bool> {
        let kind = self.response.headers().get("content-type")?.to_str().ok()?.to_ascii_lowercase();
        let known = [("event-stream", true), ("json", false), ("html", false)];
        known.into_iter().find(|(word, _)| kind.contains(word)).map(|(_, is_events)| is_events)
    }

    /// More of the body; `None` at its end. Fails after a silence of `limit`, or of the idle limit
    /// if that is shorter.
    pub async fn more(&mut self, limit: Option<Duration>) -> Result<Option<bytes::Bytes>, Failure> {
        let limit = limit.unwrap_or(self.idle).min(self.idle);
        match tokio::time::timeout(limit, self.response.chunk()).await {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(error)) => Err(network(error, None)),
            Err(_) => Err(silent(limit)),
        }
    }

    /// The rest of the body, up to `most` bytes; what was read so far comes with a failure.
    pub async fn body(&mut self, most: usize) -> Result<Vec<u8>, (Failure, Vec<u8>)> {
        let mut body = Vec::new();
        loop {
            match self.more(None).await {
                Ok(Some(bytes)) if body.len() + bytes.len() > most => {
                    body.extend_from_slice(&bytes[..most - body.len()]);
                    let words = format!("sent a reply of more than {}", plural(most as u64, "byte"));
                    return Err((Failure::plain(ModelErrorKind::Transient, words), body));
                }
                Ok(Some(bytes)) => body.extend_from_slice(&bytes),
                Ok(None) => return Ok(body),
                Err(failure) => return Err((failure, body)),
            }
        }
    }
}

/// Where requests go, for async-openai. Its own configuration sends an empty bearer token where there is no key, and
/// reads the environment unasked.
struct Endpoint {
    base: String,
    /// What stays behind each path, `?api-version=..` for instance.
    query: String,
    /// Whether its paths turned out to be beneath a `/v1` that the address leaves out.
    beneath_v1: AtomicBool,
    headers: HeaderMap,
    /// The interface asks for a key; the header above is what is sent.
    unused: SecretString,
}

impl Endpoint {
    fn names_a_host(&self) -> bool {
        reqwest::Url::parse(&self.base).is_ok_and(|url| matches!(url.path(), "" | "/"))
    }

    /// Where a path is that servers have beside their `/v1` and not beneath it.
    fn beside_v1(&self, path: &str) -> String {
        format!("{}{path}{}", self.base.strip_suffix("/v1").unwrap_or(&self.base), self.query)
    }
}

impl Config for Endpoint {
    fn headers(&self) -> HeaderMap {
        self.headers.clone()
    }

    fn url(&self, path: &str) -> String {
        let v1 = if self.beneath_v1.load(Relaxed) { "/v1" } else { "" };
        format!("{}{v1}{path}{}", self.base, self.query)
    }

    fn query(&self) -> Vec<(&str, &str)> {
        Vec::new()
    }

    fn api_base(&self) -> &str {
        &self.base
    }

    fn api_key(&self) -> &SecretString {
        &self.unused
    }
}

fn is_loopback(url: &reqwest::Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

fn headers(config: &OpenAiConfig) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    let mut put = |name: HeaderName, value: &str, secret: bool| {
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| format!("the value of its header {name} holds forbidden characters"))?;
        value.set_sensitive(secret);
        headers.insert(name, value);
        Ok::<_, String>(())
    };
    if let Some(key) = config.api_key.as_ref().filter(|key| !key.is_empty()) {
        put(AUTHORIZATION, &format!("Bearer {}", key.expose()), true)?;
    }
    if let Some(organization) = &config.organization {
        put(HeaderName::from_static("openai-organization"), organization, false)?;
    }
    if let Some(project) = &config.project {
        put(HeaderName::from_static("openai-project"), project, false)?;
    }
    for (name, value) in &config.headers {
        let name = name.parse::<HeaderName>().map_err(|_| format!("{name:?} is not a name of a header"))?;
        put(name, value.expose(), true)?;
    }
    Ok(headers)
}

/// `text` without any value that this configuration keeps secret.
pub(super) fn strike(config: &OpenAiConfig, text: &str) -> String {
    let secrets = config.api_key.iter().chain(config.headers.iter().map(|(_, value)| value));
    secrets.fold(text.to_owned(), |text, secret: &Secret| secret.strike(&text))
}

/// The HTTP service under async-openai: sends, and hands the answer back unread.
#[derive(Clone)]
struct Unread(ReqwestService);

/// An answer on its way through async-openai.
#[derive(Debug, thiserror::Error)]
#[error("answered")]
struct Answered(Response);

#[derive(Debug)]
enum Never {}

impl<'de> serde::Deserialize<'de> for Never {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(serde::de::Error::custom("answers are not read here"))
    }
}

impl Service<HttpRequestFactory> for Unread {
    type Response = Response;
    type Error = OpenAIError;
    type Future = Pin<Box<dyn Future<Output = Result<Response, OpenAIError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), OpenAIError>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: HttpRequestFactory) -> Self::Future {
        let answer = self.0.call(request);
        Box::pin(async move { Err(OpenAIError::Boxed(Box::new(Answered(answer.await?)))) })
    }
}

fn silent(limit: Duration) -> Failure {
    Failure::plain(ModelErrorKind::Transient, format!("sent nothing for {limit:?}"))
}
