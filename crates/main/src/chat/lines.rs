//! What a person types, line by line.

use std::io::{BufRead as _, IsTerminal as _, Read as _};

use anyhow::{Result, anyhow};
use posse_core::job::enqueue::MAX_GOAL_BYTES;
use tokio::sync::mpsc;

use crate::exit::usage;
use crate::output::Out;
use crate::output::stream::stderr;

pub enum Line {
    /// A message. Lines that end in a backslash are joined with the next one.
    Text(String),
    End,
    /// Ctrl-C, where it is a key and no signal.
    Interrupt,
}

/// Standard input, read by a thread of its own: a read cannot be given up halfway, and the process
/// must be able to end during one.
pub struct Lines {
    incoming: mpsc::Receiver<Result<String>>,
    prompts: bool,
}

impl Lines {
    pub fn read(out: Out) -> Lines {
        // One line ahead, so that what is not answered yet stays with whoever writes it.
        let (send, incoming) = mpsc::channel(1);
        std::thread::spawn(move || {
            loop {
                let Some(message) = read_message().transpose() else { return };
                let is_last = message.is_err();
                if send.blocking_send(message).is_err() || is_last {
                    return;
                }
            }
        });
        let prompts = std::io::stdin().is_terminal() && std::io::stderr().is_terminal() && !out.json;
        Lines { incoming, prompts }
    }

    pub fn prompt(&self, text: &str) {
        if self.prompts {
            stderr().send(text);
        }
    }

    /// The next message. May be given up and asked for again.
    pub async fn next(&mut self) -> Result<Line> {
        match self.incoming.recv().await {
            Some(text) => Ok(Line::Text(text?)),
            None => Ok(Line::End),
        }
    }
}

/// One message: a line, and the next ones as long as each ends in a backslash.
fn read_message() -> Result<Option<String>> {
    let mut message: Option<String> = None;
    loop {
        let Some(line) = read_line()? else { return Ok(message) };
        let message = message.get_or_insert_default();
        match line.strip_suffix('\\') {
            Some(line) => {
                message.push_str(line);
                message.push('\n');
            }
            None => {
                message.push_str(&line);
                return Ok(Some(std::mem::take(message)));
            }
        }
        if message.len() > MAX_GOAL_BYTES {
            return Err(too_long());
        }
    }
}

fn read_line() -> Result<Option<String>> {
    let mut bytes = Vec::new();
    let most = MAX_GOAL_BYTES as u64 + 2;
    let unreadable = |error| usage(format!("standard input cannot be read: {error}"));
    let read = std::io::stdin().lock().take(most).read_until(b'\n', &mut bytes).map_err(unreadable)?;
    if read == 0 {
        return Ok(None);
    }
    if read as u64 == most {
        return Err(too_long());
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        anyhow!(usage(format!("a line is not valid UTF-8 at byte {at}; convert it to UTF-8 first")))
    })?;
    Ok(Some(text.trim_end_matches(['\n', '\r']).to_owned()))
}

fn too_long() -> anyhow::Error {
    usage(format!(
        "a message has more than {MAX_GOAL_BYTES} bytes, the most allowed. Put the text in a file and name it"
    ))
}
