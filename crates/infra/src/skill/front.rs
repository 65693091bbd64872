//! The file of a skill as text: the fields between two lines of `---`, then Markdown.
//!
//! The fields are YAML, strictly: every plain value is a text, and there are no anchors, aliases and
//! tags. One mistake is so common that it is read all the same: a value that has an unquoted `: ` in
//! it. The rule: on the line of a field, the rest of the line is the value. What restricts a skill is
//! never lost that way: a line that begins as `allowed-tools` must have become that field.

use posse_core::skill::{Field, FieldValue, FrontMatter, Location, Severity, SkillProblem};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, StrInput};

/// How deep values may lie in each other; the standard needs two.
const MAX_DEPTH: usize = 4;

#[derive(Debug)]
pub(super) struct Parts {
    pub front: FrontMatter,
    pub body: String,
    /// What was read only leniently.
    pub problems: Vec<SkillProblem>,
}

/// Takes a text apart. The error is why its skill is left out.
pub(super) fn parse(text: &str) -> Result<Parts, SkillProblem> {
    let (fields, body) = split(text)?;
    let (front, problems) = match read(fields) {
        Ok(front) => (front, Vec::new()),
        Err(first) => {
            let (quoted, problems) = with_quotes(fields);
            // The first error tells more of what was written than that of a text of ours.
            let front = read(&quoted).map_err(|_| unreadable(&first))?;
            (front, problems)
        }
    };
    match lost_restriction(fields, &front) {
        Some(location) => Err(SkillProblem {
            field: Some(RESTRICTION.into()),
            ..error(
                location,
                "stands inside another value, so it restricts nothing; the skill is not used like that. Write it at the \
                 beginning of a line of its own, or remove it",
            )
        }),
        None => Ok(Parts { front, body: body.to_owned(), problems }),
    }
}

const RESTRICTION: &str = "allowed-tools";

/// The text between the lines of `---`, and what follows.
fn split(text: &str) -> Result<(&str, &str), SkillProblem> {
    let start = Location { line: 1, column: 1 };
    let is_rule = |line: &str| line.trim_end() == "---";
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().filter(|line| is_rule(line)).ok_or_else(|| {
        error(start, "does not begin with a line of ---; write ---, then name: and description:, then --- again")
    })?;
    let mut end = first.len();
    for line in lines {
        if is_rule(line) {
            return Ok((&text[first.len()..end], &text[end + line.len()..]));
        }
        end += line.len();
    }
    Err(error(start, "has no second line of ---, which ends the fields; write it before the instructions"))
}

fn error(location: Location, message: impl Into<String>) -> SkillProblem {
    SkillProblem { field: None, location: Some(location), message: message.into(), severity: Severity::Error }
}

/// Why YAML could not be read, and where; lines are of the file, whose first one is `---`.
struct Fault {
    location: Location,
    what: String,
}

fn unreadable(Fault { location, what }: &Fault) -> SkillProblem {
    error(*location, format!("is no YAML that a skill may have: {what}. Put values that have signs in them in quotes"))
}

fn location(at: &Marker) -> Location {
    Location { line: at.line() + 1, column: at.col() + 1 }
}

fn read(fields: &str) -> Result<FrontMatter, Fault> {
    let mut reader = Reader { events: Parser::new_from_str(fields), end: Location { line: 2, column: 1 } };
    let mut front = FrontMatter::default();
    loop {
        let (event, location) = reader.next()?;
        match event {
            Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
            Event::StreamEnd => return Ok(front),
            event if !front.fields.is_empty() => {
                return Err(Fault { location, what: format!("a second document begins ({})", kind_of(&event)) });
            }
            event => match reader.value(event, location, 1)? {
                FieldValue::Map(fields) => front.fields = fields,
                // No line at all, or only comments.
                FieldValue::Text(text) if text.trim().is_empty() => {}
                FieldValue::Text(_) | FieldValue::List(_) => {
                    return Err(Fault { location, what: "these are no fields; write each as name: value".into() });
                }
            },
        }
    }
}

fn kind_of(event: &Event) -> &'static str {
    match event {
        Event::Scalar(..) => "a text",
        Event::SequenceStart(..) => "a list",
        Event::MappingStart(..) => "fields",
        _ => "its end",
    }
}

