//! The file of a skill as text: the fields between two lines of `---`, then Markdown.
//!
//! The fields are YAML, strictly: every plain value is a text, and there are no anchors, aliases and
//! tags. One mistake is so common that it is read all the same: a value that has an unquoted `: ` in
//! it. The rule: on the line of a field, the rest of the line is the value. What restricts a skill is
//! never lost that way: a line that begins as `allowed-tools` must have become that field.

use posse_core::skill::{Field, FieldValue, FrontMatter, Location, Severity, SkillProblem};
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};

/// How deep values may lie in each other; the standard needs two.
const MAX_DEPTH: usize = 4;

/// A file's text, taken apart.
#[derive(Debug)]
pub(super) struct Parts {
    /// The fields.
    pub front: FrontMatter,
    /// The Markdown.
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
        Some(place) => Err(SkillProblem {
            field: Some(RESTRICTION.into()),
            place: Some(place),
            message: "stands inside another value, so it restricts nothing; the skill is not used like that. \
                      Write it at the beginning of a line of its own, or remove it"
                .into(),
            severity: Severity::Error,
        }),
        None => Ok(Parts { front, body: body.to_owned(), problems }),
    }
}

const RESTRICTION: &str = "allowed-tools";

/// The text between the lines of `---`, and what follows.
fn split(text: &str) -> Result<(&str, &str), SkillProblem> {
    let fault = |line, message: &str| SkillProblem {
        field: None,
        place: Some(Location { line, column: 1 }),
        message: message.into(),
        severity: Severity::Error,
    };
    let is_rule = |line: &str| line.trim_end() == "---";
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().filter(|line| is_rule(line)).ok_or_else(|| {
        fault(1, "does not begin with a line of ---; write ---, then name: and description:, then --- again")
    })?;
    let mut end = first.len();
    for line in lines {
        if is_rule(line) {
            return Ok((&text[first.len()..end], &text[end + line.len()..]));
        }
        end += line.len();
    }
    Err(fault(1, "has no second line of ---, which ends the fields; write it before the instructions"))
}

/// Why YAML could not be read, and where; lines are of the file, whose first one is `---`.
struct Fault {
    place: Location,
    what: String,
}

fn unreadable(fault: &Fault) -> SkillProblem {
    SkillProblem {
        field: None,
        place: Some(fault.place),
        message: format!(
            "is no YAML that a skill may have: {}. Put values that have signs in them in quotes",
            fault.what
        ),
        severity: Severity::Error,
    }
}

fn place(span: Span) -> Location {
    Location { line: span.start.line() + 1, column: span.start.col() + 1 }
}

