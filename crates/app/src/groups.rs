//! Groups of jobs as they are shown.

use posse_core::job::{GroupStanding, GroupUse};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

/// How a group stands: an item of `posse group list --json`, and the document of `posse group show --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct GroupView {
    /// Its name.
    pub group: String,
    /// Jobs in it.
    pub jobs: u64,
    /// Those that have ended.
    pub ended: u64,
    /// The part that has ended, 0 to 1.
    pub share: f64,
    /// Jobs in each state, in the order of a job's life; states without jobs are left out.
    pub states: Map<String, Value>,
    /// What its jobs have used together; in a list it is left out.
    #[serde(rename = "use", skip_serializing_if = "Option::is_none")]
    pub used: Option<GroupUse>,
}

impl GroupView {
    /// A group as it stands.
    pub fn new(standing: GroupStanding, used: Option<GroupUse>) -> GroupView {
        let states = standing.states.iter().map(|(state, jobs)| (state.to_string(), (*jobs).into())).collect();
        let (jobs, ended, share) = (standing.jobs(), standing.ended(), standing.share());
        GroupView { group: standing.group, jobs, ended, share, states, used }
    }
}
