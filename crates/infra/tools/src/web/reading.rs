//! What was answered, as text.

use posse_core::text::plural;
use reqwest::Url;

use super::{html, pdf};
use crate::text::{Content, HEAD, classify, decode, size};

/// An answer as an agent reads it.
pub(crate) struct Read {
    pub text: String,
    /// What was done to make it text, where it was none.
    pub note: Option<String>,
}

/// The text of an answer, or what it is instead.
pub(crate) fn read(content_type: &str, url: &Url, body: &[u8], is_cut: bool) -> Result<Read, String> {
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let plain = |text: String| Read { text, note: None };
    if kind == "application/pdf" || body.starts_with(b"%PDF-") {
        if is_cut {
            return Err(format!(
                "a PDF larger than {}, the limit ([web] max_kb in config/posse.toml)",
                size(body.len() as u64)
            ));
        }
        return pdf::text(body).map(|(text, pages)| {
            let note = format!("the text of a PDF of {}, without its layout", plural(pages as u64, "page"));
            Read { text, note: Some(note) }
        });
    }
    if let Content::Binary(what) = classify(&body[..body.len().min(HEAD)]) {
        return Err(format!("{} of binary data ({what}), which is no text", size(body.len() as u64)));
    }
    let (text, _) = decode(body);
    let text = text.replace('\0', "\u{fffd}");
    Ok(match kind.as_str() {
        "text/html" | "application/xhtml+xml" => plain(html::readable(&text, url)),
        "" if text.trim_start().get(..1) == Some("<") => plain(html::readable(&text, url)),
        kind if kind == "application/json" || kind.ends_with("+json") => plain(spread(&text)),
        _ => plain(text),
    })
}

/// JSON on lines of its own, each value as it was written: a number read and written again may be another one.
fn spread(json: &str) -> String {
    if json.trim().lines().count() > 1 || json.len() < 80 {
        return json.to_owned();
    }
    let (mut out, mut depth, mut is_string, mut is_escaped) = (String::new(), 0usize, false, false);
    let mut chars = json.trim().chars().peekable();
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        // Beyond this, depth is no help to a reader.
        out.extend(std::iter::repeat_n("  ", depth.min(20)));
    };
    while let Some(c) = chars.next() {
        if is_string {
            out.push(c);
            (is_string, is_escaped) = (c != '"' || is_escaped, c == '\\' && !is_escaped);
            continue;
        }
        match c {
            '"' => {
                is_string = true;
                out.push(c);
            }
            '{' | '[' => {
                out.push(c);
                depth += 1;
                if !matches!(chars.peek(), Some('}' | ']')) {
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                if !out.ends_with(['{', '[']) {
                    line(&mut out, depth);
                }
                out.push(c);
            }
            ',' => {
                out.push(c);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c if c.is_whitespace() => {}
            c => out.push(c),
        }
    }
    out
}
