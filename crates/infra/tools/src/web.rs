//! Requests to the web for agents, held to what their persona may reach.
//!
//! A name is looked up once for each connection, and the connection goes to one of the addresses that were looked at:
//! between the look and the connection there is nothing that could change (`Guard`). Each redirect is another request,
//! looked at anew. There are no cookies, no proxy, and no connection is used twice.

mod cache;
mod html;
mod pdf;
mod reading;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use posse_core::text::{count, plural};
use posse_core::tool::ToolError;
use posse_core::tool::web::address::{Range, not_public};
use posse_core::tool::web::robots::{self, Robots};
use posse_core::tool::web::{Method, WebRules};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url};

pub(crate) use reading::read;

use super::failure::{denied, failed, invalid, over_limit};
use cache::{Cache, Kept};

/// How many times a request may be sent on.
const MOST_REDIRECTS: usize = 5;
/// The longest address of a page.
const MAX_URL: usize = 4096;
/// How long what a server asks of programs is remembered.
const ROBOTS_FOR: Duration = Duration::from_secs(3600);
/// Servers of which that is remembered.
const MOST_ROBOTS: usize = 1000;
/// The name that servers know us by.
const PROGRAM: &str = "posse";
const USER_AGENT: &str = concat!("posse/", env!("CARGO_PKG_VERSION"));

/// What holds for all requests of a process.
#[derive(Debug, Clone)]
pub struct WebSettings {
    /// Most seconds that one call may take, redirects and all.
    pub seconds: u64,
    /// Most bytes that are read of an answer.
    pub max_bytes: usize,
    /// Whether what servers ask of programs (`robots.txt`) is honoured.
    pub robots: bool,
    /// Addresses that may be reached although they are none of the public internet.
    pub reach: Vec<Range>,
    /// Headers that a server is sent, for its origin (`https://api.example.com`) alone, or why they cannot be. Their values
    /// are secret.
    pub headers: BTreeMap<String, Result<Secrets, String>>,
}

/// Headers by name, whose values are shown nowhere.
#[derive(Clone)]
pub struct Secrets(pub Vec<(String, String)>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(..)")
    }
}

impl Default for WebSettings {
    fn default() -> Self {
        WebSettings { seconds: 30, max_bytes: 5 << 20, robots: true, reach: Vec::new(), headers: BTreeMap::new() }
    }
}

/// Finds the addresses of a name.
#[async_trait]
pub trait Lookup: Send + Sync {
    /// All of them.
    async fn addresses(&self, name: &str) -> std::io::Result<Vec<IpAddr>>;
}

/// Asks the system.
pub struct SystemLookup;

#[async_trait]
impl Lookup for SystemLookup {
    async fn addresses(&self, name: &str) -> std::io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((name, 0)).await?.map(|found| found.ip()).collect())
    }
}

/// What reaches the web for the agents of this process.
pub struct Web {
    settings: WebSettings,
    guard: Arc<Guard>,
    secret: Vec<(String, Result<HeaderMap, String>)>,
    /// One for each scheme: only https needs the machine's authorities.
    clients: Mutex<[Option<Client>; 2]>,
    cache: Mutex<Cache>,
    robots: Mutex<BTreeMap<String, (Instant, Arc<Robots>)>>,
}

/// A request as an agent asks for it.
pub(crate) struct Ask<'a> {
    pub method: Method,
    pub url: &'a str,
    pub body: Option<(&'a str, &'a str)>,
    /// Sent along where the request changes something.
    pub effect_key: &'a str,
    pub rules: &'a WebRules,
}

/// What a server answered.
pub(crate) struct Answer {
    pub status: u16,
    pub url: Url,
    pub content_type: String,
    pub body: Arc<[u8]>,
    /// Whether there was more.
    pub is_cut: bool,
    /// Where it says that something else is to be asked, which was not followed.
    pub location: Option<String>,
    /// Whether the server said that what was kept still holds.
    pub is_kept: bool,
}

/// Looks addresses up, and gives none where one of them is not to be reached.
struct Guard {
    lookup: Arc<dyn Lookup>,
    reach: Vec<Range>,
}

