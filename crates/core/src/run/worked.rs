//! Worked tasks that stand before the task itself where calling is structured: conversations written down, each message
//! behind a line with its role.
//!
//! Small models do what they see done: told in words how to work, Qwen2.5-Coder-1.5B guessed file
//! names and repeated itself for ever; shown it as messages of a conversation, it works.

use crate::model::Message;

pub(super) const SEARCH: &str = include_str!("worked/search.txt");
pub(super) const CALCULATE: &str = include_str!("worked/calculate.txt");
pub(super) const WRITE: &str = include_str!("worked/write.txt");
/// `{skill}` stands for its name.
pub(super) const SKILL: &str = include_str!("worked/skill.txt");
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
