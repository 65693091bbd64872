//! `http_fetch`: what it reaches and what it does not, against servers on loopback.
#![allow(clippy::unwrap_used)]

mod addresses;
mod pages;
mod site;

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use posse_core::tool::web::{Method, WebRules};
use posse_core::tool::{ToolContext, ToolError, ToolOutput, Tools as _};
use posse_infra::tool::ToolRegistry;
use posse_infra::tool::web::{Lookup, Web, WebSettings};
use serde_json::Value;

use crate::support::tools::context;

/// Names, each with what it is at on the first look, on the second, and so on; the last stays.
#[derive(Default)]
pub struct Names(Mutex<Vec<(String, Vec<Vec<IpAddr>>)>>);

impl Names {
    pub fn at(self, name: &str, looks: &[&[&str]]) -> Names {
        let looks = looks.iter().map(|look| look.iter().map(|address| address.parse().unwrap()).collect()).collect();
        self.0.lock().unwrap().push((name.to_owned(), looks));
        self
    }
}

#[async_trait]
impl Lookup for Names {
    async fn addresses(&self, name: &str) -> std::io::Result<Vec<IpAddr>> {
        let mut names = self.0.lock().unwrap();
        let Some((_, looks)) = names.iter_mut().find(|(known, _)| known == name.trim_end_matches('.')) else {
            return Err(std::io::Error::other("no such name"));
        };
        Ok(if looks.len() > 1 { looks.remove(0) } else { looks[0].clone() })
    }
}

/// An agent that may reach these hosts.
pub struct Agent {
    registry: ToolRegistry,
    pub cx: ToolContext,
}

pub fn agent(settings: WebSettings, names: Names, hosts: &[&str]) -> Agent {
    let registry = ToolRegistry::builtin().with_web(Web::with_lookup(settings, Arc::new(names)));
    let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
    Agent { registry, cx: ToolContext { web: WebRules { hosts, methods: Method::ALL.into() }, ..context() } }
}

/// What holds in most tests: this machine may be reached, and nobody is asked for `robots.txt`.
pub fn on_loopback() -> WebSettings {
    let reach = ["127.0.0.1", "::1"].map(|address| address.parse().unwrap()).into();
    WebSettings { reach, robots: false, seconds: 20, ..WebSettings::default() }
}

impl Agent {
    pub async fn fetch(&self, args: Value) -> Result<ToolOutput, ToolError> {
        let tool = self.registry.get("http_fetch").unwrap();
        let args = self.registry.validate_args(tool.spec(), &args.to_string())?;
        tool.call(&self.cx, args).await
    }

    pub async fn text(&self, url: &str) -> String {
        self.fetch(serde_json::json!({"url": url})).await.unwrap_or_else(|error| panic!("{url}: {error}")).text
    }

    pub async fn refusal(&self, url: &str) -> ToolError {
        match self.fetch(serde_json::json!({"url": url})).await {
            Ok(given) => panic!("{url} was read: {}", given.text),
            Err(error) => error,
        }
    }
}
