//! Worked tasks that stand before the task itself where calling is structured: conversations written down, each message
//! behind a line with its role.
//!
//! Small models do what they see done: told in words how to work, Qwen2.5-Coder-1.5B guessed file
//! names and repeated itself for ever; shown it as messages of a conversation, it works.

use super::survey::{self, MAX_QUOTED};
use crate::model::Message;
use crate::tool::{Survey, SurveyedFile, SurveyedTable};

/// Of those that are told of their workspace: what its files say, or do not say, as they are quoted or read.
pub(super) const LOOKUP: &str = include_str!("worked/harbour/lookup.txt");
/// By way of another file.
pub(super) const HOP: &str = include_str!("worked/harbour/hop.txt");
pub(super) const READ: &str = include_str!("worked/harbour/read.txt");
pub(super) const ABSENT: &str = include_str!("worked/harbour/absent.txt");
/// All that is quoted is gone through, and only some of it matters.
pub(super) const COLLECT: &str = include_str!("worked/harbour/collect.txt");
pub(super) const CALCULATE_SOME: &str = include_str!("worked/harbour/calculate.txt");
/// Without a file.
pub(super) const PLAIN: &str = include_str!("worked/harbour/plain.txt");
/// The same by a query.
pub(super) const QUERY: &str = include_str!("worked/harbour/query.txt");
/// What a query gives is written.
pub(super) const QUERY_WRITE: &str = include_str!("worked/harbour/query_write.txt");
/// The same by a program.
pub(super) const PROGRAM: &str = include_str!("worked/harbour/program.txt");
pub(super) const WRITE_SOME: &str = include_str!("worked/harbour/write.txt");
pub(super) const EDIT: &str = include_str!("worked/harbour/edit.txt");

/// Of those that are not.
pub(super) const SEARCH: &str = include_str!("worked/search.txt");
pub(super) const CALCULATE: &str = include_str!("worked/calculate.txt");
pub(super) const WRITE: &str = include_str!("worked/write.txt");
/// `{skill}` stands for its name.
pub(super) const SKILL: &str = include_str!("worked/skill.txt");
/// `{role}` stands for whom tasks are given to, `{given_7}`, `{given_8}` and `{answers}` for what is told of them.
pub(super) const TASKS: &str = include_str!("worked/tasks.txt");
/// `{told}` stands for what other jobs came to.
pub(super) const TOLD: &str = include_str!("worked/told.txt");
pub(super) const TOLD_FILE: &str = include_str!("worked/told_file.txt");
/// The working memory stands where it will stand in the agent's own work: under the newest result. A small
/// model that had not seen it there before took its list of steps for work to be done.
pub(super) const PHASED_SEARCH: &str = include_str!("worked/phased_search.txt");
pub(super) const PHASED_PLAN: &str = include_str!("worked/phased_plan.txt");

/// The messages of such a conversation.
pub(super) fn messages(text: &str) -> Vec<Message> {
    let messages = text.split("== ").filter_map(|message| message.split_once('\n'));
    let message = |(role, text): (&str, &str)| {
        let text = text.trim_end_matches('\n').to_owned();
        match role {
            "assistant" => Message::Assistant { text, reasoning: None, calls: Vec::new() },
            _ => Message::User { text },
        }
    };
    messages.map(message).collect()
}

/// What the worked tasks are told of the workspace that they stand in.
pub(super) fn harbour(with_tables: bool) -> String {
    let file = |(path, bytes, head): &(&str, u64, &str)| {
        let bytes = if head.is_empty() { *bytes } else { head.len() as u64 };
        SurveyedFile { path: (*path).into(), bytes, head: (*head).into() }
    };
    let table = |(name, path, columns): &(&str, &str, &[&str])| {
        let columns = columns.iter().map(|column| (*column).to_owned()).collect();
        SurveyedTable { name: (*name).into(), path: (*path).into(), columns, rows: Some(3) }
    };
    let survey = Survey {
        files: HARBOUR.iter().map(file).collect(),
        tables: HARBOUR_TABLES.iter().map(table).collect(),
        has_more: false,
    };
    survey::told(&survey, "boats catch", MAX_QUOTED, with_tables).unwrap_or_default()
}

/// Path, length, and text where it is quoted.
const HARBOUR: [(&str, u64, &str); 6] = [
    ("boats/clio.md", 0, "Clio\nColour: green\nLength: 14 m\nSkipper: Ana Reis\n"),
    ("boats/nora.md", 0, "Nora\nColour: red\nLength: 11 m\nSkipper: Tove Lund\n"),
    ("boats/pippa.md", 0, "Pippa\nColour: green\nLength: 9 m\nSkipper: Ana Reis\n"),
    ("catch.csv", 0, "boat,fish,kg\nClio,cod,3.25\nNora,hake,1.5\nClio,eel,0.75\n"),
    ("log/monday.txt", 51, ""),
    ("quay.md", 640, ""),
];

/// Name, path and columns of what the tools make of it; each has three rows.
const HARBOUR_TABLES: [(&str, &str, &[&str]); 2] = [
    ("boats", "boats/", &["name", "colour", "length in m", "skipper", "file"]),
    ("catch", "catch.csv", &["boat", "fish", "kg"]),
];
