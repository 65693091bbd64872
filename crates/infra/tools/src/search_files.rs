//! `search_files`: which lines of which files match.

use std::fmt::Write;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use posse_core::stop::Stop;
use posse_core::text::plural;
use posse_core::tool::{EffectClass, ToolContext, ToolError, ToolErrorCategory, ToolOutput};
use regex::bytes::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::Deserialize;

use super::FnTool;
use super::failure::{check, invalid, kernel};
use super::text::{Content, HEAD, classify, decode, size};
use super::workspace::{Dir, Found, Kind, Links, Workspace, shown_name};

const LIMIT: usize = 100;
const MAX_LIMIT: usize = 500;
const MAX_PATTERN: usize = 1000;
/// Larger files are passed over.
const MAX_FILE: u64 = 16 << 20;
/// A search ends after this much content or this many entries.
const MAX_SEARCHED: u64 = 256 << 20;
const MAX_VISITED: usize = 100_000;
/// How long a search may take. A regular expression can be so slow that the content alone does not bound it.
const MAX_TIME: Duration = Duration::from_secs(20);
/// How much of a line a regular expression is tried on, and how large it may become itself. Their product is what
/// cannot be interrupted.
const MAX_REGEX_LINE: usize = 16 * 1024;
const MAX_REGEX: usize = 256 * 1024;
/// How large a plain text may become in any case. Finding it takes no longer for that.
const MAX_PLAIN: usize = 4 << 20;
/// How much is searched before the search looks whether it should end.
const CHECK_EVERY: usize = 16 * 1024;
/// How much of a line is shown, and how much of that may stand before the match.
const MAX_LINE: usize = 300;
const BEFORE: usize = 100;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    /// What to look for: plain text, unless regex is true. In lower case it matches any case.
    #[schemars(length(min = 1))]
    pattern: String,
    /// The folder or file to search, relative to the workspace root. Left out: everything.
    path: Option<String>,
    /// Take the pattern as a regular expression; `(?i)` at its start ignores case.
    #[serde(default)]
    regex: bool,
    /// How many matching lines to show, 100 if left out.
    #[schemars(range(min = 1, max = 500))]
    limit: Option<usize>,
}

pub(super) fn tool() -> FnTool {
    FnTool::blocking(
        "search_files",
        "Finds lines in the text files of the workspace, shown as 'path:line: text'.",
        EffectClass::Pure,
        search_files,
    )
}

fn search_files(cx: &ToolContext, args: Args) -> Result<ToolOutput, ToolError> {
    let literal = !args.regex;
    // A pattern without capitals means any case, as people who search expect; with them it is exact.
    let exact = !literal || args.pattern.chars().any(char::is_uppercase);
    let workspace = Workspace::of(cx)?;
    let began = Instant::now();
    let search = |any_case: bool| {
        let regex = compile(&args.pattern, literal, any_case)?;
        let limit = args.limit.unwrap_or(LIMIT).clamp(1, MAX_LIMIT);
        let (workspace, stop, seen) = (&workspace, &cx.stop, Seen::default());
        let mut search = Search { regex, literal, limit, workspace, stop, began, seen };
        let raw = args.path.as_deref().unwrap_or(".");
        let ended = match workspace.find(raw)? {
            Found::File(file, len) => search.file(file, len, Path::new(raw))?,
            Found::Folder(folder) => search.folder(&folder, Path::new(if raw == "." { "" } else { raw }))?,
        };
        Ok((search, ended))
    };
    let (found, ended) = search(!exact)?;
    if literal && exact && found.seen.matches == 0 {
        // A model that writes NORWAY would take "no match" for the last word on Norway.
        let (other_case, ended) = search(true)?;
        if other_case.seen.matches > 0 {
            let text = other_case.report(ended);
            return Ok(format!("[no match with these capitals; in any case:]\n{text}").into());
        }
    }
    Ok(found.report(ended).into())
}

