//! A plan as an agent writes it, and whether it can be carried out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

use super::{MAX_LINE_BYTES, check_size};

/// Sub-tasks of one plan.
pub const MAX_SUB_TASKS: usize = 50;

/// A plan for the task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPlan {
    /// What the whole task is to achieve.
    #[schemars(length(min = 1))]
    pub goal: String,
    /// The parts of the task, in the order in which to do them.
    #[schemars(length(min = 1, max = MAX_SUB_TASKS))]
    pub sub_tasks: Vec<NewSubTask>,
}

/// One part of the task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSubTask {
    /// A number of its own: 1, 2, 3.
    pub id: u32,
    /// What is to be done, in one line.
    #[schemars(length(min = 1))]
    pub title: String,
    /// The ids of sub-tasks that must be done before this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<u32>,
}

impl NewPlan {
    /// Whether every sub-task can be told apart and can, some time, begin; if not, what to mend.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.goal.trim().is_empty() {
            return Err("plan.goal is empty: say what the whole task is to achieve".into());
        }
        check_size("plan.goal", &self.goal, MAX_LINE_BYTES)?;
        match self.sub_tasks.len() {
            0 => return Err("plan.sub_tasks is empty: a plan has at least one, {\"id\": 1, \"title\": \"...\"}".into()),
            1..=MAX_SUB_TASKS => {}
            count => {
                return Err(format!(
                    "plan.sub_tasks has {count}; at most {MAX_SUB_TASKS} are allowed: make the sub-tasks larger"
                ));
            }
        }
        let mut ids = BTreeSet::new();
        for NewSubTask { id, title, .. } in &self.sub_tasks {
            if !ids.insert(*id) {
                return Err(format!("two sub-tasks have the id {id}: give each an id of its own"));
            }
            if title.trim().is_empty() {
                return Err(format!("sub-task {id} has no title: say what is to be done"));
            }
            check_size(&format!("the title of sub-task {id}"), title, MAX_LINE_BYTES)?;
        }
        for NewSubTask { id, depends_on, .. } in &self.sub_tasks {
            let mut seen = BTreeSet::new();
            for need in depends_on {
                if !ids.contains(need) {
                    let ids: Vec<_> = ids.iter().map(u32::to_string).collect();
                    return Err(format!(
                        "sub-task {id} depends on {need}, and there is no such sub-task; there are {}",
                        ids.join(", ")
                    ));
                }
                if !seen.insert(need) {
                    return Err(format!("sub-task {id} names {need} twice in depends_on: once is enough"));
                }
            }
        }
        check_circle(&self.sub_tasks)
    }
}

/// Whether some sub-tasks wait for each other. `depends_on` names only sub-tasks there are.
fn check_circle(sub_tasks: &[NewSubTask]) -> Result<(), String> {
    let mut waiting: Vec<&NewSubTask> = sub_tasks.iter().collect();
    loop {
        let ids: BTreeSet<u32> = waiting.iter().map(|sub_task| sub_task.id).collect();
        waiting.retain(|sub_task| sub_task.depends_on.iter().any(|need| ids.contains(need)));
        if waiting.len() == ids.len() {
            break;
        }
    }
    let Some(first) = waiting.first() else { return Ok(()) };
    // Each of those left needs another of them, so going from need to need must come round.
    let mut path = vec![first.id];
    loop {
        let here = path[path.len() - 1];
        let needs = waiting.iter().filter(|sub_task| sub_task.id == here).flat_map(|sub_task| &sub_task.depends_on);
        let left = |need: &&u32| waiting.iter().any(|sub_task| sub_task.id == **need);
        let Some(next) = needs.copied().find(|need| left(&need)) else { return Ok(()) };
        if let Some(from) = path.iter().position(|id| *id == next) {
            path.push(next);
            let circle: Vec<_> = path[from..].iter().map(u32::to_string).collect();
            return Err(format!(
                "depends_on goes in a circle, {}: none of these could ever begin. Leave one of them out of depends_on.",
                circle.join(" needs ")
            ));
        }
        path.push(next);
    }
}