fn read(fields: &str) -> Result<FrontMatter, Fault> {
    let mut reader = Reader { events: Parser::new_from_str(fields), end: Location { line: 2, column: 1 } };
    let mut front = FrontMatter::default();
    loop {
        let (event, place) = reader.next()?;
        match event {
            Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
            Event::StreamEnd => return Ok(front),
            event if !front.fields.is_empty() => {
                return Err(Fault { place, what: format!("a second document begins ({})", kind_of(&event)) });
            }
            event => match reader.value(event, place, 1)? {
                FieldValue::Map(fields) => front.fields = fields,
                // No line at all, or only comments.
                FieldValue::Text(text) if text.trim().is_empty() => {}
                FieldValue::Text(_) | FieldValue::List(_) => {
                    return Err(Fault { place, what: "these are no fields; write each as name: value".into() });
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
    /// Where the last event was.
    end: Location,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Location), Fault> {
        match self.events.next_event() {
            Some(Ok((event, span))) => {
                self.end = place(span);
                Ok((event, self.end))
            }
            Some(Err(error)) => Err(self.fault(&error)),
            None => Err(Fault { place: self.end, what: "it ends too early".into() }),
        }
    }

    fn fault(&self, error: &ScanError) -> Fault {
        let at = error.marker();
        Fault { place: Location { line: at.line() + 1, column: at.col() + 1 }, what: error.info().to_owned() }
    }

    fn value(&mut self, event: Event<'a>, place: Location, depth: usize) -> Result<FieldValue, Fault> {
        let no = |what: &str| Err(Fault { place, what: what.into() });
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
                        (event, place) => values.push(self.value(event, place, depth + 1)?),
                    }
                }
            }
            Event::MappingStart(..) => {
                let mut fields = Vec::new();
                loop {
                    let (name, place) = match self.next()? {
                        (Event::MappingEnd, _) => return Ok(FieldValue::Map(fields)),
                        (event, place) => (self.value(event, place, depth + 1)?, place),
                    };
                    let FieldValue::Text(name) = name else {
                        return Err(Fault { place, what: "the name of a field must be a text".into() });
                    };
                    let (event, at) = self.next()?;
                    let value = self.value(event, at, depth + 1)?;
                    fields.push(Field { name, value, place });
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
        let column = line[..colon].chars().count() + 1;
        problems.push(SkillProblem {
            field: Some(name.into()),
            place: Some(Location { line: n + 2, column }),
            message: format!(
                "has an unquoted ': ' in its value, which is not YAML; the rest of the line was taken for the value. \
                 Write {name}: {quoted}"
            ),
            severity: Severity::Warning,
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
    let is_field = |line: usize| front.fields.iter().any(|field| field.place.line == line);
    let lost = fields.lines().enumerate().find(|(n, line)| begins(line) && !is_field(n + 2));
    lost.map(|(n, line)| Location { line: n + 2, column: 1 + line.len() - line.trim_start().len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Vec<(String, FieldValue, Location)> {
        let parts = parse(&format!("---\n{text}\n---\nbody")).unwrap_or_else(|p| panic!("{text}: {p:?}"));
        assert_eq!(parts.body, "body");
        parts.front.fields.into_iter().map(|f| (f.name, f.value, f.place)).collect()
    }

    fn text(text: &str) -> FieldValue {
        FieldValue::Text(text.into())
    }

    #[test]
    fn every_plain_value_is_a_text() {
        let read = fields("# a comment\na: yes\nb: 1.0\nc: ~\nd:\ne: |\n  x: y\nf: \"q: r\"\ng: 2026-01-01 # not this");
        let values: Vec<_> = read.iter().map(|(name, value, _)| (name.as_str(), value.clone())).collect();
        assert_eq!(
            values,
            [
                ("a", text("yes")),
                ("b", text("1.0")),
                ("c", text("")),
                ("d", text("")),
                ("e", text("x: y\n")),
                ("f", text("q: r")),
                ("g", text("2026-01-01")),
            ]
        );
        assert_eq!(read[1].2, Location { line: 4, column: 1 });
        let nested = fields("m:\n  k: v\nl: [a, b]");
        let inner = Field { name: "k".into(), value: text("v"), place: Location { line: 3, column: 3 } };
        assert_eq!(nested[0].1, FieldValue::Map(vec![inner]));
        assert_eq!(nested[1].1, FieldValue::List(vec![text("a"), text("b")]));
        assert!(fields("").is_empty() && fields("# nothing").is_empty());
    }

    #[test]
    fn what_cannot_be_read_is_told_with_its_place() {
        let cases = [
            ("", 1, "does not begin with a line of ---"),
            ("\n---\na: b\n---\n", 1, "does not begin"),
            ("---\na: b\n", 1, "has no second line of ---"),
            ("---\na: [b\n---\n", 3, "is no YAML that a skill may have"),
            ("---\na: &x b\n---\n", 2, "anchors (&) and tags (!)"),
            ("---\na: !!str b\n---\n", 2, "anchors (&) and tags (!)"),
            ("---\na: &x b\nc: *x\n---\n", 2, "anchors"),
            ("---\njust words\n---\n", 2, "no fields"),
            ("---\n- a\n---\n", 2, "no fields"),
            ("---\na: {b: {c: {d: {e: f}}}}\n---\n", 2, "too deep"),
            ("---\n? [a]\n: b\n---\n", 2, "must be a text"),
            ("---\na: \"never closed\n---\n", 2, "is no YAML"),
            ("---\na: b\n c: d\n---\n", 3, "is no YAML"),
        ];
        for (file, line, expected) in cases {
            let problem = parse(file).map(|parts| parts.front).expect_err(file);
            assert_eq!(problem.place.map(|p| p.line), Some(line), "{file:?}: {problem:?}");
            assert!(problem.message.contains(expected), "{file:?}: {problem:?}");
        }
    }

    #[test]
    fn the_rest_of_the_line_is_the_value_where_a_colon_was_not_quoted() {
        let file = "---\nname: a\ndescription: It's so. Use when: asked, e.g. # now\nallowed-tools: x\n---\nbody: b: c";
        let parts = parse(file).expect("read");
        let values: Vec<_> = parts.front.fields.iter().map(|f| f.value.clone()).collect();
        assert_eq!(values, [text("a"), text("It's so. Use when: asked, e.g. # now"), text("x")]);
        let [problem] = &parts.problems[..] else { panic!("{:?}", parts.problems) };
        assert_eq!(problem.place, Some(Location { line: 3, column: 31 }));
        assert!(problem.message.ends_with("Write description: 'It''s so. Use when: asked, e.g. # now'"));
        // Right values are not touched by the rule, and a text of several lines is not guessed at.
        let mixed = "---\na: b: c\nd: |\n  e: f: g\nh: 'i: j'\n---\n";
        let parts = parse(mixed).expect("read");
        assert_eq!(parts.front.fields[1].value, text("e: f: g\n"));
        assert!(parse("---\na: b: c\n  goes on\n---\n").is_err());
    }

    #[test]
    fn a_restriction_is_never_lost() {
        for lost in [
            "description: >\n  words\n  allowed-tools: x",
            "description: words\n  allowed-tools: x",
            "metadata:\n  allowed-tools: x",
            "metadata:\n  \"Allowed Tools\": x",
            "description: 'a\nallowed-tools: x'",
        ] {
            let problem = parse(&format!("---\n{lost}\n---\n")).map(|parts| parts.front).expect_err(lost);
            assert_eq!(problem.severity, Severity::Error);
        }
        assert_eq!(fields("# allowed-tools: x\na: b").len(), 1);
        assert_eq!(fields("\"allowed-tools\": x")[0].0, "allowed-tools");
    }
}
