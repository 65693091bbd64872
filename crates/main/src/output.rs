//! Where words go: data to standard output, everything else to standard error. Everything that leaves the
//! program as text goes through here: for people as text that steers no terminal ([`text`]), for programs as
//! JSON that does not either ([`posse_app::json`]), and to standard error without waiting for whoever reads it ([`stream`]).

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use posse_app::json;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde_json::Value;

use crate::exit::Exit;

pub mod log;
pub mod stream;
pub mod table;
pub mod text;

use table::Cell;

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

#[derive(Debug, Clone, Copy)]
pub struct Out {
    pub json: bool,
    pub paint: Paint,
    pub note_paint: Paint,
    pub width: usize,
    /// Whether both streams go to a terminal, so that a line may move.
    pub moving: bool,
    /// Whether lines that are longer than that are folded: where somebody told how long they may be.
    fold: bool,
}

const FIELD: usize = 13;

/// Columns where nothing tells how many there are: pipes get long lines, for what reads them can wrap by itself.
const USUAL_WIDTH: usize = 120;

impl Out {
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
        let terminal = rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_col));
        let named = || std::env::var("COLUMNS").ok().and_then(|columns| columns.trim().parse().ok());
        let width = Some(terminal).filter(|width| *width > 0).or_else(named).filter(|width| *width > 0);
        let fold = width.is_some();
        Out {
            json,
            paint: paint(stdout),
            note_paint: paint(stderr),
            width: width.unwrap_or(USUAL_WIDTH).clamp(20, 160),
            moving: stdout && stderr && !dumb && !json,
            fold,
        }
    }

    /// One JSON document; what a command that has printed it ends with.
    pub fn document(&self, value: &impl Serialize) -> Result<Exit> {
        write(&(json::document(value)? + "\n"))?;
        Ok(Exit::Ok)
    }

    /// What was done: a document, or the same in a line for people.
    pub fn say(&self, document: &impl Serialize, line: impl AsRef<str>) -> Result<Exit> {
        match self.json {
            true => self.document(document),
            false => self.line(line).map(|()| Exit::Ok),
        }
    }

    pub fn json_line(&self, value: &impl Serialize) -> Result<()> {
        write(&(json::line(value)? + "\n"))
    }

    /// A list as a JSON document: its items under their name, and where the next page begins if there is one.
    pub fn list(&self, name: &str, items: Vec<Value>, next: Option<i64>) -> Result<Exit> {
        self.document(&serde_json::json!({name: items, "next": next}))
    }

    /// The same of everything there is, or for people a table of it: of each item, the cells of its row. Where there is
    /// nothing they are told `none`.
    pub fn list_or_table<T: Serialize>(
        &self,
        list: (&str, bool),
        items: &[T],
        none: &str,
        titles: &[&str],
        row: impl Fn(&T) -> Vec<Cell>,
    ) -> Result<Exit> {
        self.page(list, items, None, none, titles, row)
    }

    /// The same of one page of it; `next` is what is skipped before the next one.
    pub fn page<T: Serialize>(
        &self,
        (name, full): (&str, bool),
        items: &[T],
        next: Option<i64>,
        none: &str,
        titles: &[&str],
        row: impl Fn(&T) -> Vec<Cell>,
    ) -> Result<Exit> {
        if self.json {
            return self.list(name, json::listed(items, full)?, next);
        }
        match items {
            [] => self.note(none),
            items => self.table(titles, items.iter().map(row))?,
        }
        if let Some(next) = next {
            self.hint(format!("more: --skip {next}"));
        }
        Ok(Exit::Ok)
    }

    pub fn line(&self, text: impl AsRef<str>) -> Result<()> {
        let text = text.as_ref();
        self.line_at(text.len() - text.trim_start_matches(' ').len(), text)
    }

    /// The same; where it has to be folded, the lines that follow begin at this column.
    pub fn line_at(&self, column: usize, text: impl AsRef<str>) -> Result<()> {
        let text = text::harmless(text.as_ref(), self.paint.on);
        write(&(self.folded(&text, column) + "\n"))
    }

    pub fn field(&self, name: &str, value: impl AsRef<str>) -> Result<()> {
        for (i, line) in value.as_ref().split('\n').enumerate() {
            let name = self.paint.dim(format!("{:<10}", if i == 0 { name } else { "" }));
            self.line_at(FIELD, format!("  {name} {line}"))?;
        }
        Ok(())
    }

    pub fn fields<const N: usize>(&self, fields: [(&str, Option<String>); N]) -> Result<()> {
        fields.into_iter().try_for_each(|(name, value)| value.map_or(Ok(()), |value| self.field(name, value)))
    }

    /// A table for people; its titles are dim.
    pub fn table(&self, titles: &[&str], rows: impl IntoIterator<Item = Vec<Cell>>) -> Result<()> {
        let lines = table::render(titles, rows.into_iter().collect(), self.width, |title| self.paint.dim(title));
        lines.iter().try_for_each(|line| self.line(line))
    }

    fn folded(&self, text: &str, column: usize) -> String {
        if !self.fold {
            return text.to_owned();
        }
        text.split('\n').map(|line| text::fold(line, self.width, column)).collect::<Vec<_>>().join("\n")
    }

    /// Data for people, with its own line ends.
    pub fn raw(&self, text: &str) -> Result<()> {
        write(&text::harmless(text, self.paint.on))
    }

    pub fn note(&self, text: impl AsRef<str>) {
        stream::stderr().send(self.folded(&text::harmless(text.as_ref(), self.note_paint.on), 2) + "\n");
    }

    /// A remark of less importance: what one could do next, say.
    pub fn hint(&self, text: impl AsRef<str>) {
        self.note(self.note_paint.dim(text));
    }

    /// A remark that should be seen. It may be about what others wrote, so it is shown as text.
    pub fn warn(&self, text: impl AsRef<str>) {
        self.note(format!("{} {}", self.note_paint.yellow("warning:"), text::visible(text.as_ref())));
    }

    /// Puts `text` in the place of the line that standard error's terminal is at; an empty one takes that away.
    pub fn moving_line(&self, text: &str) {
        stream::stderr().send_now(format!("\r\x1b[K{}", text::harmless(text, self.note_paint.on)));
    }
}