/// An address that is not to be reached.
#[derive(Debug)]
struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Refused {}

impl Guard {
    fn check(&self, host: &str, address: IpAddr) -> Result<(), Refused> {
        let why = not_public(address).filter(|_| !self.reach.iter().any(|range| range.has(address)));
        match why {
            None => Ok(()),
            Some(why) => Err(Refused(format!(
                "{host} is at {address}, an address {why}: agents reach the public internet alone, and what [web] reach in \
                 config/posse.toml names"
            ))),
        }
    }
}

struct Checked(Arc<Guard>);

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = Arc::clone(&self.0);
        Box::pin(async move {
            let found = guard.lookup.addresses(name.as_str()).await?;
            for address in &found {
                guard.check(name.as_str(), *address)?;
            }
            Ok(Box::new(found.into_iter().map(|address| SocketAddr::new(address, 0))) as Addrs)
        })
    }
}

impl Web {
    /// One that asks the system where hosts are.
    pub fn new(settings: WebSettings) -> Web {
        Web::with_lookup(settings, Arc::new(SystemLookup))
    }

    /// One that asks `lookup` where hosts are.
    pub fn with_lookup(settings: WebSettings, lookup: Arc<dyn Lookup>) -> Web {
        let map = |(origin, headers): (&String, &Result<Secrets, String>)| {
            let origin = Url::parse(origin).ok()?.origin().ascii_serialization();
            let map = headers.as_ref().map_err(Clone::clone).and_then(|headers| secret(&headers.0));
            Some((origin, map))
        };
        let secret = settings.headers.iter().filter_map(map).collect();
        let guard = Arc::new(Guard { lookup, reach: settings.reach.clone() });
        let (clients, cache, robots) = Default::default();
        Web { settings, guard, secret, clients, cache, robots }
    }

    /// Asks, and reads the answer as far as the limits go.
    pub(crate) async fn ask(&self, ask: Ask<'_>, left: Option<Duration>) -> Result<Answer, ToolError> {
        let limit = Duration::from_secs(self.settings.seconds);
        let time = left.map_or(limit, |left| left.min(limit));
        let late = |_| {
            let seconds = time.as_secs_f32();
            over_limit(format!("{} had not answered whole after {seconds:.0} s, the limit", ask.url))
        };
        tokio::time::timeout(time, self.follow(&ask)).await.map_err(late)?
    }

    async fn follow(&self, ask: &Ask<'_>) -> Result<Answer, ToolError> {
        let mut url = parse(ask.url)?;
        for _ in 0..=MOST_REDIRECTS {
            self.permit(ask, &url)?;
            if self.settings.robots && ask.method.only_reads() {
                self.ask_robots(ask, &url).await?;
            }
            let answer = self.once(ask, &url).await?;
            let next = answer.location.as_deref().filter(|_| (300..400).contains(&answer.status));
            match next {
                Some(next) if ask.method.only_reads() => {
                    let next = url.join(next).map_err(|_| failed(format!("{url} sends on to what is no address")))?;
                    url = parse(next.as_str())?;
                }
                _ => return Ok(answer),
            }
        }
        Err(over_limit(format!("{} sends on and on: more than {MOST_REDIRECTS} times", ask.url)))
    }

    /// Whether the persona may ask for this, and the address, where the host is one, may be reached.
    fn permit(&self, ask: &Ask<'_>, url: &Url) -> Result<(), ToolError> {
        let host = url.host_str().unwrap_or_default();
        ask.rules.permit(ask.method, host, url.port_or_known_default().unwrap_or(0)).map_err(denied)?;
        // An address is not looked up, so it is looked at here. However it was written, the URL has it in its one form.
        let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let Ok(address) = inner.parse::<IpAddr>() else { return Ok(()) };
        self.guard.check(host, address).map_err(|refused| denied(refused.0))
    }

