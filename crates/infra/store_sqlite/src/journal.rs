//! The journal: entries as rows, and back.
//!
//! A row keeps an entry's kind and the rest of its JSON. What is large and often the same is kept in `blobs` instead: the
//! opening of a run always, since all runs of a persona share it, and what a tool said from
//! [`LONG_TEXT`] bytes on. A reader sees no difference.

use std::borrow::Cow;

use diesel::prelude::*;
use posse_core::annotation::NewAnnotation;
use posse_core::clock::Millis;
use posse_core::job::JobId;
use posse_core::run::journal::{CallState, Entry, LedgerChange, Recorded, ledger_changes};
use posse_core::store::annotations;
use serde_json::Value;

use super::blobs::{self, Blob};
use super::fault::{Outcome, misused, unusable};
use super::schema::steps;
use super::sealed_text::Text;
use super::writer::Transaction;
use super::{ledger, questions};
use posse_core::store::seal::{Keys, Place, Sealed};

/// Texts of tools longer than this many bytes are kept as blobs.
const LONG_TEXT: usize = 2048;

/// An entry written out, with what it changes elsewhere. Made outside of the transaction.
#[derive(Debug)]
pub(super) struct Sheet {
    kind: &'static str,
    data: String,
    blob: Option<Blob>,
    ledger: Vec<LedgerChange>,
    annotations: Vec<NewAnnotation>,
    asked: Option<(Vec<String>, Option<u64>)>,
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

fn join(kind: &str, data: &str, blob: Option<Vec<u8>>) -> Outcome<Entry> {
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

/// The place of a job's last entry.
fn last_seq(connection: &mut SqliteConnection, job: JobId) -> QueryResult<Option<i64>> {
    steps::table
        .filter(steps::job_id.eq(job.0))
        .order(steps::seq.desc())
        .select(steps::seq)
        .first(connection)
        .optional()
}

/// Appends entries from place `seq` on, which must be the next one, with what they change in the
/// ledger and the annotations they bring, written by `author`.
pub(super) fn append(
    tx: &mut Transaction<'_>,
    job: JobId,
    author: &str,
    seq: u64,
    sheets: &[Sheet],
    now: Millis,
) -> Outcome<()> {
    let next = last_seq(&mut tx.db.0, job)?.map_or(0, |last| last + 1);
    if i64::try_from(seq) != Ok(next) {
        return Err(misused(format!(
            "the journal of job {job} goes on at place {next}, and an entry for place {seq} was offered; nothing was \
             saved"
        )));
    }
    for (seq, sheet) in (next..).zip(sheets) {
        if let Some(blob) = &sheet.blob {
            blobs::keep(tx, blob)?;
        }
        insert(tx, job, seq, sheet, now)?;
        for (position, change) in (0..).zip(&sheet.ledger) {
            ledger::apply(tx, job, seq, position, change, now)?;
        }
        for annotation in &sheet.annotations {
            annotations::add(tx, job, author, annotation, now)?;
        }
        if let Some((texts, open_ms)) = &sheet.asked {
            questions::ask(tx, job, seq, texts, *open_ms, now)?;
            annotations::add(tx, job, author, &NewAnnotation::clarification(job, texts), now)?;
        }
    }
    Ok(())
}

/// Appends [`Entry::Reopened`] if the run had ended.
pub(super) fn reopen(tx: &mut Transaction<'_>, job: JobId, now: Millis) -> Outcome<()> {
    let last: Option<(i64, String)> = steps::table
        .filter(steps::job_id.eq(job.0))
        .order(steps::seq.desc())
        .select((steps::seq, steps::kind))
        .first(&mut tx.db.0)
        .optional()?;
    let Some((seq, kind)) = last else { return Ok(()) };
    if kind != "ended" {
        return Ok(());
    }
    insert(tx, job, seq + 1, &Sheet::new(&Entry::Reopened)?, now)?;
    Ok(())
}

/// Appends an entry that is not a worker's: the job is in nobody's hands.
pub(super) fn append_unleased(tx: &mut Transaction<'_>, job: JobId, entry: &Entry, now: Millis) -> Outcome<()> {
    let seq = last_seq(&mut tx.db.0, job)?.map_or(0, |last| last + 1);
    insert(tx, job, seq, &Sheet::new(entry)?, now)?;
    Ok(())
}

/// Stores an entry of another journal's time at its place, with its blob.
pub(super) fn insert_at(tx: &mut Transaction<'_>, job: JobId, seq: u64, sheet: &Sheet, at: Millis) -> QueryResult<()> {
    if let Some(blob) = &sheet.blob {
        blobs::keep(tx, blob)?;
    }
    insert(tx, job, i64::try_from(seq).unwrap_or(i64::MAX), sheet, at)
}

fn insert(tx: &mut Transaction<'_>, job: JobId, seq: i64, sheet: &Sheet, now: Millis) -> QueryResult<()> {
    diesel::insert_into(steps::table)
        .values((
            steps::job_id.eq(job.0),
            steps::seq.eq(seq),
            steps::kind.eq(sheet.kind),
            steps::data.eq(Text(tx.keys.seal(Place::entry(job.0, seq), sheet.data.as_str()))),
            steps::blob_hash.eq(sheet.blob.as_ref().map(|blob| &blob.hash)),
            steps::created_at.eq(now),
        ))
        .execute(&mut tx.db.0)
        .map(drop)
}

/// Has a run that has begun begin again; whether it had.
pub(super) fn restart(
    tx: &mut Transaction<'_>,
    installation: &str,
    job: JobId,
    author: &str,
    now: Millis,
) -> Outcome<bool> {
    let Some(last) = last_seq(&mut tx.db.0, job)? else { return Ok(false) };
    let sheets = Sheet::all(&posse_core::run::journal::restart(&ledger::read(&mut tx.db.0, installation, job)?))?;
    append(tx, job, author, last.unsigned_abs() + 1, &sheets, now)?;
    Ok(true)
}

/// A job's entries from place `from` on, in order.
pub(super) fn read(connection: &mut SqliteConnection, keys: &Keys, job: JobId, from: u64) -> Outcome<Vec<Recorded>> {
    use super::schema::blobs;
    type Row = (i64, String, Sealed, i64, Option<Vec<u8>>, Option<Vec<u8>>);
    let rows: Vec<Row> = steps::table
        .left_join(blobs::table.on(steps::blob_hash.eq(blobs::hash.nullable())))
        .filter(steps::job_id.eq(job.0))
        .filter(steps::seq.ge(i64::try_from(from).unwrap_or(i64::MAX)))
        .order(steps::seq)
        .select((steps::seq, steps::kind, steps::data, steps::created_at, steps::blob_hash, blobs::bytes.nullable()))
        .load(connection)?;
    let recorded = |(seq, kind, data, at, hash, blob): Row| {
        let open = |(hash, bytes): (Vec<u8>, Vec<u8>)| keys.open_bytes(Place::blob(&hash), bytes);
        let blob = hash.zip(blob).map(open).transpose()?;
        let entry = join(&kind, &keys.open(Place::entry(job.0, seq), &data)?, blob)?;
        Ok(Recorded { seq: seq.unsigned_abs(), at, entry })
    };
    rows.into_iter().map(recorded).collect()
}
