//! How an address is spoken with: streamable HTTP. Nothing is sent on to another address, and nothing goes through a proxy.

use std::collections::HashMap;
use std::error::Error as _;
use std::time::Duration;

use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Client, Url};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;

/// Bytes of one message.
const MAX_MESSAGE: usize = 8 << 20;

/// What speaks with `url`, with these headers in each request.
pub(super) fn transport(
    url: &Url,
    headers: HashMap<HeaderName, HeaderValue>,
) -> Result<StreamableHttpClientTransport<Client>, String> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .referer(false)
        .pool_max_idle_per_host(0)
        .connect_timeout(Duration::from_secs(10))
        .user_agent(concat!("posse/", env!("CARGO_PKG_VERSION")));
    if url.scheme() != "https" {
        // No certificate is checked, so a machine without certificate authorities can ask too.
        builder = builder.tls_certs_only([]);
    }
    let client = builder.build().map_err(|error| format!("it cannot be asked from here: {}", told(&error)))?;
    let config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
        .custom_headers(headers)
        .max_sse_event_size(MAX_MESSAGE)
        .max_json_response_size(MAX_MESSAGE);
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

/// An error with what it comes from.
fn told(error: &reqwest::Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(why) = cause {
        told = format!("{told}: {why}");
        cause = why.source();
    }
    told
}
