//! From pieces to one reply.

use posse_core::model::{CallRequest, Delta, Extra, Finish, Usage};
use serde_json::Value;

use super::sse::SseEvent;
use super::wire::{Answer, CallPiece, Completion, Fault, finish_of, settle};

mod thoughts;

use thoughts::Leading;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct WholeReply {
    pub text: String,
    /// The reasoning beside it; empty when there was none.
    pub reasoning: String,
    /// The calls, ids as the provider sent them.
    pub calls: Vec<CallRequest>,
    pub refusal: Option<String>,
    pub finish: Finish,
    pub usage: Option<Usage>,
    pub model: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Broken {
    /// The provider reported an error inside the reply.
    Fault(Fault),
    /// The reply has no end, or cannot be read. Worded to follow the model's name.
    Cut(&'static str),
}

/// Puts a streamed reply together, and reads a whole one as a stream of one piece. Pure.
#[derive(Debug, Default)]
pub(super) struct StreamAssembler {
    provider: String,
    /// The text as it came, thoughts in it included.
    text: String,
    leading: Leading,
    reasoning: String,
    refusal: String,
    calls: Vec<OpenCall>,
    finish_word: Option<String>,
    usage: Option<Usage>,
    model: Option<String>,
    done: bool,
    /// A choice came, so there is an answer, be it an empty one.
    answered: bool,
    broken: Option<Broken>,
    /// How many pieces came; tells the calls of one piece from those of earlier ones.
    pieces: u64,
}

#[derive(Debug)]
struct OpenCall {
    index: Option<u64>,
    call: CallRequest,
    /// The piece that last touched it.
    piece: u64,
    /// Bytes of its arguments that were shown.
    shown: usize,
}

impl StreamAssembler {
    pub fn of(provider: &str) -> Self {
        StreamAssembler { provider: provider.to_owned(), ..StreamAssembler::default() }
    }

    /// Takes one event and gives what it shows.
    pub fn event(&mut self, event: &SseEvent) -> Vec<Delta> {
        let data = event.data.trim();
        if data == "[DONE]" {
            self.done = true;
            return Vec::new();
        }
        // Heartbeats under a name of their own, with or without a body.
        if matches!(event.name.as_str(), "keepalive" | "keep-alive" | "ping" | "heartbeat") {
            return Vec::new();
        }
        if event.name == "error" {
            self.broken.get_or_insert(Broken::Fault(Fault::in_body(data.as_bytes())));
            return Vec::new();
        }
        if let Ok(value) = serde_json::from_str(data) {
            return self.push(value);
        }
        // Servers that forget the blank line between events give several on one line each.
        let mut deltas = Vec::new();
        let lines: Vec<_> = data.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        if lines.len() < 2 {
            self.break_off(Broken::Cut("sent a piece of its reply that is not JSON"));
            return deltas;
        }
        for line in lines {
            deltas.extend(self.event(&SseEvent { name: String::new(), data: line.to_owned() }));
        }
        deltas
    }

    /// Takes one piece, the JSON of one event or of a whole reply, and gives what it shows.
    pub fn push(&mut self, piece: Value) -> Vec<Delta> {
        self.pieces += 1;
        if let Some(fault) = Fault::in_answer(&piece) {
            self.break_off(Broken::Fault(fault));
            return Vec::new();
        }
        if !piece.is_object() {
            self.break_off(Broken::Cut("sent a piece of its reply that is not an object"));
            return Vec::new();
        }
        let piece = Completion(piece);
        // Where usage comes more than once it is a running total: the last one holds.
        self.usage = piece.usage().or(self.usage);
        self.model = piece.model().or(self.model.take());
        let Some(choice) = piece.choice() else { return Vec::new() };
        self.answered = true;
        if let Some(fault) = choice.fault() {
            self.break_off(Broken::Fault(fault));
            return Vec::new();
        }
        self.finish_word = choice.finish_reason().or(self.finish_word.take());
        self.answer(&choice.answer())
    }

    /// Whether nothing more is to be read: the provider said so, or reading on is pointless.
    pub fn over(&self) -> bool {
        self.done || self.broken.is_some()
    }

    /// Whether the reply has said why it ends. Only usage may still come.
    pub fn finished(&self) -> bool {
        self.finish_word.is_some()
    }

    /// Bytes written by the model so far, to estimate what a cut reply cost.
    pub fn written(&self) -> usize {
        let calls = self.calls.iter().map(|c| c.call.name.len() + c.call.arguments.len());
        self.text.len() + self.reasoning.len() + self.refusal.len() + calls.sum::<usize>()
    }

    pub fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// The reply of a stream that is over. Without a terminal signal there is none.
    pub fn finish(self) -> Result<WholeReply, Broken> {
        // `[DONE]` is a terminal signal of its own, if what came before it is complete.
        let ended = self.done && self.is_complete();
        self.close(ended, "broke off: its reply came without an end")
    }

    /// The reply of a whole body: that the body is whole is its terminal signal.
    pub fn finish_body(self) -> Result<WholeReply, Broken> {
        let ended = self.answered;
        self.close(ended, "sent a reply with no choice in it")
    }

    fn close(self, ended: bool, otherwise: &'static str) -> Result<WholeReply, Broken> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let finish = match &self.finish_word {
            Some(word) => finish_of(word).ok_or(Broken::Cut("broke off its reply"))?,
            None if ended => Finish::Stop,
            None => return Err(Broken::Cut(otherwise)),
        };
        let mut calls: Vec<_> = self.calls.into_iter().map(|open| open.call).collect();
        let finish = settle(finish, &mut calls);
        let thoughts::Parts { thoughts, text } = thoughts::split(&self.text, finish == Finish::Length);
        let mut reasoning = self.reasoning;
        if !reasoning.is_empty() && !thoughts.is_empty() {
            reasoning.push_str("\n\n");
        }
        reasoning.push_str(&thoughts);
        Ok(WholeReply {
            text,
            reasoning,
            calls,
            refusal: (!self.refusal.is_empty()).then_some(self.refusal),
            finish,
            usage: self.usage,
            model: self.model,
        })
    }

    fn is_complete(&self) -> bool {
        let something = !self.text.is_empty() || !self.refusal.is_empty() || !self.calls.is_empty();
        something && self.calls.iter().all(OpenCall::is_whole)
    }

    fn break_off(&mut self, why: Broken) {
        self.broken.get_or_insert(why);
    }

    fn answer(&mut self, answer: &Answer<'_>) -> Vec<Delta> {
        let mut deltas = Vec::new();
        let thought = answer.thought();
        if !thought.is_empty() {
            self.reasoning.push_str(&thought);
            deltas.push(Delta::Reasoning(thought));
        }
        let text = answer.text();
        if !text.is_empty() {
            self.text.push_str(&text);
            deltas.extend(self.leading.push(&text));
        }
        if let Some(words) = answer.refused() {
            self.refusal.push_str(&words);
        }
        for piece in answer.calls() {
            deltas.extend(self.call_piece(piece));
        }
        deltas
    }

    fn call_piece(&mut self, piece: CallPiece) -> Option<Delta> {
        let at = self.open_call(&piece).unwrap_or_else(|| {
            self.calls.push(OpenCall {
                index: piece.index,
                call: CallRequest { id: String::new(), name: String::new(), arguments: String::new(), extra: None },
                piece: self.pieces,
                shown: 0,
            });
            self.calls.len() - 1
        });
        let open = &mut self.calls[at];
        open.piece = self.pieces;
        open.index = open.index.or(piece.index);
        if let Some(name) = piece.name.filter(|_| open.call.name.is_empty()) {
            open.call.name = name;
        }
        if let Some(text) = piece.arguments {
            open.call.arguments.push_str(&text);
        }
        if let Some(id) = piece.id.filter(|_| open.call.id.is_empty()) {
            open.call.id = id;
        }
        // A signature may come late, and again: the provider wants the latest back.
        if let Some(value) = piece.extra {
            open.call.extra = Some(Extra { value, provider: self.provider.clone() });
        }
        // The name may come after the first arguments, which are shown once it is known.
        let CallRequest { name, arguments, .. } = &open.call;
        let more = arguments.get(open.shown..).filter(|more| !more.is_empty() && !name.is_empty())?.to_owned();
        open.shown = arguments.len();
        Some(Delta::Call { at, name: name.clone(), arguments: more })
    }

    /// The call that a piece goes on with; `None` if it starts one.
    ///
    /// By index if there is one, else by id, else the latest. But servers send no index, the same
    /// index for every call, one id for two calls, or a new id with every piece; so a piece with a
    /// name may be a start all the same, and a piece without a name never is one while its index
    /// is known.
    fn open_call(&self, piece: &CallPiece) -> Option<usize> {
        let last = |test: &dyn Fn(&OpenCall) -> bool| self.calls.iter().rposition(test);
        let id = piece.id.as_deref();
        let has_id = |open: &OpenCall| id.is_some_and(|id| open.call.id == id);
        let found = match piece.index {
            Some(index) => last(&|open| open.index == Some(index) && has_id(open))
                .or_else(|| last(&|open| open.index == Some(index)))
                .or_else(|| last(&|open| open.index.is_none() && has_id(open))),
            None if id.is_some() => last(&has_id),
            None => self.calls.len().checked_sub(1),
        }?;
        let open = &self.calls[found];
        let Some(name) = &piece.name else { return Some(found) };
        let other_id = id.is_some_and(|id| !open.call.id.is_empty() && open.call.id != id);
        let other_name = !open.call.name.is_empty() && open.call.name != *name;
        let again = open.is_whole() && piece.arguments.is_some();
        let beside = open.piece == self.pieces;
        let starts = other_id || other_name || again || beside;
        (!starts).then_some(found)
    }
}

impl OpenCall {
    fn is_whole(&self) -> bool {
        serde_json::from_str::<serde_json::Map<String, Value>>(&self.call.arguments).is_ok()
    }
}
