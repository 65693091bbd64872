//! Tool calls that leaked into a reply's text.
//!
//! Some servers fail to recognise their model's own markup and hand it on as words. To run it would
//! be a guess, and to take it for an answer would end the run with it; so the model is told.

/// How the markup of calls begins, by maker.
const BEGINS: &[&str] = &[
    "<tool_call>",
    "<function=",
    "<function_call>",
    "<|tool_call",
    "<|python_tag|>",
    "<｜tool▁calls▁begin｜>",
    "[TOOL_CALLS]",
    "<|channel|>commentary to=",
];

/// How it ends.
const ENDS: &[&str] = &["</tool_call>", "</function>", "</function_call>", "<｜tool▁calls▁end｜>"];

/// Whether `text` is, or ends in, a call as its model spells it.
pub(in crate::run) fn is_call(text: &str) -> bool {
    let text = text.trim();
    BEGINS.iter().any(|mark| text.starts_with(mark)) || ENDS.iter().any(|mark| text.ends_with(mark))
}

/// What the model is told then.
pub(in crate::run) const NOTE: &str = "Your reply held a tool call as text, which has not been run. Call the tool itself, or call \
                               `finish` with the complete answer.";
