//! What the agent says, on standard output, as it comes.

use anyhow::Result;

use super::answer::Answer;
use crate::output::Out;
use crate::output::text::visible;

/// The agent's words of one turn of the conversation.
pub struct Voice {
    out: Out,
    /// Present where replies are steps in JSON, of which only the answer is shown.
    json: Option<Answer>,
    /// What the model said in its last reply, as far as it came.
    said: String,
    /// Whether the line on the screen is unfinished.
    open: bool,
}

impl Voice {
    /// Before anything is said.
    pub fn new(out: Out) -> Voice {
        Voice { out, json: None, said: String::new(), open: false }
    }

    /// The model is asked: what it says now is a new reply, a step in JSON or plain words.
    pub fn begin(&mut self, json: bool) {
        self.said.clear();
        self.json = json.then(Answer::default);
    }

    /// A piece of a reply.
    pub fn say(&mut self, piece: &str) -> Result<()> {
        let piece = match &mut self.json {
            Some(answer) => answer.take(piece),
            None => piece.to_owned(),
        };
        if piece.is_empty() {
            return Ok(());
        }
        self.said.push_str(&piece);
        let shown = visible(&piece);
        self.open = !shown.ends_with('\n');
        self.out.raw(&shown)
    }

    /// What was said of this reply is void: it is asked for again.
    pub fn restart(&mut self) -> Result<()> {
        self.begin(self.json.is_some());
        self.end_line()
    }

    /// The line ends, if one has begun.
    pub fn end_line(&mut self) -> Result<()> {
        if std::mem::take(&mut self.open) { self.out.raw("\n") } else { Ok(()) }
    }

    /// The complete answer: shown, unless the last reply was just that.
    pub fn answer(&mut self, text: &str) -> Result<()> {
        let text = text.trim();
        let is_said = self.said.trim() == text;
        self.end_line()?;
        if is_said || text.is_empty() { Ok(()) } else { self.out.line(visible(text)) }
    }
}
