//! Whether the tools bear out an answer: what was said to be written was, and what was asked about was looked at.
//!
//! What a run's tools did is known from its journal ([`Work`]); whether a file is there, somebody looks ([`Seen`]). Both
//! must speak against an answer, and words only where nothing else does: a fault that is none costs a turn, and one that
//! is not seen leaves things as they were.

mod asked;
mod said;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;

use super::call::OpenCall;
use super::journal::{CallOutcome, Entry, Opening};
use super::wish::{Words, asks_to_write};
use crate::id::JobId;
use crate::model::Message;
use crate::skill::READ_SKILL_FILE;
use crate::tool::{EffectClass, Survey, ToolErrorCategory, ToolSpec, Writes, may_mean};
use said::{Claim, claims};
use words::{name_of, sentences};

/// What was looked at before a reply is taken, that matters should it end the run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Which files are there, of those that somebody looked for; of the others nothing is known.
    pub files: BTreeMap<String, bool>,
    /// The run's tasks that have not ended.
    pub open_tasks: Vec<JobId>,
}

impl Seen {
    fn is_there(&self, path: &str) -> Option<bool> {
        self.files.get(path).copied()
    }
}

/// An answer that was held back, for the tools do not bear it out.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Doubt {
    pub answer: String,
    pub why: String,
}

/// What the tools of a run have done, as far as its answer is held against it. Files are known by their own names, but
/// those written by their paths.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Work {
    /// Written, or maybe.
    written: BTreeSet<String>,
    /// Tried in vain.
    failed: BTreeSet<String>,
    /// Something ran that may have written anything.
    is_unseen: bool,
    /// What the last call said, where it failed.
    error: Option<String>,
    /// How many calls failed because of what they asked for.
    corrected: u32,
    /// Whether the last call did.
    is_to_be_corrected: bool,
    /// The files that the goal surely asks to be written.
    due: Vec<String>,
    /// What the goal asks about and nothing has come of yet, as it is written there.
    unread: Vec<String>,
    /// The answer that its model was told to look at again.
    pub doubt: Option<Doubt>,
}

impl Work {
    /// Takes in the next entry, and the call that it is about, as it was before.
    pub fn take(&mut self, entry: &Entry, call: Option<&OpenCall>, opening: Option<&Opening>) {
        let writes = call.map_or(Writes::Nothing, |call| of_call(call, opening));
        match entry {
            Entry::Began { goal, opening } => {
                self.due = asked::targets(goal).into_iter().filter(|due| due.is_sure).map(|due| due.path).collect();
                self.unread = asked::sources(goal);
                self.unread.retain(|path| !is_told(opening, path));
            }
            Entry::CallStarted { .. } => self.is_unseen |= writes == Writes::Anything,
            Entry::CallEnded { outcome, text, .. } => {
                if let Some(call) = call {
                    self.ended(call, *outcome, text, writes);
                }
            }
            Entry::FellBack { category, text, .. } => {
                if let Some(call) = call {
                    self.ended(call, CallOutcome::Failed { category: *category }, text, writes);
                }
            }
            Entry::Doubted { answer, why, .. } => {
                self.doubt = Some(Doubt { answer: answer.clone(), why: why.clone() });
            }
            Entry::Reopened | Entry::Restarted => self.doubt = None,
            _ => {}
        }
    }

    fn ended(&mut self, call: &OpenCall, outcome: CallOutcome, text: &str, writes: Writes) {
        let arguments = &call.request.arguments;
        self.error = (!matches!(outcome, CallOutcome::Done)).then(|| text.to_owned());
        use ToolErrorCategory::{Conflict, InvalidArguments, NotFound};
        self.is_to_be_corrected =
            matches!(outcome, CallOutcome::Failed { category: InvalidArguments | NotFound | Conflict });
        self.corrected += u32::from(self.is_to_be_corrected);
        self.unread.retain(|path| {
            let names = |text: &str| text.to_lowercase().contains(&name_of(path));
            !names(arguments) && !names(text)
        });
        if writes != Writes::File || !call.started {
            return;
        }
        let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
        let Some(path) = arguments["path"].as_str() else {
            self.is_unseen = true;
            return;
        };
        match outcome {
            CallOutcome::Refused => {}
            CallOutcome::Failed { category } if category.says_nothing_was_done() => {
                self.failed.insert(name_of(path));
            }
            CallOutcome::Done | CallOutcome::Unknown | CallOutcome::Failed { .. } => {
                self.written.insert(path.to_owned());
            }
        }
    }

