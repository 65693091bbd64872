//! What follows from a model's reply: which of its calls may run, and what ends with it.

use serde_json::{Value, json};

use super::{MAX_CALLS, MAX_REPLANS, Recorder, Verdict};
use crate::model::{CallRequest, Finish, ModelReply, ToolCalling};
use crate::run::call::{ASKED_INSTEAD, ASKED_TOGETHER, TOO_MANY_QUESTIONS};
use crate::run::finish::{self, Finishing};
use crate::run::journal::{Call, EndStatus, Entry, Turn};
use crate::run::phase::{self, AGENT_STEP, AgentStep, Content, Phase, WorkStatus};
use crate::run::{Run, Seen, structured};
use crate::skill::SkillCallArgs;
use crate::text::plural;
use crate::tool::EffectClass;

mod cut;

/// What is done about one call of a reply.
enum Decision {
    /// A tool of this class runs.
    Run(EffectClass),
    /// A skill begins.
    Skill,
    /// Nothing runs: a step, taken when the calls before it have ended; see `advance`.
    Tell,
    /// It may not run, for the reason the model is told.
    Refuse(String),
    /// The run, or the skill at work, acts on it as a whole.
    Act(Act),
}

enum Act {
    End(EndStatus, String, Option<String>),
    Ask(Vec<String>),
    Replan,
}

