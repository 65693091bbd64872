//! What a PDF is made of: objects, found by going through the file rather than by its own table, which is often wrong.

use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::io::Read as _;

use flate2::read::ZlibDecoder;
use memchr::memmem;

/// How deep objects may lie in each other.
const MAX_DEPTH: usize = 40;
/// Objects that are kept of one file.
const MAX_OBJECTS: usize = 200_000;
/// Bytes that are unpacked of one file, all streams together.
const MAX_UNPACKED: usize = 16 << 20;

pub(super) type Dict = BTreeMap<String, Object>;

#[derive(Debug, Clone)]
pub(super) enum Object {
    Null,
    Number(f64),
    Name(String),
    Text(Vec<u8>),
    List(Vec<Object>),
    Dict(Dict),
    Reference(u32),
}

impl Object {
    pub fn number(&self) -> Option<f64> {
        if let Object::Number(number) = self { Some(*number) } else { None }
    }

    pub fn name(&self) -> Option<&str> {
        if let Object::Name(name) = self { Some(name) } else { None }
    }
}

pub(super) enum Token<'a> {
    Object(Object),
    Word(&'a [u8]),
}

pub(super) struct Lexer<'a> {
    bytes: &'a [u8],
    at: usize,
}

fn is_space(byte: u8) -> bool {
    matches!(byte, 0 | 9 | 10 | 12 | 13 | 32)
}

fn is_delimiter(byte: u8) -> bool {
    matches!(byte, b'(' | b')' | b'<' | b'>' | b'[' | b']' | b'{' | b'}' | b'/' | b'%')
}

