//! What is said above the line that a person edits.
//!
//! The editor draws that line, and is asked to print whole lines above it. The last of those may still grow: it is printed
//! anew in the place of what it was. So what is typed and what is said never mix.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustyline::ExternalPrinter;
use unicode_width::UnicodeWidthChar as _;

use crate::output::text::columns;

/// Goes to the row above and empties it.
const INSTEAD: &str = "\x1b[1A\r\x1b[K";

/// What is said above the edited line. Cheap to clone.
#[derive(Clone)]
pub struct Pane {
    inner: Arc<Mutex<Inner>>,
    /// The person has ended a line: what stands above it is not to be changed any more.
    passed: Arc<AtomicBool>,
}

struct Inner {
    printer: Box<dyn ExternalPrinter + Send>,
    last: Last,
    passed: Arc<AtomicBool>,
}

/// What the last row above the edited line is.
enum Last {
    Done,
    /// Words, which may go on.
    Words(String),
    /// A sign of life, which goes when something else comes.
    Sign,
}

impl Pane {
    /// Above the line of the editor whose printer this is; `passed` is set whenever that line has ended.
    pub fn new(printer: Box<dyn ExternalPrinter + Send>, passed: Arc<AtomicBool>) -> Pane {
        let inner = Inner { printer, last: Last::Done, passed: Arc::clone(&passed) };
        Pane { inner: Arc::new(Mutex::new(inner)), passed }
    }

    /// Says more words, broken between words at the terminal's edge.
    pub fn words(&self, text: &str) {
        let mut inner = self.inner();
        if text.is_empty() {
            return;
        }
        let (mut shown, mut row) = inner.take_last();
        row.push_str(text);
        let width = width();
        let (ended, open) = row.rsplit_once('\n').map_or(("", &*row), |(ended, open)| (ended, open));
        if row.len() > open.len() {
            ended.split('\n').flat_map(|line| rows(line, width)).for_each(|row| push_row(&mut shown, &row));
        }
        let mut last = rows(open, width);
        let open = last.pop().unwrap_or_default();
        last.iter().for_each(|row| push_row(&mut shown, row));
        if !open.is_empty() {
            push_row(&mut shown, &open);
            inner.last = Last::Words(open);
        }
        inner.print(shown);
    }

    /// Prints whole lines as they are. What was said before them has ended.
    pub fn lines(&self, text: &str) {
        let mut inner = self.inner();
        let mut shown = match inner.last {
            Last::Sign => INSTEAD.to_owned(),
            Last::Words(_) | Last::Done => String::new(),
        };
        inner.last = Last::Done;
        shown.push_str(text);
        if !shown.ends_with('\n') {
            shown.push('\n');
        }
        inner.print(shown);
    }

    pub fn sign(&self, text: &str) {
        let mut inner = self.inner();
        let mut shown = match inner.last {
            Last::Words(_) => return,
            Last::Sign => INSTEAD.to_owned(),
            Last::Done => String::new(),
        };
        push_row(&mut shown, text);
        inner.last = Last::Sign;
        inner.print(shown);
    }

    pub fn no_sign(&self) {
        let mut inner = self.inner();
        if matches!(inner.last, Last::Sign) {
            inner.last = Last::Done;
            // The editor ends what it prints with a line of its own, unless there is one.
            inner.print(format!("{INSTEAD}\x1b[1A\n"));
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if self.passed.swap(false, Ordering::SeqCst) {
            inner.last = Last::Done;
        }
        inner
    }
}

impl Inner {
    /// The words that go on, and what takes the last row's place where it changes.
    fn take_last(&mut self) -> (String, String) {
        match std::mem::replace(&mut self.last, Last::Done) {
            Last::Done => (String::new(), String::new()),
            Last::Sign => (INSTEAD.to_owned(), String::new()),
            Last::Words(row) => (INSTEAD.to_owned(), row),
        }
    }

    fn print(&mut self, text: String) {
        // The line may have ended since this was put together: then the row above is not ours any more.
        let text = match self.passed.swap(false, Ordering::SeqCst) {
            true => text.strip_prefix(INSTEAD).map(str::to_owned).unwrap_or(text),
            false => text,
        };
        // A terminal that is gone is told by the editor.
        let _ = self.printer.print(text);
    }
}

fn push_row(out: &mut String, row: &str) {
    out.push_str(row);
    out.push('\n');
}

/// The terminal's columns, less one, so that a full row is no two.
fn width() -> usize {
    let columns = rustix::termios::tcgetwinsize(std::io::stdout()).map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { 79 } else { columns.max(21) - 1 }
}

/// A line as rows of at most `width` columns, broken at spaces where there are some. What the last one holds is as it was,
/// so that it can go on.
fn rows(line: &str, width: usize) -> Vec<String> {
    let (mut rows, mut row, mut used) = (Vec::new(), String::new(), 0);
    // Behind the last space at which the row may be broken.
    let mut gap = None;
    for c in line.chars() {
        let columns_of_it = c.width().unwrap_or(0);
        if used + columns_of_it > width {
            let rest = gap.take().map(|at| row.split_off(at)).unwrap_or_default();
            rows.push(std::mem::replace(&mut row, rest).trim_end().to_owned());
            used = columns(&row);
            if c == ' ' && row.is_empty() {
                continue;
            }
        }
        row.push(c);
        used += columns_of_it;
        if c == ' ' && row.trim_start() != "" {
            gap = Some(row.len());
        }
    }
    rows.push(row);
    rows
}
