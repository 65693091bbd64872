//! The personas of a worker process, as their files are now: who begins, changes or goes while it works.
//!
//! A run that has begun stays as it began; what changes is for the runs that begin from now on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use posse_core::skill::Skill;
use posse_core::worker::executor::{AgentExecutor, JobContext, StepOutcome};
use posse_infra::persona::{Loaded, PersonaFile, Severity};

use crate::catalog::{self, Offer};
use crate::fleet::{RoleWork, WorkerProcess};
use crate::models::Catalog;
use crate::output::Out;
use crate::output::text::visible;
use crate::settings::Settings;
use crate::wire::Project;

/// How often the files are looked at. What has changed is read when it has been the same for two looks, so that a
/// file that is being written is read whole.
pub const EVERY: Duration = Duration::from_secs(1);

/// What became of a role.
pub enum Change {
    /// Nobody had worked it.
    New(RoleWork),
    /// It is worked differently from now on.
    Changed(RoleWork),
    /// It has no persona any more.
    Gone(String),
}

/// What a role is worked by.
#[derive(PartialEq)]
struct Known {
    persona: PersonaFile,
    skills: Vec<Skill>,
}

/// Which files there are, and whether they are the same as before.
type Stamp = Vec<(PathBuf, i64, i64, u64, u64)>;

/// The personas that this process works by.
pub struct Staff {
    settings: Settings,
    models: Arc<Catalog>,
    workspace: PathBuf,
    /// Only these roles; all when empty.
    only: Vec<String>,
    known: BTreeMap<String, Known>,
    /// What is wrong, as it was told last.
    told: BTreeSet<String>,
    seen: Stamp,
    read: Option<Stamp>,
}

impl Staff {
    /// Those that were there at the beginning, and have been told of.
    pub fn new(settings: &Settings, project: &Project, personas: &[PersonaFile], only: Vec<String>) -> Staff {
        let known = |persona: &PersonaFile| (persona.persona.role.clone(), known(&project.offer, persona));
        Staff {
            known: personas.iter().map(known).collect(),
            told: project.personas.problems.iter().map(ToString::to_string).collect(),
            settings: settings.clone(),
            models: Arc::clone(&project.models),
            workspace: project.workspace.clone(),
            only,
            seen: Stamp::new(),
            read: None,
        }
    }

    /// What has changed since the last look. What cannot be read now is said once, and changes nothing.
    pub fn look(&mut self, out: &Out) -> Vec<Change> {
        let now = stamp(&self.settings);
        if now != self.seen {
            self.seen = now;
            return Vec::new();
        }
        if self.read.as_ref() == Some(&now) {
            return Vec::new();
        }
        self.read = Some(now);
        let offer = Offer::gather(&self.settings);
        match catalog::personas(&self.settings, &offer) {
            Ok(personas) => {
                let project = self.project(offer, personas);
                self.compare(out, project)
            }
            Err(error) => {
                if self.told.insert(error.to_string()) {
                    out.warn(format!("{}; the personas as they were stay in force", visible(&error.to_string())));
                }
                Vec::new()
            }
        }
    }

    fn project(&self, offer: Offer, personas: Loaded) -> Project {
        Project { models: Arc::clone(&self.models), offer, personas, workspace: self.workspace.clone() }
    }

    fn compare(&mut self, out: &Out, project: Project) -> Vec<Change> {
        self.tell(out, &project);
        let mut changes = Vec::new();
        let is_ours = |role: &String| self.only.is_empty() || self.only.contains(role);
        for persona in project.personas.personas.iter().filter(|persona| is_ours(&persona.persona.role)) {
            let (role, now) = (persona.persona.role.clone(), known(&project.offer, persona));
            if self.known.get(&role) == Some(&now) {
                continue;
            }
            let executor: Arc<dyn AgentExecutor> = match project.executor(persona) {
                Ok(executor) => executor,
                Err(error) => {
                    out.warn(visible(&format!("{error:#}")));
                    continue;
                }
            };
            let one = RoleWork { role: role.clone(), executor };
            changes.push(match self.known.insert(role.clone(), now) {
                None => {
                    out.note(format!("  the persona {role} is new: its jobs are worked here from now on"));
                    Change::New(one)
                }
                Some(_) => {
                    out.note(format!("  the persona {role} has changed: runs that begin from now on follow it"));
                    Change::Changed(one)
                }
            });
        }
        let broken: Vec<_> =
            project.personas.problems.iter().filter(|p| p.severity == Severity::Error).map(|p| &p.file).collect();
        let gone = |(role, known): &(&String, &Known)| {
            project.personas.get(role).is_none() && !broken.contains(&&known.persona.file)
        };
        let gone: Vec<_> = self.known.iter().filter(gone).map(|(role, _)| role.clone()).collect();
        for role in gone {
            self.known.remove(&role);
            out.note(format!("  the persona {role} is gone: no more of its jobs are begun here"));
            changes.push(Change::Gone(role));
        }
        changes
    }

    /// Says what is wrong now and was not before.
    fn tell(&mut self, out: &Out, project: &Project) {
        let now: BTreeSet<_> = project.personas.problems.iter().map(ToString::to_string).collect();
        for problem in project.personas.problems.iter().filter(|problem| !self.told.contains(&problem.to_string())) {
            let in_force = self.known.values().any(|known| known.persona.file == problem.file);
            match problem.severity {
                Severity::Error if in_force => {
                    out.warn(format!("{problem} (the persona as it was before stays in force)"));
                }
                _ => catalog::warn_of_problem(out, problem),
            }
        }
        self.told = now;
    }
}

fn known(offer: &Offer, persona: &PersonaFile) -> Known {
    // Skills call others, which no list of a persona tells: any that changed may be meant.
    let skills = if persona.persona.skills.is_empty() { Vec::new() } else { offer.skills.skills.clone() };
    Known { persona: persona.clone(), skills }
}

fn stamp(settings: &Settings) -> Stamp {
    let mut stamp = Stamp::new();
    for entry in entries(&settings.personas) {
        add(&mut stamp, entry);
    }
    for root in catalog::skill_roots(settings) {
        for entry in entries(&root.folder) {
            add(&mut stamp, entry.join("SKILL.md"));
        }
    }
    stamp.sort();
    stamp
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn add(stamp: &mut Stamp, path: PathBuf) {
    if let Ok(meta) = fs::metadata(&path) {
        stamp.push((path, meta.mtime(), meta.mtime_nsec(), meta.len(), meta.ino()));
    }
}

/// Works by the newest executor there is. What a run began with stands in its journal, so a step by another one goes on
/// with that.
pub struct Latest(RwLock<Arc<dyn AgentExecutor>>);

impl Latest {
    /// By this one, at first.
    pub fn new(executor: Arc<dyn AgentExecutor>) -> Latest {
        Latest(RwLock::new(executor))
    }

    /// By another one from now on.
    pub fn replace(&self, executor: Arc<dyn AgentExecutor>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = executor;
    }
}

#[async_trait]
impl AgentExecutor for Latest {
    async fn process_job(&self, cx: &mut JobContext) -> StepOutcome {
        let now = Arc::clone(&*self.0.read().unwrap_or_else(PoisonError::into_inner));
        now.process_job(cx).await
    }
}

/// Applies changes to the services of this process.
pub async fn apply(process: &mut WorkerProcess, changes: Vec<Change>) -> Result<()> {
    if changes.is_empty() {
        return Ok(());
    }
    for change in changes {
        match change {
            Change::New(one) => process.serve(one),
            Change::Changed(one) => process.change(one),
            Change::Gone(role) => process.retire(&role),
        }
    }
    process.announce().await
}
