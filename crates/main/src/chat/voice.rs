//! What the agent says, as it comes on a terminal, and as answers where something else reads them.

use posse_core::model::{Delta, ToolCalling};
use posse_core::run::spoken::Spoken;

use crate::output::text::visible;

/// The agent's words of one exchange of the conversation.
///
/// Whether words are the answer is known when their reply is whole: they are not where they stand
/// beside a call. On a terminal they are shown all the same as they come. Whatever reads a pipe or a
/// file gets answers alone, each as soon as it is known to be one.
///
/// What is given back is for standard output, empty where that is nothing.
pub struct Voice {
    live: bool,
    /// What the model says in its reply, if that is for the person.
    said: Option<Spoken>,
    open: bool,
    /// A whole message that has not been shown, because it may be the answer.
    held: Option<String>,
}

impl Voice {
    pub fn new(live: bool) -> Voice {
        Voice { live, said: None, open: false, held: None }
    }

    /// The model is asked, in this way: what it says now is a new reply. Without one it is a skill's, and not for the person.
    pub fn begin(&mut self, calling: Option<ToolCalling>) {
        self.said = calling.map(Spoken::new);
    }

    pub fn say(&mut self, piece: &Delta) -> String {
        let Some(said) = self.said.as_mut().filter(|_| self.live) else { return String::new() };
        let shown = visible(&said.take(piece));
        if !shown.is_empty() {
            self.open = !shown.ends_with('\n');
        }
        shown
    }

    /// What was said of this reply is void: it is asked for again.
    pub fn restart(&mut self, piece: &Delta) -> String {
        if let Some(said) = &mut self.said {
            said.take(piece);
        }
        self.end_line()
    }

    pub fn end_line(&mut self) -> String {
        if std::mem::take(&mut self.open) { "\n".to_owned() } else { String::new() }
    }

    /// A reply is whole, with these words in it.
    pub fn hold(&mut self, text: &str) {
        self.held = Some(text.to_owned()).filter(|_| !self.live);
    }

    /// The words of the last reply, if they were held and turn out to be no answer: they go beside it.
    pub fn aside(&mut self) -> Option<String> {
        self.held.take().map(|text| visible(text.trim()))
    }

    /// The complete answer: shown, unless the last reply was just that.
    pub fn answer(&mut self, text: &str) -> String {
        let text = text.trim();
        self.held.take_if(|held| held.trim() == text);
        let is_said = self.said.as_ref().is_some_and(|said| said.answer().trim() == text || said.all() == text);
        let end = self.end_line();
        if is_said || text.is_empty() { end } else { format!("{end}{}\n", visible(text)) }
    }
}
