//! The state of a run, as the sum of its journal.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::job::Output;
use crate::memory::told::{MEMORY_SEARCH, UNTRUSTED};
use crate::model::conversation::NO_RESULT;
use crate::model::tokens::{self, Gauge, Tally};
use crate::model::{CallRequest, Message, ToolCalling, Usage};
use crate::persona::Style;
use crate::run::journal::{
    Call, CallOutcome, Count, EndStatus, Entry, OfferedSkill, OfferedTool, Opening, Overflow, Recorded, Turn,
};
use crate::skill::shelf::FIND_SKILLS;
use crate::skill::{READ_SKILL_FILE, SkillCallArgs};

use super::call::{EndedCall, OpenCall, number_of};
use super::claims::Work;
use super::cycle::{self, Asked, Cycle};
use super::phase::{self, AGENT_STEP, AgentStep, Phase, WorkStatus};
use super::phased::Phased;
use super::program::Program;
use super::{finish, prompt};

/// The state of a run: everything its journal says, added up.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Run {
    pub(super) next_seq: u64,
    /// Where the costs of a summary that is under way begin.
    pub(super) summary_from: Option<u64>,
    pub(super) opening: Option<Arc<Opening>>,
    /// The run's own conversation, then those of the skills at work, each called by the one before.
    pub(super) cycles: Vec<Cycle>,
    /// Working memory, where the style is phased.
    pub(super) phased: Phased,
    /// The number of the next call, which its id is made from.
    pub(super) calls_made: u64,
    pub(super) turns: u32,
    /// Replies of which something ran.
    pub(super) tool_rounds: u32,
    pub(super) usage: Usage,
    pub(super) cost_microusd: Option<u64>,
    /// How this model's tokens compare with counts and estimates.
    pub(super) gauge: Gauge,
    /// What the model is told of tools, in tokens.
    pub(super) tools_tokens: Tally,
    /// Names of the skills found lately, of those that the model is not told of; last those found last.
    pub(super) found: Vec<String>,
    pub(super) worked_ms: u64,
    pub(super) tools_used: BTreeSet<String>,
    /// Requests since the model last replied that gave no reply.
    pub(super) failures_in_a_row: u32,
    /// What the last request that did not fit taught about the model's window.
    pub(super) overflow: Option<Overflow>,
    pub(super) ended: Option<Ended>,
    /// What had been used when the run was last reopened; limits count from there.
    pub(super) spent_before: Spent,
    /// What people had been asked when the run was last restarted, for the beginning that follows.
    pub(super) asked_before: Vec<String>,
    /// What its tools did, as far as its answer is held against it.
    pub(super) work: Work,
    /// What it has read that others wrote.
    heard: BTreeSet<String>,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// How.
    pub status: EndStatus,
    /// The answer, or the last words there were.
    pub text: String,
    /// Why, when it is not plainly the answer.
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Spent {
    pub(super) turns: u32,
    /// Of these turns, those that were steps of the run's own conversation.
    pub(super) steps: u32,
    pub(super) tool_rounds: u32,
    pub(super) tokens: u64,
    pub(super) ms: u64,
}

