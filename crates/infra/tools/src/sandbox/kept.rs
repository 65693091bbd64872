//! What is kept of a command's output: its beginning and its end.

use std::collections::VecDeque;

use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::text::{Content, HEAD, classify, decode, size, whole_chars};

/// Bytes that are kept of the beginning of an output, and as many of its end.
pub(crate) const HALF: usize = 8 * 1024;

/// An output of any length, in bounded memory.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

impl Kept {
    /// Reads to the end, whatever comes, so that no writer ever waits.
    pub(super) async fn read(&mut self, from: Option<impl AsyncRead + Unpin>) {
        let Some(mut from) = from else { return };
        let mut buffer = vec![0; 64 * 1024];
        // A pipe of ours fails only with its end.
        while let Ok(read @ 1..) = from.read(&mut buffer).await {
            self.take(&buffer[..read]);
        }
    }

    pub(crate) fn take(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (head, rest) = bytes.split_at(bytes.len().min(HALF - self.head.len()));
        self.head.extend(head);
        self.tail.extend(&rest[rest.len().saturating_sub(HALF)..]);
        self.tail.drain(..self.tail.len().saturating_sub(HALF));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// As text: whole, or its beginning and end with what is left out between them.
    pub(crate) fn shown(&self) -> String {
        let mut bytes = self.head.clone();
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        let left_out = self.total - (bytes.len() + tail.len()) as u64;
        if left_out == 0 {
            bytes.extend(tail);
            return shown(&bytes, self.total).unwrap_or_else(|what| what);
        }
        let cut = |byte: &u8| (0x80..0xc0).contains(byte);
        let begins = tail.iter().take(3).take_while(|byte| cut(byte)).count();
        match (shown(whole_chars(&bytes), self.total), shown(&tail[begins..], self.total)) {
            (Ok(head), Ok(tail)) => format!("{head}\n[... {} left out ...]\n{tail}", size(left_out)),
            (Err(what), _) | (_, Err(what)) => what,
        }
    }
}

/// The bytes as text, or what they are instead.
fn shown(bytes: &[u8], total: u64) -> Result<String, String> {
    match classify(&bytes[..bytes.len().min(HEAD)]) {
        Content::Binary(kind) => Err(format!("[{} of binary data, {kind}: not shown]", size(total))),
        _ if bytes.contains(&0) => Err(format!("[{} of binary data: not shown]", size(total))),
        _ => match decode(bytes) {
            (text, false) => Ok(text),
            (text, true) => Ok(format!("[not UTF-8: shown as Latin-1]\n{text}")),
        },
    }
}
