//! Which files a goal asks to be written, and which it asks about: in English, and only where its words leave no doubt.

use super::super::wish::Words;
use super::said::is_negated;
use super::words::{Sentence, name_of, sentences};

/// A file that a goal asks to be written or changed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Target {
    pub path: String,
    /// Whether it is to be written also where it is there.
    pub is_sure: bool,
}

/// Longer ones are documents, in which anything may stand.
const MOST_BYTES: usize = 4_000;

/// What is written goes to a file.
const WRITE: Words = Words("write save store append export record put copy create generate add");

/// Something in a file is to be another.
const CHANGE: Words =
    Words("change edit update modify replace correct fix set mark remove delete insert rewrite overwrite");

/// What comes of it goes to a file, where one is named.
const MAKE: Words = Words("convert translate summarise summarize compile collect list sort extract merge combine turn");

/// Before a verb that says what is wanted.
const LEADS: Words = Words("please then also now finally first next and just");

const ARTICLES: Words = Words("a an the new file text named called my our");

/// Not all that such a goal names has to be written.
const OPEN: Words = Words("if unless otherwise optionally optional whether");

/// Not all that such a sentence names has to be.
const VAGUE: Words = Words("maybe perhaps when whenever or should");

/// Behind these a verb does not say what is wanted.
const TOLD: Words =
    Words("how what which who why where explain describe example suggest pretend not never without nothing no avoid");

pub(super) fn targets(goal: &str) -> Vec<Target> {
    let sentences = if goal.len() > MOST_BYTES { Vec::new() } else { sentences(goal) };
    if sentences.iter().any(|sentence| sentence.has(OPEN)) {
        return Vec::new();
    }
    let mut targets: Vec<Target> = Vec::new();
    for target in sentences.iter().filter(|sentence| !sentence.has(VAGUE)).flat_map(in_sentence) {
        if !targets.iter().any(|known| name_of(&known.path) == name_of(&target.path)) {
            targets.push(target);
        }
    }
    targets
}

fn in_sentence(sentence: &Sentence) -> Vec<Target> {
    let words = &sentence.words;
    let mut targets = Vec::new();
    for at in 0..words.len() {
        if TOLD.has(sentence.at(at)) || is_negated(sentence.at(at)) {
            break;
        }
        // A wish begins behind a mark, or behind "and".
        if at == 0 || words[at - 1].ends_part || matches!(sentence.at(at - 1), "and" | "then") {
            let leads = words[at..].iter().take_while(|word| LEADS.has(&word.text)).count();
            targets.extend(target(sentence, at + leads));
        }
    }
    targets
}

/// The file that the wish which begins with this verb is to write.
fn target(sentence: &Sentence, verb: usize) -> Option<Target> {
    let (word, words) = (sentence.at(verb), &sentence.words);
    let (writes, changes) = (WRITE.has(word), CHANGE.has(word));
    let is_wish = writes || changes || MAKE.has(word);
    if !is_wish || matches!(sentence.at(verb + 1), "nothing" | "no") {
        return None;
    }
    let mut maybe = None;
    // What stands behind may belong to what it is for; but what goes into a file is what is written.
    let mut is_behind = false;
    for at in verb + 1..words.len() {
        // The next wish is another one's.
        if at > verb + 1 && words[at - 1].ends_part && is_verb(sentence.at(at)) {
            break;
        }
        let Some(path) = &words[at].path else {
            let next = sentence.at(at + 1);
            is_behind |= matches!(sentence.at(at), "for" | "by" | "using") && !changes;
            let is_over = match sentence.at(at) {
                "and" => is_verb(next),
                // Of ships that are red, and no script that saves something.
                "that" => !matches!(next, "is" | "are" | "was" | "were" | "has" | "have"),
                "about" | "like" => true,
                _ => false,
            };
            if is_over {
                break;
            }
            continue;
        };
        let mut before = at - 1;
        while before > verb && ARTICLES.has(sentence.at(before)) {
            before -= 1;
        }
        let is_direct = before == verb;
        let is_sure = match sentence.at(before) {
            _ if is_direct => matches!(word, "create" | "write" | "update" | "edit" | "rewrite" | "overwrite"),
            "into" => writes || changes,
            _ if is_behind => false,
            "to" => writes || word == "insert",
            // What is wrong in a file may be put right in another one.
            "in" => changes && word != "fix",
            "from" => matches!(word, "remove" | "delete"),
            _ => false,
        };
        if is_sure {
            return Some(Target { path: path.clone(), is_sure });
        }
        let is_place = match sentence.at(before) {
            _ if is_direct || is_behind => false,
            "into" | "to" => !changes,
            "in" | "as" => word != "add",
            _ => false,
        };
        if is_place {
            maybe = Some(Target { path: path.clone(), is_sure });
        }
    }
    maybe
}

fn is_verb(word: &str) -> bool {
    WRITE.has(word) || CHANGE.has(word) || MAKE.has(word)
}

/// Files that everybody knows something of, without having looked at one.
const KNOWN: Words = Words(
    "readme changelog license contributing cargo package pyproject requirements setup tsconfig makefile settings config \
     index main docker-compose go",
);

/// The files that a goal asks about: nobody can say what stands in them without having looked.
pub(super) fn sources(goal: &str) -> Vec<String> {
    const LOOKS: Words = Words("in of from inside read open summarise summarize check review count translate");
    let mut sources: Vec<String> = Vec::new();
    // What stands in more lines may bring along what it asks about.
    if goal.len() > MOST_BYTES || goal.trim().lines().count() > 2 {
        return sources;
    }
    let wonders = |sentence: &Sentence| {
        let how = sentence.words.iter().position(|word| word.text == "how");
        let is_how_to = how.is_some_and(|at| matches!(sentence.at(at + 1), "to" | "do" | "can" | "would" | "should"));
        is_how_to || sentence.has(Words("would should general usually typically"))
    };
    for sentence in sentences(goal).iter().filter(|sentence| !wonders(sentence)) {
        for (at, word) in sentence.words.iter().enumerate() {
            let Some(path) = &word.path else { continue };
            let mut before = at;
            while before > 0 && matches!(sentence.at(before - 1), "the" | "file" | "my" | "our") {
                before -= 1;
            }
            let asks = before > 0 && LOOKS.has(sentence.at(before - 1));
            let name = name_of(path);
            let stem = name.rsplit_once('.').map_or(&*name, |(stem, _)| stem);
            if asks && !KNOWN.has(stem) && !sources.contains(path) {
                sources.push(path.clone());
            }
        }
    }
    sources
}
