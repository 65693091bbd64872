//! Which of the numbers in an error is the limit: providers name what was asked, what may be, and the
//! parts of both, in any order.

/// A number in a text.
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

/// Words that stand before a limit.
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

/// Words that stand behind a limit.
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

/// Every number that stands by itself, with its thousands and its `k`; those in names are none.
fn numbers(text: &str) -> Vec<Number> {
    let mut found = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if !bytes[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        let from = at;
        let mut digits = String::new();
        while at < bytes.len() {
            if bytes[at].is_ascii_digit() {
                digits.push(bytes[at] as char);
                at += 1;
            } else if let Some(width) = separator(&text[at..], digits.len(), at - from) {
                at += width;
            } else {
                break;
            }
        }
        let mut scale = 1;
        if text[at..].starts_with(['k', 'm']) && !text[at + 1..].starts_with(|c: char| c.is_alphanumeric()) {
            scale = if text[at..].starts_with('k') { 1_000 } else { 1_000_000 };
            at += 1;
        }
        let in_a_name = text[..from].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '@'))
            || text[at..].starts_with(|c: char| c.is_alphabetic() || c == '_')
            || (text[at..].starts_with('-') && text[at + 1..].starts_with(|c: char| c.is_alphanumeric()));
        let value = digits.parse::<u64>().ok().and_then(|n| u32::try_from(n.checked_mul(scale)?).ok());
        if let Some(value) = value.filter(|_| !in_a_name) {
            found.push(Number { from, to: at, value });
        }
    }
    found
}

/// How long the separator of thousands is that `text` begins with, behind `digits` digits.
fn separator(text: &str, digits: usize, width: usize) -> Option<usize> {
    let mark =
        text.chars().next().filter(|c| matches!(c, ',' | '_' | '\'' | ' ' | '\u{a0}' | '\u{202f}' | '\u{2009}'))?;
    let rest = &text[mark.len_utf8()..];
    let group = rest.chars().take_while(char::is_ascii_digit).count();
    // The first group is of one to three digits, all others of three.
    let is_first = digits == width;
    (group == 3 && if is_first { digits <= 3 } else { digits > 3 }).then(|| mark.len_utf8())
}