    /// Whether a small model has to go on, whatever it would say: its last call asked for something wrong, which it
    /// tends to report instead of asking again, or nothing has tried to write the file that is to be written. Only at
    /// first: the work may be impossible.
    pub fn is_unfinished(&self, opening: &Opening, turns: u32) -> bool {
        let most = opening.persona.limits.max_turns;
        if turns >= MOST_TURNS_HELD.min(most.saturating_sub(1)) || self.is_unseen || self.doubt.is_some() {
            return false;
        }
        let can_write = || opening.tools.iter().any(|tool| tool.writes == Writes::File);
        let is_due = || self.due.iter().any(|path| !self.has_written(path));
        (self.is_to_be_corrected && self.corrected <= MOST_CORRECTED)
            || (self.failed.is_empty() && can_write() && is_due())
    }

    fn has_written(&self, path: &str) -> bool {
        self.written.iter().any(|written| may_mean(path, written))
    }
}

fn of_call(call: &OpenCall, opening: Option<&Opening>) -> Writes {
    match call.effect {
        None | Some(EffectClass::Pure) => Writes::Nothing,
        Some(_) => {
            let tools = opening.map_or(&[][..], |opening| &opening.tools);
            tools.iter().find(|tool| tool.spec.name == call.request.name).map_or(Writes::Anything, |tool| tool.writes)
        }
    }
}

/// Whether what a run begins with tells of a file: what it says, and not only that it is there.
fn is_told(opening: &Opening, path: &str) -> bool {
    let name = name_of(path);
    let names = |text: &str| text.to_lowercase().contains(&name);
    let said = opening.history.iter().any(|message| match message {
        Message::System { text } | Message::User { text } | Message::Assistant { text, .. } => names(text),
        Message::Tool { text, .. } => names(&text.to_string()),
    });
    said || [&opening.blocks, &opening.memory].into_iter().flatten().any(|text| names(text))
        || opening.results.as_ref().is_some_and(|told| names(&told.text))
}

/// Something that an answer says or leaves out and the tools do not bear out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// It says that a file was written which is not there.
    SaysMissing(String),
    /// It says that a file was changed which nothing has changed.
    SaysUnchanged(String),
    /// A file was asked for and is not there.
    Missing(String),
    /// A file was to be changed, and nothing has changed it.
    Unchanged(String),
    /// Something was to be written, and every call that was to do it failed.
    Failed(String),
    /// It was asked about a file, and nothing has looked at it.
    Unread(String),
    /// It says what the last call, which failed, had said.
    IsError,
}

/// What is wrong with an answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Faults(Vec<Fault>);

/// The end of a run: what was asked for, what it worked with, what its tools did, and what it says.
pub(super) struct End<'a> {
    pub goal: &'a str,
    /// The goal as the model was told it, with what it was told besides.
    pub told: &'a str,
    pub opening: &'a Opening,
    pub work: &'a Work,
    pub answer: &'a str,
}

