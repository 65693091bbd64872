//! `GET /metrics`: the numbers of this process and its database, to programs on this machine.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HOST, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use posse_app::Code;
use posse_core::metrics::{Metrics, MetricsSource};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::exit::{fail, usage};

const CONNECTIONS: usize = 16;

/// How long a connection may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(10);

/// Begins to listen. Only on this machine: the numbers name roles, queues and endpoints, and nothing
/// here asks who wants to know.
pub async fn listen(address: SocketAddr) -> Result<TcpListener> {
    if !address.ip().is_loopback() {
        return Err(usage(format!(
            "--metrics {address} would show this process's numbers to other machines, and there is no key to ask them \
             for: use 127.0.0.1:{}, and let what collects them, or a proxy that knows who asks, run on this machine",
            address.port()
        )));
    }
    let failed =
        |error| fail(Code::Failed, format!("the metrics cannot be served at {address}: {error}; use another port"));
    TcpListener::bind(address).await.map_err(failed)
}

pub async fn serve(listener: TcpListener, source: Arc<MetricsSource>) -> Infallible {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // Nobody closes it.
        let place = Arc::clone(&places).acquire_owned().await.ok();
        match listener.accept().await {
            Ok((stream, _)) => {
                let source = Arc::clone(&source);
                tokio::spawn(async move {
                    answer(stream, source).await;
                    drop(place);
                });
            }
            // Out of file descriptors, say: that passes, and is no reason to stop working.
            Err(error) => {
                tracing::debug!(%error, "a request for the metrics was not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn answer(stream: TcpStream, source: Arc<MetricsSource>) {
    let service = service_fn(move |request| {
        let source = Arc::clone(&source);
        async move { Ok::<_, Infallible>(respond(&request, &source).await) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(PATIENCE).keep_alive(false);
    // Whoever hangs up in the middle needs no answer.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

async fn respond(request: &Request<Incoming>, source: &MetricsSource) -> Response<Full<Bytes>> {
    let said = |status, text: &str| {
        let mut response = Response::new(Full::new(Bytes::from(text.to_owned())));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        response
    };
    // A page in a browser on this machine can have a name of its own lead here, and read the answer.
    if !request.headers().get(HOST).is_some_and(names_this_machine) {
        return said(StatusCode::FORBIDDEN, "ask for localhost or its address\n");
    }
    if request.uri().path() != "/metrics" {
        return said(StatusCode::NOT_FOUND, "there is only /metrics\n");
    }
    if request.method() != Method::GET {
        let mut response = said(StatusCode::METHOD_NOT_ALLOWED, "there is only GET\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        return response;
    }
    let mut response = said(StatusCode::OK, &source.read().await.text());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(Metrics::CONTENT_TYPE));
    response
}

fn names_this_machine(host: &HeaderValue) -> bool {
    let Ok(host) = host.to_str() else { return false };
    let name = match host.parse::<SocketAddr>() {
        Ok(address) => return address.ip().is_loopback(),
        Err(_) => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
