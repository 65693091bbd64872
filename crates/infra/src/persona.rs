//! Personas as files: one JSON file in a folder is one kind of agent.
//!
//! A file that is broken is reported and left out; it never takes the others down.

use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};

use posse_core::job::name::role_name;
use posse_core::persona::{PersonaFile, PersonaFileProblem, PersonaProblem, PersonaTemplate, Personas, Severity};
use posse_core::port::PersonaRepository;

mod misfits;

pub const MAX_FILE_BYTES: u64 = 256 * 1024;

/// A folder of personas, and those that are used where nobody has one.
pub struct PersonaFolder {
    pub folder: PathBuf,
    /// Whether somebody named it, so that its absence is an error.
    pub is_named: bool,
    /// By role and text.
    pub built_in: &'static [(&'static str, &'static str)],
}

impl PersonaRepository for PersonaFolder {
    fn personas(&self) -> Result<Personas, String> {
        if self.folder.is_dir() || self.is_named {
            let shown = self.folder.display();
            let unreadable = |e| format!("the folder of personas {shown} cannot be read: {e}. Make it with posse init");
            return load_all(&self.folder).map_err(unreadable);
        }
        let mut personas = Personas::default();
        for (role, text) in self.built_in {
            add(&mut personas, &Path::new("(built in)").join(format!("{role}.json")), text);
        }
        Ok(personas)
    }

    fn keeps(&self, file: &Path) -> bool {
        file.starts_with(&self.folder)
    }

    fn place(&self, role: &str) -> (PathBuf, bool) {
        let file = self.folder.join(format!("{role}.json"));
        let is_there = file.exists();
        (file, is_there)
    }

    fn add(&self, persona: &PersonaTemplate) -> Result<(), String> {
        let (file, _) = self.place(&persona.role);
        let text = serde_json::to_string_pretty(persona).map_err(|error| error.to_string())? + "\n";
        fs::create_dir_all(&self.folder).map_err(|e| format!("{} cannot be made: {e}", self.folder.display()))?;
        fs::write(&file, text).map_err(|e| format!("{} cannot be written: {e}", file.display()))
    }

    fn line_with(&self, file: &Path, name: &str) -> Option<usize> {
        let quoted = format!("\"{name}\"");
        let text = fs::read_to_string(file).ok()?;
        text.lines().position(|line| line.contains(&quoted)).map(|index| index + 1)
    }

    fn stamp(&self) -> u64 {
        stamp(entries(&self.folder))
    }
}

/// What is in a folder; nothing where there is none.
pub(crate) fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// A number made of what tells these files as they are from what they were and will be; of those that are there.
pub(crate) fn stamp(files: impl IntoIterator<Item = PathBuf>) -> u64 {
    let seen = files.into_iter().filter_map(|path| {
        let meta = fs::metadata(&path).ok()?;
        Some((path, meta.mtime(), meta.mtime_nsec(), meta.len(), meta.ino()))
    });
    let mut seen: Vec<_> = seen.collect();
    seen.sort();
    let mut hasher = DefaultHasher::new();
    seen.hash(&mut hasher);
    hasher.finish()
}

/// Takes in one file's text; `file` is only used to speak of it.
fn add(personas: &mut Personas, file: &Path, text: &str) {
    match parse(file, text) {
        Ok((persona, notes)) => {
            personas.problems.extend(notes);
            let surprises = placeholders(&persona).into_iter().map(|(field, found)| {
                let line = text.lines().position(|line| line.contains(&found)).map(|index| index + 1);
                let message = format!(
                    "holds {found}, which nothing fills in: the agent reads it as it stands. Write what is meant; what \
                     differs from job to job belongs in the job's goal"
                );
                PersonaFileProblem::warning(file, line, Some(field), message)
            });
            personas.problems.extend(surprises);
            personas.admit(PersonaFile { file: file.into(), persona });
        }
        Err(problems) => personas.problems.extend(problems),
    }
}