impl End<'_> {
    fn writers(&self) -> impl Iterator<Item = &str> {
        let writes =
            self.opening.tools.iter().filter(|tool| tool.writes == Writes::File && tool.effect != EffectClass::Pure);
        writes.map(|tool| tool.spec.name.as_str())
    }

    fn reads(&self) -> bool {
        let takes_path = |spec: &ToolSpec| spec.parameters["properties"].get("path").is_some();
        let mut pure = self.opening.tools.iter().filter(|tool| tool.effect == EffectClass::Pure);
        // Files of a skill are none of the workspace's.
        pure.any(|tool| takes_path(&tool.spec) && tool.spec.name != READ_SKILL_FILE)
    }

    /// Whether it is to be held against what tools did: one that may have done anything leaves nothing to hold it against.
    fn is_to_be_checked(&self) -> bool {
        !self.work.is_unseen && (self.writers().next().is_some() || self.reads())
    }

    /// The files that it is of interest whether they are there.
    pub fn files(&self) -> Vec<String> {
        if !self.is_to_be_checked() {
            return Vec::new();
        }
        let mut files: Vec<String> = self.claims().into_iter().map(|claim| claim.path).collect();
        files.extend(self.targets().into_iter().map(|target| target.path));
        files.extend(self.unread());
        files.sort();
        files.dedup();
        files.truncate(MOST_FILES);
        files
    }

    /// What of it the tools do not bear out, where `seen` says which of [`End::files`] are there.
    pub fn faults(&self, seen: &Seen) -> Option<Faults> {
        if !self.is_to_be_checked() {
            return None;
        }
        let mut faults = Vec::new();
        for Claim { path, .. } in self.claims() {
            match seen.is_there(&path) {
                Some(false) => faults.push(Fault::SaysMissing(path)),
                Some(true) if asks_to_write(self.goal) => faults.push(Fault::SaysUnchanged(path)),
                _ => {}
            }
        }
        let is_told = |faults: &[Fault], path: &str| faults.iter().any(|fault| name_of(fault.path()) == name_of(path));
        if !self.admits() {
            for target in self.targets() {
                let fault = match seen.is_there(&target.path) {
                    _ if is_told(&faults, &target.path) => continue,
                    Some(false) => Fault::Missing(target.path),
                    Some(true) if target.is_sure => Fault::Unchanged(target.path),
                    _ => continue,
                };
                faults.push(fault);
            }
            if faults.is_empty()
                && self.work.written.is_empty()
                && asks_in_english(self.goal)
                && asks_to_write(self.goal)
            {
                let failed: Vec<_> = self.work.failed.iter().map(String::as_str).collect();
                faults.extend((!failed.is_empty()).then(|| Fault::Failed(failed.join(", "))));
            }
        }
        let is_there = |path: &String| seen.is_there(path) == Some(true);
        faults.extend(self.unread().into_iter().filter(is_there).map(Fault::Unread));
        faults.extend(self.is_error().then_some(Fault::IsError));
        faults.dedup();
        (!faults.is_empty()).then_some(Faults(faults))
    }

    /// Whether it is, in its first words or as a whole, what a tool said was wrong with a call.
    fn is_error(&self) -> bool {
        let words = |text: &str| text.split_whitespace().map(str::to_lowercase).collect::<Vec<_>>();
        let Some(error) = self.work.error.as_deref().map(words) else { return false };
        let answer = words(self.answer);
        let first = &error[..error.len().min(WORDS_OF_ERROR)];
        first.len() == WORDS_OF_ERROR && answer.windows(first.len()).any(|part| part == first)
    }

    /// What it says was written, and no call of the run wrote.
    fn claims(&self) -> Vec<Claim> {
        if self.writers().next().is_none() {
            return Vec::new();
        }
        let has_written = !self.work.written.is_empty();
        let is_asked = asks_to_write(self.goal);
        let is_of_files = is_of_files(self.goal) || has_written || !self.work.failed.is_empty();
        let mut claims = claims(self.answer);
        claims.retain(|claim| {
            let is_sound = match (claim.is_own, has_written) {
                (true, true) => claim.is_direct && claim.is_made,
                (true, false) => is_of_files,
                (false, written) => is_asked && !written,
            };
            is_sound
                && !claim.beside.iter().any(|name| self.work.has_written(name))
                && !is_told(self.opening, &claim.path)
        });
        claims
    }

    /// What the goal asks to be written, and no call of the run wrote.
    fn targets(&self) -> Vec<asked::Target> {
        if self.writers().next().is_none() || !asks_to_write(self.goal) {
            return Vec::new();
        }
        let mut targets = asked::targets(self.goal);
        targets.retain(|target| !self.work.has_written(&target.path));
        targets
    }

    /// What the goal asks about, no call of the run has looked at, and the run was not told at its beginning.
    fn unread(&self) -> Vec<String> {
        if !self.reads() || !self.work.written.is_empty() || asks_to_write(self.goal) {
            return Vec::new();
        }
        // What stands behind such a line is the file's.
        let quotes: Vec<_> =
            self.told.lines().filter_map(|line| line.strip_prefix("File ")).map(str::to_lowercase).collect();
        let is_quoted = |path: &String| quotes.iter().any(|line| line.contains(&name_of(path)));
        self.work.unread.iter().filter(|path| !is_quoted(path)).cloned().collect()
    }

    /// Whether it says itself that something was not done, or needed not be. Once it has been told, that alone counts
    /// which needed not be: what was asked for and is not there is not there.
    fn admits(&self) -> bool {
        const NOT: Words = Words(
            "not no none nothing never cannot unable without failed failure already missing unchanged neither nor \
             impossible denied lacks unfortunately sorry instead skipped unless error only unnecessary",
        );
        let answer = sentences(self.answer);
        let mut words = answer.iter().flat_map(|sentence| &sentence.words).map(|word| word.text.as_str());
        if self.work.doubt.is_some() {
            let text = self.answer.to_lowercase();
            const NEEDED: [&str; 7] =
                ["already", "no change", "nothing to", "no need", "not necessary", "unnecessary", "not needed"];
            return NEEDED.iter().any(|words| text.contains(words));
        }
        let count = words.clone().count();
        // Whose language is not known may admit what it likes.
        let is_read = count <= 3 || words.clone().any(|word| ENGLISH.has(word));
        !is_read || words.any(|word| NOT.has(word) || said::is_negated(word))
    }
}

