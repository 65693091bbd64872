//! A conversation inside a run: the run's own, or that of a skill it called.

use super::call::{EndedCall, OpenCall};
use super::compaction::{History, Part};
use super::phase::{self, AGENT_STEP};
use super::program::Program;
use super::repeats::Repeats;
use crate::clock::Millis;
use crate::model::conversation;
use crate::model::tokens::{self, Tally};
use crate::model::{CallRequest, Finish, Message, ToolCalling};
use crate::run::journal::{Call, CallOutcome, Count, Turn};
use crate::tool::EffectClass;

/// Skills at work inside each other.
pub const MAX_DEPTH: usize = 4;

/// Questions put to people, with what became of each.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// The call whose result the answers are.
    pub call_id: String,
    /// The questions, in order, each with its answer once it is settled; a settled question that
    /// nobody answered has none.
    pub questions: Vec<(String, Option<Option<String>>)>,
}

impl Asked {
    /// Whether every question is settled.
    pub fn is_settled(&self) -> bool {
        self.questions.iter().all(|(_, settled)| settled.is_some())
    }

    /// What the model is told of them, and in place of answers that are not there.
    fn told(&self, missing: &str) -> String {
        let one = |(question, settled): &(String, Option<Option<String>>)| {
            let answer = settled.iter().flatten().next().map_or(missing, String::as_str);
            format!("Question: {question}\nAnswer: {answer}")
        };
        let all: Vec<_> = self.questions.iter().map(one).collect();
        all.join("\n\n")
    }
}

const ANSWERS: &str = "What people were asked before, and answered. Do not ask it again:";

const CHANGED_INSTEAD: &str = "(the task above was changed in place of an answer: what it says now counts)";

const NO_ANSWER: &str = "(nobody answered in time; go on with what you know, or finish and say what is missing)";

/// The state of one conversation.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Cycle {
    /// The call whose result this cycle's answer is; absent for the run's own.
    pub call_id: Option<String>,
    /// The skill it works by, by its position in the opening; absent for the run's own.
    pub skill: Option<usize>,
    /// What it is asked to do.
    pub task: String,
    /// The conversation. Its head is what comes before the work: instructions, examples, what was
    /// said before, the task.
    pub history: History,
    /// Calls that have not ended.
    pub open: Vec<OpenCall>,
    /// The program that one of them runs.
    pub program: Option<Program>,
    /// Results of calls that ended before one that was asked for earlier. Results stand in the order
    /// of the calls, whichever was faster, so that a conversation has one form only.
    held: Vec<EndedCall>,
    /// Corrections in a row.
    pub corrections: u32,
    /// Whether the last reply has been counted in `corrections`.
    corrected_turn: bool,
    /// Calls that give the same again and again.
    pub repeats: Repeats,
    /// What it has said.
    pub said: Said,
    /// Questions that wait for people.
    pub asked: Option<Asked>,
    /// What people have answered, through every new plan: nobody should be asked twice.
    pub answers: Vec<String>,
    /// How often it began anew.
    pub replans: u32,
}

impl Cycle {
    /// A conversation that begins with `head`, of which the last message is the task.
    pub fn new(task: &str, head: Vec<Message>) -> Cycle {
        Cycle { task: task.to_owned(), history: History::begin(head), ..Cycle::default() }
    }

    /// The same for the skill at position `skill` of the opening, called by `call_id`.
    pub fn of_skill(call_id: &str, skill: usize, task: &str, head: Vec<Message>) -> Cycle {
        Cycle { call_id: Some(call_id.to_owned()), skill: Some(skill), ..Cycle::new(task, head) }
    }

    fn push(&mut self, message: Message, part: Part) {
        self.history.push(conversation::sendable(message), part);
    }

    /// Takes in what the model's tokenizer counted of a message; gives what the message had been
    /// estimated at and what it has. Nothing where it is not the message that was counted, or was
    /// counted before.
    pub fn take_count(&mut self, count: &Count) -> Option<(u64, u64)> {
        let message = self.history.messages().get(count.at)?;
        let bytes: usize = tokens::texts(message).map(str::len).sum();
        let Tally { counted: 0, estimated } = self.history.tokens(count.at) else { return None };
        if bytes != count.bytes {
            return None;
        }
        let tokens = count.tokens.saturating_add(tokens::around(message));
        self.history.count(count.at, tokens);
        Some((estimated, tokens))
    }

