//! Texts: what is one, told from a file's first bytes; how its lines end; words that are nearly the same.

use posse_core::text::plural;

/// How much of a file is looked at.
pub(crate) const HEAD: usize = 8 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// Text, UTF-8 or close to it.
    Text,
    /// UTF-16 with a byte order mark; true: the low byte comes first.
    Utf16 { little: bool },
    /// Anything else, with a guess of what.
    Binary(&'static str),
}

/// First bytes of formats that people keep beside their text.
const MAGIC: &[(&[u8], &str)] = &[
    (b"\x89PNG\r\n\x1a\n", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF8", "GIF image"),
    (b"%PDF-", "PDF document"),
    (b"PK\x03\x04", "ZIP archive or office document"),
    (b"\x1f\x8b", "gzip archive"),
    (b"\x28\xb5\x2f\xfd", "zstd archive"),
    (b"\xfd7zXZ\0", "xz archive"),
    (b"BZh", "bzip2 archive"),
    (b"\x7fELF", "ELF program"),
    (b"SQLite format 3\0", "SQLite database"),
    (b"RIFF", "RIFF media file"),
    (b"OggS", "Ogg media file"),
    (b"ID3", "MP3 audio"),
    (b"wOF", "web font"),
    (b"\0asm", "WebAssembly module"),
];

pub(crate) fn classify(head: &[u8]) -> Content {
    if head.starts_with(&[0xff, 0xfe]) && !head.starts_with(&[0xff, 0xfe, 0, 0]) {
        return Content::Utf16 { little: true };
    }
    if head.starts_with(&[0xfe, 0xff]) {
        return Content::Utf16 { little: false };
    }
    let odd_share = odd_bytes(head) * 10 > head.len();
    let magic = MAGIC.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, name)| *name);
    // Some of the marks are letters that a text may begin with.
    let marked = magic.filter(|name| *name == "PDF document" || !head.is_ascii() || head.contains(&0));
    match marked {
        Some(name) => Content::Binary(name),
        None if head.contains(&0) || odd_share => Content::Binary("unknown type"),
        None => Content::Text,
    }
}

/// How many bytes no text would have.
fn odd_bytes(head: &[u8]) -> usize {
    let control = |byte: u8| (byte < 0x20 && !b"\t\n\r\x0c\x1b".contains(&byte)) || byte == 0x7f;
    let utf8 = match std::str::from_utf8(head) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    };
    head.iter().filter(|byte| control(**byte) || (!utf8 && (0x80..0xa0).contains(*byte))).count()
}

/// UTF-16 behind its byte order mark; `None` where it is none.
pub(crate) fn decode_utf16(bytes: &[u8], little: bool) -> Option<String> {
    let (pairs, rest) = bytes.get(2..)?.as_chunks::<2>();
    let units = pairs.iter().map(|pair| if little { u16::from_le_bytes(*pair) } else { u16::from_be_bytes(*pair) });
    let text: Result<String, _> = char::decode_utf16(units).collect();
    text.ok().filter(|text| rest.is_empty() && !text.contains('\0'))
}

/// The bytes as text: UTF-8, or else each byte as the Latin-1 character of its number, which loses
/// nothing. True where it had to be Latin-1.
pub(crate) fn decode(bytes: &[u8]) -> (String, bool) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), false),
        Err(_) => (bytes.iter().map(|byte| char::from(*byte)).collect(), true),
    }
}

/// The bytes without a character that was cut at their end.
pub(crate) fn whole_chars(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => bytes,
    }
}

/// 1234 as "1,234 bytes", larger numbers with a rounded size beside them.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.iter().find(|(unit, _)| bytes >= 10 * unit || (*unit > 1024 && bytes >= *unit)) {
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => plural(bytes, "byte"),
    }
}

/// What is wrong with a text whose file's name says that it is JSON.
pub(crate) fn json_fault(path: &str, bytes: &[u8]) -> Option<String> {
    let is_json = path.to_ascii_lowercase().ends_with(".json");
    let fault = || serde_json::from_slice::<serde::de::IgnoredAny>(bytes).err().map(|error| error.to_string());
    is_json.then(fault).flatten()
}

/// The mark that some texts in UTF-8 begin with.
pub(crate) const BOM: &[u8] = b"\xef\xbb\xbf";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endings {
    /// It has one line.
    None,
    Lf,
    CrLf,
    Mixed,
}

impl Endings {
    pub(crate) fn of(bytes: &[u8]) -> Endings {
        let (mut lf, mut crlf) = (false, false);
        for at in memchr::memchr_iter(b'\n', bytes) {
            match at > 0 && bytes[at - 1] == b'\r' {
                true => crlf = true,
                false => lf = true,
            }
        }
        match (lf, crlf) {
            (false, false) => Endings::None,
            (true, false) => Endings::Lf,
            (false, true) => Endings::CrLf,
            (true, true) => Endings::Mixed,
        }
    }

    /// The text as a file with these writes it; as it is where the file does not say.
    pub(crate) fn written(self, text: &str) -> String {
        match self {
            Endings::None | Endings::Mixed => text.to_owned(),
            Endings::Lf => text.replace("\r\n", "\n"),
            Endings::CrLf => text.replace("\r\n", "\n").replace('\n', "\r\n"),
        }
    }

    /// What the writer of a text is told of that, if it matters.
    pub(crate) fn note(self, given: &str) -> &'static str {
        match self {
            Endings::Mixed if given.contains('\n') => {
                "; some lines of this file end in LF and some in CR LF, and the text was written as it was given"
            }
            _ if self.written(given) == given => "",
            Endings::CrLf => "; its lines end in CR LF, as those of the file do",
            _ => "; its lines end in LF, as those of the file do",
        }
    }
}

/// Up to three of the known words that a slip of the pen may have turned into `word`.
pub(crate) fn near_matches<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    // Comparing is quadratic, and nobody misspells a word this long.
    if word.len() > 128 {
        return Vec::new();
    }
    let word = word.to_lowercase();
    let likeness = |known: &str| {
        let known = known.to_lowercase();
        let part = word.len() >= 3 && (known.contains(&word) || word.contains(&known));
        strsim::jaro_winkler(&word, &known).max(if part { 0.9 } else { 0.0 })
    };
    let mut near: Vec<_> = known.map(|known| (likeness(known), known)).filter(|(score, _)| *score > 0.8).collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    near.dedup_by_key(|(_, known)| *known);
    near.into_iter().take(3).map(|(_, known)| known.to_owned()).collect()
}
