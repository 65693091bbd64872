//! The words a run begins with. Pure text from the persona and its tools; snapshots of it are
//! tests, because every word here is read by every model in every request.

use std::fmt::Write;

use serde_json::{Value, json};

use super::compaction::shorter;
use super::phase::{self, guide};
use super::results;
pub use super::results::{task, task_with};
use super::tasks;
use super::wish::{asks_to_write, names_file};
use super::worked::{self, messages};
use super::{finish, journal::Opening};
use crate::id::JobId;
use crate::model::{Message, ToolCalling};
use crate::persona::{PersonaTemplate, Style};
use crate::session::Exchange;
use crate::skill::OfferedSkill;
use crate::tool::ToolSpec;
use crate::tool::tasks::{TASK_CREATE, TASK_WAIT};

/// What a reopened run is told.
pub(crate) const GO_ON: &str =
    "A person asked you to go on with this task. Go on from where you are; do not repeat what is done.";

/// Whether people are there while the agent works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Company {
    /// Nobody reads along: a job from the queue.
    Alone,
    /// A person talks with it: an exchange of a session.
    InSession,
}

/// The system message: who the agent is, how it works, and its tools where no protocol carries them.
pub fn system(
    persona: &PersonaTemplate,
    style: Style,
    calling: ToolCalling,
    tools: &[ToolSpec],
    company: Company,
) -> String {
    let mut out = String::new();
    let PersonaTemplate { role, goal, backstory, .. } = persona;
    let _ = writeln!(out, "You are an agent with the role \"{role}\".\nYour purpose: {}", goal.trim());
    if !backstory.trim().is_empty() {
        let _ = writeln!(out, "\n{}", backstory.trim());
    }
    match (style, calling) {
        (Style::Direct, ToolCalling::Native) => {
            let company = match company {
                Company::Alone => "You work alone and unattended: nobody reads along.",
                Company::InSession => {
                    "A person talks with you and reads your final answers, and nothing else that you write."
                }
            };
            let _ = write!(out, "\n# How you work\n- {company}\n{WORKING}");
        }
        (Style::Direct, ToolCalling::Structured) => {
            let company = match company {
                Company::Alone => "You work alone and unattended.",
                Company::InSession => "A person talks with you.",
            };
            let _ = write!(out, "\n# How you work\n- {company} {WORKING_SHORT}");
            out.push_str(&list(tools.iter().chain([&finish::spec()])));
            out.push_str(STEP_FORMAT);
        }
        (Style::Phased, calling) => {
            out.push_str(guide::guide(calling));
            if calling == ToolCalling::Structured {
                out.push_str(&list(tools));
            }
        }
    }
    out
}

const WORKING: &str = "\
- Look before you answer. Never guess what a file contains: read it. Never invent names or numbers.
- Do one step at a time and read the result before the next. Use names exactly as results show them.
- Do not repeat a call that has already given you its result.
- When the task asks for a file to be written or changed, do it with a tool; describing it is not doing it.
- If the task cannot be done without something that a person alone knows, call `finish` with clarifying_questions and
  nothing else; you go on when they are answered. Ask rarely, and never what a tool can tell.
- When everything the task asks for is done, call `finish` with the complete answer.

# When a tool reports an error
- Read the error: it says what is wrong and what would be right.
- Correct the arguments and try again, or try another way. The same call would fail in the same way.
- A result that says an action may or may not have happened means exactly that: check before you repeat it.
- If your whole approach has failed, call `finish` with request_replan and say why: you begin anew with what you learned.
- If the task cannot be done, call `finish` and say plainly what is missing.
";

/// The same in fewer words: a small model loses the task behind a long preface.
const WORKING_SHORT: &str = "\
Never guess what a file contains: read it. Never invent names or numbers.
- Do one step at a time. Use file names exactly as results show them. Do not repeat a step that is done.
- When the task asks for a file to be written, write its whole text with a tool.
- When a tool reports an error, correct the arguments or try another way.
- When everything is done, call `finish` with the complete answer.
- Only if a person alone knows what you need, call `finish` with clarifying_questions. Only if your whole plan has \
failed, with request_replan: true.
";

/// Tools as text, one line each; the rest is in the schema that the reply is held to.
fn list<'a>(tools: impl IntoIterator<Item = &'a ToolSpec>) -> String {
    let mut out = String::from("\n# Your tools\n");
    for spec in tools {
        let purpose = spec.description.split_inclusive(". ").next().unwrap_or_default().trim_end();
        let _ = writeln!(out, "- {}({}): {purpose}", spec.name, required(&spec.parameters).join(", "));
    }
    out
}

