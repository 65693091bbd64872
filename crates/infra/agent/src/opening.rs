//! What a new run works with: made once, and fixed for the life of the run.

use std::sync::Arc;

use posse_core::memory::block::{self, CORE_MEMORY_EDIT};
use posse_core::model::{ModelError, ToolCalling};
use posse_core::persona::{ALL_SKILLS, PersonaTemplate, Style};
use posse_core::run::code;
use posse_core::run::hook::{HookError, RunSetup};
use posse_core::run::journal::{OfferedSkill, OfferedTool, Opening};
use posse_core::run::machine::Again;
use posse_core::run::prompt::{self, Company, Telling};
use posse_core::run::results::READ_ANSWER;
use posse_core::run::survey::{self, MAX_QUOTED};
use posse_core::run::wish;
use posse_core::run::{Run, asks_for_new_file};
use posse_core::skill::shelf::{self, FIND_SKILLS};
use posse_core::skill::{READ_SKILL_FILE, Skill, child_message, reachable};
use posse_core::tool::{ToolSpec, Writes};
use posse_core::worker::executor::{Halt, JobContext};
use tracing::warn;

use super::{GenericAgentExecutor, results};

/// The tool without which nobody is told what files there are.
const READ_FILE: &str = "read_file";

/// The tool without which nobody is told what tables there are.
const QUERY_TABLES: &str = "query_tables";

/// Stands for the id of a call where a run's beginning looks through its workspace.
const SURVEY: &str = "survey";

/// What a look through the workspace came to.
struct Surveyed {
    told: String,
    /// Whether the file that was asked for is not there.
    lacks_target: bool,
}

pub(super) enum NotOpened {
    /// For the reason given; whether it may later.
    Refused(String, Again),
    /// What its model can do was not to be found out.
    Model(ModelError),
    /// Asked to end, or the database.
    Halt(Halt),
}

impl From<ModelError> for NotOpened {
    fn from(error: ModelError) -> Self {
        NotOpened::Model(error)
    }
}

impl From<Halt> for NotOpened {
    fn from(halt: Halt) -> Self {
        NotOpened::Halt(halt)
    }
}

