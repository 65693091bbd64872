//! What a new run works with: made once, and fixed for the life of the run.

use std::sync::Arc;

use posse_core::executor::JobContext;
use posse_core::journal::{OfferedSkill, OfferedTool, Opening};
use posse_core::model::{ModelError, ToolCalling};
use posse_core::persona::{PersonaTemplate, Style};
use posse_core::run::prompt;
use posse_core::skill::{Skill, child_message, reachable, skills_message};
use posse_core::tool::ToolSpec;
use tracing::warn;

use super::GenericAgentExecutor;

/// In place of a list of skills: all there are.
const ALL_SKILLS: &str = "*";

impl GenericAgentExecutor {
    /// Everything that stays the same from the first request of a run to its last.
    pub(super) async fn opening(&self, cx: &JobContext) -> Result<Arc<Opening>, ModelError> {
        let mut persona = self.persona.clone();
        if cx.job.payload.model.is_some() {
            persona.model.clone_from(&cx.job.payload.model);
        }
        let profile = self.models.get(persona.model.as_deref())?.profile().await?;
        let (style, calling) = (persona.style, profile.tool_calling);
        let tools = self.tools.clone();
        let named = self.named_skills();
        let skills = self.offered_skills(&persona, calling, &named);
        let mut specs = specs_of(&tools);
        specs.extend(skills.iter().filter(|skill| !skill.inner).map(|skill| skill.spec.clone()));
        Ok(Arc::new(Opening {
            model: profile.name,
            calling,
            system: prompt::system(&persona, style, calling, &specs),
            examples: prompt::examples(style, calling, &specs),
            skills_list: skills_message(&named),
            context_window: profile.context_window,
            persona,
            tools,
            skills,
            ..Opening::default()
        }))
    }

    /// The skills that the persona may call itself.
    fn named_skills(&self) -> Vec<Skill> {
        let names = &self.persona.skills;
        let all = names.iter().any(|name| name == ALL_SKILLS);
        self.skills.iter().filter(|skill| all || names.contains(&skill.name)).cloned().collect()
    }

    /// The skills that the persona names and those that these may call, their texts as they are now.
    fn offered_skills(&self, persona: &PersonaTemplate, calling: ToolCalling, named: &[Skill]) -> Vec<OfferedSkill> {
        let names: Vec<_> = named.iter().map(|skill| skill.name.clone()).collect();
        let all = reachable(&names, &self.skills);
        let offered = all.iter().filter_map(|skill| {
            let offered = self.offered_skill(persona, calling, skill, &all)?;
            Some(OfferedSkill { inner: !names.contains(&skill.name), ..offered })
        });
        offered.collect()
    }

    fn offered_skill(
        &self,
        persona: &PersonaTemplate,
        calling: ToolCalling,
        skill: &Skill,
        all: &[Skill],
    ) -> Option<OfferedSkill> {
        let sub_skills = skill.sub_skills(all);
        let prompt = match child_message(skill, &sub_skills) {
            Ok(prompt) => prompt,
            Err(error) => {
                warn!(skill = %skill.name, "the skill {} is left out: {error}", skill.name);
                return None;
            }
        };
        let tools = skill.tools(&self.tools);
        let mut specs = specs_of(&tools);
        specs.extend(sub_skills.iter().map(|sub| sub.spec()));
        Some(OfferedSkill {
            spec: skill.spec(),
            system: prompt::system(persona, Style::Direct, calling, &specs),
            prompt,
            tools: tools.into_iter().map(|tool| tool.spec.name).collect(),
            skills: sub_skills.iter().map(|sub| sub.tool_name()).collect(),
            inner: false,
            folder: Some(skill.source.folder().to_owned()),
            hash: skill.source.sha256.clone(),
        })
    }
}

fn specs_of(tools: &[OfferedTool]) -> Vec<ToolSpec> {
    tools.iter().map(|tool| tool.spec.clone()).collect()
}
