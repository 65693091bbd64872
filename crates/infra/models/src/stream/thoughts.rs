//! Thoughts in a reply's text, where a server does not take them out of it.
//!
//! Each maker of models marks thoughts with tags of its own, and a server that does not know them passes everything
//! on as text. Thoughts taken for an answer would end a run; an answer that mentions such tags, taken for thoughts,
//! would be lost. So tags count where models put them: in front of everything else, or at the beginning of a line and
//! closed again; a closing tag alone counts where the template of the server has opened it. Tags in code or in
//! quotation marks do not count.

use posse_core::model::Delta;
use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag};
use std::ops::Range;

/// How thoughts begin and end, by maker; lower case. Those of XML's form may have attributes.
const PAIRS: &[(&str, &str)] = &[
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<thoughts>", "</thoughts>"),
    ("<reasoning>", "</reasoning>"),
    ("<reason>", "</reason>"),
    ("<antthinking>", "</antthinking>"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("◁think▷", "◁/think▷"),
    ("[think]", "[/think]"),
    ("<|think|>", "<|/think|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|start_thinking|>", "<|end_thinking|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<unused94>", "<unused95>"),
    ("<|channel|>analysis<|message|>", "<|end|>"),
    ("<|channel>thought", "<channel|>"),
];

/// What some makers put around the answer that follows.
const WRAPPERS: &[(&str, &str)] = &[
    ("<answer>", "</answer>"),
    ("<response>", "</response>"),
    ("<output>", "</output>"),
    ("<|begin_of_solution|>", "<|end_of_solution|>"),
    ("<|start_response|>", "<|end_response|>"),
];

const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";
const FINAL: &str = "<|channel|>final<|message|>";

/// What ends a message of a channel.
const MESSAGE_ENDS: &[&str] = &["<|end|>", "<|return|>", "<|call|>", "<|start|>", CHANNEL];

/// Longest opening tag with attributes.
const MAX_TAG: usize = 200;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    pub thoughts: String,
    pub text: String,
}

/// Takes a reply's whole text apart. With `is_cut`, it was cut off at a limit.
pub(super) fn split(raw: &str, is_cut: bool) -> Parts {
    let whole = || Parts { thoughts: String::new(), text: raw.to_owned() };
    let indent = raw.trim_start_matches(['\n', '\r']);
    if is_json(raw) || indent.starts_with("    ") || indent.starts_with('\t') {
        return whole();
    }
    if let Some(parts) = channels(raw).or_else(|| announced(raw)) {
        return parts;
    }
    let mut thoughts = Vec::new();
    let mut rest = raw;
    // In front.
    while let Some((pair, begin)) = opening(rest.trim_start()) {
        let inside = &rest.trim_start()[begin..];
        let (thought, after) = match closing(inside, pair.1) {
            Some(close) => (&inside[..close.start], &inside[close.end..]),
            None => (inside, ""),
        };
        thoughts.push(thought);
        rest = after;
    }
    if thoughts.is_empty()
        && let Some(close) = closed_only(rest)
    {
        thoughts.push(&rest[..close.start]);
        rest = &rest[close.end..];
    }
    let had_some = !thoughts.is_empty();
    let mut text = String::new();
    // In between.
    while let Some((tag, inside, close)) = between(rest, is_cut) {
        text.push_str(&rest[..tag]);
        thoughts.push(&rest[inside..close.start]);
        rest = rest[close.end..].trim_start();
    }
    if thoughts.is_empty() {
        return whole();
    }
    text.push_str(rest);
    let text = if had_some { unwrapped(text.trim()) } else { text.trim() };
    let thoughts = thoughts.into_iter().map(str::trim).filter(|thought| !thought.is_empty());
    Parts { thoughts: thoughts.collect::<Vec<_>>().join("\n\n"), text: text.to_owned() }
}

