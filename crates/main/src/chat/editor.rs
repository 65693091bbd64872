//! The line that a person edits: with a history, on a terminal. What else is said stands above it, by a [`Pane`].
//!
//! There is no file of what was typed: the history is what was said in sessions, which the database has, sealed where it
//! is sealed and kept for as long as they are.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as blocking;
use std::time::Duration;

use anyhow::{Result, anyhow};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Editor as Rustyline, Helper};
use tokio::sync::mpsc;

use super::lines::Line;
use super::pane::Pane;
use crate::exit::usage;

const HISTORY: usize = 1000;

const PROMPT: &str = "> ";

/// How long the thread waits after an interruption for whether more is wanted. It must not wait for ever: what is said
/// meanwhile may wait for it.
const AFTER_INTERRUPTION: Duration = Duration::from_secs(2);

/// A line editor in a thread of its own, for a read cannot be given up. There is always a line to be edited, until the end.
pub struct Editor {
    incoming: mpsc::UnboundedReceiver<Result<Line>>,
    goes_on: blocking::Sender<()>,
    is_interrupted: bool,
    // Last: what the thread has changed is put right when nothing is read any more.
    _terminal: Terminal,
}

impl Editor {
    /// Begins on the terminal of this process, with what was said before, oldest first; none where that terminal cannot
    /// edit.
    pub fn begin(history: Vec<String>) -> Option<(Editor, Pane)> {
        let config = Config::builder().max_history_size(HISTORY).ok()?.bracketed_paste(true).build();
        let memory = MemHistory::with_config(&config);
        let mut editor: Rustyline<Lines, MemHistory> = Rustyline::with_history(config, memory).ok()?;
        let passed = Arc::new(AtomicBool::new(false));
        let pane = Pane::new(Box::new(editor.create_external_printer().ok()?), Arc::clone(&passed));
        editor.set_helper(Some(Lines { passed: Arc::clone(&passed) }));
        for line in history {
            editor.add_history_entry(line).ok()?;
        }
        let terminal = Terminal::without_echo().ok()?;
        let (send, incoming) = mpsc::unbounded_channel();
        let (goes_on, more) = blocking::channel();
        std::thread::spawn(move || {
            loop {
                let line = read(&mut editor);
                passed.store(true, Ordering::SeqCst);
                let is_last = matches!(line, Ok(Line::End) | Err(_));
                let is_interrupted = matches!(line, Ok(Line::Interrupt));
                if send.send(line).is_err() || is_last {
                    return;
                }
                // It may have been the end of all: then the terminal is to stay as it was.
                let ended = || more.recv_timeout(AFTER_INTERRUPTION) == Err(blocking::RecvTimeoutError::Disconnected);
                if is_interrupted && ended() {
                    return;
                }
            }
        });
        Some((Editor { incoming, goes_on, is_interrupted: false, _terminal: terminal }, pane))
    }

    /// The next line. May be given up and asked for again.
    pub async fn next(&mut self) -> Result<Line> {
        if std::mem::take(&mut self.is_interrupted) {
            // Nobody is there to be told once the thread has ended.
            let _ = self.goes_on.send(());
        }
        let line = self.incoming.recv().await.unwrap_or(Ok(Line::End));
        self.is_interrupted = matches!(line, Ok(Line::Interrupt));
        line
    }
}

fn read(editor: &mut Rustyline<Lines, MemHistory>) -> Result<Line> {
    match editor.readline(PROMPT) {
        Ok(text) => {
            let text = text.replace("\\\n", "\n");
            if !text.trim().is_empty() {
                // Only a history that is full of itself refuses, and it never is.
                let _ = editor.add_history_entry(text.as_str());
            }
            Ok(Line::Text(text))
        }
        Err(ReadlineError::Eof) => Ok(Line::End),
        Err(ReadlineError::Interrupted) => Ok(Line::Interrupt),
        Err(error) => Err(anyhow!(usage(format!("the terminal cannot be read: {error}")))),
    }
}

/// What the editor asks of us: whether a line has ended.
struct Lines {
    passed: Arc<AtomicBool>,
}

impl Validator for Lines {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        // Whatever is said from now on stands beneath this line.
        self.passed.store(true, Ordering::SeqCst);
        Ok(match context.input().ends_with('\\') {
            true => ValidationResult::Incomplete,
            false => ValidationResult::Valid(None),
        })
    }
}

impl Completer for Lines {
    type Candidate = String;
}

impl Hinter for Lines {
    type Hint = String;
}

impl Highlighter for Lines {}

impl Helper for Lines {}

/// The terminal as it was, to be put right at the end, whatever the editor is doing then. While no line is edited it shows
/// nothing that is typed: that waits for the next line.
struct Terminal {
    before: Termios,
}

impl Terminal {
    fn without_echo() -> rustix::io::Result<Terminal> {
        let before = tcgetattr(std::io::stdin().as_fd())?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        tcsetattr(std::io::stdin().as_fd(), OptionalActions::Drain, &quiet)?;
        Ok(Terminal { before })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Ends the pasting that the editor asked to be told of, and takes its line away.
        crate::output::stream::stderr().send("\x1b[?2004l\r\x1b[K");
        let _ = tcsetattr(std::io::stdin().as_fd(), OptionalActions::Drain, &self.before);
    }
}