    /// Takes in a reply, of which these calls are to end.
    pub fn take_turn(&mut self, turn: &Turn, calls: &[&Call], calling: ToolCalling) {
        self.corrected_turn = false;
        self.repeats.replied(turn.usage.total());
        self.open.extend(calls.iter().map(|call| OpenCall::new(call)));
        // A thought between two calls does not make the second a new one, and what was cut off was no try.
        let is_cut = turn.finish == Finish::Length;
        if let Some(call) = turn.calls.last().map(Call::runs).filter(|call| call.name != AGENT_STEP && !is_cut) {
            self.repeats.asked(call);
        }
        self.said.push(&turn.said());
        let calls: Vec<_> = match calling {
            ToolCalling::Native => calls.iter().map(|call| call.request.clone()).collect(),
            ToolCalling::Structured => Vec::new(),
        };
        if turn.text.trim().is_empty() && calls.is_empty() {
            return;
        }
        let (text, reasoning) = (turn.text.clone(), turn.reasoning.clone());
        self.push(Message::Assistant { text, reasoning, calls }, Part::Plain);
    }

    pub fn start(&mut self, call_id: &str) -> Option<&OpenCall> {
        if let Some(call) = self.open.iter_mut().find(|c| c.request.id == call_id) {
            call.started = true;
            return Some(call);
        }
        self.program.as_mut()?.start(call_id)
    }

    /// Counts what a call's end means for the patience with this model.
    pub fn count(&mut self, outcome: CallOutcome) {
        if outcome != CallOutcome::Refused {
            self.corrections = 0;
        } else if !std::mem::replace(&mut self.corrected_turn, true) {
            // Once for each reply, however many of its calls were wrong: it has not been told yet.
            self.corrections += 1;
        }
    }

    /// Ends a call with what the model is told of it, and gives the calls whose turn it now is: in
    /// the order they were made, this one once all before it have ended.
    pub fn end(
        &mut self,
        call_id: &str,
        outcome: CallOutcome,
        text: &str,
        ms: u64,
        calling: ToolCalling,
    ) -> Vec<EndedCall> {
        let Some(at) = self.open.iter().position(|c| c.request.id == call_id) else { return Vec::new() };
        let call = self.open.remove(at);
        self.program = self.program.take().filter(|program| program.call_id != call_id);
        // What runs nothing (a step that only thinks) repeats nothing, and what was refused is counted as a correction.
        if call.started && outcome != CallOutcome::Refused {
            self.repeats.ended(&call, outcome, text, ms);
        }
        self.hold(call, text, Part::Result, Some((outcome, ms)));
        self.release(calling)
    }

    fn hold(&mut self, call: OpenCall, text: &str, part: Part, outcome: Option<(CallOutcome, u64)>) {
        self.held.push(EndedCall { call, text: text.to_owned(), outcome, part });
    }

    /// Tells the results that no open call stands before. Ids rise with the order of the calls.
    fn release(&mut self, calling: ToolCalling) -> Vec<EndedCall> {
        let id = |call: &OpenCall| call.asked().id.clone();
        let next_open = self.open.first().map(id);
        self.held.sort_by_key(|ended| id(&ended.call));
        let is_free = |ended: &&EndedCall| next_open.as_ref().is_none_or(|open| ended.call.asked().id < *open);
        let free = self.held.iter().take_while(is_free).count();
        let later = self.held.split_off(free);
        let released = std::mem::replace(&mut self.held, later);
        for ended in &released {
            self.push_result(ended.call.asked(), &ended.text, ended.part, calling);
        }
        released
    }

    /// Puts another call in the place of one that failed.
    pub fn fall_back(&mut self, call_id: &str, to: &Call) {
        if let Some(call) = self.open.iter_mut().find(|c| c.request.id == call_id) {
            call.fall_back(to);
            self.program = self.program.take().filter(|program| program.call_id != call_id);
        } else if let Some(program) = &mut self.program {
            program.fall_back(call_id, to);
        }
    }

    /// Begins the program that a call runs, unless it has begun before.
    pub fn begin_program(&mut self, call_id: &str, at: Millis) {
        let runs = self.open.iter().any(|call| call.started && call.request.id == call_id);
        if runs && self.program.as_ref().is_none_or(|program| program.call_id != call_id) {
            self.program = Some(Program::new(call_id, at));
        }
    }

    /// Ends a call of the program, if it is one: no model is told of it. Tells whether it was.
    pub fn end_of_program(&mut self, call_id: &str, outcome: CallOutcome, text: &str, ms: u64) -> bool {
        let Some(call) = self.program.as_mut().and_then(|program| program.end(call_id, outcome, text)) else {
            return false;
        };
        if call.started && outcome != CallOutcome::Refused {
            self.repeats.ended(call, outcome, text, ms);
        }
        true
    }

    pub fn note(&mut self, text: &str) {
        self.corrections += 1;
        self.tell(text);
    }

