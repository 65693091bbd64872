//! `read_file`: the text of a file, or of some of its lines.

mod around;

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read, Seek};

use posse_core::stop::Stop;
use posse_core::text::plural;
use posse_core::tool::{EffectClass, ToolContext, ToolError, ToolOutput};
use schemars::JsonSchema;
use serde::Deserialize;

use super::FnTool;
use super::failure::{check, conflict, invalid, io, over_limit};
use super::text::{Content, HEAD, classify, decode, decode_utf16, size, whole_chars};
use super::workspace::{Found, Workspace};

/// How much text one call gives.
const MAX_TEXT: usize = 32 * 1024;
/// The same for a program.
const MAX_COMPUTED: usize = 1 << 20;
/// How far into a file a line is looked for.
const MAX_SCAN: u64 = 1 << 30;
/// Up to here the lines of a file are counted to say how many there are.
const MAX_COUNTED: u64 = 16 << 20;
/// In longer files nothing is chosen to be shown.
const MAX_CHOSEN: u64 = 1 << 20;
/// UTF-16 is decoded as a whole.
const MAX_UTF16: u64 = 4 << 20;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// The file, relative to the workspace root.
    pub path: String,
    /// The first line to read, counted from 1. Left out: from the start.
    #[schemars(range(min = 1))]
    start_line: Option<u64>,
    /// The last line to read. Left out: to the end.
    #[schemars(range(min = 1))]
    end_line: Option<u64>,
}

pub(super) fn tool() -> FnTool {
    FnTool::blocking(
        "read_file",
        "Reads a text file of the workspace, whole or only some lines. Of a long file the beginning \
         is shown; read on with start_line.",
        EffectClass::Pure,
        read_file,
    )
}

fn read_file(cx: &ToolContext, args: Args) -> Result<ToolOutput, ToolError> {
    let path = &args.path;
    let workspace = Workspace::of(cx)?;
    match workspace.find(path)? {
        Found::File(file, len) => args.show(file, len, cx),
        Found::Folder(folder) => {
            let there = workspace.told_of(&folder, path)?;
            Err(conflict(format!("'{path}' is a folder; list_files shows what is in it: {there}")))
        }
    }
}

impl Args {
    /// The wanted lines of an open file of `len` bytes.
    pub fn show(&self, mut file: File, len: u64, cx: &ToolContext) -> Result<ToolOutput, ToolError> {
        let Args { path, start_line, end_line: last } = self;
        let (first, last) = (start_line.unwrap_or(1).max(1), *last);
        if last.is_some_and(|last| last < first) {
            return Err(invalid(format!("end_line comes before start_line {first}")));
        }
        let wrong = |error: std::io::Error| io(&error, "read", path);
        let mut head = Vec::with_capacity(HEAD);
        (&mut file).take(HEAD as u64).read_to_end(&mut head).map_err(wrong)?;
        if head.is_empty() && !cx.reader.computes {
            return Ok("(empty file)".to_owned().into());
        }
        file.rewind().map_err(wrong)?;
        let (whole, stop) = (start_line.is_none() && last.is_none(), &cx.stop);
        let most = if cx.reader.computes { MAX_COMPUTED } else { MAX_TEXT };
        let ask = Excerpt { path, len, first, last, whole, most, stop };
        let room = cx.reader.room.filter(|room| whole && *room < MAX_TEXT && len > *room as u64 && len <= MAX_CHOSEN);
        if let Some(room) = room
            && classify(&head) == Content::Text
        {
            let mut bytes = Vec::new();
            (&mut file).take(MAX_CHOSEN).read_to_end(&mut bytes).map_err(wrong)?;
            if let Some(text) = around::excerpt(path, &bytes, &cx.reader.task, room) {
                return Ok(text.into());
            }
            file.rewind().map_err(wrong)?;
        }
        match classify(&head) {
            Content::Text => ask.answer(BufReader::with_capacity(64 * 1024, file), ""),
            Content::Binary(guess) => Ok(ask.binary(guess).into()),
            Content::Utf16 { little } if len <= MAX_UTF16 => {
                let mut bytes = Vec::new();
                file.take(MAX_UTF16).read_to_end(&mut bytes).map_err(wrong)?;
                match decode_utf16(&bytes, little) {
                    Some(text) => ask.answer(Cursor::new(text), "UTF-16 text, shown as UTF-8; it cannot be edited"),
                    None => Ok(ask.binary("damaged UTF-16").into()),
                }
            }
            Content::Utf16 { .. } => Ok(ask.binary("UTF-16 text, too large to decode").into()),
        }
    }
}

struct Excerpt<'a> {
    path: &'a str,
    len: u64,
    first: u64,
    last: Option<u64>,
    whole: bool,
    /// Most bytes of text.
    most: usize,
    stop: &'a Stop,
}

#[derive(Default)]
struct Lines {
    bytes: Vec<u8>,
    /// The last line that `bytes` has something of; 0 where there is none.
    last: u64,
    /// How many lines were passed, the last one perhaps not to its end.
    seen: u64,
    ended: bool,
    /// The first line alone is longer than fits.
    cut_line: bool,
    binary: bool,
}