/// The matcher for one line. A regular expression here takes time linear in what it reads, so no
/// pattern can hang the search; only its compiled size needs a limit.
fn compile(pattern: &str, literal: bool, any_case: bool) -> Result<Regex, ToolError> {
    if pattern.is_empty() || pattern.len() > MAX_PATTERN {
        return Err(invalid(format!("the pattern needs 1 to {MAX_PATTERN} bytes, but has {}", pattern.len())));
    }
    if literal && pattern.contains('\n') {
        return Err(invalid(
            "the pattern has a line break, but each line is searched on its own. Look for one of the lines",
        ));
    }
    let source = if literal { regex::escape(pattern) } else { pattern.to_owned() };
    let most = if literal { MAX_PLAIN } else { MAX_REGEX };
    RegexBuilder::new(&source).case_insensitive(any_case).size_limit(most).build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => invalid(
            "the pattern is too large once its repetitions ({900}, \\w{50}) are written out. Repeat less, or look for a \
             part of it",
        ),
        error => invalid(format!(
            "the pattern is no regular expression: {error}. Without regex=true it is taken as plain text"
        )),
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Complete,
    Matches,
    Budget,
    Time,
}

struct Search<'a> {
    regex: Regex,
    literal: bool,
    limit: usize,
    workspace: &'a Workspace,
    stop: &'a Stop,
    began: Instant,
    seen: Seen,
}

#[derive(Default)]
struct Seen {
    /// How much was searched since it looked whether it should end.
    unchecked: usize,
    text: String,
    matches: usize,
    searched: u64,
    files: usize,
    /// Files and folders that were not searched.
    binary: usize,
    large: usize,
    special: usize,
    unreadable: usize,
    folders: Vec<PathBuf>,
    /// Lines of which only the beginning was.
    long_lines: usize,
}

impl Search<'_> {
    fn folder(&mut self, folder: &Dir, prefix: &Path) -> Result<Ended, ToolError> {
        let mut walk = self.workspace.walk(folder, true);
        let mut ended = Ended::Complete;
        for (visited, (path, kind)) in walk.by_ref().enumerate() {
            check(self.stop)?;
            if visited == MAX_VISITED || self.seen.searched > MAX_SEARCHED {
                ended = Ended::Budget;
                break;
            }
            match kind {
                Kind::File => {}
                Kind::Folder => continue,
                Kind::Symlink | Kind::Special(_) => {
                    self.seen.special += 1;
                    continue;
                }
            }
            let shown = prefix.join(&path);
            match self.workspace.file(folder, &path, Links::None, &shown.to_string_lossy()) {
                Ok((file, len)) => ended = self.file(file, len, &shown)?,
                Err(error) if error.category == ToolErrorCategory::WorkerUnfit => return Err(error),
                // Removed, or another thing by now, or not ours to read.
                Err(_) => self.seen.unreadable += 1,
            }
            if ended != Ended::Complete {
                break;
            }
        }
        if let Some(errno) = walk.lacked {
            return Err(kernel(errno, "search", &prefix.to_string_lossy()));
        }
        self.seen.unreadable += walk.unreadable;
        let not_all = walk.passed_over.iter().chain(&walk.cut);
        self.seen.folders = not_all.map(|path| prefix.join(path)).collect();
        Ok(ended)
    }

    fn file(&mut self, file: impl Read, len: u64, shown: &Path) -> Result<Ended, ToolError> {
        if len > MAX_FILE {
            self.seen.large += 1;
            return Ok(Ended::Complete);
        }
        let mut bytes = Vec::with_capacity(len as usize);
        if file.take(MAX_FILE).read_to_end(&mut bytes).is_err() {
            self.seen.unreadable += 1;
            return Ok(Ended::Complete);
        }
        self.seen.searched += bytes.len() as u64;
        if self.is_over(bytes.len())? {
            return Ok(Ended::Time);
        }
        let head = &bytes[..bytes.len().min(HEAD)];
        if classify(head) != Content::Text || memchr::memchr(0, &bytes).is_some() {
            self.seen.binary += 1;
            return Ok(Ended::Complete);
        }
        self.seen.files += 1;
        if bytes.is_empty() {
            return Ok(Ended::Complete);
        }
        // What is nowhere in the file is in none of its lines; a regular expression may be anchored.
        if self.literal && !self.regex.is_match(&bytes) {
            return Ok(Ended::Complete);
        }
        let name = shown_name(shown);
        // The last line break ends a line and starts none.
        let lines = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        for (index, line) in lines.split(|byte| *byte == b'\n').enumerate() {
            if self.is_over(line.len() + 64)? {
                return Ok(Ended::Time);
            }
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let Some(found) = self.find(line) else { continue };
            if self.seen.matches == self.limit {
                return Ok(Ended::Matches);
            }
            self.seen.matches += 1;
            writeln!(self.seen.text, "{name}:{}: {}", index + 1, excerpt(line, found)).ok();
        }
        Ok(Ended::Complete)
    }

    /// Whether the time is over, looked at now and then; an error where the call is to end.
    fn is_over(&mut self, more: usize) -> Result<bool, ToolError> {
        self.seen.unchecked += more;
        if self.seen.unchecked < CHECK_EVERY {
            return Ok(false);
        }
        self.seen.unchecked = 0;
        check(self.stop)?;
        Ok(self.began.elapsed() > MAX_TIME)
    }

    /// Where the pattern is in a line. A regular expression is tried on the beginning of a long one alone.
    fn find(&mut self, line: &[u8]) -> Option<usize> {
        if self.literal || line.len() <= MAX_REGEX_LINE {
            return Some(self.regex.find(line)?.start());
        }
        self.seen.long_lines += 1;
        self.seen.unchecked += CHECK_EVERY;
        let found = self.regex.find(&line[..MAX_REGEX_LINE])?;
        // What ends where the line was cut may have taken the cut for the end of the line.
        let is_sure = found.end() < MAX_REGEX_LINE
            || self.regex.find(&line[..MAX_REGEX_LINE + 1]).is_some_and(|again| again.start() == found.start());
        is_sure.then_some(found.start())
    }

    fn report(self, ended: Ended) -> String {
        let Seen {
            mut text, matches, searched, files, binary, large, special, unreadable, folders, long_lines, ..
        } = self.seen;
        let files = plural(files as u64, "file");
        if matches == 0 {
            text = format!("no match in {files}; search for fewer words, or read the files\n");
        }
        match ended {
            Ended::Complete => {}
            Ended::Matches => {
                let most = plural(self.limit as u64, "match");
                text += &format!("[more than {most}; narrow the pattern or the path]\n");
            }
            Ended::Time => {
                let seconds = MAX_TIME.as_secs();
                text += &format!(
                    "[ended early, after {seconds} s and {files}; search fewer files, for plain text or a simpler \
                     pattern]\n"
                );
            }
            Ended::Budget => {
                let done = size(searched);
                text += &format!("[ended early, after {files} and {done}; give a path to search the rest]\n");
            }
        }
        let larger = format!("larger than {}", size(MAX_FILE));
        let skipped = [
            (binary, "not text"),
            (large, &larger),
            (special, "symlinks or special files"),
            (unreadable, "not readable"),
        ];
        let mut skipped: Vec<_> = skipped.iter().filter(|(n, _)| *n > 0).map(|(n, why)| format!("{n} {why}")).collect();
        skipped.extend(folders.iter().take(10).map(|path| format!("{}/", shown_name(path))));
        if !skipped.is_empty() {
            text += &format!("[not searched: {}]\n", skipped.join(", "));
        }
        if long_lines > 0 {
            let (lines, most) = (plural(long_lines as u64, "long line"), size(MAX_REGEX_LINE as u64));
            text += &format!(
                "[of {lines} only the first {most} were searched, as this is a regular expression; plain text is \
                 looked for in all of a line]\n"
            );
        }
        text.pop();
        text
    }
}

