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
    pub(super) async fn read(&mut self, mut from: impl AsyncRead + Unpin) {
        let mut buffer = vec![0; 64 * 1024];
        // A pipe of ours fails only with its end.
        while let Ok(read @ 1..) = from.read(&mut buffer).await {
            self.take(&buffer[..read]);
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (head, rest) = bytes.split_at(bytes.len().min(HALF - self.head.len()));
        self.head.extend(head);
        self.tail.extend(&rest[rest.len().saturating_sub(HALF)..]);
        self.tail.drain(..self.tail.len().saturating_sub(HALF));
    }

    /// Nothing came.
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

#[cfg(test)]
mod tests {
    use super::*;

    async fn kept(bytes: &[u8]) -> Kept {
        let mut kept = Kept::default();
        kept.read(bytes).await;
        kept
    }

    #[tokio::test]
    async fn a_short_output_is_whole() {
        assert!(kept(b"").await.is_empty());
        assert_eq!(kept("größe\n".as_bytes()).await.shown(), "größe\n");
        let edge = "ä".repeat(HALF);
        assert_eq!(kept(edge.as_bytes()).await.shown(), edge);
    }

    #[tokio::test]
    async fn a_long_one_has_beginning_and_end_in_whole_characters() {
        let long = format!("a{}z", "数".repeat(1_000_000));
        let shown = kept(long.as_bytes()).await.shown();
        let (head, rest) = shown.split_once("\n[... ").unwrap();
        let (_, tail) = rest.split_once(" left out ...]\n").unwrap();
        assert!(long.starts_with(head) && head.len() > HALF - 4 && head.len() <= HALF, "{}", head.len());
        assert!(long.ends_with(tail) && tail.len() > HALF - 4 && tail.len() <= HALF, "{}", tail.len());
        assert!(shown.contains("[... 2.8 MiB left out ...]"), "{}", &shown[HALF - 10..HALF + 60]);
    }

    #[tokio::test]
    async fn what_is_no_text_is_named() {
        assert_eq!(kept(b"\x7fELF\0\0\0").await.shown(), "[7 bytes of binary data, ELF program: not shown]");
        assert_eq!(kept(b"caf\xe9").await.shown(), "[not UTF-8: shown as Latin-1]\ncafé");
        let late = [b"x".repeat(HEAD + 100), b"\0".to_vec()].concat();
        assert_eq!(kept(&late).await.shown(), "[8,293 bytes of binary data: not shown]");
        let later = [b"x".repeat(2 * HEAD), b"\0".to_vec()].concat();
        assert_eq!(kept(&later).await.shown(), "[16.0 KiB of binary data, unknown type: not shown]");
    }
}