impl<'a> Lexer<'a> {
    pub fn new(bytes: &'a [u8]) -> Lexer<'a> {
        Lexer { bytes, at: 0 }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b'%' => {
                    let line = memchr::memchr2(b'\n', b'\r', &self.bytes[self.at..]);
                    self.at = line.map_or(self.bytes.len(), |end| self.at + end);
                }
                byte if is_space(byte) => self.at += 1,
                _ => return,
            }
        }
    }

    /// What comes next; none at the end.
    pub fn next_token(&mut self, depth: usize) -> Option<Token<'a>> {
        self.skip_space();
        let first = self.peek()?;
        let rest = &self.bytes[self.at..];
        if depth > MAX_DEPTH {
            return None;
        }
        Some(match first {
            b'(' => Token::Object(Object::Text(self.text())),
            b'<' if rest.starts_with(b"<<") => {
                self.at += 2;
                Token::Object(Object::Dict(self.dict(depth + 1)))
            }
            b'<' => Token::Object(Object::Text(self.hex())),
            b'[' => {
                self.at += 1;
                Token::Object(Object::List(self.list(depth + 1)))
            }
            b'/' => {
                self.at += 1;
                Token::Object(Object::Name(self.name()))
            }
            b')' | b'>' | b']' | b'{' | b'}' => {
                let length = if rest.starts_with(b">>") { 2 } else { 1 };
                self.at += length;
                Token::Word(&rest[..length])
            }
            _ => {
                let word = self.word();
                match std::str::from_utf8(word).ok().and_then(|text| text.parse::<f64>().ok()) {
                    Some(number) if number.is_finite() => Token::Object(self.number_or_reference(number)),
                    _ if word == b"null" || word == b"true" || word == b"false" => Token::Object(Object::Null),
                    _ => Token::Word(word),
                }
            }
        })
    }

    fn word(&mut self) -> &'a [u8] {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|byte| is_space(*byte) || is_delimiter(*byte)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// `7 0 R` is the object of that number.
    fn number_or_reference(&mut self, number: f64) -> Object {
        let back = self.at;
        if number >= 0.0 && number.fract() == 0.0 && number < f64::from(u32::MAX) {
            self.skip_space();
            if self.word().iter().all(u8::is_ascii_digit) && self.at > back {
                self.skip_space();
                if self.peek() == Some(b'R')
                    && self.bytes.get(self.at + 1).is_none_or(|b| is_space(*b) || is_delimiter(*b))
                {
                    self.at += 1;
                    return Object::Reference(number as u32);
                }
            }
        }
        self.at = back;
        Object::Number(number)
    }

    fn name(&mut self) -> String {
        let raw = self.word();
        let mut name = Vec::with_capacity(raw.len());
        let mut i = 0;
        while i < raw.len() {
            let hex = raw.get(i + 1..i + 3).filter(|_| raw[i] == b'#').and_then(|hex| std::str::from_utf8(hex).ok());
            match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
                Some(byte) => {
                    name.push(byte);
                    i += 3;
                }
                None => {
                    name.push(raw[i]);
                    i += 1;
                }
            }
        }
        String::from_utf8_lossy(&name).into_owned()
    }

    fn text(&mut self) -> Vec<u8> {
        self.at += 1;
        let (mut out, mut open) = (Vec::new(), 1);
        while let Some(byte) = self.peek() {
            self.at += 1;
            match byte {
                b'(' => open += 1,
                b')' => {
                    open -= 1;
                    if open == 0 {
                        return out;
                    }
                }
                b'\\' => {
                    let Some(escaped) = self.peek() else { return out };
                    self.at += 1;
                    match escaped {
                        b'n' => out.push(b'\n'),
                        b'r' => out.push(b'\r'),
                        b't' => out.push(b'\t'),
                        b'b' | b'f' | b'\n' => {}
                        b'\r' => self.at += usize::from(self.peek() == Some(b'\n')),
                        b'0'..=b'7' => {
                            let mut code = u32::from(escaped - b'0');
                            for _ in 0..2 {
                                let Some(digit @ b'0'..=b'7') = self.peek() else { break };
                                code = code * 8 + u32::from(digit - b'0');
                                self.at += 1;
                            }
                            out.push(code as u8);
                        }
                        other => out.push(other),
                    }
                    continue;
                }
                _ => {}
            }
            out.push(byte);
        }
        out
    }

    fn hex(&mut self) -> Vec<u8> {
        self.at += 1;
        let rest = &self.bytes[self.at..];
        let end = memchr::memchr(b'>', rest).unwrap_or(rest.len());
        self.at = (self.at + end + 1).min(self.bytes.len());
        let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
        let digits: Vec<u8> = rest[..end].iter().filter_map(digit).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair.get(1).copied().unwrap_or(0)).collect()
    }

    fn list(&mut self, depth: usize) -> Vec<Object> {
        let mut list = Vec::new();
        while let Some(token) = self.next_token(depth) {
            match token {
                Token::Object(object) => list.push(object),
                Token::Word(b"]") => break,
                // A word that does not belong here ends it, so that what follows is still found.
                Token::Word(b">>" | b"endobj" | b"stream") => break,
                Token::Word(_) => {}
            }
        }
        list
    }

    fn dict(&mut self, depth: usize) -> Dict {
        let mut dict = Dict::new();
        let mut key = None;
        while let Some(token) = self.next_token(depth) {
            match (token, key.take()) {
                (Token::Object(value), Some(name)) => {
                    dict.insert(name, value);
                }
                (Token::Object(Object::Name(name)), None) => key = Some(name),
                (Token::Word(b">>" | b"endobj" | b"stream"), _) => break,
                (_, back) => key = back,
            }
        }
        dict
    }

    /// Goes past a picture in the middle of a drawing.
    pub fn skip_picture(&mut self) {
        let end = memmem::find(&self.bytes[self.at..], b"EI");
        self.at = end.map_or(self.bytes.len(), |end| self.at + end + 2);
    }
}

pub(super) struct Page {
    pub contents: Vec<Object>,
    pub resources: Dict,
}

pub(super) struct File {
    objects: BTreeMap<u32, (Object, Option<Vec<u8>>)>,
    /// Bytes that may still be unpacked.
    room: Cell<usize>,
}

