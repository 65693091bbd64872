//! Asks an endpoint which models it has: one small request, once, before there is any model.

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::env::{Env, text};

/// A server on this machine answers at once or is not there.
const PATIENCE: Duration = Duration::from_millis(800);

/// Most bytes of a list of models that are read.
const MOST: u64 = 1024 * 1024;

/// The address of Ollama, by the variable it uses itself.
pub fn ollama_url(env: Env<'_>) -> Result<String> {
    let host = text(env, "OLLAMA_HOST")?.filter(|host| !host.trim().is_empty());
    let host = host.unwrap_or_else(|| "127.0.0.1:11434".into());
    let host = host.trim().trim_end_matches('/').replace("0.0.0.0", "127.0.0.1");
    let url = if host.contains("://") { host } else { format!("http://{host}") };
    let has_port = url.rsplit(':').next().is_some_and(|port| port.parse::<u16>().is_ok());
    Ok(if has_port { url } else { format!("{url}:11434") })
}

/// The model of a running Ollama: OLLAMA_MODEL if set, else the first it has. None where none runs.
pub async fn ollama(env: Env<'_>) -> Result<Option<String>> {
    let asked_for = text(env, "OLLAMA_MODEL")?.filter(|name| !name.trim().is_empty());
    match first_model(&format!("{}/v1", ollama_url(env)?), None).await {
        Ok(first) => Ok(Some(asked_for.unwrap_or(first))),
        Err(why) => {
            tracing::debug!("no Ollama: {why}");
            Ok(None)
        }
    }
}

/// The first model that an endpoint without TLS lists; beneath `/v1` too, where the address names only a host.
pub async fn first_model(base_url: &str, key: Option<&str>) -> Result<String, String> {
    let first = listed_first(base_url, key).await;
    let names_a_host = !base_url.trim_end_matches('/').split("://").last().unwrap_or_default().contains('/');
    match first {
        Err(why) if names_a_host && why.starts_with("HTTP ") => {
            let beneath = listed_first(&format!("{}/v1", base_url.trim_end_matches('/')), key).await;
            beneath.map_err(|_| format!("{why}, and nothing beneath /v1 either"))
        }
        other => other,
    }
}

async fn listed_first(base_url: &str, key: Option<&str>) -> Result<String, String> {
    let rest = base_url.strip_prefix("http://").ok_or("only endpoints without TLS are asked")?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let address = if host.rsplit(':').next().is_some_and(|p| p.parse::<u16>().is_ok()) {
        host.into()
    } else {
        format!("{host}:80")
    };
    let key = key.map(|key| format!("Authorization: Bearer {}\r\n", key.trim())).unwrap_or_default();
    // HTTP/1.0: the answer ends with the connection and comes in one piece.
    let request = format!(
        "GET /{}/models HTTP/1.0\r\nHost: {host}\r\n{key}Accept: application/json\r\n\r\n",
        path.trim_end_matches('/')
    );
    let exchange = async {
        let mut stream = TcpStream::connect(&address).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(MOST).read_to_end(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = tokio::time::timeout(PATIENCE, exchange).await.map_err(|_| "no answer in time".to_owned())?;
    let answer = answer.map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").ok_or("no HTTP")?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status != "200" {
        return Err(format!("HTTP {status}"));
    }
    let listed: Value = serde_json::from_str(body).map_err(|e| e.to_string())?;
    let first = listed["data"][0]["id"].as_str().or(listed["models"][0]["name"].as_str());
    first.map(str::to_owned).ok_or_else(|| "it lists no models".into())
}
