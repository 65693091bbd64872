//! A server on loopback that answers each request by a function and counts connections.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

pub struct Site {
    pub at: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Site {
    /// Begins; `answer` gives the bytes of an answer for a request.
    pub fn new(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> Site {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (at, requests) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let kept = Arc::clone(&requests);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let Ok(mut connection) = connection else { return };
                let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
                let is_whole = |request: &[u8]| {
                    let text = String::from_utf8_lossy(request).into_owned();
                    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
                    let length = head
                        .to_lowercase()
                        .lines()
                        .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
                    body.len() >= length.unwrap_or(0)
                };
                while !is_whole(&request) {
                    match connection.read(&mut buffer) {
                        Ok(read @ 1..) => request.extend_from_slice(&buffer[..read]),
                        _ => break,
                    }
                }
                let request = String::from_utf8_lossy(&request).into_owned();
                kept.lock().unwrap().push(request.clone());
                // Whoever has read enough closes first.
                let _ = connection.write_all(&answer(&request));
            }
        });
        Site { at, requests }
    }

    pub fn url(&self, host: &str, path: &str) -> String {
        format!("http://{host}:{}{path}", self.at.port())
    }

    /// All requests that came, the first line and the headers in small letters.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().iter().map(|request| request.to_lowercase()).collect()
    }
}

/// An answer.
pub fn answer(status: &str, headers: &[&str], body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

pub fn html(body: &str) -> Vec<u8> {
    answer("200 OK", &["content-type: text/html; charset=utf-8"], body)
}

/// The path that a request asks for.
pub fn path(request: &str) -> &str {
    request.split(' ').nth(1).unwrap_or_default()
}
