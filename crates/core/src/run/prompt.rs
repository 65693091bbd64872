//! The words a run begins with. Pure text from the persona and its tools; snapshots of it are
//! tests, because every word here is read by every model in every request.

use std::fmt::Write;

use crate::journal::OfferedTool;
use crate::model::ToolCalling;
use crate::persona::PersonaTemplate;

/// What a reopened run is told.
pub(crate) const GO_ON: &str =
    "A person asked you to go on with this task. Go on from where you are; do not repeat what is done.";

/// The system message: who the agent is, how it works, and, where the provider's protocol does not
/// carry them, its tools. The same inputs give the same bytes.
pub fn system(persona: &PersonaTemplate, calling: ToolCalling, tools: &[OfferedTool]) -> String {
    let mut out = String::new();
    let PersonaTemplate { role, goal, backstory, .. } = persona;
    let _ = writeln!(out, "You are an agent with the role \"{role}\".\nYour purpose: {}", goal.trim());
    if !backstory.trim().is_empty() {
        let _ = writeln!(out, "\n{}", backstory.trim());
    }
    out.push_str(WORKING);
    if calling == ToolCalling::Structured {
        out.push_str(&structured_tools(tools));
    }
    out
}

const WORKING: &str = "
# How you work
- You work alone and unattended: nobody reads along, and nobody can answer you.
- Look before you answer. Never guess what a file contains: read it. Never invent names or numbers.
- Do one step at a time and read the result before the next. Use names exactly as results show them.
- Do not repeat a call that has already given you its result.
- When the task asks for a file to be written or changed, do it with a tool; describing it is not doing it.
- When everything the task asks for is done, call `finish` with the complete answer.

# When a tool reports an error
- Read the error: it says what is wrong and what would be right.
- Correct the arguments and try again, or try another way. The same call would fail in the same way.
- A result that says an action may or may not have happened means exactly that: check before you repeat it.
- If the task cannot be done, call `finish` and say plainly what is missing.
";

/// Tools as text: one line each, with their arguments, then what a step looks like.
fn structured_tools(tools: &[OfferedTool]) -> String {
    let mut out = String::from("\n# Your tools\n");
    let finish = super::finish::spec();
    for spec in tools.iter().map(|t| &t.spec).chain([&finish]) {
        let _ = writeln!(out, "- {}({}): {}", spec.name, arguments(&spec.parameters), spec.description);
    }
    out.push_str(STEP_FORMAT);
    let has = |name: &str| tools.iter().any(|t| t.spec.name == name);
    if has("list_files") && has("read_file") {
        out.push_str(EXAMPLE);
    }
    out
}

const STEP_FORMAT: &str = "
# How you reply
Reply with exactly one JSON object and nothing else: the next step.
{\"thinking\": \"why this step, in one or two sentences\", \"tool\": \"<name of a tool>\", \"arguments\": {...}}
You then get the result and reply with the next step. The step `finish` ends the work.
";

/// Small models guess file names and answer unread until they have seen it done once.
const EXAMPLE: &str = "
# Example
For the task \"Which boat in harbour/ is green?\" your replies, one after the other, would be:
{\"thinking\": \"I do not know which files there are.\", \"tool\": \"list_files\", \"arguments\": {\"path\": \"harbour\"}}
(the result shows harbour/anna.md and harbour/bella.md)
{\"thinking\": \"I have to read each of them. First anna.\", \"tool\": \"read_file\", \"arguments\": {\"path\": \"harbour/anna.md\"}}
(the result says that Anna is red)
{\"thinking\": \"Not Anna. Next bella.\", \"tool\": \"read_file\", \"arguments\": {\"path\": \"harbour/bella.md\"}}
(the result says that Bella is green)
{\"thinking\": \"That is the answer.\", \"tool\": \"finish\", \"arguments\": {\"final_summary\": \"Bella is green (harbour/bella.md).\"}}
";

fn arguments(schema: &serde_json::Value) -> String {
    let required: Vec<_> = schema["required"].as_array().into_iter().flatten().filter_map(|v| v.as_str()).collect();
    let Some(properties) = schema["properties"].as_object() else { return String::new() };
    let each = properties.iter().map(|(name, property)| {
        let optional = if required.contains(&name.as_str()) { "" } else { "?" };
        match property["description"].as_str() {
            Some(text) => format!("{name}{optional}: {}", text.trim_end_matches('.')),
            None => format!("{name}{optional}"),
        }
    });
    each.collect::<Vec<_>>().join("; ")
}

/// The first user message: the task, word for word.
pub fn task(goal: &str) -> String {
    format!("Your task:\n{goal}")
}