struct Reader<'a> {
    events: Parser<'a, StrInput<'a>>,
    end: Location,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Location), Fault> {
        match self.events.next_event() {
            Some(Ok((event, span))) => {
                self.end = location(&span.start);
                Ok((event, self.end))
            }
            Some(Err(error)) => Err(Fault { location: location(error.marker()), what: error.info().to_owned() }),
            None => Err(Fault { location: self.end, what: "it ends too early".into() }),
        }
    }

    fn value(&mut self, event: Event<'a>, location: Location, depth: usize) -> Result<FieldValue, Fault> {
        let no = |what: &str| Err(Fault { location, what: what.into() });
        if depth > MAX_DEPTH {
            return no("values lie too deep in each other");
        }
        match event {
            Event::Scalar(.., anchor, tag) | Event::SequenceStart(anchor, tag) | Event::MappingStart(anchor, tag)
                if anchor != 0 || tag.is_some() =>
            {
                no("anchors (&) and tags (!) are not allowed")
            }
            // What is not there at all comes as a plain `~`, which in YAML means the same.
            Event::Scalar(text, ScalarStyle::Plain, ..) if text == "~" => Ok(FieldValue::Text(String::new())),
            Event::Scalar(text, ..) => Ok(FieldValue::Text(text.into_owned())),
            Event::SequenceStart(..) => {
                let mut values = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => return Ok(FieldValue::List(values)),
                        (event, location) => values.push(self.value(event, location, depth + 1)?),
                    }
                }
            }
            Event::MappingStart(..) => {
                let mut fields = Vec::new();
                loop {
                    let (name, location) = match self.next()? {
                        (Event::MappingEnd, _) => return Ok(FieldValue::Map(fields)),
                        (event, location) => (self.value(event, location, depth + 1)?, location),
                    };
                    let FieldValue::Text(name) = name else {
                        return Err(Fault { location, what: "the name of a field must be a text".into() });
                    };
                    let (event, at) = self.next()?;
                    let value = self.value(event, at, depth + 1)?;
                    fields.push(Field { name, value, location });
                }
            }
            Event::Alias(_) => no("aliases (*) are not allowed"),
            _ => no("it is not complete"),
        }
    }
}

/// The fields with quotes around each value that has an unquoted `: ` in it, and where that was.
fn with_quotes(fields: &str) -> (String, Vec<SkillProblem>) {
    let mut out = String::with_capacity(fields.len() + 16);
    let mut problems = Vec::new();
    for (n, whole) in fields.split_inclusive('\n').enumerate() {
        let line = whole.trim_end();
        let Some((name, value, colon)) = unquoted_colon(line) else {
            out.push_str(whole);
            continue;
        };
        let quoted = format!("'{}'", value.replace('\'', "''"));
        out.push_str(&format!("{name}: {quoted}\n"));
        let location = Location { line: n + 2, column: line[..colon].chars().count() + 1 };
        let message = format!(
            "has an unquoted ': ' in its value, which is not YAML; the rest of the line was taken for the value. Write \
             {name}: {quoted}"
        );
        problems.push(SkillProblem {
            field: Some(name.into()),
            severity: Severity::Warning,
            ..error(location, message)
        });
    }
    (out, problems)
}

/// The name and value of a field's line whose value is plain and has a colon in it that YAML would
/// take for the beginning of another field; and where that is.
fn unquoted_colon(line: &str) -> Option<(&str, &str, usize)> {
    let (name, rest) = line.split_once(": ")?;
    let plain_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '_');
    let value = rest.trim_start();
    if !plain_name || value.starts_with(['"', '\'', '|', '>', '[', '{', '&', '*', '!', '#', '%', '@', '`']) {
        return None;
    }
    let from = line.len() - value.len();
    let inside = value.find(": ").or_else(|| value.ends_with(':').then(|| value.len() - 1))?;
    Some((name, value, from + inside))
}

/// A line that begins as the field that restricts tools and has not become it.
fn lost_restriction(fields: &str, front: &FrontMatter) -> Option<Location> {
    let begins = |line: &str| {
        let name = line.split_once(':').map_or("", |(name, _)| name);
        let letters: String = name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
        letters == "allowedtools" && !line.trim_start().starts_with('#')
    };
    let is_field = |line: usize| front.fields.iter().any(|field| field.location.line == line);
    let lost = fields.lines().enumerate().find(|(n, line)| begins(line) && !is_field(n + 2));
    lost.map(|(n, line)| Location { line: n + 2, column: 1 + line.len() - line.trim_start().len() })
}