impl Run {
    /// The run that a journal tells of.
    pub fn replay<'a>(journal: impl IntoIterator<Item = &'a Recorded>) -> Run {
        let mut run = Run::default();
        for recorded in journal {
            run.apply(&recorded.entry);
            // Where a row is missing, the next entry goes behind the last one all the same.
            run.next_seq = recorded.seq + 1;
        }
        run
    }

    /// Takes in the next entry. The only way a run changes.
    ///
    /// An entry that does not fit the state (a damaged journal) changes as little as it can; it is
    /// never a reason to panic.
    pub fn apply(&mut self, entry: &Entry) {
        self.summary_from = match entry {
            Entry::Summarised { .. } => self.summary_from.or(Some(self.next_seq)),
            _ => None,
        };
        self.next_seq += 1;
        let mut work = std::mem::take(&mut self.work);
        work.take(entry, entry.call_id().and_then(|id| self.open_call(id)), self.opening.as_deref());
        self.work = work;
        if let Entry::CallEnded { call_id, outcome, text, .. } = entry {
            self.hear(call_id, *outcome, text);
        }
        let calling = self.calling();
        match entry {
            Entry::Began { .. } if self.opening.is_some() => {}
            Entry::Began { goal, opening } => self.begin(goal, opening),
            Entry::Turn(turn) => self.apply_turn(turn),
            Entry::TurnFailed { failed_tries, overflow, ms, .. } => {
                failed_tries.iter().for_each(|failed| self.usage.add(&failed.usage));
                self.worked_ms += ms;
                self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
                self.overflow = overflow.or(self.overflow);
            }
            Entry::CallStarted { call_id } => {
                self.count_call(call_id);
                if let Some(call) = self.top_mut().start(call_id) {
                    let name = call.request.name.clone();
                    self.tools_used.insert(name);
                }
            }
            Entry::CallEnded { call_id, outcome, text, ms, .. } => self.end_call(call_id, *outcome, text, *ms),
            Entry::SkillBegan { call_id } => self.begin_skill(call_id),
            Entry::ProgramBegan { call_id, at } => self.top_mut().begin_program(call_id, *at),
            Entry::CallMade { by, number, call } => {
                self.count_call(&call.request.id);
                if let Some(program) = self.top_mut().program.as_mut().filter(|program| program.call_id == *by) {
                    program.make(*number, call);
                }
            }
            Entry::FellBack { call_id, to, .. } => {
                self.count_call(&to.request.id);
                self.top_mut().fall_back(call_id, to);
            }
            Entry::Asked { call_id, questions, .. } => {
                if self.is_phased() {
                    let asking = self.open_call(call_id).cloned();
                    self.phased.take_question(&questions.join("\n"), asking.as_ref());
                }
                let questions = questions.iter().map(|question| (question.clone(), None)).collect();
                self.top_mut().asked = Some(Asked { call_id: call_id.clone(), questions });
            }
            Entry::Answered { question, answer } => self.top_mut().settle(*question, answer.as_ref(), calling),
            Entry::Replanned { summary, .. } => {
                let told = prompt::task_after_failure(&self.task_told(), summary);
                self.top_mut().replan(told);
            }
            Entry::Compacted { cut, summary } => {
                // Nobody summarises while a call is open, so the entry of its end is missing.
                self.close_calls(NO_RESULT);
                self.top_mut().history.summarise(cut, summary);
            }
            Entry::Shortened { shortenings } => self.top_mut().history.shorten(shortenings),
            Entry::Counted { tools, messages } => self.take_counts(*tools, messages),
            Entry::Summarised { usage, cost_microusd, ms, .. } => self.spend(usage, *cost_microusd, *ms),
            Entry::Note { text } => {
                self.close_calls(NO_RESULT);
                if self.is_phased() {
                    self.phased.take_faulty();
                }
                self.top_mut().note(text);
            }
            Entry::Doubted { call_id, text, .. } => match call_id {
                Some(call_id) => self.end_call(call_id, CallOutcome::Refused, text, 0),
                None => self.top_mut().tell(text),
            },
            Entry::Ended { status, text, reason } => {
                self.cycles.truncate(1);
                self.close_calls(finish::RUN_ENDED);
                self.ended = Some(Ended { status: *status, text: text.clone(), reason: reason.clone() });
            }
            Entry::Reopened => {
                self.close_calls(NO_RESULT);
                self.ended = None;
                self.failures_in_a_row = 0;
                self.top_mut().reopen(prompt::GO_ON);
                self.spent_before = self.spent();
            }
            Entry::Restarted => {
                let before = std::mem::take(self);
                let asked_before = before.cycles.first().map(Cycle::asked_so_far).unwrap_or_default();
                // Totals are of the whole job, and ids of calls never repeat in it.
                *self = Run {
                    next_seq: before.next_seq,
                    calls_made: before.calls_made,
                    turns: before.turns,
                    tool_rounds: before.tool_rounds,
                    asked_before,
                    spent_before: Spent { steps: 0, ..before.spent() },
                    usage: before.usage,
                    cost_microusd: before.cost_microusd,
                    worked_ms: before.worked_ms,
                    tools_used: before.tools_used,
                    work: before.work,
                    ..Run::default()
                };
            }
        }
    }

    /// Takes note of the tool whose result has words of others in it.
    fn hear(&mut self, call_id: &str, outcome: CallOutcome, text: &str) {
        if !matches!(outcome, CallOutcome::Done | CallOutcome::Failed { .. }) {
            return;
        }
        let Some(name) = self.open_call(call_id).map(|call| call.request.name.clone()) else { return };
        let offered = self.opening.iter().flat_map(|opening| &opening.tools).find(|tool| tool.spec.name == name);
        let is_foreign = match name.as_str() {
            MEMORY_SEARCH => text.starts_with(UNTRUSTED),
            FIND_SKILLS => false,
            _ => offered.is_some_and(|tool| !tool.own_words),
        };
        if is_foreign {
            self.heard.insert(name);
        }
    }

    /// What it has read that others wrote, so that nobody vouches for what it says then: names of tools, and what it was
    /// told before its task.
    pub fn heard(&self) -> Vec<String> {
        let opening = self.opening.as_deref();
        let told = [
            (opening.is_some_and(|opening| opening.workspace.is_some()), "the workspace"),
            (opening.is_some_and(|opening| opening.results.is_some()), "the answers of other jobs"),
        ];
        let told = told.into_iter().filter(|(is_told, _)| *is_told).map(|(_, what)| what.to_owned());
        let before = opening.iter().flat_map(|opening| &opening.heard);
        told.chain(before.chain(&self.heard).cloned()).collect()
    }

    pub(super) fn begin(&mut self, goal: &str, opening: &Arc<Opening>) {
        let Opening { system, skills_list, blocks, memory, .. } = &**opening;
        let said_first = [Some(system), skills_list.as_ref(), blocks.as_ref(), memory.as_ref()];
        let system = said_first.into_iter().flatten().map(|text| Message::System { text: text.clone() });
        let mut messages: Vec<_> = system.collect();
        messages.extend(opening.examples.iter().chain(&opening.history).cloned());
        let asked_before = std::mem::take(&mut self.asked_before);
        let task = prompt::task_with(goal, opening.workspace.as_deref(), opening.results.as_ref());
        messages.push(Message::User { text: cycle::with_answers(task, &asked_before) });
        self.tools_tokens = match opening.calling {
            ToolCalling::Native => Tally::estimated(tokens::text(&prompt::told_of_tools(opening, &[]))),
            // Held to by the server's decoder; the model does not read them.
            ToolCalling::Structured => Tally::default(),
        };
        self.cycles = vec![Cycle::new(goal, messages)];
        self.top_mut().answers = asked_before;
        self.opening = Some(Arc::clone(opening));
    }

    /// The task of the conversation at work, as it is told.
    pub(super) fn task_told(&self) -> String {
        let opening = self.opening.as_ref().filter(|_| self.depth() == 0);
        let workspace = opening.and_then(|opening| opening.workspace.as_deref());
        prompt::task_with(&self.top().task, workspace, opening.and_then(|opening| opening.results.as_ref()))
    }

    /// The child's conversation is made from scratch: nothing of its caller's is in it.
    pub(super) fn begin_skill(&mut self, call_id: &str) {
        let (Some(opening), Some(call)) = (self.opening.clone(), self.open_call(call_id)) else { return };
        let Some(at) = opening.skills.iter().position(|skill| skill.spec.name == call.request.name) else { return };
        let arguments = serde_json::from_str(&call.request.arguments).unwrap_or_default();
        let Ok(args) = SkillCallArgs::check(arguments) else { return };
        let skill = &opening.skills[at];
        let system = [&skill.system, &skill.prompt].map(|text| Message::System { text: text.clone() });
        let head = system.into_iter().chain(skill.examples.iter().cloned()).chain(args.messages()).collect();
        self.top_mut().start(call_id);
        self.cycles.push(Cycle::of_skill(call_id, at, &args.task, head));
        self.tools_used.insert(skill.spec.name.clone());
    }

    pub(super) fn end_call(&mut self, call_id: &str, outcome: CallOutcome, text: &str, ms: u64) {
        let calling = self.calling();
        self.count_call(call_id);
        self.worked_ms += ms;
        if self.top_mut().end_of_program(call_id, outcome, text, ms) {
            return;
        }
        if self.top().call_id.as_deref() == Some(call_id) {
            self.cycles.pop();
        } else if outcome == CallOutcome::Done {
            self.find_skills(call_id);
        }
        self.top_mut().count(outcome);
        let ended = self.top_mut().end(call_id, outcome, text, ms, calling);
        self.take_ended(&ended);
    }

    /// Gives the open calls of the conversation at work a result: none of their own will come.
    pub(super) fn close_calls(&mut self, text: &str) {
        let calling = self.calling();
        let ended = self.top_mut().close(text, calling);
        self.take_ended(&ended);
    }

    pub(super) fn take_ended(&mut self, ended: &[EndedCall]) {
        if self.is_phased() {
            ended.iter().for_each(|ended| self.phased.take_call(ended));
        }
    }

    /// The step of a phase that runs nothing, if the call is one: it ends as soon as the calls before it have.
    pub(super) fn told_step(&self, call: &OpenCall) -> Option<AgentStep> {
        if call.effect.is_some() || call.request.name != AGENT_STEP || !self.is_phased() {
            return None;
        }
        let step = phase::parse(&call.request.arguments).ok()?;
        matches!(step.phase(), Phase::Plan | Phase::Reason | Phase::Verify | Phase::Reflect).then_some(step)
    }

    pub(super) fn apply_turn(&mut self, turn: &Turn) {
        // Whoever replied was asked, so the calls before had ended and the run went on, even where the
        // entries that say so are missing.
        self.close_calls(NO_RESULT);
        self.ended = None;
        self.failures_in_a_row = 0;
        self.turns += 1;
        // Where no window is known there is nothing to count for.
        if self.window().is_some() {
            self.gauge.replied(self.request_tally(), &turn.usage);
        }
        self.spend(&turn.usage, turn.cost_microusd, turn.ms);
        turn.failed_tries.iter().for_each(|failed| self.usage.add(&failed.usage));
        if turn.calls.iter().any(|call| call.effect.is_some() || self.begins_skill(&call.runs())) {
            self.tool_rounds += 1;
        }
        if self.is_phased() {
            self.phased.take_turn(turn);
        }
        let made = self.calls_made;
        // An entry that is there twice makes its calls once.
        let is_new = |call: &&Call| number_of(&call.request.id).is_none_or(|number| number >= made);
        let new: Vec<_> = turn.calls.iter().filter(is_new).collect();
        let calling = self.calling();
        self.top_mut().take_turn(turn, &new, calling);
        turn.calls.iter().for_each(|call| self.count_call(&call.request.id));
    }

    /// Takes in what the model's tokenizer counted. It teaches the estimates of everything else, too.
    pub(super) fn take_counts(&mut self, tools: Option<u64>, messages: &[Count]) {
        let (mut estimated, mut counted) = (0, 0);
        let mut add = |(before, now): (u64, u64)| {
            estimated += before;
            counted += now;
        };
        messages.iter().filter_map(|count| self.top_mut().take_count(count)).for_each(&mut add);
        if let Some(tokens) = tools {
            add((self.tools_tokens.estimated, tokens));
            self.tools_tokens = Tally::counted(tokens);
        }
        self.gauge.counted(estimated, counted);
    }

    /// Takes note of an id, wherever it comes up, so that no call after it gets the same one.
    pub(super) fn count_call(&mut self, id: &str) {
        if let Some(number) = number_of(id) {
            self.calls_made = self.calls_made.max(number + 1);
        }
    }

    /// Whether a call is one that a skill begins with.
    pub(super) fn begins_skill(&self, call: &CallRequest) -> bool {
        let arguments = || serde_json::from_str(&call.arguments).unwrap_or_default();
        self.skills().any(|skill| skill.spec.name == call.name && skill.error.is_none())
            && SkillCallArgs::check(arguments()).is_ok()
    }

    fn spent(&self) -> Spent {
        let (steps, tokens) = (self.phased.replies, self.usage.total());
        Spent { turns: self.turns, steps, tool_rounds: self.tool_rounds, tokens, ms: self.worked_ms }
    }

    pub(super) fn spend(&mut self, usage: &Usage, cost_microusd: Option<u64>, ms: u64) {
        self.usage.add(usage);
        self.worked_ms += ms;
        if let Some(cost) = cost_microusd {
            *self.cost_microusd.get_or_insert(0) += cost;
        }
    }

    /// The conversation at work: the run's own, or that of the skill called last.
    pub(super) fn top(&self) -> &Cycle {
        static NONE: std::sync::LazyLock<Cycle> = std::sync::LazyLock::new(Cycle::default);
        self.cycles.last().unwrap_or(&NONE)
    }

    pub(super) fn top_mut(&mut self) -> &mut Cycle {
        if self.cycles.is_empty() {
            self.cycles.push(Cycle::default());
        }
        let last = self.cycles.len() - 1;
        &mut self.cycles[last]
    }

    pub(super) fn calling(&self) -> ToolCalling {
        self.opening.as_ref().map_or(ToolCalling::Native, |o| o.calling)
    }

    /// Whether the conversation at work moves through phases. A skill's never does.
    pub(super) fn is_phased(&self) -> bool {
        self.depth() == 0 && self.opening.as_ref().is_some_and(|o| o.persona.style == Style::Phased)
    }

    /// The position of the next entry.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// The position of the first entry about a summary that is under way, else that of the next entry.
    pub fn summary_from(&self) -> u64 {
        self.summary_from.unwrap_or(self.next_seq)
    }

    /// What it works with, once it has begun.
    pub fn opening(&self) -> Option<&Arc<Opening>> {
        self.opening.as_ref()
    }

    /// How many skills are at work inside each other; 0 for the run itself.
    pub fn depth(&self) -> usize {
        self.cycles.len().saturating_sub(1)
    }

    /// The skill at work, if one is.
    pub fn skill(&self) -> Option<&OfferedSkill> {
        self.opening.as_ref()?.skills.get(self.top().skill?)
    }

    /// The tools that may be called now. Files of a skill are read inside it alone.
    pub fn tools(&self) -> impl Iterator<Item = &OfferedTool> {
        let offered = self.opening.as_ref().map_or(&[][..], |o| &o.tools);
        let only = self.skill().map(|skill| &skill.tools);
        let callable = move |name: &String| only.map_or(name != READ_SKILL_FILE, |names| names.contains(name));
        offered.iter().filter(move |tool| callable(&tool.spec.name))
    }

    /// The skills that may be called now.
    pub fn skills(&self) -> impl Iterator<Item = &OfferedSkill> {
        let offered = self.opening.as_ref().map_or(&[][..], |o| &o.skills);
        let only = self.skill().map(|skill| &skill.skills);
        let deep = self.depth() >= cycle::MAX_DEPTH;
        offered.iter().filter(move |skill| !deep && only.map_or(!skill.inner, |names| names.contains(&skill.spec.name)))
    }

    /// The conversation at work, in sending order, without what changes with every request.
    pub fn messages(&self) -> &[Message] {
        self.top().history.messages()
    }

    /// Calls of the conversation at work that have not ended, in the order asked for.
    pub fn open_calls(&self) -> &[OpenCall] {
        &self.top().open
    }

    /// The open call of that id, be it the model's or a program's.
    pub(crate) fn open_call(&self, id: &str) -> Option<&OpenCall> {
        let of_program = self.program().into_iter().flat_map(Program::open);
        self.top().open.iter().chain(of_program).find(|call| call.request.id == id)
    }

    /// The program at work, if one is.
    pub fn program(&self) -> Option<&Program> {
        self.top().program.as_ref()
    }

    /// Questions that wait for people, if any do.
    pub fn asked(&self) -> Option<&Asked> {
        self.top().asked.as_ref()
    }

    /// How it ended, if it has.
    pub fn ended(&self) -> Option<&Ended> {
        self.ended.as_ref()
    }

    /// Model replies so far.
    pub fn turns(&self) -> u32 {
        self.turns
    }

    /// Turns since it was begun or last re-run, and how many it may take.
    pub fn turns_of_limit(&self) -> Option<(u32, u32)> {
        let limit = self.opening.as_ref()?.persona.limits.max_turns;
        Some((self.turns - self.spent_before.turns, limit))
    }

    /// What the job leaves behind as the state stands.
    pub fn output(&self) -> Output {
        let (status, text) = match &self.ended {
            Some(ended) => (ended.status.as_str().to_owned(), ended.text.clone()),
            None => ("unfinished".to_owned(), self.said()),
        };
        Output {
            text,
            status,
            reason: self.ended.as_ref().and_then(|ended| ended.reason.clone()),
            end_status: self.end_status().map(|status| status.as_str().to_owned()),
            tools_used: self.tools_used.iter().cloned().collect(),
            turns: self.turns,
            usage: self.usage,
            cost_microusd: self.cost_microusd,
            phase: Some(self.phase().to_owned()),
            heard: Some(self.heard()),
        }
    }

    /// How the agent judged its work at its end, where its style has it do so.
    pub(super) fn end_status(&self) -> Option<WorkStatus> {
        let opening = self.opening.as_ref().filter(|opening| opening.persona.style == Style::Phased);
        match (opening?, self.ended.as_ref()?.status) {
            (_, EndStatus::Completed) => Some(WorkStatus::Solved),
            (_, EndStatus::Partial) => Some(WorkStatus::Partial),
            (_, EndStatus::Stuck) => Some(WorkStatus::Stuck),
            _ => None,
        }
    }

    /// What was said so far, reply by reply, in the run's own conversation and in those of skills at work.
    pub(super) fn said(&self) -> String {
        let said: Vec<_> = self.cycles.iter().map(|cycle| cycle.said.text()).filter(|text| !text.is_empty()).collect();
        said.join("\n\n")
    }

    /// What the conversation at work leaves if it ends without an answer: a skill's caller is told its last words.
    pub(super) fn left(&self) -> String {
        if self.depth() == 0 { self.said() } else { self.top().said.last().to_owned() }
    }

    /// Where in its work it is: the last phase, and for the direct style `act` until the end.
    pub fn phase(&self) -> &str {
        match (&self.ended, self.phased.last_phase()) {
            (Some(ended), _) if ended.status.is_by_itself() => "end",
            (_, Some(phase)) => phase,
            (_, None) => "act",
        }
    }
}