/// Reads every `*.json` in `folder`, and says of everything else there that it is not read. An error is about the folder itself; what is wrong with a file
/// is among [`Personas::problems`].
pub fn load_all(folder: &Path) -> io::Result<Personas> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if !is_nobodys(&path) {
            files.push(path);
        }
    }
    files.sort();
    let mut loaded = Personas::default();
    for file in files {
        if file.extension().is_none_or(|ext| ext != "json") {
            loaded.problems.push(PersonaFileProblem::warning(&file, None, None, not_read(&file)));
            continue;
        }
        match read(&file) {
            Ok(text) => add(&mut loaded, &file, &text),
            Err(message) => loaded.problems.push(PersonaFileProblem::error(&file, None, None, message)),
        }
    }
    Ok(loaded)
}

/// Whether a file is not meant to be a persona: hidden, an editor's, or about the folder.
fn is_nobodys(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    name.starts_with('.')
        || name.ends_with('~')
        || ["readme", "license", "licence"].iter().any(|about| name.starts_with(about))
}

/// Why a file that may be meant for a persona is none.
fn not_read(file: &Path) -> String {
    let extension = file.extension().unwrap_or_default().to_string_lossy();
    if file.is_dir() {
        return "is a folder, and is not looked into; a persona is a JSON file right in the folder of personas".into();
    }
    if extension.eq_ignore_ascii_case("json") {
        return format!("is not read: its name must end in .json, in lower case, and ends in .{extension}");
    }
    "is not read: a persona is a JSON file, and its name ends in .json; posse persona new ROLE writes one, posse persona \
     schema says what it may hold"
        .into()
}

fn read(file: &Path) -> Result<String, String> {
    // A FIFO must not hold the process: it is opened without waiting and refused by its type. A
    // symbolic link is followed, since personas may be shared between projects.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(file);
    let opened: File = opened.map_err(|e| format!("cannot be read: {e}"))?;
    let meta = opened.metadata().map_err(|e| format!("cannot be read: {e}"))?;
    if !meta.is_file() {
        return Err("is no regular file; a persona is a JSON file".into());
    }
    let mut bytes = Vec::new();
    opened.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|e| format!("cannot be read: {e}"))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("has more than {MAX_FILE_BYTES} bytes, which is no persona; shorten it"));
    }
    text_of(bytes)
}