/// A value of JSON quotes whatever is in it.
fn is_json(raw: &str) -> bool {
    let text = raw.trim();
    (text.starts_with(['{', '[', '"'])) && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// The pair whose opening tag `text` begins with, and where the thought begins behind it.
fn opening(text: &str) -> Option<(&'static (&'static str, &'static str), usize)> {
    PAIRS.iter().find_map(|pair| Some((pair, opening_of(text, pair.0)?)))
}

/// Where a thought begins behind the opening tag `open`, if `text` begins with it.
fn opening_of(text: &str, open: &str) -> Option<usize> {
    if starts_with(text, open) {
        return Some(open.len());
    }
    let name = open.strip_suffix('>').filter(|name| name.starts_with('<') && !name.contains('|'))?;
    if !starts_with(text, name) || !text[name.len()..].starts_with([' ', '\t']) {
        return None;
    }
    let line = text.lines().next().unwrap_or_default();
    line.find('>').map(|end| end + 1).filter(|end| *end <= MAX_TAG)
}

/// Where a thought is closed: outside of code if it is anywhere, for thoughts quote the tag too.
fn closing(inside: &str, close: &str) -> Option<Range<usize>> {
    let found = all(inside, close);
    let code = code(inside);
    let outside = found.iter().find(|at| !is_quoted(inside, &code, at));
    outside.or(found.last()).cloned()
}

/// The closing tag of thoughts that the server's template had opened. Where an opening tag stands
/// before it, the text speaks about tags.
fn closed_only(text: &str) -> Option<Range<usize>> {
    let code = code(text);
    let of_pair = |(open, close): &(&str, &str)| {
        // Too general a word to mean anything by itself.
        if *close == "<|end|>" {
            return None;
        }
        let found = all(text, close);
        let first = found.first()?;
        let is_opened = !all(&text[..first.start], open.trim_end_matches('>')).is_empty();
        let last = found.iter().rev().find(|at| !is_quoted(text, &code, at))?;
        (!is_opened).then(|| last.clone())
    };
    PAIRS.iter().filter_map(of_pair).max_by_key(|at| at.end)
}

/// The next thought within what was said: where its tag is, where it begins, and its closing tag.
fn between(text: &str, is_cut: bool) -> Option<(usize, usize, Range<usize>)> {
    let code = code(text);
    let mut line = 0;
    for with_end in text.split_inclusive('\n') {
        let indent = with_end.len() - with_end.trim_start_matches(' ').len();
        let tag = line + indent;
        line += with_end.len();
        if indent > 3 || code.iter().any(|range| range.contains(&tag)) {
            continue;
        }
        let Some((pair, begin)) = opening(&text[tag..]) else { continue };
        let inside = tag + begin;
        match closing(&text[inside..], pair.1) {
            Some(close) => return Some((tag, inside, inside + close.start..inside + close.end)),
            None if is_cut => return Some((tag, inside, text.len()..text.len())),
            None => {}
        }
    }
    None
}

/// The answer without what its maker puts around it.
fn unwrapped(text: &str) -> &str {
    let inside = |(open, close): &(&str, &str)| {
        let inside = starts_with(text, open).then(|| &text[open.len()..])?;
        match all(inside, close).last() {
            Some(close) if close.end == inside.len() => Some(inside[..close.start].trim()),
            Some(_) => None,
            None => Some(inside.trim()),
        }
    };
    WRAPPERS.iter().find_map(inside).unwrap_or(text)
}

/// A text in channels (harmony): analysis is thought, what is final is said. A call in one stays as
/// it is, to be known for what it is.
fn channels(raw: &str) -> Option<Parts> {
    let text = raw.trim_start();
    let begins = [CHANNEL, "<|start|>assistant<|channel|>"].iter().any(|mark| starts_with(text, mark));
    let code = code(text);
    let is_final = |at: &Range<usize>| !is_quoted(text, &code, at);
    let first = if begins { all(text, CHANNEL) } else { all(text, FINAL) }.into_iter().find(is_final)?;
    let (mut thoughts, mut said, mut aside) = (vec![], String::new(), String::new());
    if !begins {
        // Its template had opened the analysis.
        thoughts.push(until_end(&text[..first.start]).0.trim());
    }
    let mut rest = &text[first.start..];
    while let Some(at) = all(rest, CHANNEL).into_iter().next() {
        let segment = &rest[at.end..];
        let (head, body) = match all(segment, MESSAGE).first() {
            Some(message) => (segment[..message.start].trim(), &segment[message.end..]),
            None => (segment, ""),
        };
        let (body, after) = until_end(body);
        match head.split_whitespace().next().unwrap_or_default() {
            "final" => said.push_str(body),
            _ if head.contains("to=") => aside.push_str(&format!("{CHANNEL}{head}{MESSAGE}{body}")),
            "commentary" => aside.push_str(body),
            _ => thoughts.push(body.trim()),
        }
        rest = after;
    }
    if said.is_empty() {
        said = aside;
    } else {
        thoughts.push(&aside);
    }
    thoughts.retain(|thought| !thought.is_empty());
    Some(Parts { thoughts: thoughts.join("\n\n"), text: said.trim().to_owned() })
}

/// A message up to what ends it, and what follows.
fn until_end(body: &str) -> (&str, &str) {
    let end = MESSAGE_ENDS.iter().filter_map(|mark| all(body, mark).into_iter().next()).min_by_key(|at| at.start);
    end.map_or((body, ""), |at| (&body[..at.start], &body[at.start..]))
}

/// Thoughts and answer behind fixed words: the names of channels whose marks a server has dropped as special tokens, so
/// that they run into the text, and headings (Granite).
fn announced(raw: &str) -> Option<Parts> {
    let raw = raw.trim_start();
    let between = |open: &str, middle: &str| {
        let (thought, said) = raw.strip_prefix(open)?.split_once(middle)?;
        Some(Parts { thoughts: thought.trim().to_owned(), text: said.trim().to_owned() })
    };
    let channels = between("analysis", "assistantfinal").filter(|_| !raw["analysis".len()..].starts_with([' ', '\n']));
    channels.or_else(|| between("Here is my thought process:", "Here is my response:"))
}

fn starts_with(text: &str, mark: &str) -> bool {
    text.get(..mark.len()).is_some_and(|head| head.eq_ignore_ascii_case(mark))
}

fn all(text: &str, mark: &str) -> Vec<Range<usize>> {
    // The same length, byte for byte.
    let lower = text.to_ascii_lowercase();
    lower.match_indices(&mark.to_ascii_lowercase()).map(|(at, found)| at..at + found.len()).collect()
}

/// Whether what stands there is in code, or in quotation marks.
fn is_quoted(text: &str, code: &[Range<usize>], at: &Range<usize>) -> bool {
    let marks = ['"', '\''];
    let mut behind = text[at.end..].chars();
    let is_closed =
        behind.next().is_some_and(|c| marks.contains(&c)) && !behind.next().is_some_and(char::is_alphanumeric);
    is_closed || code.iter().any(|range| range.contains(&at.start))
}

/// The parts of Markdown that are code: fenced, or between backticks.
fn code(text: &str) -> Vec<Range<usize>> {
    let is_code =
        |event: &Event<'_>| matches!(event, Event::Code(_) | Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(_))));
    Parser::new(text).into_offset_iter().filter(|(event, _)| is_code(event)).map(|(_, range)| range).collect()
}

/// Thoughts in front of a reply that streams in, told apart as they come. What this cannot know yet,
/// [`split`] knows in the end.
#[derive(Debug, Default)]
pub(super) struct Leading {
    held: String,
    place: Position,
}

#[derive(Debug, Default)]
enum Position {
    #[default]
    Front,
    /// In a thought that ends like this.
    Thought(&'static str),
    Said,
}

impl Leading {
    /// Takes a piece of the text and gives what it shows.
    pub fn push(&mut self, piece: &str) -> Vec<Delta> {
        let mut deltas = Vec::new();
        if matches!(self.place, Position::Said) {
            deltas.push(Delta::Text(piece.to_owned()));
            return deltas;
        }
        self.held.push_str(piece);
        while self.take(&mut deltas) {}
        deltas
    }

    /// Takes as much as is clear; whether there may be more.
    fn take(&mut self, deltas: &mut Vec<Delta>) -> bool {
        match self.place {
            Position::Front => {
                let text = self.held.trim_start();
                if text.is_empty() {
                    return false;
                }
                if let Some((pair, begin)) = opening(text) {
                    self.held = text[begin..].to_owned();
                    self.place = Position::Thought(pair.1);
                    return true;
                }
                if let Some(mark) = ["<|start|>assistant", FINAL].iter().find(|mark| starts_with(text, mark)) {
                    self.held = text[mark.len()..].to_owned();
                    return true;
                }
                let may_be = |mark: &str| starts_with(mark, text);
                let open = PAIRS.iter().map(|pair| pair.0).chain(["<|start|>assistant", FINAL]);
                if open.into_iter().any(may_be) {
                    return false;
                }
                deltas.push(Delta::Text(std::mem::take(&mut self.held)));
                self.place = Position::Said;
            }
            Position::Thought(close) => {
                if let Some(at) = all(&self.held, close).first() {
                    think(&self.held[..at.start], deltas);
                    self.held = self.held[at.end..].to_owned();
                    self.place = Position::Front;
                    return true;
                }
                let keep = self.held.floor_char_boundary(self.held.len().saturating_sub(close.len()));
                let rest = self.held.split_off(keep);
                think(&std::mem::replace(&mut self.held, rest), deltas);
            }
            Position::Said => {}
        }
        false
    }
}

fn think(text: &str, deltas: &mut Vec<Delta>) {
    if !text.is_empty() {
        deltas.push(Delta::Reasoning(text.to_owned()));
    }
}