impl GenericAgentExecutor {
    /// Everything that stays the same from the first request of a run to its last.
    ///
    /// What is summed up for it is kept before the run begins, and so is what that costs.
    pub(super) async fn opening(&self, cx: &JobContext, run: &mut Run) -> Result<Arc<Opening>, NotOpened> {
        let mut persona = self.persona.clone();
        if cx.job.payload.model.is_some() {
            persona.model.clone_from(&cx.job.payload.model);
        }
        if let Some(task) = &cx.job.payload.task {
            persona.limits = persona.limits.of_task(task);
        }
        let goal = cx.job.payload.goal.clone();
        let company = match cx.job.payload.session {
            Some(_) => Company::InSession,
            None => Company::Alone,
        };
        let (workspace, workspace_id) = self.workspace(&cx.job);
        let mut setup = RunSetup::new(persona, self.tools_for(&cx.job), goal, workspace);
        (setup.job, setup.workspace_id) = (cx.job.id, workspace_id);
        self.hooks.before_run(&mut setup).await.map_err(|error| {
            let is_unfit = matches!(error, HookError::WorkerUnfit(_));
            NotOpened::Refused(error.to_string(), if is_unfit { Again::after_lack(0) } else { Again::Later })
        })?;
        let model = self.models.get(setup.persona.model.as_deref())?;
        let profile = model.profile().await?;
        let (calling, has_tokenizer) = (profile.tool_calling, model.tokenizer().is_some());
        let mut tools = setup.tools();
        tools.retain(|tool| tool.spec.name != READ_SKILL_FILE);
        let named = self.named_skills(&setup.persona);
        // Whoever has a tool of that name keeps it; then nothing could be found.
        let most = match tools.iter().any(|tool| tool.spec.name == FIND_SKILLS) {
            true => usize::MAX,
            false => shelf::most_bytes(profile.context_window),
        };
        let told_skills = shelf::told_within(&named, most);
        if !told_skills.left_out.is_empty() {
            tools.push(shelf::finder());
        }
        let skills = self.offered_skills(&setup, calling, &named, &told_skills.left_out);
        let only_answers =
            calling == ToolCalling::Structured && wish::asks_for_answer(&setup.goal, &setup.persona, &setup.system);
        code::offer(&mut tools);
        let mut specs = specs_of(&tools);
        if only_answers {
            specs.retain(|spec| !tools.iter().any(|tool| tool.writes == Writes::File && tool.spec.name == spec.name));
        }
        let is_told = |skill: &&OfferedSkill| !skill.inner && !skill.unlisted;
        let callable: Vec<_> = skills.iter().filter(is_told).map(|skill| skill.spec.clone()).collect();
        let before = results::before(cx, profile.context_window).await?;
        let workspace = self.surveyed(cx, &setup, &tools, calling).await;
        let telling = Telling {
            goal: &setup.goal,
            of_workspace: workspace.is_some(),
            for_new_file: workspace.as_ref().is_some_and(|workspace| workspace.lacks_target),
            of_results: before.told.is_some(),
        };
        let examples = prompt::examples(setup.persona.style, calling, &specs, &usable(&skills), telling);
        specs.extend(callable);
        let RunSetup { persona, system: appended, .. } = setup;
        if let Some(reader) = self.skill_file_reader()
            && skills.iter().any(|skill| skill.tools.contains(&reader.spec.name))
        {
            tools.push(reader);
        }
        // Whoever has a tool of that name keeps it.
        if before.has_more && !tools.iter().any(|tool| tool.spec.name == READ_ANSWER) {
            let reader = results::reader();
            specs.push(reader.spec.clone());
            tools.push(reader);
        }
        tools.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
        let recalled = self.recall(cx, run, &persona, model, &profile).await?;
        let edits = tools.iter().any(|tool| tool.spec.name == CORE_MEMORY_EDIT);
        let blocks = block::told(&cx.blocks(&persona.role).await?, &persona.role, edits);
        let heard = [
            (cx.job.payload.task.as_ref().is_some_and(|task| task.heard), "a task of another agent"),
            (recalled.untrusted, "an earlier conversation"),
        ];
        let heard = heard.into_iter().filter(|(is_heard, _)| *is_heard).map(|(_, what)| what.to_owned()).collect();
        let opening = Opening {
            model: profile.name,
            calling,
            only_answers,
            system: prompt::system(&persona, persona.style, calling, &specs, company) + &appended,
            examples,
            skills_list: told_skills.message,
            context_window: profile.context_window,
            has_tokenizer,
            persona,
            tools,
            skills,
            blocks,
            heard,
            memory: recalled.memory,
            history: recalled.history,
            workspace: workspace.map(|workspace| workspace.told),
            results: before.told,
        };
        Ok(Arc::new(opening))
    }

    /// What the run is told of its workspace: names alone where the model looks by itself, and nothing where it could not
    /// read a file of it.
    async fn surveyed(
        &self,
        cx: &JobContext,
        setup: &RunSetup,
        tools: &[OfferedTool],
        calling: ToolCalling,
    ) -> Option<Surveyed> {
        let reader = self.registry.get(READ_FILE)?;
        // One that a hook put in its place may read other files.
        if !tools.iter().any(|tool| tool.spec == *reader.spec()) {
            return None;
        }
        let most = match (calling, setup.persona.style) {
            (ToolCalling::Structured, Style::Direct) => MAX_QUOTED,
            _ => 0,
        };
        let (registry, context) = (Arc::clone(&self.registry), self.context(cx, SURVEY));
        let goal = setup.goal.clone();
        let with_tables = tools.iter().any(|tool| tool.spec.name == QUERY_TABLES);
        let looking = tokio::task::spawn_blocking(move || {
            let survey = registry.survey(&context);
            let told = survey::told(&survey, &goal, most, with_tables)?;
            Some(Surveyed { told, lacks_target: asks_for_new_file(&goal, &survey) })
        });
        looking.await.unwrap_or_else(|error| {
            warn!("the workspace could not be looked through: {error}");
            None
        })
    }