/// A file's text, without the byte order mark that some editors begin one with; it means nothing in UTF-8.
pub(crate) fn text_of(bytes: Vec<u8>) -> Result<String, String> {
    let text = String::from_utf8(bytes).map_err(|e| {
        format!("is not UTF-8 text (byte {} is the first that is not); save it as UTF-8", e.utf8_error().valid_up_to())
    })?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// The persona that `text` describes, with how what is written otherwise was read; or everything that is wrong with it.
fn parse(file: &Path, text: &str) -> Result<(PersonaTemplate, Vec<PersonaFileProblem>), Vec<PersonaFileProblem>> {
    let mut persona: PersonaTemplate = serde_json::from_str(text).map_err(|error| misfits::all(file, text, &error))?;
    let mut notes = Vec::new();
    let mut note = |field: &str, message: String| {
        let read = PersonaFileProblem::error(file, line_of(text, field), Some(field), message);
        notes.push(PersonaFileProblem { severity: Severity::Note, ..read });
    };
    let role = role_name(&persona.role);
    if role != persona.role {
        note("role", format!("'{}' is read as '{role}': jobs are addressed to that", persona.role));
        persona.role = role;
    }
    if let Some(id) = persona.id.take() {
        note("id", format!("'{id}' is read and means nothing: jobs are addressed to the role, '{}'", persona.role));
    }
    if line_of(text, "toolNames").is_some() {
        note("toolNames", "is read as 'tools'".into());
    }
    let problems = problems_of(file, text, &persona);
    if problems.is_empty() { Ok((persona, notes)) } else { Err(problems) }
}

fn problems_of(file: &Path, text: &str, persona: &PersonaTemplate) -> Vec<PersonaFileProblem> {
    let at = |p: PersonaProblem| PersonaFileProblem::error(file, line_of(text, p.field), Some(p.field), p.message);
    persona.problems().into_iter().map(at).collect()
}

/// The line on which the key `field` stands, as far as a look at the text can tell; `limits.max_turns` is looked for
/// behind `limits`.
pub fn line_of(text: &str, field: &str) -> Option<usize> {
    let mut found = None;
    let mut from = 0;
    for part in field.split('.') {
        let key = format!("\"{}\"", part.split('[').next().unwrap_or(part));
        let is_key =
            |line: &str| line.find(&key).is_some_and(|at| line[at + key.len()..].trim_start().starts_with(':'));
        let at = text.lines().skip(from).position(is_key)?;
        from += at;
        found = Some(from + 1);
    }
    found
}

fn malformed(file: &Path, text: &str, error: &serde_json::Error) -> PersonaFileProblem {
    let said = error.to_string();
    let (said, line) = match said.rsplit_once(" at line ") {
        Some((said, _)) => (said.to_owned(), Some(error.line())),
        None => (said, None),
    };
    if text.trim().is_empty() {
        let message = "is empty; posse persona new writes one to begin with".into();
        return PersonaFileProblem::error(file, None, None, message);
    }
    if error.is_syntax() || error.is_eof() {
        let message = format!("is no valid JSON: {said} (column {})", error.column());
        return PersonaFileProblem::error(file, line, None, message);
    }
    // Missing and unknown fields were found by the schema. For a wrong value serde names no field; the line shows it.
    let on_line = line.and_then(|line| text.lines().nth(line - 1)).and_then(key_on);
    PersonaFileProblem::error(file, line, on_line.as_deref(), format!("has the wrong kind of value: {said}"))
}

fn key_on(line: &str) -> Option<String> {
    let (before, _) = line.split_once(':')?;
    let key = before.trim().trim_start_matches('{').trim().strip_prefix('"')?.strip_suffix('"')?;
    Some(key.to_owned())
}

/// Placeholders in what a persona is told, as templates of other programs have them: how they begin and end. Nothing here
/// fills them in, so whoever wrote one expects what will not happen.
const PLACEHOLDERS: &[(&str, &str)] =
    &[("{{", "}}"), ("${", "}"), ("{%", "%}"), ("<%", "%>"), ("%(", ")s"), ("{", "}")];

const MAX_PLACEHOLDER: usize = 64;

/// The placeholders in the texts of a persona, each once, with the field it is in.
fn placeholders(persona: &PersonaTemplate) -> Vec<(&'static str, String)> {
    let texts = [("goal", &persona.goal), ("backstory", &persona.backstory)];
    let mut found: Vec<(&'static str, String)> = Vec::new();
    for (field, text) in texts {
        for placeholder in placeholders_in(text) {
            if !found.iter().any(|(of, seen)| *of == field && *seen == placeholder) {
                found.push((field, placeholder));
            }
        }
    }
    found
}

/// Those in one text. What stands in backticks is spoken about.
fn placeholders_in(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for part in text.split('`').step_by(2) {
        let mut rest = part;
        while let Some((at, open, close)) = next_placeholder(rest) {
            let inside = &rest[at + open.len()..];
            let name = inside.split_once(close).map(|(name, _)| name).filter(|name| is_name(name));
            let length = match name {
                Some(name) => open.len() + name.len() + close.len(),
                None => open.len(),
            };
            if name.is_some() {
                found.push(rest[at..at + length].to_owned());
            }
            rest = &rest[at + length..];
        }
    }
    found
}

/// Where the next one may begin, and how it would; of those at one place the longest.
fn next_placeholder(text: &str) -> Option<(usize, &'static str, &'static str)> {
    let places = PLACEHOLDERS.iter().filter_map(|(open, close)| Some((text.find(open)?, *open, *close)));
    places.min_by_key(|(at, open, _)| (*at, usize::MAX - open.len()))
}

/// Whether this reads as the name of something to be filled in.
fn is_name(text: &str) -> bool {
    let name = text.trim().trim_start_matches(['=', '-', '#', '/']).trim();
    let legal = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ' ' | '|');
    name.len() <= MAX_PLACEHOLDER
        && name.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && name.chars().all(legal)
}
