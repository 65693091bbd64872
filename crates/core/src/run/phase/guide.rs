//! The words that teach the phases. They stand in the system text where the rules of work stand for
//! agents that do without phases.

use crate::model::{Message, ToolCalling};
use crate::run::worked;
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
    if calling == ToolCalling::Native || !offered("read_file") {
        return Vec::new();
    }
    let search = offered("search_files").then_some(worked::PHASED_SEARCH);
    search.into_iter().chain([worked::PHASED_PLAN]).flat_map(worked::messages).collect()
}
