//! A model for tests: plays a script, remembers what it was asked, and validates every request.

use async_trait::async_trait;
use posse_core::model::conversation::{Rules, normalise};
use posse_core::model::{
    Author, CallRequest, Delta, DeltaSink, Finish, Message, Model, ModelError, ModelErrorKind, ModelProfile,
    ModelReply, ModelRequest, ToolCalling, Usage,
};
use posse_core::stop::Stop;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::validate::{validate, validate_strictly, validate_tools};

/// One thing the model does when asked.
pub enum Play {
    /// Answers.
    Reply(ModelReply),
    /// Fails.
    Fail(ModelError),
    /// Says nothing until it is stopped.
    Hang,
}

/// Decides on one request what to do.
type Scene = Box<dyn FnOnce(&ModelRequest) -> Play + Send>;

/// Decides on each request what to do.
type Respond = Box<dyn FnMut(&ModelRequest) -> Play + Send>;

/// Plays a script and validates requests.
///
/// A request that breaks a rule of [`crate::validate`] is answered with an error, and remembered:
/// [`ScriptedModel::assert_clean`] reports it, and dropping a model whose violations nobody has
/// looked at panics, so that no test passes over one.
pub struct ScriptedModel {
    profile: ModelProfile,
    rules: Option<Rules>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    script: VecDeque<Scene>,
    forever: Option<Respond>,
    requests: Vec<ModelRequest>,
    violations: Vec<String>,
    looked_at: bool,
    calls_made: u64,
}

impl Default for ScriptedModel {
    fn default() -> Self {
        ScriptedModel::new()
    }
}

impl ScriptedModel {
    /// A model with an empty script, called `scripted`, that makes tool calls natively.
    pub fn new() -> Self {
        ScriptedModel {
            profile: ModelProfile {
                name: "scripted".to_owned(),
                model: "scripted-1".to_owned(),
                tool_calling: ToolCalling::Native,
                context_window: None,
            },
            rules: None,
            state: Mutex::default(),
        }
    }

    /// With another profile.
    pub fn with_profile(mut self, profile: ModelProfile) -> Self {
        self.profile = profile;
        self
    }

    /// Plays the adapter of a provider with these rules, and that provider at its strictest: each
    /// conversation is made legal, and validated by everything that any provider minds.
    pub fn strict(mut self, rules: Rules) -> Self {
        self.rules = Some(rules);
        self
    }

    /// Who writes its replies.
    pub fn author(&self) -> Author {
        Author { provider: self.profile.name.clone(), model: self.profile.model.clone() }
    }

    /// Then says `text` and ends.
    pub fn say(self, text: &str) -> Self {
        self.reply(text_reply(text))
    }

    /// Then makes these calls, as (tool, arguments).
    pub fn call(self, calls: &[(&str, Value)]) -> Self {
        let calls = {
            let mut state = self.state();
            let call = |(name, arguments): &(&str, Value)| {
                state.calls_made += 1;
                CallRequest {
                    id: format!("scripted_call_{}", state.calls_made),
                    name: (*name).to_owned(),
                    arguments: arguments.to_string(),
                    extra: None,
                }
            };
            calls.iter().map(call).collect()
        };
        self.reply(calls_reply(calls))
    }

    /// Then gives exactly this reply.
    pub fn reply(self, reply: ModelReply) -> Self {
        self.play(Play::Reply(reply))
    }

    /// Then fails with this kind of error.
    pub fn fail(self, kind: ModelErrorKind, message: &str) -> Self {
        self.play(Play::Fail(error(kind, message)))
    }

    /// Then says nothing until it is stopped.
    pub fn hang(self) -> Self {
        self.play(Play::Hang)
    }

    /// Then does this.
    pub fn play(self, play: Play) -> Self {
        self.respond(|_| play)
    }

    /// Then decides on the request what to do.
    pub fn respond(self, respond: impl FnOnce(&ModelRequest) -> Play + Send + 'static) -> Self {
        self.state().script.push_back(Box::new(respond));
        self
    }

    /// Once the script is over, decides on each request what to do. Without this, a request past
    /// the script's end is a violation.
    pub fn forever(self, respond: impl FnMut(&ModelRequest) -> Play + Send + 'static) -> Self {
        self.state().forever = Some(Box::new(respond));
        self
    }

