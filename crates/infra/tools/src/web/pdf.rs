//! The text of a PDF, without its layout.
//!
//! A file from a stranger is read with bounds on all that it could make large: how deep its objects lie in each other,
//! how much is unpacked, how many operators are followed. What cannot be read is left out.

mod fonts;
mod objects;

use std::collections::BTreeMap;

use fonts::Font;
use objects::{Dict, File, Lexer, Object, Token};

/// Pages that are read.
const MAX_PAGES: usize = 2000;
/// Bytes of text that are made of all of them.
const MAX_TEXT: usize = 4 << 20;
/// Operators that are followed in all of them.
const MAX_OPERATORS: usize = 5_000_000;
/// How deep drawings may be drawn within drawings.
const MAX_DEPTH: usize = 8;

/// The text, and how many pages there are.
pub(super) fn text(bytes: &[u8]) -> Result<(String, usize), String> {
    let file = File::parse(bytes)?;
    let pages = file.pages(MAX_PAGES);
    if pages.is_empty() {
        return Err("a PDF in which no page can be found: it may be damaged".into());
    }
    let mut reader = Reader { file: &file, fonts: BTreeMap::new(), out: String::new(), operators: 0 };
    for page in &pages {
        let mut content = Vec::new();
        for part in &page.contents {
            content.extend(file.stream(part).unwrap_or_default());
            content.push(b'\n');
        }
        reader.draw(&content, &page.resources, 0);
        reader.page_break();
    }
    let text = reader.out.trim().to_owned();
    match text.is_empty() {
        true => Err(format!("a PDF whose pages ({}) have no text in them: they may be pictures", pages.len())),
        false => Ok((text, pages.len())),
    }
}

struct Reader<'a> {
    file: &'a File,
    /// Those that were read already, by the number of their object.
    fonts: BTreeMap<u32, Font>,
    out: String,
    operators: usize,
}

/// Where the next text stands.
#[derive(Clone, Copy)]
struct Place {
    x: f64,
    y: f64,
    line_x: f64,
    line_y: f64,
    scale: f64,
    leading: f64,
    size: f64,
}

impl Reader<'_> {
    fn page_break(&mut self) {
        let kept = self.out.trim_end().len();
        self.out.truncate(kept);
        self.out.push_str("\n\n");
    }

    /// Follows what draws a page.
    fn draw(&mut self, content: &[u8], resources: &Dict, depth: usize) {
        let mut lexer = Lexer::new(content);
        let mut operands: Vec<Object> = Vec::new();
        let mut font = Font::default();
        let mut at = Place { x: 0.0, y: 0.0, line_x: 0.0, line_y: 0.0, scale: 1.0, leading: 0.0, size: 12.0 };
        // Where the text before ended.
        let mut last: Option<(f64, f64)> = None;
        while let Some(token) = lexer.next_token(0) {
            let operator = match token {
                Token::Object(object) => {
                    // More than any operator takes.
                    if operands.len() < 64 {
                        operands.push(object);
                    }
                    continue;
                }
                Token::Word(word) => word,
            };
            self.operators += 1;
            if self.operators > MAX_OPERATORS || self.out.len() > MAX_TEXT {
                return;
            }
            let number = |n: usize| operands.get(n).and_then(Object::number).unwrap_or(0.0);
            match operator {
                b"BT" => (at.x, at.y, at.line_x, at.line_y, at.scale) = (0.0, 0.0, 0.0, 0.0, 1.0),
                b"Tf" => {
                    at.size = number(1);
                    font = self.font(operands.first(), resources);
                }
                b"TL" => at.leading = number(0),
                b"Td" | b"TD" => {
                    if operator == b"TD" {
                        at.leading = -number(1);
                    }
                    at.to(number(0), number(1));
                }
                b"T*" => at.to(0.0, -at.leading),
                b"Tm" => {
                    let scale = number(3).hypot(number(2));
                    at.scale = if scale > 0.0 { scale } else { 1.0 };
                    (at.x, at.y) = (number(4), number(5));
                    (at.line_x, at.line_y) = (at.x, at.y);
                }
                b"Tj" | b"'" | b"\"" => {
                    if operator != b"Tj" {
                        at.to(0.0, -at.leading);
                    }
                    if let Some(Object::Text(bytes)) = operands.last() {
                        self.show(bytes, &font, &mut at, &mut last);
                    }
                }
                b"TJ" => {
                    if let Some(Object::List(parts)) = operands.first() {
                        for part in parts {
                            match part {
                                Object::Text(bytes) => self.show(bytes, &font, &mut at, &mut last),
                                other => at.x -= other.number().unwrap_or(0.0) / 1000.0 * at.size * at.scale,
                            }
                        }
                    }
                }
                b"Do" if depth < MAX_DEPTH => {
                    if let Some(Object::Name(name)) = operands.first() {
                        self.form(name, resources, depth);
                    }
                }
                b"BI" => lexer.skip_picture(),
                _ => {}
            }
            operands.clear();
        }
    }

    /// What is drawn as a drawing of its own.
    fn form(&mut self, name: &str, resources: &Dict, depth: usize) {
        let Some(drawing) = self.file.dict(resources.get("XObject")).get(name).cloned() else { return };
        let head = self.file.dict(Some(&drawing));
        if head.get("Subtype").and_then(Object::name) != Some("Form") {
            return;
        }
        let own = self.file.dict(head.get("Resources"));
        let own = if own.is_empty() { resources.clone() } else { own };
        if let Some(content) = self.file.stream(&drawing) {
            if !self.out.ends_with('\n') {
                self.out.push('\n');
            }
            self.draw(&content, &own, depth + 1);
        }
    }

    fn font(&mut self, name: Option<&Object>, resources: &Dict) -> Font {
        let fonts = self.file.dict(resources.get("Font"));
        let Some(found) = name.and_then(Object::name).and_then(|name| fonts.get(name)) else { return Font::default() };
        match found {
            Object::Reference(id) => {
                if let Some(known) = self.fonts.get(id) {
                    return known.clone();
                }
                let font = Font::read(self.file, found);
                self.fonts.insert(*id, font.clone());
                font
            }
            _ => Font::read(self.file, found),
        }
    }

    fn show(&mut self, bytes: &[u8], font: &Font, at: &mut Place, last: &mut Option<(f64, f64)>) {
        let (text, width) = font.text(bytes);
        let size = (at.size * at.scale).abs().max(0.1);
        if let Some((end, line)) = *last {
            let down = (line - at.y).abs();
            if down > size * 1.8 {
                self.out.push_str("\n\n");
            } else if down > size * 0.4 {
                self.out.push('\n');
            } else if (at.x - end > size * 0.15 || end - at.x > size * 2.0) && !self.out.ends_with([' ', '\n']) {
                self.out.push(' ');
            }
        }
        self.out.push_str(&text);
        at.x += width * at.size * at.scale;
        *last = Some((at.x, at.y));
    }
}

impl Place {
    /// Begins another line, so far from the beginning of this one.
    fn to(&mut self, right: f64, up: f64) {
        self.line_x += right * self.scale;
        self.line_y += up * self.scale;
        (self.x, self.y) = (self.line_x, self.line_y);
    }
}
