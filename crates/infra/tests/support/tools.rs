//! The circumstances of a call of a tool.

use posse_core::job::JobId;
use posse_core::stop::Stop;
use posse_core::tool::ToolContext;

/// Those of a call that needs nothing of them.
pub fn context() -> ToolContext {
    ToolContext {
        job: JobId(1),
        role: "tester".into(),
        effect_key: "key".into(),
        workspace: "/".into(),
        workspace_id: None,
        protected: Default::default(),
        rules_file: None,
        skill_folder: None,
        reader: Default::default(),
        web: Default::default(),
        remarks: None,
        time_left: None,
        tasks: None,
        calls: None,
        step: 0,
        heard: Vec::new(),
        memory: None,
        stop: Stop::never(),
    }
}