    /// Every request so far, in order, as it was validated: its tail is its last message.
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.state().requests.clone()
    }

    /// How many requests were made.
    pub fn asked(&self) -> usize {
        self.state().requests.len()
    }

    /// What was wrong with the requests so far. They count as looked at.
    pub fn violations(&self) -> Vec<String> {
        let mut state = self.state();
        state.looked_at = true;
        state.violations.clone()
    }

    /// Panics if any request broke a rule.
    pub fn assert_clean(&self) {
        let violations = self.violations();
        assert!(violations.is_empty(), "requests broke the rules:\n{}", violations.join("\n"));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What to do about `request`.
    fn next(&self, request: &ModelRequest) -> Play {
        let mut request = request.clone();
        if let Some(text) = request.tail.take() {
            request.messages.push(Message::User { text });
        }
        let mut found = match self.rules {
            None => validate(&request.messages),
            Some(rules) => {
                request.messages = normalise(&request.messages, rules, &self.author()).into();
                validate_strictly(&request.messages, rules, &self.author())
            }
        };
        found.extend(validate_tools(&request));
        let mut state = self.state();
        state.requests.push(request.clone());
        let number = state.requests.len();
        let mut wrong: Vec<_> = found.iter().map(|violation| format!("request {number}, {violation}")).collect();
        let scene = state.script.pop_front();
        if scene.is_none() && state.forever.is_none() {
            wrong.push(format!("request {number} is past the end of the script"));
        }
        if !wrong.is_empty() {
            let message = wrong.join("; ");
            state.violations.extend(wrong);
            state.looked_at = false;
            return Play::Fail(error(ModelErrorKind::Rejected, &message));
        }
        match (scene, state.forever.as_mut()) {
            (Some(respond), _) => respond(&request),
            (None, Some(respond)) => respond(&request),
            (None, None) => Play::Fail(error(ModelErrorKind::Rejected, "the script is over")),
        }
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !state.violations.is_empty() && !state.looked_at && !std::thread::panicking() {
            panic!("requests broke the rules, and nobody looked:\n{}", state.violations.join("\n"));
        }
    }
}

#[async_trait]
impl Model for ScriptedModel {
    async fn profile(&self) -> Result<ModelProfile, ModelError> {
        Ok(self.profile.clone())
    }

    async fn complete(
        &self,
        request: &ModelRequest,
        deltas: &DeltaSink<'_>,
        stop: &Stop,
    ) -> Result<ModelReply, ModelError> {
        if stop.reason().is_some() {
            return Err(error(ModelErrorKind::Stopped, "stopped before it was asked"));
        }
        match self.next(request) {
            Play::Reply(reply) => {
                if let Some(thought) = &reply.reasoning {
                    deltas(Delta::Reasoning(thought.text.clone()));
                }
                if !reply.text.is_empty() {
                    deltas(Delta::Text(reply.text.clone()));
                }
                for (at, CallRequest { name, arguments, .. }) in reply.calls.iter().enumerate() {
                    deltas(Delta::Call { at, name: name.clone(), arguments: arguments.clone() });
                }
                Ok(reply)
            }
            Play::Fail(error) => Err(error),
            Play::Hang => {
                stop.stopped().await;
                Err(error(ModelErrorKind::Stopped, "stopped"))
            }
        }
    }
}

/// A reply that says `text` and ends, at 10 tokens in and 5 out.
pub fn text_reply(text: &str) -> ModelReply {
    ModelReply {
        text: text.to_owned(),
        reasoning: None,
        calls: Vec::new(),
        refusal: None,
        finish: Finish::Stop,
        usage: Usage { input: 10, output: 5, cached: 0, estimated: false },
        model: "scripted-1".to_owned(),
        cost_microusd: None,
        failed_tries: Vec::new(),
    }
}

/// A reply that makes `calls`, ids as given.
pub fn calls_reply(calls: Vec<CallRequest>) -> ModelReply {
    ModelReply { calls, finish: Finish::ToolCalls, ..text_reply("") }
}

fn error(kind: ModelErrorKind, message: &str) -> ModelError {
    ModelError { kind, message: message.to_owned(), retry_after: None, context_window: None, failed_tries: Vec::new() }
}
