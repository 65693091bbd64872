//! `edit_file`: replaces one piece of a file's text.

mod misfit;

use std::cell::Cell;
use std::ops::Range;

use memchr::memmem;
use posse_core::text::plural;
use posse_core::tool::{EffectClass, ToolContext, ToolError, ToolOutput, Writes};
use schemars::JsonSchema;
use serde::Deserialize;

use super::FnTool;
use super::failure::{conflict, invalid};
use super::text::{BOM, Content, Endings, HEAD, classify, json_fault, size};
use super::workspace::Workspace;

/// The largest file that is changed, and the largest that a change makes.
pub(super) const MAX_FILE: u64 = 16 << 20;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    /// The file, relative to the workspace root.
    path: String,
    /// The text to replace, exactly as it is in the file; line breaks are taken for those of the file. It must occur
    /// exactly once.
    #[schemars(length(min = 1))]
    old_text: String,
    /// What to put in its place; empty to delete it.
    new_text: String,
}

pub(super) fn tool() -> FnTool {
    FnTool::blocking(
        "edit_file",
        "Replaces one piece of text in a file of the workspace. old_text must occur exactly once; \
         everything else stays as it is.",
        EffectClass::Once,
        edit_file,
    )
    .writing(Writes::File)
}

fn edit_file(cx: &ToolContext, args: Args) -> Result<ToolOutput, ToolError> {
    let Args { path, old_text, new_text } = &args;
    let workspace = Workspace::of(cx)?;
    let (note, fault) = (Cell::new(""), Cell::new(None));
    workspace.update(path, &cx.stop, |existing| {
        let existing = existing.ok_or_else(|| workspace.no_such_file(path))?;
        let bytes = existing.read(MAX_FILE)?;
        note.set(Endings::of(&bytes).note(new_text));
        let changed = replace_once(path, &bytes, old_text, new_text)?;
        // One that was none before may be meant so: with remarks in it, or with gaps to fill.
        fault.set(json_fault(path, &changed).filter(|_| json_fault(path, &bytes).is_none()));
        Ok(changed)
    })?;
    let fault = fault.take().map(|fault| format!("; it is no longer valid JSON: {fault}"));
    Ok(format!("'{path}' was changed{}{}", note.get(), fault.unwrap_or_default()).into())
}

/// Refuses to add `text` to bytes of another encoding, which would leave a file of two.
pub(super) fn fits_encoding(path: &str, bytes: &[u8], text: &str) -> Result<(), ToolError> {
    match classify(&bytes[..bytes.len().min(HEAD)]) {
        Content::Binary(guess) => Err(conflict(format!("'{path}' is not a text file ({guess}); it was not changed"))),
        Content::Utf16 { .. } => Err(conflict(format!("'{path}' is UTF-16 text, which cannot be changed here"))),
        Content::Text if bytes.contains(&0) => {
            Err(conflict(format!("'{path}' is not a text file (it has NUL bytes); it was not changed")))
        }
        Content::Text if !text.is_ascii() && std::str::from_utf8(bytes).is_err() => {
            Err(conflict(format!("'{path}' is not UTF-8, so only plain ASCII text can be changed or added")))
        }
        Content::Text => Ok(()),
    }
}

fn replace_once(path: &str, bytes: &[u8], old: &str, new: &str) -> Result<Vec<u8>, ToolError> {
    if old.is_empty() {
        return Err(invalid("old_text is empty. Give the text to replace, or use append_file to add to the end"));
    }
    if old == new {
        return Err(invalid("old_text and new_text are the same, so there is nothing to change"));
    }
    fits_encoding(path, bytes, &format!("{old}{new}"))?;
    let place = place(path, bytes, old)?;
    // The lines that are replaced say how those of a file end that has both.
    let endings = match Endings::of(bytes) {
        Endings::Mixed if old.contains('\n') => Endings::of(&bytes[place.clone()]),
        endings => endings,
    };
    let new = endings.written(new);
    let new = match bytes[..place.start] == *BOM {
        true => new.as_bytes().strip_prefix(BOM).unwrap_or(new.as_bytes()),
        false => new.as_bytes(),
    };
    if bytes[place.clone()] == *new {
        return Err(invalid(
            "old_text and new_text are the same but for their line breaks, which stay those of the file",
        ));
    }
    let len = (bytes.len() - place.len() + new.len()) as u64;
    if len > MAX_FILE {
        return Err(invalid(format!("'{path}' would have {}; the limit is {}", size(len), size(MAX_FILE))));
    }
    Ok([&bytes[..place.start], new, &bytes[place.end..]].concat())
}

/// Where the text is, as it stands or with other line breaks.
fn place(path: &str, bytes: &[u8], old: &str) -> Result<Range<usize>, ToolError> {
    // Comparing a long one takes its time at each place.
    let most = if old.len() > 4096 { 2 } else { 1000 };
    let exact: Vec<usize> = occurrences(bytes, old.as_bytes()).take(most).collect();
    match exact[..] {
        // The CR before an LF goes with it.
        [at] if bytes[at] == b'\n' && bytes[..at].ends_with(b"\r") => return Ok(at - 1..at + old.len()),
        [at] => return Ok(at..at + old.len()),
        [] => {}
        _ => return Err(not_once(path, bytes, old, exact.len(), most)),
    }
    if !old.contains('\n') {
        return Err(not_once(path, bytes, old, 0, most));
    }
    let (folded, old_folded) = (folded(bytes), folded(old.as_bytes()));
    let places: Vec<usize> = occurrences(&folded, &old_folded).take(most).collect();
    match places[..] {
        [at] => Ok(unfolded(bytes, at)..unfolded(bytes, at + old_folded.len())),
        _ => Err(not_once(path, bytes, old, places.len(), most)),
    }
}

/// The bytes with every CR LF as LF.
fn folded(bytes: &[u8]) -> Vec<u8> {
    let stays = |(at, byte): &(usize, u8)| !(*byte == b'\r' && bytes.get(at + 1) == Some(&b'\n'));
    bytes.iter().copied().enumerate().filter(stays).map(|(_, byte)| byte).collect()
}

/// The place in the bytes that became this one when they were folded; a CR goes with the LF behind it.
fn unfolded(bytes: &[u8], place: usize) -> usize {
    let mut at = 0;
    for _ in 0..place {
        at += if bytes[at..].starts_with(b"\r\n") { 2 } else { 1 };
    }
    at
}

/// Overlapping ones too: of `aa` in `aaa` nobody knows which is meant.
fn occurrences<'a>(bytes: &'a [u8], text: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let finder = memmem::Finder::new(text).into_owned();
    let mut from = 0;
    std::iter::from_fn(move || {
        let at = from + finder.find(bytes.get(from..)?)?;
        from = at + 1;
        Some(at)
    })
}

fn not_once(path: &str, bytes: &[u8], old: &str, times: usize, most: usize) -> ToolError {
    if times > 0 {
        let least = if times == most { "at least " } else { "" };
        let times = plural(times as u64, "time");
        return conflict(format!(
            "old_text occurs {least}{times} in '{path}' and must occur once. Include more of the text around it"
        ));
    }
    let hint = misfit::hint(path, bytes, old);
    conflict(format!("old_text does not occur in '{path}'; it was not changed. {hint}"))
}