    /// Tells the model something.
    pub fn tell(&mut self, text: &str) {
        self.push(Message::User { text: text.to_owned() }, Part::Plain);
    }

    /// Settles a question; once all are, the call that asked has its result.
    pub fn settle(&mut self, question: u32, answer: Option<&String>, calling: ToolCalling) {
        let Some(asked) = &mut self.asked else { return };
        if let Some((_, settled)) = asked.questions.get_mut(question as usize) {
            settled.get_or_insert(answer.cloned());
        }
        if asked.is_settled() {
            let (call_id, told) = (asked.call_id.clone(), asked.told(NO_ANSWER));
            self.asked = None;
            self.answers.push(told.clone());
            self.corrections = 0;
            self.repeats.something_changed();
            if let Some(at) = self.open.iter().position(|call| call.request.id == call_id) {
                let call = self.open.remove(at);
                self.hold(call, &told, Part::Pinned, None);
                self.release(calling);
            }
        }
    }

    /// Begins anew: everything after the task is dropped but what people answered, and the task tells
    /// what failed.
    pub fn replan(&mut self, mut told: String) {
        told = with_answers(told, &self.answers);
        let mut head = self.history.messages()[..self.history.head()].to_vec();
        if let Some(Message::User { text }) = head.last_mut() {
            *text = told;
        }
        self.history = History::begin(head);
        self.open.clear();
        self.program = None;
        self.held.clear();
        self.repeats = Repeats::default();
        self.corrections = 0;
        self.replans += 1;
    }

    pub fn reopen(&mut self, told: &str) {
        self.corrections = 0;
        self.repeats = Repeats::default();
        self.asked = None;
        self.push(Message::User { text: told.to_owned() }, Part::Plain);
    }

    /// Gives every open call a result, since none of its own will come; and gives all calls that had
    /// not been given yet.
    pub fn close(&mut self, text: &str, calling: ToolCalling) -> Vec<EndedCall> {
        self.asked = None;
        self.program = None;
        for call in std::mem::take(&mut self.open) {
            if call.started && call.effect != Some(EffectClass::Pure) {
                self.repeats.something_changed();
            }
            self.hold(call, text, Part::Result, None);
        }
        self.release(calling)
    }

    fn push_result(&mut self, call: &CallRequest, text: &str, part: Part, calling: ToolCalling) {
        let message = match calling {
            ToolCalling::Native => {
                Message::Tool { call_id: call.id.clone(), name: call.name.clone(), text: text.into() }
            }
            // As the worked examples show it: an act is answered by its tool.
            ToolCalling::Structured => {
                let action = phase::action(call);
                Message::User { text: conversation::told_result(&action.as_ref().unwrap_or(call).name, text) }
            }
        };
        self.push(message, part);
    }

    /// What people were asked and answered so far, and what they were asked and have not answered.
    pub fn asked_so_far(&self) -> Vec<String> {
        let open = self.asked.as_ref().map(|asked| asked.told(CHANGED_INSTEAD));
        self.answers.iter().cloned().chain(open).collect()
    }
}

/// A task with what people were asked about it.
pub(super) fn with_answers(task: String, answers: &[String]) -> String {
    if answers.is_empty() { task } else { format!("{task}\n\n{ANSWERS}\n\n{}", answers.join("\n\n")) }
}

/// Most bytes that are kept of what a conversation has said: the newest.
const MAX_SAID_BYTES: usize = 32 * 1024;

const SAID_BEFORE: &str = "[what was said before is left out]\n\n";

/// The visible words of all replies, bounded, for the case that the conversation ends without an answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Said {
    text: String,
    /// Where the last reply's begin.
    last: usize,
    is_cut: bool,
}

impl Said {
    /// Takes in the words of the next reply; said twice in a row they are kept once.
    pub fn push(&mut self, words: &str) {
        let words = words.trim();
        if words.is_empty() || words == self.last() {
            return;
        }
        if !self.text.is_empty() {
            self.text.push_str("\n\n");
        }
        self.last = self.text.len();
        self.text.push_str(words);
        if self.text.len() > MAX_SAID_BYTES {
            let cut = self.text.ceil_char_boundary(self.text.len() - MAX_SAID_BYTES);
            self.text.drain(..cut);
            self.last = self.last.saturating_sub(cut);
            self.is_cut = true;
        }
    }

    /// All of it, as far as it is kept.
    pub fn text(&self) -> String {
        if self.is_cut { format!("{SAID_BEFORE}{}", self.text) } else { self.text.clone() }
    }

    /// The words of the last reply that had any.
    pub fn last(&self) -> &str {
        &self.text[self.last..]
    }
}
