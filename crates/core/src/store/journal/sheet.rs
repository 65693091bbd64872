//! Entries written out, and read again.
//!
//! A row keeps an entry's kind and the rest of its JSON. What is large and often the same is kept as a blob instead: the
//! opening of a run always, since all runs of a persona share it, and what a tool said from
//! [`LONG_TEXT`] bytes on. A reader sees no difference.

use std::borrow::Cow;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::annotation::NewAnnotation;
use crate::run::journal::{CallState, Entry, LedgerChange, ledger_changes};
use crate::store::Outcome;
use crate::store::fault::unusable;

/// Texts of tools longer than this many bytes are kept as blobs.
const LONG_TEXT: usize = 2048;

/// Content that is stored once, and its SHA-256, under which it is.
#[derive(Debug)]
pub(super) struct Blob {
    pub hash: Vec<u8>,
    pub bytes: Vec<u8>,
}

impl Blob {
    fn new(bytes: Vec<u8>) -> Blob {
        Blob { hash: Sha256::digest(&bytes).to_vec(), bytes }
    }
}

/// An entry written out, with what it changes elsewhere. Made outside of the transaction.
#[derive(Debug)]
pub struct Sheet {
    pub(super) kind: &'static str,
    pub(super) data: String,
    pub(super) blob: Option<Blob>,
    pub(super) ledger: Vec<LedgerChange>,
    pub(super) annotations: Vec<NewAnnotation>,
    /// The questions it asks, and for how many milliseconds they are open.
    pub(super) asked: Option<(Vec<String>, Option<u64>)>,
}

impl Sheet {
    /// Writes an entry out.
    pub fn new(entry: &Entry) -> Result<Sheet, serde_json::Error> {
        let (data, blob) = split(entry)?;
        let annotations = match entry {
            Entry::CallEnded { annotations, .. } => annotations.clone(),
            _ => Vec::new(),
        };
        let asked = match entry {
            Entry::Asked { questions, open_ms, .. } => Some((questions.clone(), *open_ms)),
            _ => None,
        };
        Ok(Sheet { kind: entry.kind(), data, blob, ledger: ledger_changes(entry), annotations, asked })
    }

    /// Writes entries out.
    pub fn all(entries: &[Entry]) -> Result<Vec<Sheet>, serde_json::Error> {
        entries.iter().map(Sheet::new).collect()
    }

    /// Whether it is the start of a call.
    pub fn starts_call(&self) -> bool {
        self.ledger.iter().any(|change| matches!(change, LedgerChange::Move { to: CallState::Started, .. }))
    }

    /// Roughly what it will take.
    pub fn bytes(&self) -> usize {
        self.data.len() + self.blob.as_ref().map_or(0, |blob| blob.bytes.len()) + 100
    }
}

/// The field of an entry of this kind that may be in a blob.
fn field_in_blob(kind: &str) -> Option<&'static str> {
    match kind {
        "began" => Some("opening"),
        "call_ended" => Some("text"),
        _ => None,
    }
}

/// An entry's JSON without its kind, which has a column of its own.
fn without_kind(json: String, kind: &str) -> String {
    match json.strip_prefix(&tag(kind)) {
        Some(rest) => format!("{{{}", rest.strip_prefix(',').unwrap_or(rest)),
        None => json,
    }
}

/// The same with its kind, which rows of earlier versions have kept.
fn with_kind<'a>(data: &'a str, kind: &str) -> Cow<'a, str> {
    let tag = tag(kind);
    match data.strip_prefix('{') {
        Some(_) if data.starts_with(&tag) => data.into(),
        Some("}") => format!("{tag}}}").into(),
        Some(rest) => format!("{tag},{rest}").into(),
        None => data.into(),
    }
}

/// What the JSON of an entry begins with.
fn tag(kind: &str) -> String {
    format!("{{\"kind\":\"{kind}\"")
}

fn split(entry: &Entry) -> Result<(String, Option<Blob>), serde_json::Error> {
    let bytes = match entry {
        Entry::Began { opening, .. } => serde_json::to_vec(opening)?,
        Entry::CallEnded { text, .. } if text.len() > LONG_TEXT => text.clone().into_bytes(),
        _ => return Ok((without_kind(serde_json::to_string(entry)?, entry.kind()), None)),
    };
    let mut value = serde_json::to_value(entry)?;
    if let (Some(fields), Some(field)) = (value.as_object_mut(), field_in_blob(entry.kind())) {
        fields.shift_remove(field);
    }
    Ok((without_kind(value.to_string(), entry.kind()), Some(Blob::new(bytes))))
}

/// The entry of a row.
pub(super) fn join(kind: &str, data: &str, blob: Option<Vec<u8>>) -> Outcome<Entry> {
    let data = with_kind(data, kind);
    let (Some(bytes), Some(field)) = (blob, field_in_blob(kind)) else {
        return Ok(serde_json::from_str(&data)?);
    };
    let content = match field {
        "text" => Value::String(String::from_utf8(bytes).map_err(|_| unusable("a stored text is not UTF-8"))?),
        _ => serde_json::from_slice(&bytes)?,
    };
    let mut value: Value = serde_json::from_str(&data)?;
    value[field] = content;
    Ok(serde_json::from_value(value)?)
}