    fn named_skills(&self, persona: &PersonaTemplate) -> Vec<Skill> {
        let names = &persona.skills;
        let all = names.iter().any(|name| name == ALL_SKILLS);
        let mut named: Vec<_> =
            self.skills.iter().filter(|skill| all || names.contains(&skill.name)).cloned().collect();
        // Where not all can be told of, those that the persona names first are.
        named.sort_by_key(|skill| names.iter().position(|name| *name == skill.name));
        named
    }

    /// The skills that the persona names and those that these may call, their texts as they are now.
    fn offered_skills(
        &self,
        setup: &RunSetup,
        calling: ToolCalling,
        named: &[Skill],
        left_out: &[String],
    ) -> Vec<OfferedSkill> {
        let names: Vec<_> = named.iter().map(|skill| skill.name.clone()).collect();
        let all = reachable(&names, &self.skills);
        let offered = all.iter().map(|skill| {
            let offered = self.offered_skill(setup, calling, skill, &all);
            let (inner, unlisted) = (!names.contains(&skill.name), left_out.contains(&skill.name));
            OfferedSkill { inner, unlisted, ..offered }
        });
        offered.collect()
    }

    /// A skill that cannot be worked by is offered all the same, since the agent is told of it: whoever calls it is
    /// told why it cannot.
    fn offered_skill(&self, setup: &RunSetup, calling: ToolCalling, skill: &Skill, all: &[Skill]) -> OfferedSkill {
        let sub_skills = skill.sub_skills(all);
        let (prompt, error) = match child_message(skill, &sub_skills) {
            Ok(prompt) => (prompt, None),
            Err(error) => {
                warn!(skill = %skill.name, "the skill {} cannot be called: {error}", skill.name);
                (String::new(), Some(format!("The skill {} cannot be used: {error}.", skill.tool_name())))
            }
        };
        let mut tools = skill.tools(&setup.tools());
        tools.retain(|tool| tool.spec.name != READ_SKILL_FILE);
        // Its own files are part of the skill, so no restriction of tools keeps it from them.
        tools.extend(self.skill_file_reader().filter(|_| !skill.source.files.is_empty()));
        tools.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
        code::offer(&mut tools);
        let mut specs = specs_of(&tools);
        let callable: Vec<_> = sub_skills.iter().map(|sub| sub.spec()).collect();
        let examples = prompt::examples(Style::Direct, calling, &specs, &callable, Telling::default());
        specs.extend(callable);
        OfferedSkill {
            spec: skill.spec(),
            system: prompt::system(&setup.persona, Style::Direct, calling, &specs, Company::Alone) + &setup.system,
            prompt,
            examples,
            tools: tools.into_iter().map(|tool| tool.spec.name).collect(),
            skills: sub_skills.iter().map(|sub| sub.tool_name()).collect(),
            inner: false,
            unlisted: false,
            error,
            folder: Some(skill.source.folder().to_owned()),
            hash: skill.source.sha256.clone(),
        }
    }

    fn skill_file_reader(&self) -> Option<OfferedTool> {
        let tool = self.registry.get(READ_SKILL_FILE)?;
        Some(OfferedTool::of(&*tool))
    }
}

/// The skills that a worked example may show.
fn usable(skills: &[OfferedSkill]) -> Vec<ToolSpec> {
    let usable = skills.iter().filter(|skill| !skill.inner && !skill.unlisted && skill.error.is_none());
    usable.map(|skill| skill.spec.clone()).collect()
}

fn specs_of(tools: &[OfferedTool]) -> Vec<ToolSpec> {
    tools.iter().map(|tool| tool.spec.clone()).collect()
}