    async fn once(&self, ask: &Ask<'_>, url: &Url) -> Result<Answer, ToolError> {
        let kept = match ask.method {
            Method::Get => self.kept(|cache| cache.get(url.as_str())),
            _ => None,
        };
        let mut headers = self.headers_for(url).map_err(failed)?;
        if let Some(kept) = &kept {
            headers.extend(kept.conditions());
        }
        let response = self.send(ask.method, url, headers, ask).await?;
        if response.status().as_u16() == 304
            && let Some(kept) = kept
        {
            let Kept { content_type, body, .. } = kept;
            let (status, url) = (200, url.clone());
            return Ok(Answer { status, url, content_type, body, is_cut: false, location: None, is_kept: true });
        }
        let status = response.status().as_u16();
        let text = |name: &str| {
            let value =
                response.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
            value.filter(|value| value.len() <= MAX_URL)
        };
        let (content_type, location) = (text("content-type").unwrap_or_default(), text("location"));
        let (etag, modified) = (text("etag"), text("last-modified"));
        let (body, is_cut) = body(response, self.settings.max_bytes).await?;
        if ask.method == Method::Get && status == 200 && !is_cut {
            let kept = Kept { etag, modified, content_type: content_type.clone(), body: Arc::clone(&body) };
            self.kept(|cache| cache.keep(url.as_str(), kept));
        }
        Ok(Answer { status, url: url.clone(), content_type, body, is_cut, location, is_kept: false })
    }

    fn kept<T>(&self, with: impl FnOnce(&mut Cache) -> T) -> T {
        with(&mut self.cache.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What this origin, and no other, is sent.
    fn headers_for(&self, url: &Url) -> Result<HeaderMap, String> {
        let origin = url.origin().ascii_serialization();
        let found = self.secret.iter().find(|(known, _)| *known == origin);
        found.map_or_else(|| Ok(HeaderMap::new()), |(_, headers)| headers.clone())
    }

    async fn send(&self, method: Method, url: &Url, headers: HeaderMap, ask: &Ask<'_>) -> Result<Response, ToolError> {
        let client = self.client(url).map_err(failed)?;
        let verb = reqwest::Method::from_bytes(method.as_str().as_bytes()).map_err(|e| failed(e.to_string()))?;
        let mut request = client.request(verb, url.clone()).headers(headers);
        if !method.only_reads() {
            request = request.header("idempotency-key", ask.effect_key);
            if let Some((content_type, body)) = ask.body {
                request = request.header("content-type", content_type).body(body.to_owned());
            }
        }
        let response = request.send().await.map_err(|error| unreached(url, &error))?;
        // What was looked up was looked at; this is so that no change of the library below can undo it.
        if let Some(address) = response.remote_addr() {
            let host = url.host_str().unwrap_or_default();
            self.guard.check(host, address.ip()).map_err(|refused| denied(refused.0))?;
        }
        Ok(response)
    }

    fn client(&self, url: &Url) -> Result<Client, String> {
        let is_tls = url.scheme() == "https";
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = &clients[usize::from(is_tls)] {
            return Ok(client.clone());
        }
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .referer(false)
            .pool_max_idle_per_host(0)
            .dns_resolver(Arc::new(Checked(Arc::clone(&self.guard))))
            .connect_timeout(Duration::from_secs(10))
            .user_agent(USER_AGENT);
        if !is_tls {
            // No certificate is checked, so a machine without certificate authorities can ask too.
            builder = builder.tls_certs_only([]);
        }
        let made = builder.build().map_err(|error| format!("the web cannot be asked from here: {}", chain(&error)))?;
        clients[usize::from(is_tls)] = Some(made.clone());
        Ok(made)
    }

    /// Whether the server lets programs read this.
    async fn ask_robots(&self, ask: &Ask<'_>, url: &Url) -> Result<(), ToolError> {
        let origin = url.origin().ascii_serialization();
        let known = |all: &BTreeMap<String, (Instant, Arc<Robots>)>| {
            all.get(&origin).filter(|(at, _)| at.elapsed() < ROBOTS_FOR).map(|(_, robots)| Arc::clone(robots))
        };
        let known = known(&self.robots.lock().unwrap_or_else(PoisonError::into_inner));
        let robots = match known {
            Some(known) => known,
            None => {
                let robots = Arc::new(self.robots_of(ask, url).await?);
                let mut all = self.robots.lock().unwrap_or_else(PoisonError::into_inner);
                if all.len() >= MOST_ROBOTS {
                    all.clear();
                }
                all.insert(origin, (Instant::now(), Arc::clone(&robots)));
                robots
            }
        };
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        match robots.allows(&path) {
            true => Ok(()),
            false => Err(denied(format!(
                "{} asks programs not to read this (robots.txt); [web] robots = false in config/posse.toml reads it all the \
                 same",
                url.host_str().unwrap_or_default()
            ))),
        }
    }

    /// What a server asks: everything may be read where it says nothing, nothing where it cannot say.
    async fn robots_of(&self, ask: &Ask<'_>, url: &Url) -> Result<Robots, ToolError> {
        let mut at = url.clone();
        at.set_path("/robots.txt");
        at.set_query(None);
        for _ in 0..=MOST_REDIRECTS {
            // Only where the agent may go itself.
            if self.permit(&Ask { method: Method::Get, ..*ask }, &at).is_err() {
                return Ok(Robots::default());
            }
            let response = self.send(Method::Get, &at, HeaderMap::new(), ask).await?;
            let status = response.status();
            if status.is_redirection() {
                let next = response.headers().get("location").and_then(|to| to.to_str().ok());
                match next.and_then(|to| at.join(to).ok()).and_then(|next| parse(next.as_str()).ok()) {
                    Some(next) => at = next,
                    None => return Ok(Robots::default()),
                }
                continue;
            }
            if status.is_server_error() {
                return Ok(Robots::closed());
            }
            if !status.is_success() {
                return Ok(Robots::default());
            }
            let (body, _) = body(response, robots::MAX_BYTES).await?;
            return Ok(Robots::parse(&String::from_utf8_lossy(&body), PROGRAM));
        }
        Ok(Robots::default())
    }
}

/// Headers whose values no log shows. The error has none of a value.
fn secret(headers: &[(String, String)]) -> Result<HeaderMap, String> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let wrong = || format!("the header '{name}' of [web.headers] in config/posse.toml cannot be sent");
        let mut sent = HeaderValue::try_from(value.as_str()).map_err(|_| wrong())?;
        sent.set_sensitive(true);
        map.insert(HeaderName::try_from(name.as_str()).map_err(|_| wrong())?, sent);
    }
    Ok(map)
}