const STEP_FORMAT: &str = "
# How you reply
Reply with exactly one JSON object, the next step:
{\"thinking\": \"why this step\", \"tool\": \"<name of a tool>\", \"arguments\": {...}}
";

fn required(schema: &Value) -> Vec<&str> {
    schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// What a request shows of an earlier exchange, in the form the agent works in: asked, questions on the way, answered.
/// All texts together have at most twice `most` bytes.
pub fn said_before(style: Style, calling: ToolCalling, exchange: &Exchange, most: usize) -> Vec<Message> {
    let most = if exchange.asked.is_empty() { most } else { most / 2 };
    let mut messages = vec![Message::User { text: task(&shorter(&exchange.goal, most)) }];
    if !exchange.asked.is_empty() {
        let each = most / exchange.asked.len();
        let questions: Vec<_> = exchange.asked.iter().map(|asked| shorter(&asked.question, each)).collect();
        let answers = exchange.asked.iter().zip(&questions).map(|(asked, question)| {
            format!("Question: {}\nAnswer: {}", shorter(question, each / 2), shorter(asked.told(), each / 2))
        });
        let answers = Message::User { text: answers.collect::<Vec<_>>().join("\n\n") };
        let text = match (style, calling) {
            (Style::Direct, ToolCalling::Structured) => {
                step(ASKING, finish::FINISH, &json!({"final_summary": "", "clarifying_questions": questions}))
            }
            (Style::Phased, ToolCalling::Structured) => {
                json!({"thinking": ASKING, "phase": "feedback", "feedback_message": questions.join("\n")}).to_string()
            }
            (_, ToolCalling::Native) => questions.join("\n"),
        };
        messages.extend([Message::Assistant { text, reasoning: None, calls: vec![] }, answers]);
    }
    let answer = shorter(&exchange.reply(), most);
    let text = match (style, calling) {
        (_, ToolCalling::Native) => answer,
        (Style::Direct, ToolCalling::Structured) => step(ANSWERED, finish::FINISH, &json!({"final_summary": answer})),
        (Style::Phased, ToolCalling::Structured) => {
            json!({"thinking": ANSWERED, "phase": "end", "end_status": "solved", "end_message": answer}).to_string()
        }
    };
    messages.push(Message::Assistant { text, reasoning: None, calls: vec![] });
    messages
}

const ASKING: &str = "Only the person knows this.";

const ANSWERED: &str = "That answers the task.";

/// The first user message of a new plan: the task as it was told, and what the failed try taught.
pub(super) fn task_after_failure(told: &str, failure: &str) -> String {
    format!(
        "{told}\n\nAn earlier try at this task failed. What was tried and why it failed:\n{failure}\n\nMake a new plan that \
         avoids this failure."
    )
}

/// How a task is told, so far as worked tasks are to be told alike.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Telling<'a> {
    /// What is asked for.
    pub goal: &'a str,
    /// With what its workspace has.
    pub of_workspace: bool,
    /// What it asks for is a file that its workspace does not have.
    pub for_new_file: bool,
    /// With what the jobs before it came to.
    pub of_results: bool,
}

/// Worked tasks that stand before the task itself when calling is structured, one for each kind of
/// work that `tools` and `skills` allow, told as the task is. Empty for native calling.
pub fn examples(
    style: Style,
    calling: ToolCalling,
    tools: &[ToolSpec],
    skills: &[ToolSpec],
    telling: Telling<'_>,
) -> Vec<Message> {
    if style == Style::Phased {
        return guide::examples(calling, tools);
    }
    if calling == ToolCalling::Native {
        return Vec::new();
    }
    let shown = |names: &[&str]| names.iter().all(|name| tools.iter().any(|tool| tool.name == *name));
    let mut out = match telling.of_workspace {
        true => in_harbour(&shown, asks_to_write(telling.goal), telling.for_new_file),
        false => {
            let kinds = [
                (["search_files", "read_file"], worked::SEARCH),
                (["read_file", "calculate"], worked::CALCULATE),
                (["read_file", "create_file"], worked::WRITE),
            ];
            kinds.iter().filter(|(names, _)| shown(names)).flat_map(|(_, text)| messages(text)).collect()
        }
    };
    if let Some(ToolSpec { name, .. }) = skills.first() {
        out.extend(messages(&worked::SKILL.replace("{skill}", name)));
    }
    if let Some(role) = given_tasks(tools) {
        out.extend(messages(&in_tasks(role)));
    }
    // The last, so the nearest to a task of that kind: without it the model answered with another example's words.
    if telling.of_results {
        let told = results::told_in_example(&[
            ("pilot", "How deep is the harbour?", "The harbour is 6 m deep (depth.md)."),
            ("pilot", "Which boat draws most?", "Nora draws most: 4 m (boats/nora.md)."),
        ]);
        // One of the two, for a small model does what the nearest does: it wrote files nobody had asked for, or none.
        let is_for_file = names_file(telling.goal) && shown(&["create_file"]);
        let text = if is_for_file { worked::TOLD_FILE } else { worked::TOLD };
        out.extend(messages(&text.replace("{told}", &told)));
    }
    out
}

/// The first role that tasks may be given to, where they are waited for too.
fn given_tasks(tools: &[ToolSpec]) -> Option<&str> {
    let create = tools.iter().find(|tool| tool.name == TASK_CREATE)?;
    tools.iter().find(|tool| tool.name == TASK_WAIT)?;
    create.parameters["properties"]["role"]["enum"][0].as_str()
}

fn in_tasks(role: &str) -> String {
    let answers = tasks::answers_in_example(&[
        (JobId(7), role, "Say how deep the harbour is, and which file says so.", "6 m (depth.md)"),
        (JobId(8), role, "Say who owns the ferry, and which file says so.", "Ana Reis (ferry.md)"),
    ]);
    let told = [("{role}", role), ("{answers}", &answers)];
    let text = worked::TASKS
        .replace("{given_7}", &tasks::given(JobId(7), role))
        .replace("{given_8}", &tasks::given(JobId(8), role));
    told.iter().fold(text, |text, (name, told)| text.replace(name, told))
}

/// Worked tasks in one workspace, which the first of them is told of. Writing is shown only to those who may have to:
/// a small model does what it is shown, and changed a file that was there where it was to write one.
fn in_harbour(shown: &dyn Fn(&[&str]) -> bool, writes: bool, for_new_file: bool) -> Vec<Message> {
    let queries = shown(&["query_tables"]);
    let kinds: [(&[&str], bool, &str); 12] = [
        (&["search_files"], true, worked::ABSENT),
        (&["read_file"], true, worked::READ),
        (&["calculate"], !queries, worked::CALCULATE_SOME),
        (&[], !queries, worked::COLLECT),
        (&["calculate"], queries && !writes, worked::PLAIN),
        (&[], queries && !writes, worked::QUERY),
        (&["execute_code", "read_file"], !writes, worked::PROGRAM),
        (&[], true, worked::LOOKUP),
        (&[], !writes, worked::HOP),
        (&["create_file"], queries && writes, worked::QUERY_WRITE),
        (&["create_file"], writes, worked::WRITE_SOME),
        (&["edit_file"], writes && !for_new_file, worked::EDIT),
    ];
    let chosen = kinds.iter().filter(|(names, is_wanted, _)| *is_wanted && shown(names));
    let mut out: Vec<_> = chosen.flat_map(|(_, _, text)| messages(text)).collect();
    if let Some(Message::User { text }) = out.first_mut() {
        *text = format!("{}\n\n{text}", worked::harbour(queries));
    }
    out
}

/// A step as a model with structured calling writes it.
fn step(thinking: &str, tool: &str, arguments: &Value) -> String {
    json!({"thinking": thinking, "tool": tool, "arguments": arguments}).to_string()
}

/// Whether the model is told of a skill without asking: some it has to find first.
pub(super) fn is_told(skill: &OfferedSkill, found: &[String]) -> bool {
    !skill.unlisted || found.contains(&skill.spec.name)
}

/// What a model with native calling is told of tools and skills, as one text.
pub(super) fn told_of_tools(opening: &Opening, found: &[String]) -> String {
    let last = if opening.persona.style == Style::Phased { phase::spec() } else { finish::spec() };
    let skills = opening.skills.iter().filter(|skill| is_told(skill, found)).map(|skill| &skill.spec);
    opening.tools.iter().map(|tool| &tool.spec).chain(skills).chain([&last]).map(told_of).collect()
}

/// As a request has a tool; a model's template mostly shows it so too.
pub(super) fn told_of(spec: &ToolSpec) -> String {
    format!("{}\n", json!({"type": "function", "function": spec}))
}