impl Recorder<'_> {
    pub(super) fn replied(&mut self, reply: ModelReply, ms: u64, check: &dyn Fn(&CallRequest) -> Verdict, seen: &Seen) {
        let structured = self.run.calling() == ToolCalling::Structured;
        let finish = reply.finish.clone();
        let mut turn = Turn {
            text: reply.text,
            reasoning: reply.reasoning,
            calls: Vec::new(),
            cut_calls: Vec::new(),
            finish: reply.finish,
            usage: reply.usage,
            model: reply.model,
            cost_microusd: reply.cost_microusd,
            failed_tries: reply.failed_tries,
            ms,
        };
        if let Some(refusal) = reply.refusal {
            if !turn.text.trim().is_empty() {
                turn.text.push_str("\n\n");
            }
            turn.text.push_str(&refusal);
            turn.cut_calls = reply.calls;
            self.record(Entry::Turn(turn));
            return self.end(EndStatus::Refused, refusal.clone(), Some(format!("the model refused: {refusal}")));
        }
        match finish {
            Finish::ContentFilter => {
                let text = turn.text.clone();
                turn.cut_calls = reply.calls;
                self.record(Entry::Turn(turn));
                let reason = "the provider's content filter stopped the reply; reword the goal or use another model";
                return self.end(EndStatus::Refused, text, Some(reason.into()));
            }
            Finish::Length if structured || reply.calls.is_empty() => {
                let limit = turn.usage.output;
                turn.cut_calls = reply.calls;
                self.record(Entry::Turn(turn));
                return self.record(Entry::Note { text: format!("{} {SHORTER}", cut_text(limit)) });
            }
            _ if !structured && (finish == Finish::Length || reply.calls.iter().any(cut::is_cut)) => {
                return self.take_cut_calls(turn, reply.calls);
            }
            _ => {}
        }
        let calls = if structured {
            match calls_in(self.run, &turn.text) {
                Ok(calls) => calls,
                Err(note) => {
                    turn.cut_calls = reply.calls;
                    self.record(Entry::Turn(turn));
                    return self.record(Entry::Note { text: note });
                }
            }
        } else {
            reply.calls
        };
        if calls.is_empty() {
            let text = turn.text.trim().to_owned();
            self.record(Entry::Turn(turn));
            return match text.is_empty() {
                true => self.record(Entry::Note { text: EMPTY_REPLY.into() }),
                false if is_leaked_call(&text) => self.record(Entry::Note { text: LEAKED_CALL.into() }),
                false if self.run.is_phased() => self.record(Entry::Note { text: NO_STEP.into() }),
                false => self.answered(None, text, seen),
            };
        }
        self.take_calls(turn, calls, check, seen);
    }

    /// None of a cut reply's calls runs, for the last one may have been meant to go with those before it.
    fn take_cut_calls(&mut self, mut turn: Turn, calls: Vec<CallRequest>) {
        let told = cut::results(&turn.finish, &turn.usage, &calls);
        let mut refused = Vec::new();
        for (i, (mut request, text)) in calls.into_iter().zip(told).enumerate() {
            request.id = call_id(self.run.calls_made + i as u64);
            if let Some(excerpt) = cut::excerpt(&request) {
                turn.cut_calls.push(std::mem::replace(&mut request, excerpt));
            }
            refused.push((request.id.clone(), text));
            turn.calls.push(Call { request, effect: None });
        }
        self.record(Entry::Turn(turn));
        for (call_id, text) in refused {
            self.refuse(call_id, text);
        }
    }

    /// Gives every call an id of our own, whatever the provider sent, and decides about each.
    fn take_calls(
        &mut self,
        mut turn: Turn,
        calls: Vec<CallRequest>,
        check: &dyn Fn(&CallRequest) -> Verdict,
        seen: &Seen,
    ) {
        let decisions = calls.iter().map(|call| self.decide(call, check)).collect();
        let mut act = None;
        let mut told = 0;
        let mut refused = Vec::new();
        for (i, (mut request, decision)) in calls.iter().cloned().zip(by_priority(&calls, decisions)).enumerate() {
            request.id = call_id(self.run.calls_made + i as u64);
            let id = request.id.clone();
            let mut effect = None;
            match decision {
                Decision::Run(class) => effect = Some(class),
                Decision::Skill => {}
                Decision::Tell => told += 1,
                Decision::Refuse(text) => refused.push((id, self.told(&request, text))),
                Decision::Act(whole) => act = Some((id, whole)),
            }
            turn.calls.push(Call { request, effect });
        }
        let runs = turn.calls.len() > told + refused.len() && act.is_none();
        self.record(Entry::Turn(turn));
        if let Some(limit) = self.run.tool_rounds_spent().filter(|_| runs) {
            while self.take_step() {}
            return self.end_at(limit);
        }
        for (call_id, text) in refused {
            self.refuse(call_id, text);
        }
        match act {
            Some((call_id, Act::End(EndStatus::Completed, text, None))) => self.answered(Some(call_id), text, seen),
            Some((call_id, Act::End(EndStatus::Partial, text, _)))
                if self.held_for_tasks(Some(&call_id), &text, seen) => {}
            Some((_, Act::End(status, text, reason))) => self.end(status, text, reason),
            Some((call_id, Act::Ask(questions))) => {
                let open_ms = self.run.question_ms();
                self.record(Entry::Asked { call_id, questions, open_ms });
            }
            // The call stays open until the failed try is summed up; see `advance`.
            Some((_, Act::Replan)) | None => {}
        }
    }

    /// Why a call was refused, as its model is told. A step by phases is answered by an object, whatever it is answered.
    pub(super) fn told(&self, request: &CallRequest, why: String) -> String {
        let is_step = self.run.is_phased() && request.name == AGENT_STEP && phase::action(request).is_none();
        if is_step { json!({"error": why}).to_string() } else { why }
    }

    fn decide(&self, request: &CallRequest, check: &dyn Fn(&CallRequest) -> Verdict) -> Decision {
        match request.name.as_str() {
            AGENT_STEP if self.run.is_phased() => match phase::parse(&request.arguments) {
                Ok(step) => self.decide_step(request, step, check),
                Err(why) => Decision::Refuse(why),
            },
            finish::FINISH if !self.run.is_phased() => match finish::read(&request.arguments) {
                Ok(Finishing::Answer(text)) => Decision::Act(Act::End(EndStatus::Completed, text, None)),
                Ok(Finishing::Questions(questions)) => Decision::Act(Act::Ask(questions)),
                Ok(Finishing::Replan(_)) if self.run.top().replans >= MAX_REPLANS => {
                    Decision::Refuse(format!("{MAX_REPLANS} new plans have been made, and no more may be. {GIVE_IN}"))
                }
                Ok(Finishing::Replan(_)) => Decision::Act(Act::Replan),
                Err(error) => Decision::Refuse(error.message),
            },
            _ => self.decide_call(request, check),
        }
    }

    fn decide_step(&self, request: &CallRequest, step: AgentStep, check: &dyn Fn(&CallRequest) -> Verdict) -> Decision {
        match step.content {
            Content::Act(_) => match phase::action(request) {
                Some(action) => self.decide_call(&action, check),
                None => Decision::Refuse(LEFT_OUT.into()),
            },
            Content::Feedback { message } => Decision::Act(Act::Ask(vec![message])),
            Content::End { status, message } => Decision::Act(match status {
                WorkStatus::Solved => Act::End(EndStatus::Completed, message, None),
                WorkStatus::Partial => Act::End(EndStatus::Partial, message, None),
                WorkStatus::Stuck => {
                    let reason = format!("stuck: {message}");
                    Act::End(EndStatus::Stuck, message, Some(reason))
                }
            }),
            Content::Plan(_) | Content::Reason | Content::Verify { .. } | Content::Reflect => Decision::Tell,
        }
    }

    fn decide_call(&self, request: &CallRequest, check: &dyn Fn(&CallRequest) -> Verdict) -> Decision {
        if let Some(skill) = self.run.skills().find(|skill| skill.spec.name == request.name) {
            if let Some(error) = &skill.error {
                return Decision::Refuse(error.clone());
            }
            let arguments = serde_json::from_str(&request.arguments).unwrap_or_default();
            return match SkillCallArgs::check(arguments) {
                Ok(_) => Decision::Skill,
                Err(error) => Decision::Refuse(error.message),
            };
        }
        if !self.run.tools().any(|tool| tool.spec.name == request.name) {
            return Decision::Refuse(self.no_such_tool(&request.name));
        }
        check(request).map_or_else(Decision::Refuse, Decision::Run)
    }

    fn no_such_tool(&self, name: &str) -> String {
        let last = if self.run.is_phased() { AGENT_STEP } else { finish::FINISH };
        let skills = self.run.told_skills().map(|skill| skill.spec.name.as_str());
        let tools = self.run.tools().map(|tool| tool.spec.name.as_str());
        let names: Vec<_> = tools.chain(skills).chain([last]).collect();
        format!("There is no tool '{name}'. Your tools are: {}.", names.join(", "))
    }
}