impl Excerpt<'_> {
    fn binary(&self, guess: &str) -> String {
        format!("'{}' is not a text file ({guess}, {}); its content is not shown", self.path, size(self.len))
    }

    fn answer(&self, mut reader: impl BufRead + Seek, mut note: &str) -> Result<ToolOutput, ToolError> {
        let lines = self.scan(&mut reader)?;
        if lines.binary {
            return Ok(self.binary("it begins as text, but has NUL bytes further on").into());
        }
        if lines.last == 0 {
            let has = format!("'{}' has only {}", self.path, plural(lines.seen, "line"));
            return Err(invalid(format!("{has}, so there is no line {}", self.first)));
        }
        let bytes = lines.bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&lines.bytes);
        let (text, latin) = decode(if lines.cut_line { whole_chars(bytes) } else { bytes });
        if latin {
            note = "not UTF-8; shown as Latin-1, so some letters may be wrong";
        }
        // The plain case is the plain text.
        if self.whole && lines.ended && note.is_empty() {
            return Ok(text.into());
        }
        let shown = match (self.first, lines.last) {
            (first, last) if first == last => format!("line {first}"),
            (first, last) => format!("lines {first} to {last}"),
        };
        let of = match self.total(&lines, &mut reader)? {
            Some(total) => total.to_string(),
            None => format!("a file of {}", size(self.len)),
        };
        let mut about = format!("{}, {shown} of {of}", self.path);
        if lines.cut_line {
            about += &format!("; line {} is longer than {} and was cut", lines.last, size(self.most as u64));
        }
        if !lines.ended && self.last.is_none_or(|last| lines.last < last) {
            about += &format!("; read on with start_line {}", lines.last + 1);
        }
        if !note.is_empty() {
            about += &format!("; {note}");
        }
        Ok(format!("[{about}]\n{text}").into())
    }

    /// Reads no more than a buffer at a time and keeps no more than is shown.
    fn scan(&self, reader: &mut impl BufRead) -> Result<Lines, ToolError> {
        let mut lines = Lines::default();
        let (mut line, mut passed, mut whole_lines) = (1, 0, 0);
        let mut open_line = false;
        loop {
            let block = reader.fill_buf().map_err(|error| io(&error, "read", self.path))?;
            if block.is_empty() {
                lines.ended = true;
                break;
            }
            let mut at = 0;
            while at < block.len() {
                if self.last.is_some_and(|last| line > last) {
                    lines.seen = line - 1;
                    return Ok(lines);
                }
                let newline = memchr::memchr(b'\n', &block[at..]);
                let end = newline.map_or(block.len(), |newline| at + newline + 1);
                if block[at..end].contains(&0) {
                    lines.binary = true;
                    return Ok(lines);
                }
                if line >= self.first {
                    let room = self.most - lines.bytes.len();
                    if end - at > room {
                        lines.cut_line = whole_lines == 0;
                        if lines.cut_line {
                            lines.bytes.extend_from_slice(&block[at..at + room]);
                            whole_lines = 1;
                        } else {
                            let kept = memchr::memrchr(b'\n', &lines.bytes).map_or(0, |newline| newline + 1);
                            lines.bytes.truncate(kept);
                        }
                        lines.last = self.first + whole_lines - 1;
                        lines.seen = line;
                        return Ok(lines);
                    }
                    lines.bytes.extend_from_slice(&block[at..end]);
                    lines.last = line;
                }
                open_line = newline.is_none();
                if !open_line {
                    whole_lines += u64::from(line >= self.first);
                    line += 1;
                }
                at = end;
            }
            let done = block.len();
            reader.consume(done);
            passed += done as u64;
            check(self.stop)?;
            if passed > MAX_SCAN {
                return Err(over_limit(format!(
                    "line {} of '{}' lies beyond the first {} of it; search_files or smaller files may help",
                    self.first,
                    self.path,
                    size(MAX_SCAN)
                )));
            }
        }
        lines.seen = if open_line { line } else { line - 1 };
        Ok(lines)
    }

    fn total(&self, lines: &Lines, reader: &mut (impl BufRead + Seek)) -> Result<Option<u64>, ToolError> {
        if lines.ended {
            return Ok(Some(lines.seen));
        }
        if self.len > MAX_COUNTED {
            return Ok(None);
        }
        let wrong = |error: std::io::Error| io(&error, "read", self.path);
        reader.rewind().map_err(wrong)?;
        let (mut total, mut last) = (0, b'\n');
        let mut rest = reader.take(MAX_COUNTED);
        loop {
            let block = rest.fill_buf().map_err(wrong)?;
            let Some(end) = block.last() else { break };
            last = *end;
            total += memchr::memchr_iter(b'\n', block).count() as u64;
            let done = block.len();
            rest.consume(done);
        }
        Ok(Some(total + u64::from(last != b'\n')))
    }
}
