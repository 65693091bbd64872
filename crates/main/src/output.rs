//! Where words go: data to standard output, everything else to standard error.

use std::io::{self, IsTerminal as _, Write as _};

use anyhow::Result;
use serde::Serialize;

pub mod table;
pub mod text;

/// When to colour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ColorChoice {
    // Plain comments, for else clap makes a paragraph of each in every --help.
    // On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    Always,
    Never,
}

/// How a command speaks.
#[derive(Debug, Clone, Copy)]
pub struct Out {
    /// Whether data is JSON.
    pub json: bool,
    /// How data on standard output is coloured.
    pub paint: Paint,
    /// How notes on standard error are coloured.
    pub note_paint: Paint,
    /// Columns of the terminal.
    pub width: usize,
    /// Whether both streams go to a terminal, so that a line may move.
    pub moving: bool,
}

impl Out {
    /// As this process is connected.
    pub fn new(json: bool, color: ColorChoice) -> Out {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let paint = |terminal: bool| Paint {
            on: match color {
                ColorChoice::Always => true,
                ColorChoice::Never => false,
                ColorChoice::Auto => terminal && !no_color && !dumb,
            },
        };
        let (stdout, stderr) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
        let width = size.map_or(0, |size| usize::from(size.ws_col));
        Out {
            json,
            paint: paint(stdout),
            note_paint: paint(stderr),
            // Pipes get long lines: what reads them can wrap by itself.
            width: if width == 0 { 120 } else { width.clamp(40, 160) },
            moving: stdout && stderr && !dumb && !json,
        }
    }

    /// One JSON document.
    pub fn document(&self, value: &impl Serialize) -> Result<()> {
        let mut out = io::stdout().lock();
        serde_json::to_writer_pretty(&mut out, value).map_err(io::Error::from)?;
        writeln!(out)?;
        Ok(out.flush()?)
    }

    /// One line of JSON.
    pub fn json_line(&self, value: &impl Serialize) -> Result<()> {
        let mut out = io::stdout().lock();
        serde_json::to_writer(&mut out, value).map_err(io::Error::from)?;
        writeln!(out)?;
        Ok(out.flush()?)
    }

    /// A line of data for people.
    pub fn line(&self, text: impl AsRef<str>) -> Result<()> {
        self.raw(&format!("{}\n", text.as_ref()))
    }

    /// Data as it is.
    pub fn raw(&self, text: &str) -> Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }

    /// A remark beside the data.
    pub fn note(&self, text: impl AsRef<str>) {
        // A closed standard error is nobody's loss.
        let _ = writeln!(io::stderr().lock(), "{}", text.as_ref());
    }

    /// A remark that should be seen. It may be about what others wrote, so it is shown as text.
    pub fn warn(&self, text: impl AsRef<str>) {
        self.note(format!("{} {}", self.note_paint.yellow("warning:"), text::visible(text.as_ref())));
    }
}

/// Colours, or none.
#[derive(Debug, Clone, Copy, Default)]
pub struct Paint {
    on: bool,
}

impl Paint {
    fn with(self, code: &str, text: impl AsRef<str>) -> String {
        let text = text.as_ref();
        if self.on && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Less important.
    pub fn dim(self, text: impl AsRef<str>) -> String {
        self.with("2", text)
    }

    /// More important.
    pub fn bold(self, text: impl AsRef<str>) -> String {
        self.with("1", text)
    }

    /// Good.
    pub fn green(self, text: impl AsRef<str>) -> String {
        self.with("32", text)
    }

    /// Bad.
    pub fn red(self, text: impl AsRef<str>) -> String {
        self.with("31", text)
    }

    /// To be noticed.
    pub fn yellow(self, text: impl AsRef<str>) -> String {
        self.with("33", text)
    }

    /// A name.
    pub fn cyan(self, text: impl AsRef<str>) -> String {
        self.with("36", text)
    }

    /// The colour of a job's state.
    pub fn state(self, state: posse_core::job::JobState, text: impl AsRef<str>) -> String {
        use posse_core::job::JobState::*;
        match state {
            Completed => self.green(text),
            Discarded => self.red(text),
            Running => self.cyan(text),
            Retryable | Suspended => self.yellow(text),
            Scheduled | Available | Cancelled => self.dim(text),
        }
    }
}
