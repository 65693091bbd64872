//! What a goal asks for, as far as its words tell: to be told something, or that something be written.
//!
//! Small models write files that nobody asked for when they are shown how to, and told that they can. Where the words
//! leave it open, and in every language but English, a goal may ask to write.

use crate::persona::PersonaTemplate;

/// A list of words, with spaces between them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words(pub &'static str);

impl Words {
    pub fn has(self, word: &str) -> bool {
        self.0.split_whitespace().any(|one| one == word)
    }
}

/// Begin what asks to be told, wherever they stand in a question.
const QUESTIONS: Words = Words("how what when where which who whom whose why");

/// Begin a question that wants no more than yes or no, or the help of whoever is asked.
const AUXILIARIES: Words = Words("are can could did do does had has have is may might must shall should was were will");

/// Begin a wish to be told.
const TELLING: Words = Words(
    "answer calculate check collect compare compute count describe determine estimate explain find gather give guess \
     identify list look multiply name quote read recommend report repeat say search see show state sum summarise \
     summarize tell verify work",
);

/// Of these, those that may as well be done in a file: what they are "in" is where to, and not where from.
const INTO_FILES: Words = Words("collect gather list report summarise summarize");

/// Begin a wish that something be written or changed.
const WRITING: Words = Words(
    "add adjust amend append apply bump change clean complete copy correct create cut decrease delete document drop \
     duplicate edit enter erase export extend fill fix implement import increase insert lower mark merge modify move note \
     overwrite raise record refactor reformat register remove rename replace reset rewrite save set shorten split store \
     strike swap switch tick tidy update write build enable",
);

/// Begin a wish to write, but where what they are to be done to stands in the goal itself.
const MAKING: Words =
    Words("arrange compile compose convert draft format generate make prepare produce put sort translate turn");

/// How something is to be in the end that is not so yet.
const WRITTEN: Words = Words(
    "added appended changed converted copied corrected created deleted edited fixed inserted made moved put removed \
     renamed replaced saved set stored updated written",
);

/// What a verb follows that is a wish.
const LEADS: Words = Words("also and but finally first just kindly next now or please then");

/// And outside of questions.
const MORE_LEADS: Words = Words("can could let lets must needs shall should to will would you");

/// Words of English and of no other language that a goal is likely to be in.
const ENGLISH: Words = Words(
    "all and any are does each every from has have how into it its me of that the their there these this those what which \
     who with you your up",
);

/// What may stand before the word that a question begins with.
const PREPOSITIONS: Words = Words("after at before by for from in of on to until with");

/// What agents do that are there for files, beside what a goal asks for.
const KEEPING: Words = Words("draw keep log maintain paste type wrote");

const NEGATIONS: Words = Words("cannot don't don’t never no not without");

/// Whether a goal asks for something to be written or changed. True also where its words do not tell.
pub fn asks_to_write(goal: &str) -> bool {
    let sentences = sentences(goal);
    let is_english = sentences.iter().flatten().any(|word| ENGLISH.has(&word.text));
    let mut asks_to_be_told = false;
    for sentence in &sentences {
        let kind = Kind::of(sentence);
        if writes(sentence, kind) {
            return true;
        }
        asks_to_be_told |= kind != Kind::Other;
    }
    !(asks_to_be_told && is_english)
}

/// Whether all that is asked for is an answer: the goal is one to be told something, and neither what its agent is for nor
/// the rules that it works by speak of writing.
pub fn asks_for_answer(goal: &str, persona: &PersonaTemplate, rules: &str) -> bool {
    let about = [&*persona.goal, &*persona.backstory, rules];
    !asks_to_write(goal) && !about.iter().any(|text| !text.trim().is_empty() && speaks_of_writing(text))
}

/// Whether a text has a word for writing or changing something, in any form. True also of one that is not English.
fn speaks_of_writing(text: &str) -> bool {
    let sentences = sentences(text);
    let mut words = sentences.iter().flatten().map(|word| word.text.as_str());
    let is_english = words.clone().any(|word| ENGLISH.has(word))
        || sentences.iter().any(|sentence| Kind::of(sentence) == Kind::Telling);
    !is_english || words.any(|word| WRITTEN.has(word) || verbs(word).any(|verb| is_for_files(&verb)))
}

fn is_for_files(verb: &str) -> bool {
    WRITING.has(verb) || MAKING.has(verb) || KEEPING.has(verb)
}

/// The verbs that a word may be a form of.
fn verbs(word: &str) -> impl Iterator<Item = String> + '_ {
    let stems = ["", "s", "es", "d", "ed", "ing"].into_iter().filter_map(move |ending| word.strip_suffix(ending));
    stems.flat_map(|stem| {
        // As "putting" is of "put".
        let mut single = stem.chars();
        let last = single.next_back();
        let single = if single.clone().next_back() == last { single.as_str() } else { stem };
        [stem.to_owned(), format!("{stem}e"), single.to_owned()]
    })
}

/// Whether a word of the goal is the name of a file, as `notes.md` and `out/a.csv` are.
pub fn names_file(goal: &str) -> bool {
    sentences(goal).iter().flatten().any(|word| word.is_file)
}

#[derive(Debug)]
struct Word {
    /// In small letters, without what stands around it.
    text: String,
    is_file: bool,
    /// Nothing stands before it that it could belong to.
    begins: bool,
    /// What is said of it follows.
    has_colon: bool,
    /// The mark behind it that ends a sentence.
    ends: Option<char>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Question,
    Telling,
    Other,
}

