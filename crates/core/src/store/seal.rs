//! Texts at rest: sealed with a key where one is configured, else as they are.
//!
//! A driver takes and gives such texts as [`Sealed`] alone, which is made by [`Keys::seal`] and read by
//! [`Keys::open`]; so the compiler finds every place that would write or read one as it is.
//!
//! What is stored is one of these:
//!
//! ```text
//! text                         a text in the clear; nearly always
//! U+0001 c: text               a text in the clear that begins with U+0001 itself
//! U+0001 s: id : base64        sealed with the key `id`: a random nonce of 24 bytes and what XChaCha20-Poly1305
//!                              makes of the text
//! ```
//!
//! A seal is bound to its [`Place`]: moved to another row or column, it is broken. A key's id follows from the
//! key, so a wrong key is never taken for damage.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};
use sha2::{Digest as _, Sha256};

use super::fault::{Fault, unusable};
use crate::port::RepositoryError;
use crate::text::plural;

/// The environment variable that keys come from. No child process is given it.
pub const KEYS_VARIABLE: &str = "POSSE_SEAL_KEYS";

/// Length of a key in bytes.
pub const KEY_BYTES: usize = 32;

const NONCE_BYTES: usize = 24;
const SEALED: &str = "\u{1}s:";
const CLEAR: &str = "\u{1}c:";
const MARK: char = '\u{1}';

/// The keys that texts are sealed with: the first one seals, all of them open. Without any, texts are
/// stored as they are. Cheap to clone; shows its keys' ids and never a key.
#[derive(Clone, Default)]
pub struct Keys(Arc<[Key]>);

struct Key {
    id: String,
    cipher: XChaCha20Poly1305,
    /// What fingerprints of texts are made with.
    print: [u8; 32],
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Keys").field(&self.ids()).finish()
    }
}

impl Keys {
    /// Reads keys: 64 hexadecimal digits each, separated by commas or white space. The error says which of
    /// them is wrong, and nothing of what it is.
    pub fn parse(text: &str) -> Result<Keys, String> {
        let words = text.split([',', ' ', '\t', '\r', '\n']).filter(|word| !word.is_empty());
        let keys = words.enumerate().map(|(i, word)| {
            let key = from_hex(word).ok_or_else(|| {
                format!(
                    "key {} has not {} (openssl rand -hex {KEY_BYTES} makes one)",
                    i + 1,
                    plural(2 * KEY_BYTES as u64, "hexadecimal digit")
                )
            })?;
            let print = Sha256::new().chain_update(b"posse fingerprints").chain_update(key).finalize().into();
            Ok(Key { id: id_of(&key), cipher: XChaCha20Poly1305::new(&key.into()), print })
        });
        let keys = keys.collect::<Result<Vec<_>, String>>()?;
        match keys.is_empty() {
            true => Err(format!("there is no key in it (openssl rand -hex {KEY_BYTES} makes one)")),
            false => Ok(Keys(keys.into())),
        }
    }

    /// Whether texts are sealed.
    pub fn seals(&self) -> bool {
        !self.0.is_empty()
    }

    /// The id of the key that seals, if there is one.
    pub fn sealing(&self) -> Option<&str> {
        self.0.first().map(|key| key.id.as_str())
    }

    /// The ids of all keys.
    pub fn ids(&self) -> Vec<&str> {
        self.0.iter().map(|key| key.id.as_str()).collect()
    }

    /// Whether the key of this id is among them.
    pub fn has(&self, id: &str) -> bool {
        self.key(id).is_some()
    }

    fn key(&self, id: &str) -> Option<&Key> {
        self.0.iter().find(|key| key.id == id)
    }

    /// `text` as it is stored at `place`.
    pub fn seal(&self, place: Place<'_>, text: impl Into<String>) -> Sealed {
        Sealed(self.seal_text(place, text.into()))
    }

    /// The same, for whoever writes it as it is.
    pub fn seal_text(&self, place: Place<'_>, text: String) -> String {
        match self.0.first() {
            Some(key) => format!("{SEALED}{}:{}", key.id, BASE64.encode(key.seal(&place, text.as_bytes()))),
            None if text.starts_with(MARK) => format!("{CLEAR}{text}"),
            None => text,
        }
    }

    /// The text that is stored at `place`.
    pub fn open<'a>(&self, place: Place<'_>, stored: &'a Sealed) -> Result<Cow<'a, str>, Closed> {
        self.open_text(place, &stored.0)
    }

