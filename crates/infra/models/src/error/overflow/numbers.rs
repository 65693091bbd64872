//! Which of the numbers in an error is the limit: providers name what was asked, what may be, and the
//! parts of both, in any order.

use regex::Regex;
use std::sync::LazyLock;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Number {
    from: usize,
    to: usize,
    value: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Limit,
    Asked,
}

const BEFORE_LIMIT: &[&str] = &[
    "maximum",
    "max",
    "limit",
    "at most",
    "up to",
    "allowed",
    "available",
    "available context size",
    "context length",
    "context window",
    "context size",
    "context length of only",
    "maximum prompt length",
    "maximum input length",
    "maximum model length",
    "maximum number of tokens",
    "maximum number of input tokens",
    "max input tokens",
    "maximum input tokens",
    "max_input_tokens",
    "less than",
    "fewer than",
    "cannot exceed",
    "must not exceed",
    "longer than",
    "larger than",
    "greater than",
    "more than",
    "over the",
    "too large for",
    "window of",
    "window holds",
    "supports",
    "must be <=",
    "<",
    "<=",
    ">",
    "max_seq_len",
    "max_model_len",
    "n_ctx",
];

/// Words that stand before what was asked, or before a part of it.
const BEFORE_ASKED: &[&str] = &[
    "requested",
    "resulted in",
    "contains",
    "contain",
    "given",
    "received",
    "has",
    "got",
    "input",
    "input tokens",
    "output tokens",
    "prompt",
    "prompt of",
    "prompt length",
    "input length",
    "prompt_tokens",
    "request",
    "is too long",
    "is too large",
    "token count",
    "count of",
    "current length",
    "current",
    "messages",
    "the first",
    "at least",
    "actual",
    "by",
    "you sent",
    "used",
];

const BEHIND_LIMIT: &[&str] = &["maximum", "max", "limit", "context", "token limit", "token context", "tokens allowed"];

/// Words that stand behind what was asked.
const BEHIND_ASKED: &[&str] = &["in the", "in your", "from the", "for the", "input tokens", "exceed", "requested"];

/// The limit that a message in lower case names.
pub(super) fn limit(message: &str) -> Option<u32> {
    let numbers = numbers(message);
    let between = |i: usize| {
        let from = if i == 0 { 0 } else { numbers[i - 1].to };
        &message[from..numbers.get(i).map_or(message.len(), |number| number.from)]
    };
    // `159392 > 150000`, `199000 + 8192 > 200000`: the sign says it all.
    for (i, number) in numbers.iter().enumerate().skip(1) {
        if matches!(words(between(i)).as_str(), ">" | ">=" | "tokens >" | "tokens >=") {
            return Some(number.value);
        }
    }
    // `[1, 129024]`: a range.
    for (i, number) in numbers.iter().enumerate().skip(1) {
        let is_range = between(i).trim() == "," && between(i - 1).trim_end().ends_with('[');
        if is_range && message[number.to..].starts_with(']') {
            return Some(number.value);
        }
    }
    let role = |i: usize| before(between(i)).or_else(|| behind(between(i + 1)));
    let limits: Vec<_> = (0..numbers.len()).filter(|&i| role(i) == Some(Role::Limit)).collect();
    // A reply has a limit of its own.
    let of_context = |&&i: &&usize| !between(i).contains("output") && !between(i).contains("completion");
    limits.iter().find(of_context).or(limits.first()).map(|&i| numbers[i].value)
}

fn words(text: &str) -> String {
    text.split(|c: char| c.is_whitespace() || matches!(c, '(' | ')'))
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// What the words before a number say about it: those nearest to it, and of those that end together the
/// longest.
fn before(text: &str) -> Option<Role> {
    let last = |words: &[&str]| words.iter().filter_map(|word| Some((last_word(text, word)?, word.len()))).max();
    match (last(BEFORE_LIMIT), last(BEFORE_ASKED)) {
        (None, None) => None,
        (limit, asked) if limit > asked => Some(Role::Limit),
        _ => Some(Role::Asked),
    }
}

/// What the words behind a number say about it.
fn behind(text: &str) -> Option<Role> {
    // The next sentence is about something else.
    let text = text.split(['.', ';', '(']).next().unwrap_or_default();
    let first = |words: &[&str]| words.iter().filter_map(|word| text.find(word)).min().unwrap_or(usize::MAX);
    match (first(BEHIND_LIMIT), first(BEHIND_ASKED)) {
        (usize::MAX, usize::MAX) => None,
        (limit, asked) if limit < asked => Some(Role::Limit),
        _ => Some(Role::Asked),
    }
}

/// Where the last occurrence of `word` ends, as a word of its own.
fn last_word(text: &str, word: &str) -> Option<usize> {
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    let own = |at: &usize| {
        let (front, back) = (&text[..*at], &text[at + word.len()..]);
        !word.starts_with(is_letter) || (!front.ends_with(is_letter) && !back.starts_with(is_letter))
    };
    text.match_indices(word).map(|(at, _)| at).filter(own).last().map(|at| at + word.len())
}

/// Digits, with marks between their thousands, and a `k` or `m` behind them.
static NUMBER: LazyLock<Result<Regex, regex::Error>> =
    LazyLock::new(|| Regex::new(r"[0-9]{1,3}(?:[,_' \u{a0}\u{202f}\u{2009}][0-9]{3})+[km]?\b|[0-9]+[km]?"));

/// Every number that stands by itself; those in names are none.
fn numbers(text: &str) -> Vec<Number> {
    let number = |found: regex::Match<'_>| {
        let (from, to) = (found.start(), found.end());
        let (before, behind) = (&text[..from], &text[to..]);
        let in_a_name = before.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '@'))
            || behind.starts_with(|c: char| c.is_alphanumeric() || c == '_')
            || (behind.starts_with('-') && behind[1..].starts_with(char::is_alphanumeric));
        let scale = match found.as_str().as_bytes().last() {
            Some(b'k') => 1_000,
            Some(b'm') => 1_000_000,
            _ => 1,
        };
        let digits: String = found.as_str().chars().filter(char::is_ascii_digit).collect();
        let value = u32::try_from(digits.parse::<u64>().ok()?.checked_mul(scale)?).ok()?;
        (!in_a_name).then_some(Number { from, to, value })
    };
    NUMBER.iter().flat_map(|pattern| pattern.find_iter(text)).filter_map(number).collect()
}