impl Kind {
    fn of(sentence: &[Word]) -> Kind {
        let text = |at: usize| sentence.get(at).map_or("", |word| word.text.as_str());
        let is_asked = sentence.last().is_some_and(|word| word.ends == Some('?'));
        let has_question = |words: &[Word]| words.iter().any(|word| QUESTIONS.has(&word.text));
        // "In which file …" may come without its mark.
        let begins_so = QUESTIONS.has(text(0)) || (PREPOSITIONS.has(text(0)) && QUESTIONS.has(text(1)));
        if begins_so || (is_asked && (has_question(sentence) || AUXILIARIES.has(text(0)))) {
            return Kind::Question;
        }
        let first = sentence.iter().position(|word| !LEADS.has(&word.text)).unwrap_or(0);
        let adds = text(first) == "add"
            && sentence[first..].iter().any(|word| matches!(word.text.as_str(), "up" | "together"));
        let stands_here = MAKING.has(text(first))
            && !sentence.iter().any(|word| word.is_file || is_place(&word.text))
            && sentence[..sentence.len().saturating_sub(1)].iter().any(|word| word.has_colon);
        let tells = TELLING.has(text(first)) || adds || stands_here;
        if tells { Kind::Telling } else { Kind::Other }
    }
}

fn is_place(word: &str) -> bool {
    matches!(word, "file" | "files" | "folder" | "folders" | "directory" | "document" | "workspace")
}

fn writes(sentence: &[Word], kind: Kind) -> bool {
    let text = |at: usize| sentence.get(at).map_or("", |word: &Word| word.text.as_str());
    // Whoever is asked whether they could do something is asked to do it.
    let asks_you = kind == Kind::Question && AUXILIARIES.has(text(0)) && text(1) == "you";
    for (at, Word { text: word, begins, is_file, .. }) in sentence.iter().enumerate() {
        let before = if at == 0 { "" } else { text(at - 1) };
        let clause = sentence[..at].iter().rposition(|word| word.begins).unwrap_or(0);
        let clause = if *begins { at } else { clause.max(at.saturating_sub(3)) };
        // "If not write it" asks for it.
        let is_if_not = |at: usize| at > 1 && text(at - 1) == "not" && text(at - 2) == "if";
        let negates = |one: &usize| NEGATIONS.has(text(*one)) && !is_if_not(*one + 1);
        let is_negated = (clause..at).any(|at| negates(&at)) || matches!(text(at + 1), "nothing" | "no");
        if is_negated {
            continue;
        }
        let leads = *begins
            || is_if_not(at)
            || LEADS.has(before)
            || (kind == Kind::Other && MORE_LEADS.has(before))
            || (asks_you && at == 2);
        let is_verb = WRITING.has(word) || MAKING.has(word);
        // The verb that says what is to be told is none of writing.
        let is_its_own = kind == Kind::Telling && sentence[..at].iter().all(|word| LEADS.has(&word.text));
        if is_verb && leads && !is_its_own {
            return true;
        }
        if kind == Kind::Question {
            continue;
        }
        if WRITTEN.has(word) && before == "be" {
            return true;
        }
        if *is_file && leads_to(sentence, at, kind) {
            return true;
        }
        if word == "file"
            && (before == "new" || (before == "a" && at > 1 && matches!(text(at - 2), "into" | "as" | "to")))
        {
            return true;
        }
    }
    false
}

/// Whether the file at `at` is where something is to go.
fn leads_to(sentence: &[Word], at: usize, kind: Kind) -> bool {
    let Some(before) = at.checked_sub(1).map(|before| sentence[before].text.as_str()) else { return false };
    let names_another = || sentence[..at].iter().any(|word| word.is_file);
    let goes_in = || sentence.iter().any(|word| INTO_FILES.has(&word.text));
    match before {
        "into" | "as" => true,
        "in" => names_another() || goes_in(),
        "to" => kind == Kind::Other && at > 1 && !matches!(sentence[at - 2].text.as_str(), "according" | "refer"),
        _ => false,
    }
}

fn sentences(goal: &str) -> Vec<Vec<Word>> {
    let mut sentences = vec![Vec::new()];
    for line in goal.lines() {
        let mut begins = true;
        for raw in line.split_whitespace() {
            let around =
                |c: char| matches!(c, '"' | '\'' | '`' | '(' | ')' | '[' | ']' | '*' | '“' | '”' | '„' | '‘' | '’');
            let behind = raw.trim_end_matches(around);
            let ends = behind.chars().next_back().filter(|c| matches!(c, '.' | '?' | '!'));
            let text = raw.trim_matches(|c: char| c.is_ascii_punctuation() || around(c)).to_lowercase();
            let is_number = text.chars().all(|c| c.is_ascii_digit());
            if !(text.is_empty() || (is_number && begins)) {
                let (is_file, has_colon) = (is_file_name(&text), behind.ends_with(':'));
                sentences.last_mut().expect("there is one").push(Word { text, is_file, begins, has_colon, ends });
                begins = false;
            }
            begins |= ends.is_some() || behind.ends_with([',', ';', ':']) || matches!(raw, "-" | "–" | "—" | "*");
            if ends.is_some() {
                sentences.push(Vec::new());
            }
        }
        sentences.push(Vec::new());
    }
    sentences.retain(|sentence| !sentence.is_empty());
    sentences
}

fn is_file_name(word: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part.chars().all(char::is_alphanumeric);
    let named = word.rsplit_once('.').filter(|(stem, _)| stem.ends_with(|c: char| c.is_alphanumeric()));
    named.is_some_and(|(_, ending)| {
        (2..=5).contains(&ending.len()) && is_part(ending) && ending.contains(char::is_alphabetic)
    })
}