/// The calls that the text of a reply is, where calling is structured.
pub(super) fn calls_in(run: &Run, text: &str) -> Result<Vec<CallRequest>, String> {
    match run.is_phased() {
        true => Ok(vec![CallRequest {
            id: String::new(),
            name: AGENT_STEP.into(),
            arguments: structured::object_in(text).to_owned(),
            extra: None,
        }]),
        false => structured::parse(text).map(|step| structured::calls(&step)),
    }
}

/// What is done of a reply as a whole. Questions come first, since their answers may change everything else, and
/// then a new plan, which would forget whatever else was done: beside either nothing runs, and each call that does
/// not is told why. An answer comes alone, or its calls had not been seen.
fn by_priority(calls: &[CallRequest], decisions: Vec<Decision>) -> Vec<Decision> {
    let asks = calls.iter().any(asks_people);
    let replans = decisions.iter().any(|decision| matches!(decision, Decision::Act(Act::Replan)));
    let mut questions = Vec::new();
    let mut first = None;
    let mut decided = Vec::new();
    for (i, (call, decision)) in calls.iter().zip(decisions).enumerate() {
        decided.push(match decision {
            Decision::Act(Act::Ask(more)) if questions.len() + more.len() > finish::MAX_QUESTIONS => {
                Decision::Refuse(TOO_MANY_QUESTIONS.into())
            }
            Decision::Act(Act::Ask(more)) => {
                questions.extend(more);
                match first {
                    Some(_) => Decision::Refuse(ASKED_TOGETHER.into()),
                    None => {
                        first = Some(i);
                        // Those of the calls behind it are added below.
                        Decision::Act(Act::Ask(Vec::new()))
                    }
                }
            }
            Decision::Refuse(why) if asks && asks_people(call) => Decision::Refuse(why),
            _ if asks => Decision::Refuse(ASKED_INSTEAD.into()),
            Decision::Act(Act::Replan) if first.is_none() => {
                first = Some(i);
                Decision::Act(Act::Replan)
            }
            _ if replans => Decision::Refuse(REPLANNED_INSTEAD.into()),
            _ if i >= MAX_CALLS => Decision::Refuse(format!("Not run: one reply may make at most {MAX_CALLS} calls.")),
            Decision::Act(_) if calls.len() > 1 => Decision::Refuse(format!("{} {NOT_ALONE}", call.name)),
            decision => decision,
        });
    }
    if let Some(Decision::Act(Act::Ask(all))) = first.map(|first| &mut decided[first]) {
        *all = questions;
    }
    decided
}

