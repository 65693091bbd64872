//! What the bytes of a text in a PDF mean: a font says which characters they are, and how wide.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::objects::{Dict, File, Lexer, Object, Token};

/// Characters that one font may name.
const MAX_MAPPED: usize = 70_000;

/// How wide a character is taken to be where the font does not say, as a share of its size.
const USUAL_WIDTH: f64 = 0.5;

#[derive(Clone, Default)]
pub(super) struct Font(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// How many bytes a character has: 1, or 2.
    is_wide: bool,
    means: BTreeMap<u32, String>,
    first: u32,
    widths: Vec<f64>,
}

impl Font {
    pub fn read(file: &File, font: &Object) -> Font {
        let dict = file.dict(Some(font));
        let mut inner =
            Inner { is_wide: dict.get("Subtype").and_then(Object::name) == Some("Type0"), ..Inner::default() };
        if !inner.is_wide {
            differences(file, &dict, &mut inner.means);
            inner.first = dict.get("FirstChar").and_then(Object::number).unwrap_or(0.0).max(0.0) as u32;
            let widths = file.list(dict.get("Widths"));
            inner.widths = widths.iter().filter_map(|width| file.resolve(width).number()).take(256).collect();
        }
        if let Some(map) = dict.get("ToUnicode").and_then(|map| file.stream(map)) {
            inner.read_map(&map);
        }
        Font(Arc::new(inner))
    }

    /// The text, and how wide it is as a share of the font's size.
    pub fn text(&self, bytes: &[u8]) -> (String, f64) {
        let inner = &*self.0;
        let (mut text, mut width) = (String::new(), 0.0);
        for code in bytes.chunks(if inner.is_wide { 2 } else { 1 }) {
            let code = code.iter().fold(0, |code, byte| code << 8 | u32::from(*byte));
            match inner.means.get(&code) {
                Some(meant) => text.push_str(meant),
                None if inner.is_wide => text.push('\u{fffd}'),
                None => text.extend(windows(code as u8)),
            }
            let known = code.checked_sub(inner.first).and_then(|at| inner.widths.get(at as usize));
            width += known.filter(|width| **width > 0.0).map_or(USUAL_WIDTH, |width| width / 1000.0);
        }
        (text, width)
    }
}

impl Inner {
    /// Takes in what a font says its codes mean.
    fn read_map(&mut self, map: &[u8]) {
        let mut lexer = Lexer::new(map);
        let mut operands: Vec<Object> = Vec::new();
        while let Some(token) = lexer.next_token(0) {
            match token {
                Token::Object(object) => operands.push(object),
                Token::Word(b"endbfchar") => {
                    for pair in operands.chunks_exact(2) {
                        if let [Object::Text(code), Object::Text(meant)] = pair {
                            self.mean(number(code), utf16(meant));
                        }
                    }
                    operands.clear();
                }
                Token::Word(b"endbfrange") => {
                    for three in operands.chunks_exact(3) {
                        self.mean_range(three);
                    }
                    operands.clear();
                }
                Token::Word(_) => operands.clear(),
            }
        }
    }

    fn mean_range(&mut self, three: &[Object]) {
        let [Object::Text(first), Object::Text(last), meant] = three else { return };
        let (first, last) = (number(first), number(last).min(0xffff));
        match meant {
            Object::List(all) => {
                for (code, meant) in (first..=last).zip(all) {
                    if let Object::Text(meant) = meant {
                        self.mean(code, utf16(meant));
                    }
                }
            }
            Object::Text(meant) => {
                let text = utf16(meant);
                let mut chars: Vec<char> = text.chars().collect();
                let Some(end) = chars.pop() else { return };
                for code in first..=last {
                    let Some(end) = char::from_u32(u32::from(end) + (code - first)) else { return };
                    self.mean(code, chars.iter().chain([&end]).collect());
                }
            }
            _ => {}
        }
    }

    fn mean(&mut self, code: u32, meant: String) {
        if self.means.len() < MAX_MAPPED && meant.len() <= 64 {
            self.means.insert(code, meant.replace('\0', ""));
        }
    }
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().take(4).fold(0, |code, byte| code << 8 | u32::from(*byte))
}

fn utf16(bytes: &[u8]) -> String {
    let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
    String::from_utf16_lossy(&units)
}

/// The characters that a font names itself.
fn differences(file: &File, font: &Dict, means: &mut BTreeMap<u32, String>) {
    let encoding = file.dict(font.get("Encoding"));
    let mut code = 0u32;
    for one in file.list(encoding.get("Differences")) {
        match file.resolve(&one) {
            Object::Number(number) => code = number.clamp(0.0, 255.0) as u32,
            Object::Name(name) => {
                if let Some(meant) = named(name) {
                    means.insert(code, meant);
                }
                code = code.saturating_add(1);
            }
            _ => {}
        }
    }
}

/// Names of characters, each before what it stands for.
const NAMED: &str = "exclam ! quotedbl \" numbersign # dollar $ percent % ampersand & quotesingle ' quoteright ’ quoteleft ‘ \
    parenleft ( parenright ) asterisk * plus + comma , hyphen - minus − period . slash / zero 0 one 1 two 2 three 3 four 4 \
    five 5 six 6 seven 7 eight 8 nine 9 colon : semicolon ; less < equal = greater > question ? at @ bracketleft [ \
    backslash \\ bracketright ] underscore _ braceleft { bar | braceright } endash – emdash — bullet • quotedblleft “ \
    quotedblright ” ellipsis … fi fi fl fl ff ff ffi ffi ffl ffl adieresis ä odieresis ö udieresis ü Adieresis Ä \
    Odieresis Ö Udieresis Ü germandbls ß eacute é egrave è agrave à ccedilla ç oslash ø aring å ae æ degree ° euro € \
    section § copyright © dotlessi ı ntilde ñ";

fn named(name: &str) -> Option<String> {
    if name.chars().count() == 1 {
        return Some(name.to_owned());
    }
    if name == "space" {
        return Some(" ".to_owned());
    }
    if let Some(hex) = name.strip_prefix("uni").and_then(|hex| hex.get(..4)) {
        return u32::from_str_radix(hex, 16).ok().and_then(char::from_u32).map(String::from);
    }
    let mut known = NAMED.split_whitespace().step_by(2).zip(NAMED.split_whitespace().skip(1).step_by(2));
    known.find(|(known, _)| *known == name).map(|(_, meant)| meant.to_owned())
}

/// A byte as most fonts mean it.
fn windows(byte: u8) -> Option<char> {
    const FROM_80: &str = "€ ‚ƒ„…†‡ˆ‰Š‹Œ Ž  ‘’“”•–—˜™š›œ žŸ";
    match byte {
        0x80..=0x9f => FROM_80.chars().nth(usize::from(byte - 0x80)),
        b'\t' | b'\n' | b'\r' => Some(' '),
        0..=0x1f => None,
        byte => Some(char::from(byte)),
    }
}
