//! Calls of a reply that ends before it is whole: what the model is told of each.

use super::SHORTER;
use crate::model::{CallRequest, Finish, Usage};
use crate::text::plural;

/// Most bytes of a cut call's arguments that stay in the conversation, to say where it broke off.
const EXCERPT: usize = 2_000;

/// Whether a call's arguments end before their JSON does. What is wrong in another way is not cut.
pub(super) fn is_cut(call: &CallRequest) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(&call.arguments).is_err_and(|error| error.is_eof())
}

/// What is told of each call, in their order.
pub(super) fn results(finish: &Finish, usage: &Usage, calls: &[CallRequest]) -> Vec<String> {
    let at_limit = *finish == Finish::Length;
    let tokens = plural(usage.output, "token");
    let first_cut = calls.iter().position(is_cut);
    let told = |(at, call): (usize, &CallRequest)| match (first_cut, at_limit) {
        (_, true) if is_cut(call) => format!(
            "Not run: the token limit was reached after {tokens}, and the arguments of this call were cut off. \
             {SHORTER}"
        ),
        (_, false) if is_cut(call) => format!(
            "Not run: the arguments of this call are no whole JSON; they end in the middle, after {}. No \
             token limit was reported: the provider gave {} as the end of a reply of {tokens}. Make the call \
             again, with complete arguments.",
            plural(call.arguments.chars().count() as u64, "character"),
            word(finish),
        ),
        (Some(cut), _) if cut != at => format!(
            "Not run: another call of the same reply, of {}, was cut off{}, so none of the reply's calls was run. Make \
             this call again, by itself.",
            calls[cut].name,
            if at_limit { format!(" at the token limit, after {tokens}") } else { String::new() },
        ),
        _ => format!(
            "Not run: the token limit was reached after {tokens}, so whether your reply was complete is not \
             known. Make this call again. {SHORTER}"
        ),
    };
    calls.iter().enumerate().map(told).collect()
}

/// The call with so much of its arguments as says where they broke off, if they are longer.
pub(super) fn excerpt(call: &CallRequest) -> Option<CallRequest> {
    if call.arguments.len() <= EXCERPT || !is_cut(call) {
        return None;
    }
    let half = EXCERPT / 2;
    let front = &call.arguments[..call.arguments.floor_char_boundary(half)];
    let back = &call.arguments[call.arguments.ceil_char_boundary(call.arguments.len() - half)..];
    let left_out = plural((call.arguments.len() - front.len() - back.len()) as u64, "byte");
    let arguments = format!("{front} [{left_out} left out here] {back}");
    Some(CallRequest { arguments, ..call.clone() })
}

/// The provider's word for why the reply ended.
fn word(finish: &Finish) -> &str {
    match finish {
        Finish::Stop => "stop",
        Finish::ToolCalls => "tool_calls",
        Finish::Length => "length",
        Finish::ContentFilter => "content_filter",
        Finish::Other(word) => word,
    }
}
