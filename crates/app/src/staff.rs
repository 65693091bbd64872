//! The personas of a worker process, as they are now: who begins, changes or goes while it works.
//!
//! A run that has begun stays as it began; what changes is for the runs that begin from now on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use posse_core::persona::{PersonaFile, PersonaFileProblem, PersonaTemplate, Personas, Severity};
use posse_core::skill::Skill;
use posse_core::worker::executor::AgentExecutor;

use crate::personas::{Offer, Sources};

/// What a look at the personas came to.
pub enum News {
    /// They cannot be looked at; they stay as they were.
    Unreadable(String),
    /// Something is wrong that was not before.
    Problem {
        /// What.
        problem: PersonaFileProblem,
        /// Whether the persona as it was before stays in force.
        stays: bool,
    },
    /// A persona cannot work, in words.
    Unfit(String),
    /// A role that nobody had worked, and who works it.
    New(String, Arc<dyn AgentExecutor>),
    /// A role that is worked differently from now on.
    Changed(String, Arc<dyn AgentExecutor>),
    /// A role that has no persona any more.
    Gone(String),
}

/// Makes who works the jobs of a persona, or says why nobody can.
pub type Hire<'a> = &'a dyn Fn(&Offer, &Personas, &PersonaFile) -> Result<Arc<dyn AgentExecutor>, String>;

/// What a role is worked by.
#[derive(PartialEq)]
struct Known {
    persona: PersonaFile,
    skills: Vec<Skill>,
    /// To whom it gives tasks.
    delegates: Vec<PersonaTemplate>,
}

impl Known {
    fn of(offer: &Offer, personas: &Personas, persona: &PersonaFile) -> Known {
        // Skills call others, which no list of a persona tells: any that changed may be meant.
        let skills = if persona.persona.skills.is_empty() { Vec::new() } else { offer.skills.skills.clone() };
        let delegates = personas.delegates(&persona.persona);
        Known { persona: persona.clone(), skills, delegates }
    }
}

/// The personas that this process works by.
pub struct Staff {
    sources: Sources,
    /// Only these roles; all when empty.
    only: Vec<String>,
    known: BTreeMap<String, Known>,
    /// What is wrong, as it was told last.
    told: BTreeSet<String>,
    seen: Option<(u64, u64)>,
    read: Option<(u64, u64)>,
}

impl Staff {
    /// Those of `personas` that were there at the beginning, `found` being all, of whose problems people were told.
    pub fn new(
        sources: Sources,
        (offer, found): (&Offer, &Personas),
        personas: &[PersonaFile],
        only: Vec<String>,
    ) -> Staff {
        let known = |persona: &PersonaFile| (persona.persona.role.clone(), Known::of(offer, found, persona));
        Staff {
            known: personas.iter().map(known).collect(),
            told: found.problems.iter().map(ToString::to_string).collect(),
            sources,
            only,
            seen: None,
            read: None,
        }
    }

    /// What has changed since the last look; `hire` makes who works by a persona. What has changed is read when it has been
    /// the same for two looks, so that a file that is being written is read whole. What cannot be read now is said once.
    pub fn look(&mut self, hire: Hire<'_>) -> Vec<News> {
        let now = Some(self.sources.stamp());
        if now != self.seen {
            self.seen = now;
            return Vec::new();
        }
        if self.read == now {
            return Vec::new();
        }
        self.read = now;
        match self.sources.look() {
            Ok((offer, personas)) => self.compare(&offer, &personas, hire),
            Err(error) if self.told.insert(error.to_string()) => vec![News::Unreadable(error.to_string())],
            Err(_) => Vec::new(),
        }
    }

    fn compare(&mut self, offer: &Offer, personas: &Personas, hire: Hire<'_>) -> Vec<News> {
        let mut news = self.new_problems(personas);
        let is_ours = |role: &String| self.only.is_empty() || self.only.contains(role);
        for persona in personas.personas.iter().filter(|persona| is_ours(&persona.persona.role)) {
            let (role, now) = (persona.persona.role.clone(), Known::of(offer, personas, persona));
            if self.known.get(&role) == Some(&now) {
                continue;
            }
            news.push(match hire(offer, personas, persona) {
                Err(why) => News::Unfit(why),
                Ok(executor) => match self.known.insert(role.clone(), now) {
                    None => News::New(role, executor),
                    Some(_) => News::Changed(role, executor),
                },
            });
        }
        let broken: Vec<_> =
            personas.problems.iter().filter(|p| p.severity == Severity::Error).map(|p| &p.file).collect();
        let is_gone =
            |role: &String, known: &mut Known| personas.get(role).is_none() && !broken.contains(&&known.persona.file);
        news.extend(self.known.extract_if(.., is_gone).map(|(role, _)| News::Gone(role)));
        news
    }

    /// What is wrong now and was not before.
    fn new_problems(&mut self, personas: &Personas) -> Vec<News> {
        let is_new = |problem: &&PersonaFileProblem| !self.told.contains(&problem.to_string());
        let is_known = |problem: &PersonaFileProblem| {
            problem.severity == Severity::Error && self.known.values().any(|known| known.persona.file == problem.file)
        };
        let problems = personas.problems.iter().filter(is_new);
        let news =
            problems.map(|problem| News::Problem { stays: is_known(problem), problem: problem.clone() }).collect();
        self.told = personas.problems.iter().map(ToString::to_string).collect();
        news
    }
}