/// Whether this command may have changed something that an answer was to tell of.
static CHANGES: AtomicBool = AtomicBool::new(false);

/// To be called before a command changes something: it fails where the answer could not be told, so that
/// nothing is done that nobody hears of.
pub fn before_change() -> Result<()> {
    takes_output().map_err(|cause| Unwritten { cause, lost: None })?;
    CHANGES.store(true, Ordering::Relaxed);
    Ok(())
}

pub fn may_have_changed() -> bool {
    CHANGES.load(Ordering::Relaxed)
}

/// Whether standard output takes anything, as far as that can be known without writing to it.
fn takes_output() -> io::Result<()> {
    let stdout = rustix::stdio::stdout();
    let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(stdout)?.st_mode);
    if kind != rustix::fs::FileType::Socket {
        // Nothing is written, and a device that is full or closed says so all the same.
        rustix::io::write(stdout, &[])?;
    }
    let mut fds = [PollFd::from_borrowed_fd(stdout, PollFlags::OUT)];
    let ready = poll(&mut fds, Some(&Timespec::default()))?;
    if ready > 0 && fds[0].revents().contains(PollFlags::ERR) {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    Ok(())
}

#[derive(Debug, thiserror::Error)]
#[error("standard output cannot be written: {cause}")]
pub struct Unwritten {
    #[source]
    pub cause: io::Error,
    /// What would have been written; nothing where nothing was done yet.
    pub lost: Option<String>,
}

impl Unwritten {
    pub fn is_broken_pipe(&self) -> bool {
        self.cause.kind() == io::ErrorKind::BrokenPipe
    }
}

const LOST: usize = 2000;

fn write(text: &str) -> Result<()> {
    let write = || {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush())
    };
    // A reader who is slow holds this task, and none that has the same thread.
    let written = match tokio::runtime::Handle::try_current() {
        Ok(_) => tokio::task::block_in_place(write),
        Err(_) => write(),
    };
    written.map_err(|cause| {
        let lost = Some(text::head(text.trim(), LOST).to_owned());
        Unwritten { cause, lost }.into()
    })
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Paint {
    on: bool,
}

impl Paint {
    fn with(self, code: &str, text: impl AsRef<str>) -> String {
        let text = text.as_ref();
        if self.on && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub fn dim(self, text: impl AsRef<str>) -> String {
        self.with("2", text)
    }

    pub fn bold(self, text: impl AsRef<str>) -> String {
        self.with("1", text)
    }

    pub fn green(self, text: impl AsRef<str>) -> String {
        self.with("32", text)
    }

    pub fn red(self, text: impl AsRef<str>) -> String {
        self.with("31", text)
    }

    pub fn yellow(self, text: impl AsRef<str>) -> String {
        self.with("33", text)
    }

    pub fn cyan(self, text: impl AsRef<str>) -> String {
        self.with("36", text)
    }

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