    /// The same, for whoever read it as it is.
    pub fn open_text<'a>(&self, place: Place<'_>, text: &'a str) -> Result<Cow<'a, str>, Closed> {
        if !text.starts_with(MARK) {
            return Ok(text.into());
        }
        if let Some(clear) = text.strip_prefix(CLEAR) {
            return Ok(clear.into());
        }
        let Some((id, sealed)) = text.strip_prefix(SEALED).and_then(|rest| rest.split_once(':')) else {
            return Ok(text.into());
        };
        let key = self.key(id).ok_or_else(|| Closed::NoKey(id.to_owned()))?;
        let opened = BASE64.decode(sealed).ok().and_then(|bytes| key.open(&place, &bytes));
        let opened = opened.and_then(|bytes| String::from_utf8(bytes).ok());
        opened.map(Cow::Owned).ok_or_else(|| Closed::Broken(id.to_owned()))
    }

    /// The same for people: what cannot be opened is a remark that says so.
    pub fn show(&self, place: Place<'_>, stored: &Sealed) -> String {
        self.open(place, stored).map_or_else(|closed| format!("({closed})"), Cow::into_owned)
    }

    /// `bytes` as they are stored at `place`.
    pub fn seal_bytes<'a>(&self, place: Place<'_>, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let marked = |mark: &str, rest: &[u8]| Cow::Owned([mark.as_bytes(), rest].concat());
        match self.0.first() {
            Some(key) => marked(&format!("{SEALED}{}:", key.id), &key.seal(&place, bytes)),
            None if bytes.first() == Some(&(MARK as u8)) => marked(CLEAR, bytes),
            None => bytes.into(),
        }
    }

    /// The bytes that are stored at `place`.
    pub fn open_bytes(&self, place: Place<'_>, stored: Vec<u8>) -> Result<Vec<u8>, Closed> {
        if let Some(clear) = stored.strip_prefix(CLEAR.as_bytes()) {
            return Ok(clear.to_vec());
        }
        let Some((id, sealed)) = key_of_bytes(&stored) else { return Ok(stored) };
        let key = self.key(id).ok_or_else(|| Closed::NoKey(id.to_owned()))?;
        key.open(&place, sealed).ok_or_else(|| Closed::Broken(id.to_owned()))
    }

    /// What tells a text from others and nothing of it to those who have not the key, as it is stored now.
    pub fn fingerprint(&self, text: &str) -> Vec<u8> {
        fingerprint(self.0.first().map(|key| &key.print), text)
    }

    /// The same as it may have been stored, with each of the keys and with none.
    pub fn fingerprints(&self, text: &str) -> Vec<Vec<u8>> {
        self.0.iter().map(|key| Some(&key.print)).chain([None]).map(|print| fingerprint(print, text)).collect()
    }

    /// What values that are sealed with the sealing key begin with; with none, what only sealed ones do.
    pub fn prefix(&self) -> String {
        self.sealing().map_or_else(|| SEALED.to_owned(), |id| format!("{SEALED}{id}:"))
    }
}

/// The id of the key and what it sealed, of bytes that are sealed.
fn key_of_bytes(stored: &[u8]) -> Option<(&str, &[u8])> {
    let rest = stored.strip_prefix(SEALED.as_bytes())?;
    let end = rest.iter().position(|byte| *byte == b':')?;
    Some((std::str::from_utf8(&rest[..end]).ok()?, &rest[end + 1..]))
}

impl Key {
    fn seal(&self, place: &Place<'_>, clear: &[u8]) -> Vec<u8> {
        let nonce: [u8; NONCE_BYTES] = rand::random();
        let payload = Payload { msg: clear, aad: &place.bytes() };
        // It fails for more than 256 GB, of which SQLite holds no more than one.
        let sealed = self.cipher.encrypt(XNonce::from_slice(&nonce), payload).unwrap_or_default();
        [&nonce[..], &sealed].concat()
    }

    fn open(&self, place: &Place<'_>, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_at_checked(NONCE_BYTES)?;
        self.cipher.decrypt(XNonce::from_slice(nonce), Payload { msg: sealed, aad: &place.bytes() }).ok()
    }
}

fn fingerprint(print: Option<&[u8; 32]>, text: &str) -> Vec<u8> {
    let secret = print.map_or(&[][..], |print| print);
    Sha256::new().chain_update(secret).chain_update(text).finalize()[..16].to_vec()
}

/// What a key is called: it tells keys apart, and nothing of them.
fn id_of(key: &[u8; KEY_BYTES]) -> String {
    let digest = Sha256::new().chain_update(b"posse key id").chain_update(key).finalize();
    digest[..4].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<[u8; KEY_BYTES]> {
    let digits: Vec<u8> = text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| high << 4 | low).collect::<Vec<_>>().try_into().ok()
}

/// Where a value is stored: its column, and what its row is known by when it is written.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// `table.column`.
    pub column: &'static str,
    /// What tells the row from others of the table.
    pub row: Row<'a>,
}

/// What a row is known by.
#[derive(Debug, Clone, Copy)]
pub enum Row<'a> {
    /// Its numbers, 0 where it has fewer.
    Numbers([i64; 3]),
    /// Its name.
    Name(&'a [u8]),
}

