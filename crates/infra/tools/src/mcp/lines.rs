//! How a program is spoken with: a message on each line, over its standard input and output.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ClientRequest, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::pipe::Sender;
use tokio::process::ChildStdout;

use crate::sandbox::{End, Limit, Serving};
use crate::text::size;

/// Bytes of one message.
const MAX_MESSAGE: usize = 8 << 20;
/// Bytes that are no message, since the last one.
const MAX_NOISE: usize = 16 << 20;
/// How long a server that closed its output may take to end by itself, so that its end can be told.
const PATIENCE: Duration = Duration::from_millis(500);
/// The same for one that was asked to end.
const FAREWELL: Duration = Duration::from_secs(2);

/// Why nothing comes any more, once that is so.
#[derive(Debug, Clone, Default)]
pub(super) struct Ended(Arc<Mutex<Option<String>>>);

impl Ended {
    pub fn why(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, why: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }
}

enum Probe {
    None,
    Sent(RequestId),
    GivenUp(RequestId),
}

pub(super) struct Lines {
    reader: BufReader<ChildStdout>,
    line: Vec<u8>,
    noise: usize,
    input: Arc<tokio::sync::Mutex<Option<Sender>>>,
    /// The request by which it is found out what a server speaks, once the next way to begin is tried: a server that was slow to
    /// start may answer it after all.
    probe: Probe,
    /// The program, until it ended.
    serving: Option<Serving>,
    ended: Ended,
}

impl Lines {
    /// None where the program has no streams.
    pub fn of(mut serving: Serving, ended: Ended) -> Option<Lines> {
        let streams = serving.streams()?;
        let input = Arc::new(tokio::sync::Mutex::new(Some(streams.input)));
        let reader = BufReader::with_capacity(64 * 1024, streams.output);
        Some(Lines { reader, line: Vec::new(), noise: 0, input, probe: Probe::None, serving: Some(serving), ended })
    }

    /// The next line that is not too long, or why there is none; no word where it just ended. May be dropped at any time: what was read stays.
    async fn read_line(&mut self) -> Result<(), Option<String>> {
        loop {
            let some = match self.reader.fill_buf().await {
                Ok([]) => return Err(None),
                Ok(some) => some,
                Err(error) => return Err(Some(format!("it cannot be heard: {error}"))),
            };
            let end = some.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(some.len(), |end| end + 1);
            if self.line.len() + taken > MAX_MESSAGE {
                let most = size(MAX_MESSAGE as u64);
                return Err(Some(format!("it sent a message of more than {most}, the limit")));
            }
            self.line.extend_from_slice(&some[..taken]);
            self.reader.consume(taken);
            if end.is_some() {
                return Ok(());
            }
        }
    }

    /// The message on the line that was read, which is gone then. Whatever else a server prints is passed over.
    fn message(&mut self) -> Result<Option<RxJsonRpcMessage<RoleClient>>, Option<String>> {
        let line = std::mem::take(&mut self.line);
        let message = serde_json::from_slice::<Value>(&line).ok().filter(Value::is_object);
        if let Some(message) = message.and_then(|message| serde_json::from_value(message).ok()) {
            self.noise = 0;
            return Ok(Some(message).filter(|message| !self.is_late(message)));
        }
        self.noise += line.len();
        match self.noise > MAX_NOISE {
            true => Err(Some(format!("it printed {} that are no messages", size(self.noise as u64)))),
            false => Ok(None),
        }
    }

    /// Whether it answers what nobody waits for any more.
    fn is_late(&self, message: &RxJsonRpcMessage<RoleClient>) -> bool {
        let Probe::GivenUp(probe) = &self.probe else { return false };
        match message {
            JsonRpcMessage::Response(answer) => answer.id == *probe,
            JsonRpcMessage::Error(answer) => answer.id.as_ref() == Some(probe),
            _ => false,
        }
    }

    /// Has it end, if it has not; how it did is told where nothing else was wrong.
    async fn leave(&mut self, why: Option<String>) {
        let Some(serving) = self.serving.take() else { return };
        let patience = if why.is_some() { Duration::ZERO } else { PATIENCE };
        let end = serving.end(patience).await;
        self.ended.set(why.or(end.map(told)).unwrap_or_else(|| "it closed its output".into()));
    }
}

impl Transport<RoleClient> for Lines {
    type Error = io::Error;

    fn send(&mut self, item: TxJsonRpcMessage<RoleClient>) -> impl Future<Output = io::Result<()>> + Send + 'static {
        if let JsonRpcMessage::Request(asked) = &item {
            self.probe = match (&asked.request, std::mem::replace(&mut self.probe, Probe::None)) {
                (ClientRequest::DiscoverRequest(_), _) => Probe::Sent(asked.id.clone()),
                (ClientRequest::InitializeRequest(_), Probe::Sent(probe)) => Probe::GivenUp(probe),
                (_, probe) => probe,
            };
        }
        let input = Arc::clone(&self.input);
        async move {
            let mut line = serde_json::to_vec(&item)?;
            line.push(b'\n');
            match &mut *input.lock().await {
                Some(input) => input.write_all(&line).await,
                None => Err(io::ErrorKind::NotConnected.into()),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let heard = match self.read_line().await {
                Ok(()) => self.message(),
                Err(why) => Err(why),
            };
            match heard {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                Err(why) => {
                    self.leave(why).await;
                    return None;
                }
            }
        }
    }

    /// Nobody waits for this but the task that keeps the connection.
    async fn close(&mut self) -> io::Result<()> {
        self.input.lock().await.take();
        if let Some(serving) = self.serving.take() {
            serving.end(FAREWELL).await;
        }
        Ok(())
    }
}

/// How it ended.
fn told(end: End) -> String {
    match end {
        End::Exited(code) => format!("it ended with exit code {code}"),
        End::Signalled(signal) => format!("it was ended by signal {signal}"),
        End::Limited(Limit::Memory) => "it was ended: it used more memory than its limit (memory_mb)".into(),
        End::Limited(Limit::Processes) => "it was ended: it had more processes than its limit (processes)".into(),
        End::Limited(Limit::Written) => "it was ended: it wrote more than its limit (written_mb)".into(),
        End::Limited(_) => "it was ended: what it uses could not be seen".into(),
        End::Refused(why) | End::Lacking(why) => format!("it could not be started: {why}"),
    }
}
