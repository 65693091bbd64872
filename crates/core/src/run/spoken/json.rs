//! The strings in JSON that comes in pieces, as they come.

/// Reads JSON of which only a beginning may be there; what is no JSON gives strings nobody asked for, or none.
#[derive(Debug, Default)]
pub struct Strings {
    /// The objects and lists it is inside of.
    inside: Vec<Inside>,
    string: Option<Text>,
}

#[derive(Debug)]
enum Inside {
    Object { key: String, in_key: bool },
    List,
}

/// A string that has begun.
#[derive(Debug, Default)]
struct Text {
    is_key: bool,
    escape: Escape,
    /// The first halves of characters that are two escapes, until the second comes.
    halves: Vec<u16>,
}

#[derive(Debug, Default)]
enum Escape {
    #[default]
    No,
    Begun,
    /// Digits of `\u`, and how many there are.
    Unit(u16, u8),
}

/// Nobody names anything by more than this; what is longer is cut.
const LONGEST_KEY: usize = 256;

impl Strings {
    /// Takes in a piece, and tells of each part of a string that is a value: its path, as keys joined by dots, what
    /// is added to it, and whether it is whole now. Strings in lists have no path.
    pub fn take(&mut self, piece: &str, tell: &mut dyn FnMut(&str, &str, bool)) {
        let mut added = String::new();
        for c in piece.chars() {
            let Some(text) = &mut self.string else {
                self.between(c);
                continue;
            };
            let (is_key, ended) = (text.is_key, text.push(c, &mut added));
            if is_key {
                self.name(&mut added);
            } else if ended {
                let path = self.path();
                path.iter().for_each(|path| tell(path, &added, true));
                added.clear();
            }
            if ended {
                self.string = None;
            }
        }
        if !added.is_empty() {
            self.path().iter().for_each(|path| tell(path, &added, false));
        }
    }

    fn between(&mut self, c: char) {
        match (c, self.inside.last_mut()) {
            ('{', _) => self.inside.push(Inside::Object { key: String::new(), in_key: true }),
            ('[', _) => self.inside.push(Inside::List),
            ('}' | ']', _) => drop(self.inside.pop()),
            (',', Some(Inside::Object { key, in_key })) => {
                key.clear();
                *in_key = true;
            }
            (':', Some(Inside::Object { in_key, .. })) => *in_key = false,
            ('"', Some(Inside::Object { in_key, .. })) => {
                self.string = Some(Text { is_key: *in_key, ..Text::default() });
            }
            ('"', _) => self.string = Some(Text::default()),
            _ => {}
        }
    }

    fn name(&mut self, added: &mut String) {
        if let Some(Inside::Object { key, .. }) = self.inside.last_mut()
            && key.len() + added.len() <= LONGEST_KEY
        {
            key.push_str(added);
        }
        added.clear();
    }

    fn path(&self) -> Option<String> {
        let keys = self.inside.iter().map(|inside| match inside {
            Inside::Object { key, .. } => Some(key.as_str()),
            Inside::List => None,
        });
        Some(keys.collect::<Option<Vec<_>>>()?.join(".")).filter(|path| !path.is_empty())
    }
}

impl Text {
    /// Takes in a character; true if it ends the string.
    fn push(&mut self, c: char, out: &mut String) -> bool {
        match self.escape {
            Escape::No => match c {
                '"' => {
                    self.end_halves(out);
                    return true;
                }
                '\\' => self.escape = Escape::Begun,
                c => self.plain(c, out),
            },
            Escape::Begun => {
                self.escape = Escape::No;
                match c {
                    'u' => self.escape = Escape::Unit(0, 0),
                    'n' => self.plain('\n', out),
                    't' => self.plain('\t', out),
                    'r' => self.plain('\r', out),
                    'b' => self.plain('\u{8}', out),
                    'f' => self.plain('\u{c}', out),
                    c => self.plain(c, out),
                }
            }
            Escape::Unit(unit, digits) => match c.to_digit(16) {
                Some(digit) if digits == 3 => {
                    self.escape = Escape::No;
                    self.unit(unit * 16 + digit as u16, out);
                }
                Some(digit) => self.escape = Escape::Unit(unit * 16 + digit as u16, digits + 1),
                None => {
                    self.escape = Escape::No;
                    self.plain(char::REPLACEMENT_CHARACTER, out);
                    return self.push(c, out);
                }
            },
        }
        false
    }

    fn plain(&mut self, c: char, out: &mut String) {
        self.end_halves(out);
        out.push(c);
    }

    fn unit(&mut self, unit: u16, out: &mut String) {
        self.halves.push(unit);
        if !(0xd800..0xdc00).contains(&unit) {
            self.end_halves(out);
        }
    }

    /// A half whose other half did not come is told as such.
    fn end_halves(&mut self, out: &mut String) {
        let chars = char::decode_utf16(self.halves.drain(..));
        out.extend(chars.map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)));
    }
}