impl File {
    pub fn parse(bytes: &[u8]) -> Result<File, String> {
        let mut file = File { objects: BTreeMap::new(), room: Cell::new(MAX_UNPACKED) };
        let mut from = 0;
        for at in memmem::find_iter(bytes, b"obj") {
            // In a stream, or the end of an object.
            if at < from || file.objects.len() >= MAX_OBJECTS || bytes[..at].ends_with(b"end") {
                continue;
            }
            let Some(id) = number_before(&bytes[..at]) else { continue };
            let mut lexer = Lexer { bytes, at: at + 3 };
            let Some(Token::Object(object)) = lexer.next_token(0) else { continue };
            lexer.skip_space();
            let stream = match &object {
                Object::Dict(dict) if bytes[lexer.at..].starts_with(b"stream") => {
                    let (stream, end) = raw(bytes, lexer.at + 6, dict);
                    from = end;
                    Some(stream.to_vec())
                }
                _ => {
                    from = lexer.at;
                    None
                }
            };
            // The later one holds.
            file.objects.insert(id, (object, stream));
        }
        let is_encrypted = memmem::rfind(bytes, b"/Encrypt").is_some();
        if is_encrypted {
            return Err("a PDF that is encrypted, so it cannot be read".into());
        }
        file.unpack_objects();
        Ok(file)
    }

    /// Adds the objects that lie packed in streams.
    fn unpack_objects(&mut self) {
        let of_type = |wanted: &str, object: &Object| match object {
            Object::Dict(dict) => dict.get("Type").and_then(Object::name) == Some(wanted),
            _ => false,
        };
        let packed: Vec<u32> =
            self.objects.iter().filter(|(_, (object, _))| of_type("ObjStm", object)).map(|(id, _)| *id).collect();
        for id in packed {
            let (dict, content) = (self.dict(Some(&Object::Reference(id))), self.stream(&Object::Reference(id)));
            let (Some(content), Some(first)) = (content, dict.get("First").and_then(Object::number)) else { continue };
            let first = first.max(0.0) as usize;
            let mut head = Lexer::new(content.get(..first).unwrap_or_default());
            let mut numbers = Vec::new();
            while let Some(Token::Object(Object::Number(number))) = head.next_token(0) {
                numbers.push(number.max(0.0) as usize);
            }
            for pair in numbers.chunks_exact(2) {
                let Some(rest) = content.get(first.saturating_add(pair[1])..) else { continue };
                if self.objects.len() >= MAX_OBJECTS {
                    return;
                }
                if let Some(Token::Object(object)) = Lexer::new(rest).next_token(0) {
                    self.objects.entry(pair[0] as u32).or_insert((object, None));
                }
            }
        }
    }

    fn get(&self, id: u32) -> Option<&Object> {
        self.objects.get(&id).map(|(object, _)| object)
    }

    /// What an object is, through references.
    pub fn resolve<'a>(&'a self, object: &'a Object) -> &'a Object {
        let mut object = object;
        for _ in 0..MAX_DEPTH {
            match object {
                Object::Reference(id) => object = self.get(*id).unwrap_or(&Object::Null),
                other => return other,
            }
        }
        &Object::Null
    }

    /// A dictionary; empty where there is none.
    pub fn dict(&self, object: Option<&Object>) -> Dict {
        match object.map(|object| self.resolve(object)) {
            Some(Object::Dict(dict)) => dict.clone(),
            _ => Dict::new(),
        }
    }

    /// A list; of one where it is none.
    pub fn list(&self, object: Option<&Object>) -> Vec<Object> {
        match object.map(|object| (object, self.resolve(object))) {
            None | Some((_, Object::Null)) => Vec::new(),
            Some((_, Object::List(list))) => list.clone(),
            Some((object, _)) => vec![object.clone()],
        }
    }

