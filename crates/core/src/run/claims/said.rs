//! What an answer says was written. In English, and rather too little than too much: what is read out of an answer that
//! is not in it costs a turn, and what is missed is as it was before.

use super::super::wish::Words;
use super::words::{Sentence, name_of, sentences};

/// A file that an answer says was written or changed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Claim {
    pub path: String,
    /// Whether it says of itself that it did so.
    pub is_own: bool,
    /// Whether the file is what was written, and not where something went.
    pub is_direct: bool,
    /// Whether it was made, and not only changed.
    pub is_made: bool,
    /// Whether it may be told of what others did, long ago.
    pub is_told: bool,
    /// All files of the sentence, by their names.
    pub beside: Vec<String>,
}

const MADE: Words = Words(
    "wrote written created saved stored exported generated recorded copied put placed appended overwritten rewritten",
);

const CHANGED: Words =
    Words("updated changed edited modified replaced corrected fixed added inserted removed deleted adjusted marked");

/// Between who did it, or the file it was done to, and the verb.
const BETWEEN: Words = Words("have has been now just also then successfully correctly both finally all thus");

/// Between the verb, or a preposition, and the file.
const ARTICLES: Words =
    Words("a an the new file files text document named called your existing this output its following");

const INTO: Words = Words("to into in as inside named called");

/// With these a sentence says something else than that it was done.
const OTHERWISE: Words = Words(
    "not cannot can could would should might may must will if unless until when once whether no none nothing never \
     neither without unable tried failed already says said yesterday previously",
);

/// With these behind the verb a part of the sentence is about something else.
const TURNS: Words = Words("which that who whose where because so about for by but before of how why via");

pub(super) fn claims(answer: &str) -> Vec<Claim> {
    let mut claims = Vec::new();
    for sentence in sentences(answer) {
        let is_otherwise = sentence.has(OTHERWISE) || sentence.words.iter().any(|word| is_negated(&word.text));
        if is_otherwise || sentence.paths().next().is_none() {
            continue;
        }
        for verb in 0..sentence.words.len() {
            claims.extend(claim(&sentence, verb));
        }
    }
    claims
}

pub(super) fn is_negated(word: &str) -> bool {
    word.ends_with("n't") || word.ends_with("n’t")
}

fn claim(sentence: &Sentence, verb: usize) -> Option<Claim> {
    let is_made = MADE.has(sentence.at(verb));
    if !is_made && !CHANGED.has(sentence.at(verb)) {
        return None;
    }
    let beside = sentence.paths().map(name_of).collect();
    let claim = |path: &str, is_own, is_direct| {
        Some(Claim { path: path.to_owned(), is_own, is_direct, is_made, is_told: false, beside })
    };
    let passive = passive(sentence, verb);
    if let Some(Passive { path: Some(path), is_told }) = &passive {
        let claim = claim(path, false, true);
        return claim.filter(|_| sentence.at(verb + 1) != "by").map(|claim| Claim { is_told: *is_told, ..claim });
    }
    let is_own = is_own(sentence, verb);
    let is_bare = verb == 0 && !sentence.is_item && sentence.at(0) != "written";
    if passive.is_none() && !is_own && !is_bare {
        return None;
    }
    let (path, is_direct) = goes_to(sentence, verb)?;
    let is_told = passive.is_some_and(|passive| passive.is_told);
    claim(path, is_own, is_direct).map(|claim| Claim { is_told, ..claim })
}

struct Passive<'s> {
    /// The file that it was done to, where it is one.
    path: Option<&'s str>,
    is_told: bool,
}

/// "a.txt has been written", "the sum was written".
fn passive<'s>(sentence: &'s Sentence, verb: usize) -> Option<Passive<'s>> {
    let mut at = verb.checked_sub(1)?;
    while BETWEEN.has(sentence.at(at)) && !matches!(sentence.at(at), "has" | "have" | "been") {
        at = at.checked_sub(1)?;
    }
    let is_told = match sentence.at(at) {
        "been" => {
            at = at.checked_sub(1)?;
            if !matches!(sentence.at(at), "has" | "have") {
                return None;
            }
            false
        }
        "was" | "were" => true,
        "is" | "are" => false,
        _ => return None,
    };
    let mut path = at.checked_sub(1)?;
    while BETWEEN.has(sentence.at(path)) || sentence.at(path) == "file" {
        path = path.checked_sub(1)?;
    }
    Some(Passive { path: sentence.words[path].path.as_deref(), is_told })
}

/// "I have written", "I read it and wrote".
fn is_own(sentence: &Sentence, verb: usize) -> bool {
    const OWN: Words = Words("i we i've i’ve we've we’ve");
    let mut at = verb;
    while at > 0 && BETWEEN.has(sentence.at(at - 1)) {
        at -= 1;
    }
    let Some(before) = at.checked_sub(1) else { return false };
    let begins_so = OWN.has(sentence.at(0)) || OWN.has(sentence.at(1));
    OWN.has(sentence.at(before)) || (begins_so && (sentence.at(before) == "and" || sentence.words[before].ends_part))
}

/// The file behind a verb that something went to, and whether it is what was written.
fn goes_to(sentence: &Sentence, verb: usize) -> Option<(&str, bool)> {
    for at in verb + 1..sentence.words.len() {
        let word = &sentence.words[at];
        if let Some(path) = &word.path {
            let mut before = at - 1;
            while before > verb && ARTICLES.has(sentence.at(before)) && !INTO.has(sentence.at(before)) {
                before -= 1;
            }
            if before == verb {
                return Some((path, true));
            }
            if INTO.has(sentence.at(before)) {
                return Some((path, false));
            }
            continue;
        }
        let is_wish = word.text == "to" && !leads_to_file(sentence, at);
        if TURNS.has(&word.text) || is_wish {
            return None;
        }
    }
    None
}

fn leads_to_file(sentence: &Sentence, at: usize) -> bool {
    let next = sentence.words[at + 1..].iter().find(|word| !ARTICLES.has(&word.text));
    next.is_some_and(|word| word.path.is_some())
}