impl<'a> Place<'a> {
    const fn numbered(column: &'static str, numbers: [i64; 3]) -> Self {
        Place { column, row: Row::Numbers(numbers) }
    }

    const fn named(column: &'static str, name: &'a [u8]) -> Self {
        Place { column, row: Row::Name(name) }
    }

    /// What a job is to do.
    pub const fn payload(job: i64) -> Self {
        Place::numbered("job_data.payload", [job, 0, 0])
    }

    /// What a job answered.
    pub const fn output(job: i64) -> Self {
        Place::numbered("jobs.output", [job, 0, 0])
    }

    /// Why a job is where it is.
    pub const fn reason(job: i64) -> Self {
        Place::numbered("jobs.reason", [job, 0, 0])
    }

    /// Why an attempt of a job ended.
    pub const fn attempt(job: i64) -> Self {
        Place::numbered("attempts.reason", [job, 0, 0])
    }

    /// How far a job is, in words.
    pub const fn progress(job: i64) -> Self {
        Place::numbered("progress.text", [job, 0, 0])
    }

    /// An entry of a journal.
    pub const fn entry(job: i64, seq: i64) -> Self {
        Place::numbered("steps.data", [job, seq, 0])
    }

    /// A large part of entries, known by its hash.
    pub const fn blob(hash: &'a [u8]) -> Self {
        Place::named("blobs.bytes", hash)
    }

    /// A remark about a job.
    pub const fn annotation(job: i64) -> Self {
        Place::numbered("annotations.text", [job, 0, 0])
    }

    /// A question that the entry at `seq` asked.
    pub const fn question(job: i64, seq: i64, position: i32) -> Self {
        Place::numbered("asks.text", [job, seq, position as i64])
    }

    /// The answer to it.
    pub const fn answer(job: i64, seq: i64, position: i32) -> Self {
        Place::numbered("asks.answer", [job, seq, position as i64])
    }

    /// What is remembered since then under the number `seq`: that of the entry with which it left a conversation, or
    /// one of its own. It outlives its job, and so its number.
    pub const fn remembered(created_at: i64, seq: i64) -> Self {
        Place::numbered("memory_items.content", [created_at, seq, 0])
    }

    /// What else is known of it.
    pub const fn metadata(created_at: i64, seq: i64) -> Self {
        Place::numbered("memory_items.metadata", [created_at, seq, 0])
    }

    /// What it means, in numbers.
    pub const fn embedding(created_at: i64, seq: i64) -> Self {
        Place::numbered("memory_items.embedding", [created_at, seq, 0])
    }

    /// Why it was forgotten.
    pub const fn forgotten(created_at: i64, seq: i64) -> Self {
        Place::numbered("memory_items.reason", [created_at, seq, 0])
    }

    /// A summary of a session through a job.
    pub const fn summary(session: i64, job: i64) -> Self {
        Place::numbered("session_summaries.text", [session, job, 0])
    }

    /// The job that a schedule makes.
    pub const fn schedule(name: &'a str) -> Self {
        Place::named("schedules.job", name.as_bytes())
    }

    /// What an endpoint said when it failed.
    pub const fn endpoint(endpoint: &'a str) -> Self {
        Place::named("breakers.reason", endpoint.as_bytes())
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = [self.column.as_bytes(), b"\0"].concat();
        match self.row {
            Row::Numbers(numbers) => numbers.iter().for_each(|number| bytes.extend(number.to_be_bytes())),
            Row::Name(name) => bytes.extend(name),
        }
        bytes
    }
}

/// Why a value cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Closed {
    /// Its key is not here.
    #[error("sealed with key {0}, which is not configured here: add it to POSSE_SEAL_KEYS or [sealing] key_file")]
    NoKey(String),
    /// It is not what was sealed at this place.
    #[error("sealed with key {0}, and not as it was stored: the file is damaged, or somebody changed it")]
    Broken(String),
}

impl From<Closed> for Fault {
    fn from(closed: Closed) -> Fault {
        match closed {
            Closed::NoKey(_) => Fault::Refused(RepositoryError::Unavailable(format!("what is stored is {closed}"))),
            Closed::Broken(_) => unusable(format!("what is stored is {closed}")),
        }
    }
}

/// A text as it is stored. Made by [`Keys::seal`] or by a driver that read it, and understood by [`Keys::open`] alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sealed(String);

impl Sealed {
    /// What a driver found in a column of such texts.
    pub fn stored(text: String) -> Sealed {
        Sealed(text)
    }

    /// What a driver writes into one.
    pub fn as_stored(&self) -> &str {
        &self.0
    }

    /// The key it is sealed with, if it is.
    pub fn key(&self) -> Option<&str> {
        Some(self.0.strip_prefix(SEALED)?.split_once(':')?.0)
    }
}
