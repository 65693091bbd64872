//! The words that teach the phases. They stand in the system text where the rules of work stand for
//! agents that do without phases.

use serde_json::{Value, json};

use super::AGENT_STEP;
use crate::model::{Message, ToolCalling};
use crate::run::{prompt, structured};
use crate::tool::ToolSpec;

/// How an agent works that goes by phases.
pub fn guide(calling: ToolCalling) -> &'static str {
    match calling {
        ToolCalling::Native => GUIDE,
        ToolCalling::Structured => GUIDE_SHORT,
    }
}

const GUIDE: &str = "
# How you work
- Take your work step by step: every reply is one call of `agent_step`, with its phase, your thinking and a summary
  of the step in one sentence.
- Your working memory stands below: your plan, the facts you recorded, every step with its result, what went wrong.
  It is brought up to date before each step. Read it before you decide.
- Look before you answer. Never guess what a file contains: read it. Never invent names or numbers.
- Use names exactly as results show them. Do not repeat a call that has already given you its result.
- When the task asks for a file to be written or changed, do it with a tool; describing it is not doing it.

# The phases
- plan: break the task into sub-tasks, early, when it has several goals that build on each other or will clearly take
  more than three or four steps. Put into `depends_on` what must be done first. When the situation has changed, plan
  again: the new plan takes the place of the old one. A short or simple task needs no plan.
- reason: think, when you do not know how to go on. Where the next act is clear, act.
- act: call one tool, when you know which one and with what. Verify what it gave before the next act.
- verify: check whether the act did what you wanted. Put what you learned from it into `key_facts`. When that ends the
  current sub-task, say so with `sub_task_outcome`; after `done`, the next sub-task becomes current by itself.
- reflect: when something failed, find out why before you act again, and decide on a way that is really different. The
  same act would fail in the same way. A failed sub-task stays current until it is done or you plan again.
- feedback: ask the user, only for what you need and no tool can find. Keep it rare.
- end: when every goal is achieved, or no further progress is possible. Give `end_status` (`solved`; `partial`, when
  some of it is done; `stuck`) and, in `end_message`, the complete answer, or plainly what is missing.

# When a result reports an error
- Read it: it says what is wrong and what would be right.
- A result that says an action may or may not have happened means exactly that: check before you repeat it.
";

/// The same in fewer words: a small model loses the task behind a long preface.
const GUIDE_SHORT: &str = "
# How you work
- You take one step at a time. Never guess what a file contains: read it. Never invent names or numbers.
- Use file names exactly as results show them. Do not repeat a step that is done.
- Your working memory shows your plan, facts, steps and errors so far.

# The phases
- plan: break a task of several parts into sub-tasks. A short task needs none.
- reason: think, when the next act is not clear.
- act: call one tool.
- verify: after an act, check its result. Keep what you learned in key_facts. Mark the sub-task done or failed.
- reflect: after a failure, find out why and choose a different way.
- feedback: ask the user what no tool can find.
- end: when everything is done, give the complete answer. solved, partial or stuck.

# How you reply
Reply with exactly one JSON object, the next step:
{\"thinking\": \"why this step\", \"phase\": \"<a phase>\", \"summary\": \"the step in one sentence\", ...}
";

/// A worked task that stands before the task itself when calling is structured: plan, act, verify,
/// end, as turns of the conversation. Empty for native calling, and where the tool it uses is not
/// offered.
pub fn examples(calling: ToolCalling, tools: &[ToolSpec]) -> Vec<Message> {
    const TOOL: &str = "read_file";
    if calling == ToolCalling::Native || !tools.iter().any(|tool| tool.name == TOOL) {
        return Vec::new();
    }
    let steps = [
        (
            json!({
                "thinking": "There are two files to read and compare. I make a plan.",
                "phase": "plan",
                "summary": "Planned to read both files and compare.",
                "plan": {"goal": "Say which boat is longer", "sub_tasks": [
                    {"id": 1, "title": "Read clio.md"},
                    {"id": 2, "title": "Read nora.md and compare", "depends_on": [1]},
                ]},
            }),
            AGENT_STEP,
            r#"{"acknowledged":true,"plan_version":1,"sub_tasks":2}"#,
        ),
        (act("Sub-task 1: I read clio.md.", "Read clio.md.", "clio.md"), TOOL, "Clio is green.\nShe is 14 m long."),
        (
            verify("The file gives the length of Clio: 14 m.", "Clio is 14 m long.", "Clio is 14 m long (clio.md)"),
            AGENT_STEP,
            VERIFIED,
        ),
        (act("Sub-task 2: I read nora.md.", "Read nora.md.", "nora.md"), TOOL, "Nora is red.\nShe is 11 m long."),
        (
            verify("The file gives the length of Nora: 11 m.", "Nora is 11 m long.", "Nora is 11 m long (nora.md)"),
            AGENT_STEP,
            VERIFIED,
        ),
    ];
    let says = |step: &Value| Message::Assistant { text: step.to_string(), reasoning: None, calls: Vec::new() };
    let mut out = vec![Message::User { text: prompt::task("Which boat is longer, the one in clio.md or in nora.md?") }];
    for (step, answered_by, answer) in &steps {
        out.push(says(step));
        out.push(Message::User { text: structured::result(answered_by, answer) });
    }
    out.push(says(&json!({
        "thinking": "14 m is more than 11 m, so Clio is longer. That answers the task.",
        "phase": "end",
        "end_status": "solved",
        "end_message": "Clio is longer: 14 m (clio.md); Nora is 11 m long (nora.md).",
    })));
    out
}

const VERIFIED: &str = r#"{"acknowledged":true,"facts_recorded":1,"sub_task_outcome":"done"}"#;

fn act(thinking: &str, summary: &str, path: &str) -> Value {
    let action = json!({"tool_name": "read_file", "tool_input": {"path": path}});
    json!({"thinking": thinking, "phase": "act", "summary": summary, "action": action})
}

fn verify(thinking: &str, summary: &str, fact: &str) -> Value {
    json!({
        "thinking": thinking,
        "phase": "verify",
        "summary": summary,
        "key_facts": [fact],
        "sub_task_outcome": "done",
    })
}