/// How long, in turns, the end of a run is kept from a small model.
const MOST_TURNS_HELD: u32 = 6;

/// After how many wrong calls it is no more.
const MOST_CORRECTED: u32 = 3;

/// Whoever says so many words of an error in a row says the error.
const WORDS_OF_ERROR: usize = 8;

/// Whether a goal asks to write a file that is none of these.
pub fn asks_for_new_file(goal: &str, survey: &Survey) -> bool {
    let is_there = |path: &str| survey.files.iter().any(|file| may_mean(path, &file.path));
    let targets = asked::targets(goal);
    !targets.is_empty() && !survey.has_more && !targets.iter().any(|target| is_there(&target.path))
}

/// Most files that are looked for at the end of a run.
const MOST_FILES: usize = 16;

/// Words of English that hardly any answer in it is without.
const ENGLISH: Words = Words("the of and is are was were has have been it to with this that i done file");

fn asks_in_english(goal: &str) -> bool {
    let sentences = sentences(goal);
    sentences.iter().any(|sentence| sentence.has(Words("the of and with from each every all")))
}

/// Whether a goal is about files. A story that someone tells of themselves may be of files, too, and is true.
fn is_of_files(goal: &str) -> bool {
    let of_files = Words("file files folder folders document documents workspace directory save");
    sentences(goal).iter().any(|sentence| sentence.has(of_files) || sentence.paths().next().is_some())
}

impl Fault {
    fn path(&self) -> &str {
        match self {
            Fault::SaysMissing(path) | Fault::SaysUnchanged(path) | Fault::Missing(path) => path,
            Fault::Unchanged(path) | Fault::Failed(path) | Fault::Unread(path) => path,
            Fault::IsError => "",
        }
    }

    /// What people are told of it.
    fn why(&self) -> String {
        match self {
            Fault::SaysMissing(path) => {
                format!("the answer says that {path} was written, but no call wrote it, and it is not there")
            }
            Fault::SaysUnchanged(path) => {
                format!("the answer says that {path} was written, but no call has written it")
            }
            Fault::Missing(path) => format!("{path} was asked for, and is not there"),
            Fault::Unchanged(path) => format!("{path} was to be written, and no call has written it"),
            Fault::Failed(paths) => format!("each call that was to write failed ({paths})"),
            Fault::Unread(path) => format!("the task is about {path}, and no call has looked at it"),
            Fault::IsError => "the answer is what a tool said was wrong with a call".to_owned(),
        }
    }
}

impl Faults {
    /// What people are told of them.
    pub fn why(&self) -> String {
        self.0.iter().map(Fault::why).collect::<Vec<_>>().join("; ")
    }

    /// What the model is told of them, and what to do.
    pub fn told(&self, end: &End<'_>) -> String {
        let mut told = String::from("Your answer was not accepted.");
        for fault in &self.0 {
            let _ = match fault {
                Fault::SaysMissing(path) => {
                    write!(
                        told,
                        " It says that {path} was written, but no call of yours wrote it, and there is no such file."
                    )
                }
                Fault::SaysUnchanged(path) => {
                    write!(told, " It says that {path} was written, but no call of yours has changed it.")
                }
                Fault::Missing(path) => write!(told, " The task asks for {path}, and there is no such file yet."),
                Fault::Unchanged(path) => {
                    write!(told, " The task asks to write {path}, and no call of yours has changed it.")
                }
                Fault::Failed(paths) => {
                    write!(told, " The task asks to write, but each of your calls that were to do it failed ({paths}).")
                }
                Fault::Unread(path) => write!(told, " The task is about {path}, and you have not looked at it."),
                Fault::IsError => write!(told, " It is what a tool said was wrong with your call."),
            };
        }
        if self.0.contains(&Fault::IsError) {
            told.push_str(" Do the task in another way, or say plainly what is not there.");
            return told;
        }
        let is_unread = self.0.iter().all(|fault| matches!(fault, Fault::Unread(_)));
        if is_unread {
            told.push_str(" Read it now, then finish with what it says.");
        } else if asks_to_write(end.goal) {
            let writers = end.writers().collect::<Vec<_>>().join(" or ");
            let _ = write!(
                told,
                " Do it now with {writers}, then finish. If it cannot be done or was right before, say so."
            );
        } else {
            told.push_str(" The task does not ask for it: finish with the answer alone, and say only what was done.");
        }
        told
    }
}
