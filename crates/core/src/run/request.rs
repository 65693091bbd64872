//! The next model request, made from the state.

use super::phased::Progress;
use super::prompt::{is_told, told_of};
use super::repeats::HABIT;
use super::state::Spent;
use super::{Run, finish, phase, structured};
use crate::model::tokens::{self, Tally};
use crate::model::{ModelRequest, ToolCalling};
use crate::run::journal::{OfferedSkill, Opening};
use crate::skill::shelf;
use crate::tool::{ToolSpec, Writes};

impl Run {
    /// The next model request, as the state stands.
    pub fn request(&self) -> ModelRequest {
        let Some(opening) = &self.opening else { return ModelRequest::default() };
        let mut request = ModelRequest {
            messages: self.top().history.messages().clone(),
            tail: self.tail(),
            max_tokens: opening.persona.max_reply_tokens,
            temperature: opening.persona.temperature,
            ..ModelRequest::default()
        };
        if let Some(max) = opening.persona.limits.max_tokens {
            let used = self.usage.total().saturating_sub(self.spent_before.tokens);
            let left = u32::try_from(max.saturating_sub(used)).unwrap_or(u32::MAX).max(1);
            request.max_tokens = Some(request.max_tokens.map_or(left, |asked| asked.min(left)));
        }
        let phased = self.is_phased();
        let skills = self.told_skills().map(|skill| skill.spec.clone());
        let mut tools: Vec<ToolSpec> = self.tools().map(|tool| tool.spec.clone()).chain(skills).collect();
        match opening.calling {
            ToolCalling::Native => {
                tools.push(if phased { phase::spec() } else { finish::spec() });
                tools.sort_by(|a, b| a.name.cmp(&b.name));
                request.tools = tools;
            }
            ToolCalling::Structured => {
                // A small model that falls into a loop inside a string would never stop by itself.
                request.max_tokens.get_or_insert(structured::MAX_STEP_TOKENS);
                let without = self.left_out();
                request.schema = Some(match phased {
                    true => phase::step_schema(&tools, &without, self.phased.phases()),
                    false => structured::schema(&tools, &without),
                });
            }
        }
        // Where nobody limits the reply, the server does, unless it has shown that it cannot.
        if (self.overflow.is_some() || request.max_tokens.is_some())
            && let Some(room) = self.reply_room()
        {
            request.max_tokens = Some(request.max_tokens.map_or(room, |asked| asked.min(room)));
        }
        request
    }

    /// Tools that stand in no step now: one that has got nowhere, `finish` where nothing is finished, those of a habit that the model is in, else those for
    /// writing where an answer is all that is asked for. Who does not get on without them, or was told more since the run began, has them.
    fn left_out(&self) -> Vec<&str> {
        let top = self.top();
        let habits: Vec<_> = top.repeats.habits(HABIT).map(|call| call.name.as_str()).collect();
        let was_told_more = top.replans > 0 || !top.answers.is_empty() || self.spent_before != Spent::default();
        let only_answers = self.opening.as_ref().is_some_and(|opening| opening.only_answers) && self.depth() == 0;
        let end = self.is_unfinished().then_some(finish::FINISH);
        // Who has to look again and could reckon instead does so, with numbers that it makes up.
        let looks = end.is_some() && top.repeats.failed().is_some_and(|tool| tool != CALCULATE);
        let end = end.into_iter().chain(looks.then_some(CALCULATE));
        if !habits.is_empty() || was_told_more || !only_answers {
            return habits.into_iter().chain(top.repeats.in_vain()).chain(end).collect();
        }
        let writers = self.tools().filter(|tool| tool.writes == Writes::File).map(|tool| tool.spec.name.as_str());
        writers.chain(top.repeats.in_vain()).chain(end).collect()
    }

    /// Whether its end is to be kept from it, see [`Work::is_unfinished`].
    ///
    /// [`Work::is_unfinished`]: super::claims::Work::is_unfinished
    fn is_unfinished(&self) -> bool {
        let Some(opening) = self.opening.as_ref().filter(|_| self.depth() == 0) else { return false };
        self.top().replans == 0 && self.work.is_unfinished(opening, self.turns)
    }

    /// What a model is told to do instead of a call that it has made before.
    pub(super) fn next_after_repeat(&self) -> &'static str {
        match self.is_phased() {
            true => {
                "Do not make it again: its result is above. If you know the answer, take a step of phase end; if not, do \
                 something different."
            }
            false => {
                "Do not make it again: its result is above. If you know the answer, call `finish`; if not, do something \
                 different."
            }
        }
    }

    /// What changes with every request and so stands at its end: the view of the working memory.
    pub(super) fn tail(&self) -> Option<String> {
        let opening = self.opening.as_ref().filter(|_| self.is_phased())?;
        self.phased.view(self.progress(opening), self.view_bytes())
    }

    /// How far the run is within its limit, as its agent is told.
    fn progress(&self, opening: &Opening) -> Progress {
        let steps = self.phased.replies.saturating_sub(self.spent_before.steps);
        let turns = self.turns.saturating_sub(self.spent_before.turns);
        Progress { steps, in_skills: turns.saturating_sub(steps), most: opening.persona.limits.max_turns }
    }

    /// What the message with it is estimated to have, in tokens.
    pub(super) fn tail_tokens(&self) -> u64 {
        let Some(opening) = self.opening.as_ref().filter(|_| self.is_phased()) else { return 0 };
        match self.phased.view_tokens(self.progress(opening), self.view_bytes()) {
            0 => 0,
            view => tokens::words("") + view,
        }
    }

    /// Those of them that the model is told of.
    pub fn told_skills(&self) -> impl Iterator<Item = &OfferedSkill> {
        let is_inside = self.depth() > 0;
        self.skills().filter(move |skill| is_inside || is_told(skill, &self.found))
    }

    /// Takes in what a search for skills found: they are told of from now on, like those that always were.
    pub(super) fn find_skills(&mut self, call_id: &str) {
        let Some(opening) = self.opening.clone().filter(|_| self.depth() == 0) else { return };
        let Some(call) = self.open_call(call_id).filter(|call| shelf::finds(&opening.tools, &call.request.name)) else {
            return;
        };
        for skill in shelf::find(&opening.skills, &call.request.arguments) {
            let name = &skill.spec.name;
            let is_new = !self.found.contains(name);
            self.found.retain(|other| other != name);
            self.found.push(name.clone());
            if is_new && opening.calling == ToolCalling::Native {
                self.tools_tokens = self.tools_tokens + Tally::estimated(tokens::text(&told_of(&skill.spec)));
            }
        }
        let over = self.found.len().saturating_sub(MOST_FOUND);
        self.found.drain(..over);
    }
}

/// Knows nothing of the workspace.
const CALCULATE: &str = "calculate";

/// Most skills that a run has found and is told of; those found first are told of no more, and can be found again.
const MOST_FOUND: usize = 20;
