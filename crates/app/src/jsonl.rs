//! A line of a file of jobs, and what is wrong with one that is none: files that people take for JSON Lines are told
//! by their name, with the way to make them that.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeOwned, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The line without what means nothing: a byte order mark, as editors and joined files have it.
pub fn without_mark(line: &[u8]) -> &[u8] {
    line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line)
}

/// What a line says, or what is wrong with it.
pub fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    // Before the line is read as JSON: of most of these its reader would say something that helps nobody.
    if let Some(what) = encoding(line) {
        return Err(what);
    }
    let text = std::str::from_utf8(line)
        .map_err(|error| format!("is not UTF-8 at byte {}; convert the file to UTF-8 first", error.valid_up_to()))?
        .trim();
    if let Some(at) = text.find('\0') {
        return Err(format!("contains a NUL character at byte {at}; remove it"));
    }
    if text.starts_with('[') {
        return Err("begins a JSON array; each one is an object in a line of its own: jq -c '.[]' FILE".into());
    }
    let one_per_line = "each one stands in one line: jq -c . FILE";
    serde_json::from_str::<NoRepeats>(text).map_err(|error| {
        let rest = rest_of(text);
        match rest.map(str::trim_start) {
            Some(",") => "ends with a comma; the lines of such a file are joined by nothing, remove it".to_owned(),
            Some(rest) if rest.starts_with('{') || rest.starts_with(",{") || rest.starts_with(", {") => {
                format!("has more than one object; {one_per_line}")
            }
            _ if error.is_eof() && text.starts_with('{') => {
                format!("has an object that does not end in it ({error}); {one_per_line}")
            }
            _ if text.starts_with(['}', ']', '"']) && error.is_syntax() => {
                format!("is a part of an object that stands in several lines; {one_per_line}")
            }
            _ if !text.starts_with('{') => {
                format!("is no JSON object; a line looks like {{\"role\": \"...\", \"goal\": \"...\"}} ({error})")
            }
            _ => error.to_string(),
        }
    })?;
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// What bytes are that are no text in UTF-8.
fn encoding(line: &[u8]) -> Option<String> {
    let is_wide = line.starts_with(&[0xff, 0xfe])
        || line.starts_with(&[0xfe, 0xff])
        || (line.len() > 3
            && (line[0] == 0 || line[1] == 0)
            && line.iter().filter(|byte| **byte == 0).count() > line.len() / 3);
    if is_wide {
        return Some("is UTF-16 or UTF-32; convert the file first: iconv -f UTF-16 -t UTF-8 FILE".into());
    }
    let packed =
        [(&[0x1f, 0x8b][..], "gzip"), (&[0x28, 0xb5, 0x2f, 0xfd], "zstd"), (b"PK\x03\x04", "zip"), (b"BZh", "bzip2")];
    let found = packed.into_iter().find(|(begin, _)| line.starts_with(begin));
    found.map(|(_, kind)| format!("is {kind}, and no text; unpack the file first"))
}

/// What stands behind the first JSON value of a text, if there is one.
fn rest_of(text: &str) -> Option<&str> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<serde::de::IgnoredAny>();
    values.next()?.ok()?;
    Some(&text[values.byte_offset()..])
}

/// Any JSON in which no object has a key twice: of two values nobody can tell which was meant.
struct NoRepeats;

impl<'de> Deserialize<'de> for NoRepeats {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Look)
    }
}

struct Look;

impl<'de> Visitor<'de> for Look {
    type Value = NoRepeats;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<NoRepeats, E> {
        Ok(NoRepeats)
    }

    fn visit_i64<E>(self, _: i64) -> Result<NoRepeats, E> {
        Ok(NoRepeats)
    }

    fn visit_u64<E>(self, _: u64) -> Result<NoRepeats, E> {
        Ok(NoRepeats)
    }

    fn visit_f64<E>(self, _: f64) -> Result<NoRepeats, E> {
        Ok(NoRepeats)
    }

    fn visit_str<E>(self, _: &str) -> Result<NoRepeats, E> {
        Ok(NoRepeats)
    }

    fn visit_unit<E>(self) -> Result<NoRepeats, E> {
        Ok(NoRepeats)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<NoRepeats, A::Error> {
        while items.next_element::<NoRepeats>()?.is_some() {}
        Ok(NoRepeats)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<NoRepeats, A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(key) = fields.next_key::<String>()? {
            if seen.contains(&key) {
                return Err(serde::de::Error::custom(format!(
                    "the key \"{}\" is there twice; keep one",
                    key.escape_debug()
                )));
            }
            seen.insert(key);
            fields.next_value::<NoRepeats>()?;
        }
        Ok(NoRepeats)
    }
}