/// An address of a page as it may be asked for.
fn parse(text: &str) -> Result<Url, ToolError> {
    if text.len() > MAX_URL {
        return Err(over_limit(format!(
            "the address has {}; at most {} are allowed",
            plural(text.len() as u64, "byte"),
            count(MAX_URL as u64)
        )));
    }
    let wrong = |why: &str| invalid(format!("'{text}' {why}; write it whole, such as https://example.com/page"));
    let mut url = Url::parse(text.trim()).map_err(|error| wrong(&format!("is no address ({error})")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("begins with neither http:// nor https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("has a name or a password in it, which is never sent"));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(wrong("names no host"));
    }
    url.set_fragment(None);
    Ok(url)
}

/// As much of a body as `most` bytes hold, and whether there was more.
async fn body(mut response: Response, most: usize) -> Result<(Arc<[u8]>, bool), ToolError> {
    let mut bytes = Vec::new();
    let url = response.url().clone();
    while let Some(chunk) = response.chunk().await.map_err(|error| unreached(&url, &error))? {
        let room = most - bytes.len();
        bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            return Ok((bytes.into(), true));
        }
    }
    Ok((bytes.into(), false))
}

fn unreached(url: &Url, error: &reqwest::Error) -> ToolError {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(one) = cause {
        if let Some(refused) = one.downcast_ref::<Refused>() {
            return denied(refused.0.clone());
        }
        cause = one.source();
    }
    failed(format!("{url} could not be asked: {}", chain(error)))
}

/// An error's innermost cause: those around it only say that there is one.
fn chain(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
