//! What agents may reach of the web: which hosts, by which requests, at which addresses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::named;

pub mod address;
pub mod robots;

/// What a persona's agents may reach; nothing unless it says so.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WebRules {
    /// Hosts: `example.com` for that one alone, `*.example.com` for those beneath it, `*` for all that are public. Ports
    /// other than 80 and 443 have to be named: `example.com:8443`.
    pub hosts: Vec<String>,
    /// Requests it may make; `GET` and `HEAD` when absent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<Method>,
}

/// What a request asks of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// To give something.
    #[default]
    Get,
    /// To say what it would give.
    Head,
    /// To take something, once.
    Post,
    /// To keep something in place of what is there.
    Put,
    /// To change something.
    Patch,
    /// To delete something.
    Delete,
}

named!(Method: Get = "GET", Head = "HEAD", Post = "POST", Put = "PUT", Patch = "PATCH", Delete = "DELETE");

impl Method {
    /// Whether it asks for something and changes nothing.
    pub fn only_reads(self) -> bool {
        matches!(self, Method::Get | Method::Head)
    }
}

/// Most hosts that a persona may name.
const MAX_HOSTS: usize = 200;

impl WebRules {
    /// What is wrong with them, if anything is.
    pub fn problem(&self) -> Option<String> {
        if self.hosts.len() > MAX_HOSTS {
            return Some(format!("names {} hosts; at most {MAX_HOSTS} are allowed", self.hosts.len()));
        }
        let wrong = |host: &String| check_host(host).err().map(|why| format!("names the host '{host}', which {why}"));
        self.hosts.iter().find_map(wrong)
    }

    /// Whether a request may be made to this host, in small letters and as it is looked up, and port; or why not.
    pub fn permit(&self, method: Method, host: &str, port: u16) -> Result<(), String> {
        if !self.hosts.iter().any(|pattern| fits(pattern, host, port)) {
            let hosts = match self.hosts.as_slice() {
                [] => "none".into(),
                hosts => hosts.join(", "),
            };
            return Err(format!("{host}, port {port}, is none of the hosts this agent may reach ({hosts})"));
        }
        let may = match self.methods.as_slice() {
            [] => method.only_reads(),
            methods => methods.contains(&method),
        };
        let known: Vec<_> = match self.methods.as_slice() {
            [] => vec![Method::Get, Method::Head],
            methods => methods.into(),
        };
        let known: Vec<_> = known.into_iter().map(Method::as_str).collect();
        may.then_some(()).ok_or_else(|| format!("this agent may make no {method} request, only {}", known.join(", ")))
    }
}

/// What may be written for a host.
fn check_host(pattern: &str) -> Result<(), String> {
    let (host, port) = split(pattern);
    if port.is_some_and(|port| !port.parse::<u16>().is_ok_and(|port| port > 0)) {
        return Err("has a port that is none: write a number from 1 to 65535 behind the colon".into());
    }
    if host == "*" {
        return Ok(());
    }
    let name = host.strip_prefix("*.").unwrap_or(host);
    if name.contains("//") || name.contains('/') {
        return Err("is an address of a page: write the host alone, such as example.com".into());
    }
    let inner = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Some(inner) = inner {
        return inner.parse::<core::net::Ipv6Addr>().map(drop).map_err(|_| "is no address in brackets".into());
    }
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.' || c == '_';
    match !name.is_empty() && name.len() <= 253 && name.chars().all(legal) && !name.starts_with('.') {
        true => Ok(()),
        false => {
            Err("is no name of a host: use small letters, digits, '-' and '.', xn-- for others, and '*.' in front \
                      for all beneath it"
                .into())
        }
    }
}

/// The host and the port of a pattern.
fn split(pattern: &str) -> (&str, Option<&str>) {
    match pattern.rsplit_once(':') {
        // The colons of an address in brackets are its own.
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (pattern, None),
    }
}

fn fits(pattern: &str, host: &str, port: u16) -> bool {
    let (wanted, wanted_port) = split(pattern);
    let port_fits = match wanted_port {
        Some(wanted) => wanted.parse() == Ok(port),
        None => port == 80 || port == 443,
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    let host_fits = match wanted.strip_prefix("*.") {
        _ if wanted == "*" => true,
        Some(above) => host.strip_suffix(above).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
        None => host == wanted,
    };
    port_fits && host_fits
}