/// The line, or of a long one what is around the match.
fn excerpt(line: &[u8], found: usize) -> String {
    if line.len() <= MAX_LINE {
        return decode(line).0;
    }
    let (text, latin) = decode(line);
    // The offset is one of bytes; in Latin-1 each became a character of its own.
    let found = if latin { text.char_indices().nth(found).map_or(0, |(at, _)| at) } else { found };
    let start = text.floor_char_boundary(found.saturating_sub(BEFORE));
    let end = text.floor_char_boundary(start + MAX_LINE);
    let (before, after) = (if start > 0 { "…" } else { "" }, if end < text.len() { "…" } else { "" });
    format!("{before}{}{after}", &text[start..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_whose_time_is_over_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(folder.path()).unwrap();
        let Some(long_ago) = Instant::now().checked_sub(MAX_TIME + Duration::from_secs(1)) else { return };
        let lines = "a line\n".repeat(10_000);
        let regex = compile("^no$", false, false).unwrap();
        let (workspace, stop, seen) = (&workspace, &Stop::never(), Seen::default());
        let mut late = Search { regex, literal: false, limit: 10, workspace, stop, began: long_ago, seen };
        assert!(late.file(lines.as_bytes(), lines.len() as u64, Path::new("f")).unwrap() == Ended::Time);
        assert!(late.report(Ended::Time).contains("[ended early, after 20 s and"));
    }
}
