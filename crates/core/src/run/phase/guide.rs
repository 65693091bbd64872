//! The words that teach the phases. They stand in the system text where the rules of work stand for
//! agents that do without phases.

use serde_json::{Value, json};

use super::{AGENT_STEP, Action, Content, parse};
use crate::model::conversation::told_result;
use crate::model::{Message, ToolCalling};
use crate::run::memory::{CallRecord, WorkingMemory};
use crate::run::results;
use crate::run::signals::Signals;
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

/// Worked tasks that stand before the task itself when calling is structured, as messages of
/// the conversation: one that needs no plan, and one with plan, act, verify, end. Empty for native
/// calling, and where a tool they use is not offered.
pub fn examples(calling: ToolCalling, tools: &[ToolSpec]) -> Vec<Message> {
    let offered = |name: &str| tools.iter().any(|tool| tool.name == name);
    if calling == ToolCalling::Native || !offered(READ) {
        return Vec::new();
    }
    let mut out = Vec::new();
    if offered(SEARCH) {
        out.extend(worked(
            "Which of the boats in the folder harbour sails to Spain?",
            &[
                (
                    act(
                        "The task asks for Spain. I search the folder for this word.",
                        "Search the folder harbour for Spain.",
                        SEARCH,
                        json!({"pattern": "Spain", "path": "harbour"}),
                    ),
                    SEARCH,
                    "harbour/clio.md:2: She sails to Spain and Egypt.",
                ),
                (
                    verify(
                        "The line with Spain is in clio.md, so it is Clio.",
                        "Found Spain in harbour/clio.md.",
                        "Clio sails to Spain and Egypt (harbour/clio.md)",
                        None,
                    ),
                    AGENT_STEP,
                    r#"{"acknowledged":true,"facts_recorded":1,"sub_task_outcome":null}"#,
                ),
            ],
            ("Clio sails to Spain. That answers the task.", "Clio sails to Spain (harbour/clio.md)."),
        ));
    }
    const DONE: &str = r#"{"acknowledged":true,"facts_recorded":1,"sub_task_outcome":"done"}"#;
    let read = |thinking, summary, path| act(thinking, summary, READ, json!({"path": path}));
    let done = |thinking, summary, fact| verify(thinking, summary, fact, Some("done"));
    out.extend(worked(
        "Which boat is longer, the one in clio.md or in nora.md?",
        &[
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
            (
                read("Sub-task 1: I read clio.md.", "Read clio.md.", "clio.md"),
                READ,
                "Clio is green.\nShe is 14 m long.",
            ),
            (
                done("The file gives the length of Clio: 14 m.", "Clio is 14 m long.", "Clio is 14 m long (clio.md)"),
                AGENT_STEP,
                DONE,
            ),
            (read("Sub-task 2: I read nora.md.", "Read nora.md.", "nora.md"), READ, "Nora is red.\nShe is 11 m long."),
            (
                done("The file gives the length of Nora: 11 m.", "Nora is 11 m long.", "Nora is 11 m long (nora.md)"),
                AGENT_STEP,
                DONE,
            ),
        ],
        (
            "14 m is more than 11 m, so Clio is longer. That answers the task.",
            "Clio is longer: 14 m (clio.md); Nora is 11 m long (nora.md).",
        ),
    ));
    out
}

const READ: &str = "read_file";
const SEARCH: &str = "search_files";

/// A task, its steps with who answers each and what, and the thought and the answer at its end. The
/// working memory stands where it will stand in the agent's own work: under the newest result. A small
/// model that had not seen it there before took its list of steps for work to be done.
fn worked(task: &str, steps: &[(Value, &str, &str)], (thinking, answer): (&str, &str)) -> Vec<Message> {
    let says = |step: &Value| Message::Assistant { text: step.to_string(), reasoning: None, calls: Vec::new() };
    let mut out = vec![Message::User { text: results::task(task) }];
    let mut memory = WorkingMemory::default();
    let mut signals = Signals::default();
    for (number, (step, answered_by, answer)) in (1..).zip(steps) {
        remember(&mut memory, &mut signals, number, step, answer);
        let mut text = told_result(answered_by, answer);
        if number as usize == steps.len() {
            let view = memory.render_view(&signals.render(number, STEPS));
            text = format!("{text}\n\n{view}");
        }
        out.extend([says(step), Message::User { text }]);
    }
    let end = json!({"thinking": thinking, "phase": "end", "end_status": "solved", "end_message": answer});
    out.push(says(&end));
    out
}

/// How many steps the worked tasks say an agent may take.
const STEPS: u32 = 24;

fn remember(memory: &mut WorkingMemory, signals: &mut Signals, number: u32, step: &Value, answer: &str) {
    let Ok(step) = parse(&step.to_string()) else { return };
    if let Content::Act(Action { tool_name, tool_input }) = &step.content {
        signals.on_act(tool_name, None);
        let (tool, input, output) = (tool_name.clone(), tool_input.clone(), answer.to_owned());
        let call = CallRecord { tool, input, output, failed: false, ms: Some(1) };
        memory.take_call(number, &step.thinking, &step.summary, call);
    } else {
        signals.on_non_act(step.phase());
        memory.take_step(number, &step);
    }
}

fn act(thinking: &str, summary: &str, tool: &str, input: Value) -> Value {
    let action = json!({"tool_name": tool, "tool_input": input});
    json!({"thinking": thinking, "phase": "act", "summary": summary, "action": action})
}

fn verify(thinking: &str, summary: &str, fact: &str, outcome: Option<&str>) -> Value {
    json!({
        "thinking": thinking,
        "phase": "verify",
        "summary": summary,
        "key_facts": [fact],
        "sub_task_outcome": outcome,
    })
}
