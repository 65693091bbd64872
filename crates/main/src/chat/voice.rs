//! What the agent says, as it comes on a terminal, and as answers where something else reads them.

use super::answer::Answer;
use crate::output::text::visible;

/// The agent's words of one turn of the conversation.
///
/// Whether words are the answer is known when their reply is whole: they are not where they stand
/// beside a call. On a terminal they are shown all the same as they come. Whatever reads a pipe or a
/// file gets answers alone, each as soon as it is known to be one.
///
/// What is given back is for standard output, empty where that is nothing.
pub struct Voice {
    /// Whether words are shown as they come.
    live: bool,
    /// Present where replies are steps in JSON, of which only the answer is shown.
    json: Option<Answer>,
    /// What the model said in its last reply, as far as it was shown.
    said: String,
    /// Whether the line on the screen is unfinished.
    open: bool,
    /// A whole message that has not been shown, because it may be the answer.
    held: Option<String>,
}

impl Voice {
    /// Before anything is said.
    pub fn new(live: bool) -> Voice {
        Voice { live, json: None, said: String::new(), open: false, held: None }
    }

    /// The model is asked: what it says now is a new reply, a step in JSON or plain words.
    pub fn begin(&mut self, json: bool) {
        self.said.clear();
        self.json = json.then(Answer::default);
    }

    /// A piece of a reply.
    pub fn say(&mut self, piece: &str) -> String {
        if !self.live {
            return String::new();
        }
        let piece = match &mut self.json {
            Some(answer) => answer.take(piece),
            None => piece.to_owned(),
        };
        let shown = visible(&piece);
        if !shown.is_empty() {
            self.open = !shown.ends_with('\n');
        }
        self.said.push_str(&piece);
        shown
    }

    /// What was said of this reply is void: it is asked for again.
    pub fn restart(&mut self) -> String {
        self.begin(self.json.is_some());
        self.end_line()
    }

    /// The line ends, if one has begun.
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
        let is_said = self.said.trim() == text;
        let end = self.end_line();
        if is_said || text.is_empty() { end } else { format!("{end}{}\n", visible(text)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_shows_words_as_they_come_and_no_answer_twice() {
        let mut voice = Voice::new(true);
        voice.begin(false);
        assert_eq!(voice.say("I l") + &voice.say("ook."), "I look.");
        voice.hold("I look.");
        assert_eq!((voice.end_line().as_str(), voice.aside()), ("\n", None));
        voice.begin(false);
        assert_eq!(voice.say("Half"), "Half");
        assert_eq!(voice.restart(), "\n");
        assert_eq!(voice.say("Four.\x1b"), "Four.␛");
        assert_eq!(voice.answer("Four.\x1b "), "\n");
        assert_eq!(voice.answer("Five."), "Five.\n");

        voice.begin(true);
        let step = r#"{"thinking": "t", "tool": "finish", "arguments": {"final_summary": "It is fo"#;
        assert_eq!(voice.say(step) + &voice.say(r#"ur."}}"#), "It is four.");
    }

    #[test]
    fn a_pipe_gets_answers_and_what_is_beside_them_goes_elsewhere() {
        let mut voice = Voice::new(false);
        voice.begin(false);
        assert_eq!(voice.say("I look.") + &voice.end_line(), "");
        voice.hold("I look.");
        assert_eq!(voice.aside().as_deref(), Some("I look."));
        assert_eq!(voice.aside(), None, "once");
        voice.hold("Four.");
        assert_eq!((voice.answer("Four.").as_str(), voice.aside()), ("Four.\n", None));
        voice.hold("I am done.");
        assert_eq!((voice.answer("Five.").as_str(), voice.aside().as_deref()), ("Five.\n", Some("I am done.")));
    }
}
