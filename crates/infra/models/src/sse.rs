//! Server-sent events, from bytes in any chunks.
//!
//! The grammar of the HTML standard, with two leniencies that servers in the field need: what is
//! pending at the end of the stream is given out by [`SseParser::finish`], because many servers
//! leave out the last blank line; and a line that is a bare JSON object counts as data, because
//! some proxies print their error so.

/// Longest line accepted. One line is one piece of a reply; whole replies are far smaller.
pub(super) const MAX_LINE: usize = 8 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SseEvent {
    /// The event's name; empty when the server gave none.
    pub name: String,
    /// The data lines, joined by line feeds; never empty.
    pub data: String,
}

/// A line, or the event it belongs to, passed [`MAX_LINE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LineTooLong;

#[derive(Debug, Default)]
pub(super) struct SseParser {
    line: Vec<u8>,
    name: String,
    data: String,
    /// The last byte was a carriage return, so a line feed now is the same line's end.
    after_cr: bool,
    past_bom: bool,
}

impl SseParser {
    /// Takes more bytes and gives the events they complete.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<SseEvent>, LineTooLong> {
        let mut events = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            if std::mem::take(&mut self.after_cr) && rest[0] == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let end = rest.iter().position(|b| matches!(b, b'\n' | b'\r'));
            let (text, after) = rest.split_at(end.unwrap_or(rest.len()));
            if self.line.len() + self.data.len() + text.len() > MAX_LINE {
                return Err(LineTooLong);
            }
            self.line.extend_from_slice(text);
            rest = after;
            if end.is_some() {
                self.after_cr = rest[0] == b'\r';
                rest = &rest[1..];
                events.extend(self.end_line());
            }
        }
        Ok(events)
    }

    /// The stream is over: gives what was pending. It may be half an event; the reader finds out,
    /// since half a JSON text is not one.
    pub fn finish(&mut self) -> Option<SseEvent> {
        self.end_line().or_else(|| self.dispatch())
    }

    fn end_line(&mut self) -> Option<SseEvent> {
        let bytes = std::mem::take(&mut self.line);
        let mut line = bytes.as_slice();
        if !std::mem::replace(&mut self.past_bom, true) {
            line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        }
        if line.is_empty() {
            return self.dispatch();
        }
        let line = String::from_utf8_lossy(line);
        if line.starts_with('{') {
            self.add_data(&line);
            return None;
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => self.add_data(value),
            "event" => self.name = value.to_owned(),
            // Comments (an empty field name), `id`, `retry` and fields of the future.
            _ => {}
        }
        None
    }

    fn add_data(&mut self, value: &str) {
        if !self.data.is_empty() {
            self.data.push('\n');
        }
        self.data.push_str(value);
    }

    fn dispatch(&mut self) -> Option<SseEvent> {
        let name = std::mem::take(&mut self.name);
        let data = std::mem::take(&mut self.data);
        (!data.is_empty()).then_some(SseEvent { name, data })
    }
}