    /// What is in a stream, unpacked, as far as there is room; none where it is packed in a way that no text is.
    pub fn stream(&self, object: &Object) -> Option<Vec<u8>> {
        let Object::Reference(id) = object else { return None };
        let (head, Some(raw)) = self.objects.get(id)? else { return None };
        let Object::Dict(head) = head else { return None };
        let mut bytes = raw.clone();
        for filter in self.list(head.get("Filter")) {
            let name = self.resolve(&filter).name()?.to_owned();
            let room = self.room.get();
            bytes = match name.as_str() {
                "FlateDecode" | "Fl" => {
                    let mut out = Vec::new();
                    // What is whole of a damaged stream is read.
                    let _ = ZlibDecoder::new(bytes.as_slice()).take(room as u64).read_to_end(&mut out);
                    out
                }
                "ASCIIHexDecode" | "AHx" => Lexer { bytes: &[b"<", bytes.as_slice()].concat(), at: 0 }.hex(),
                _ => return None,
            };
            self.room.set(room.saturating_sub(bytes.len()));
        }
        Some(bytes)
    }

    /// The pages in their order; those there are where the order cannot be told.
    pub fn pages(&self, most: usize) -> Vec<Page> {
        let is = |object: &Object, wanted: &str| matches!(object, Object::Dict(dict) if dict.get("Type").and_then(Object::name) == Some(wanted));
        let (mut found, mut seen) = (Vec::new(), HashSet::new());
        let catalog = self.objects.values().rev().find(|(object, _)| is(object, "Catalog"));
        if let Some((Object::Dict(catalog), _)) = catalog
            && let Some(root) = catalog.get("Pages")
        {
            self.walk(root, &Dict::new(), &mut found, &mut seen, most, 0);
        }
        if found.is_empty() {
            let pages = self.objects.iter().filter(|(_, (object, _))| is(object, "Page")).take(most);
            let pages: Vec<_> = pages.map(|(id, _)| Object::Reference(*id)).collect();
            for page in pages {
                self.walk(&page, &Dict::new(), &mut found, &mut seen, most, 0);
            }
        }
        found
    }

    fn walk(
        &self,
        node: &Object,
        above: &Dict,
        found: &mut Vec<Page>,
        seen: &mut HashSet<u32>,
        most: usize,
        depth: usize,
    ) {
        let Object::Reference(id) = node else { return };
        if depth > MAX_DEPTH || found.len() >= most || !seen.insert(*id) {
            return;
        }
        let dict = self.dict(Some(node));
        let own = self.dict(dict.get("Resources"));
        let resources = if own.is_empty() { above } else { &own };
        if let Some(kids) = dict.get("Kids") {
            for kid in self.list(Some(kids)) {
                self.walk(&kid, resources, found, seen, most, depth + 1);
            }
        } else if dict.get("Type").and_then(Object::name) == Some("Page") || dict.contains_key("Contents") {
            found.push(Page { contents: self.list(dict.get("Contents")), resources: resources.clone() });
        }
    }
}

/// The number in `7 0 `, which stands before `obj`.
fn number_before(bytes: &[u8]) -> Option<u32> {
    let tail = &bytes[bytes.len().saturating_sub(24)..];
    let text: String = tail.iter().map(|byte| if byte.is_ascii_digit() { char::from(*byte) } else { ' ' }).collect();
    let mut words = text.split_whitespace().rev();
    let (_generation, id) = (words.next()?, words.next()?);
    // What stands right before `obj` is a space, behind the generation.
    tail.last().filter(|byte| is_space(**byte))?;
    id.parse().ok()
}

/// The bytes of a stream whose head says how long it is, or not, and where it ends.
fn raw<'a>(bytes: &'a [u8], at: usize, head: &Dict) -> (&'a [u8], usize) {
    let mut begin = at;
    begin += usize::from(bytes.get(begin) == Some(&b'\r'));
    begin += usize::from(bytes.get(begin) == Some(&b'\n'));
    let rest = &bytes[begin.min(bytes.len())..];
    let said = head.get("Length").and_then(Object::number).map(|length| length.max(0.0) as usize);
    let holds = |length: &usize| {
        let behind = rest.get(*length..).unwrap_or_default();
        memmem::find(&behind[..behind.len().min(20)], b"endstream").is_some()
    };
    let length = said.filter(holds).or_else(|| memmem::find(rest, b"endstream")).unwrap_or(rest.len());
    (&rest[..length.min(rest.len())], begin + length)
}