/// Whether a call is meant to ask people something, whatever else is wrong with it.
fn asks_people(call: &CallRequest) -> bool {
    let Ok(arguments) = serde_json::from_str::<Value>(&call.arguments) else { return false };
    match call.name.as_str() {
        finish::FINISH => match &arguments["clarifying_questions"] {
            Value::Array(questions) => questions.iter().any(|q| q.as_str().is_none_or(|text| !text.trim().is_empty())),
            Value::String(question) => !question.trim().is_empty(),
            _ => false,
        },
        AGENT_STEP => arguments["phase"] == Phase::Feedback.as_str(),
        _ => false,
    }
}

/// How the markup of calls begins, by maker.
const BEGINS: &[&str] = &[
    "<tool_call>",
    "<function=",
    "<function_call>",
    "<|tool_call",
    "<|python_tag|>",
    "<｜tool▁calls▁begin｜>",
    "[TOOL_CALLS]",
    "<|channel|>commentary to=",
];

/// How it ends.
const ENDS: &[&str] = &["</tool_call>", "</function>", "</function_call>", "<｜tool▁calls▁end｜>"];

/// Whether `text` is, or ends in, a call as its model spells it: some servers fail to recognise their model's own markup and
/// hand it on as words. To run it would be a guess, and to take it for an answer would end the run with it.
fn is_leaked_call(text: &str) -> bool {
    let text = text.trim();
    BEGINS.iter().any(|mark| text.starts_with(mark)) || ENDS.iter().any(|mark| text.ends_with(mark))
}

/// The id of the `n`th call: `c` and eight of `[a-z0-9]`, a shape that every provider takes.
pub(super) fn call_id(mut n: u64) -> String {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut id = *b"c00000000";
    for digit in id[1..].iter_mut().rev() {
        *digit = DIGITS[(n % 36) as usize];
        n /= 36;
    }
    String::from_utf8_lossy(&id).into_owned()
}

fn cut_text(limit: u64) -> String {
    format!("The token limit was reached after {}: your reply was cut off.", plural(limit, "token"))
}

pub(super) const SHORTER: &str = "Make it shorter, or do it in several smaller steps.";

const EMPTY_REPLY: &str = "Your reply was empty. Call a tool, or call `finish` with the complete answer.";

const LEAKED_CALL: &str = "Your reply held a tool call as text, which has not been run. Call the tool itself, or call \
                           `finish` with the complete answer.";

const NO_STEP: &str = "Your reply made no step. Call `agent_step` with the next phase.";

const NOT_ALONE: &str = "was not accepted: call it alone, after you have seen the results of the other calls.";

const REPLANNED_INSTEAD: &str = "Not run: the same reply asked for a new plan, which begins without it.";

const GIVE_IN: &str = "Call `finish` with what you have, and say plainly what is missing.";

const LEFT_OUT: &str = "act phase requires an action object with tool_name and tool_input";
