//! A skill's text as plain Markdown: what a browser would take for HTML is removed, everything else
//! stays byte for byte.
//!
//! What is HTML is the word of a CommonMark parser, so `<` in code, in a formula or in an autolink
//! is left alone. Taking tags out can make new ones of what stood around them; so the result is
//! parsed again until nothing is found.

use std::ops::Range;

use pulldown_cmark::{Event, Parser, Tag};

/// Rounds until nothing is HTML: honest text needs one, or two where Markdown comes to light.
const MAX_ROUNDS: usize = 8;

/// Elements whose content nobody reads: it goes with them.
const UNREAD: [&str; 6] = ["script", "style", "template", "noscript", "iframe", "object"];

/// Why a skill's text cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SanitiseError {
    /// Nothing is left.
    #[error("the text is empty once HTML is removed; write the instructions as Markdown below the second ---")]
    Empty,
    /// Made to survive this.
    #[error("the text has HTML inside HTML more than {MAX_ROUNDS} layers deep; write it as plain Markdown")]
    Tangled,
}

/// The text without tags, and without comments, scripts, styles and the like with all that is in them.
pub fn sanitise(text: &str) -> Result<String, SanitiseError> {
    let mut text = text.to_owned();
    for _ in 0..=MAX_ROUNDS {
        let cuts = html_in(&text);
        if cuts.is_empty() {
            let text = without_blank_ends(&text);
            return if text.is_empty() { Err(SanitiseError::Empty) } else { Ok(text.to_owned()) };
        }
        text = without(&text, &cuts);
    }
    Err(SanitiseError::Tangled)
}

/// Without the blank lines it begins with (the indentation of the first other line has a meaning),
/// and without the blanks it ends with.
fn without_blank_ends(text: &str) -> &str {
    let text = text.trim_end();
    let first = text.len() - text.trim_start().len();
    let line = text[..first].rfind('\n').map_or(0, |at| at + 1);
    &text[line..]
}

fn without(text: &str, cuts: &[Range<usize>]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for cut in cuts {
        out.push_str(&text[from..cut.start]);
        from = cut.end;
    }
    out.push_str(&text[from..]);
    out
}

/// A piece of HTML: a tag, a comment, a declaration.
struct Piece {
    at: Range<usize>,
    kind: Kind,
    /// The end of the block it stands in.
    block_end: usize,
}

#[derive(PartialEq)]
enum Kind {
    Opens(String),
    Closes(String),
    Other,
}

/// What has to be cut out, in order and without overlap.
fn html_in(text: &str) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    let mut block_end = 0;
    for (event, at) in Parser::new(text).into_offset_iter() {
        match event {
            Event::Start(Tag::HtmlBlock) => scan(text, at.clone(), at.end, &mut pieces),
            Event::Start(Tag::Paragraph | Tag::Heading { .. } | Tag::Item) => block_end = at.end,
            Event::InlineHtml(_) => scan(text, at.clone(), block_end.max(at.end), &mut pieces),
            _ => {}
        }
    }
    let mut cuts: Vec<Range<usize>> = Vec::new();
    let mut next = 0;
    while let Some(piece) = pieces.get(next) {
        next += 1;
        let mut end = piece.at.end;
        if let Kind::Opens(name) = &piece.kind
            && UNREAD.contains(&name.as_str())
        {
            // Up to its end; one that has none takes the rest of its block, but not the line's end.
            let block_end = text[..piece.block_end].trim_end_matches('\n').len().max(end);
            let closing = pieces[next..].iter().position(|p| matches!(&p.kind, Kind::Closes(n) if n == name));
            end = closing.map_or(block_end, |n| pieces[next + n].at.end);
            next += pieces[next..].iter().take_while(|p| p.at.start < end).count();
        }
        cuts.push(piece.at.start..end);
    }
    cuts
}

/// Finds the pieces in a stretch of raw HTML. What looks like a tag and is not one stays.
fn scan(text: &str, stretch: Range<usize>, block_end: usize, pieces: &mut Vec<Piece>) {
    let html = &text[..stretch.end];
    let mut at = stretch.start;
    while let Some(found) = html[at..].find(['<', '`', '~']) {
        let start = at + found;
        if !html[start..].starts_with('<') {
            // Code in a fence, inside a block of HTML, is meant as code.
            at = fence_end(html, start).unwrap_or(start + 1);
            continue;
        }
        let Some((end, kind)) = piece(html, start) else {
            at = start + 1;
            continue;
        };
        at = end;
        if let Kind::Opens(name) = &kind
            && UNREAD.contains(&name.as_str())
        {
            // Inside, `<` means nothing until the closing tag.
            at = closing_tag(html, end, name).unwrap_or(html.len());
        }
        pieces.push(Piece { at: start..end, kind, block_end });
    }
}

/// The end and the kind of the piece that begins at `start`, if one does.
fn piece(html: &str, start: usize) -> Option<(usize, Kind)> {
    let rest = &html[start..];
    for (opening, closing) in [("<!--", "-->"), ("<![CDATA[", "]]>"), ("<!", ">"), ("<?", "?>")] {
        if let Some(inside) = rest.strip_prefix(opening) {
            let end = inside.find(closing).map_or(rest.len(), |n| opening.len() + n + closing.len());
            return Some((start + end, Kind::Other));
        }
    }
    let closes = rest.starts_with("</");
    let from = if closes { 2 } else { 1 };
    let name_length =
        rest[from..].find(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).unwrap_or(rest.len() - from);
    let name = &rest[from..from + name_length];
    let behind = &rest[from + name_length..];
    // `<https://…>` and `<me@example.org>` are links.
    let ends_name = behind.chars().next().is_none_or(|c| c.is_whitespace() || c == '/' || c == '>');
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || !ends_name {
        return None;
    }
    let end = tag_end(behind).map_or_else(|| behind.find('\n').unwrap_or(behind.len()), |n| n + 1);
    let name = name.to_ascii_lowercase();
    let kind = if closes { Kind::Closes(name) } else { Kind::Opens(name) };
    Some((start + from + name_length + end, kind))
}

/// Where the `>` of a tag is; one in quotes does not count, unless the quotes do not end.
fn tag_end(attributes: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        let found = at + attributes[at..].find(['>', '"', '\''])?;
        let quote = attributes[found..].chars().next()?;
        at = found + 1;
        if quote == '>' {
            return Some(found);
        }
        if let Some(length) = attributes[at..].find(quote) {
            at += length + 1;
        }
    }
}

fn closing_tag(html: &str, from: usize, name: &str) -> Option<usize> {
    let is_it = |at: &usize| {
        html.as_bytes()[at + 2..].get(..name.len()).is_some_and(|n| n.eq_ignore_ascii_case(name.as_bytes()))
    };
    html[from..].match_indices("</").map(|(n, _)| from + n).find(is_it)
}

/// Where a fence that opens at `start` has its end, if it opens there.
fn fence_end(html: &str, start: usize) -> Option<usize> {
    let fence = ["```", "~~~"].into_iter().find(|fence| html[start..].starts_with(fence))?;
    let line = html[..start].rfind('\n').map_or(0, |at| at + 1);
    if !html[line..start].trim().is_empty() {
        return None;
    }
    let mut at = start + html[start..].find('\n')? + 1;
    for line in html[at..].split_inclusive('\n') {
        at += line.len();
        if line.trim_start().starts_with(fence) {
            return Some(at);
        }
    }
    None
}
