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
use posse_core::text::nearest;

mod misfits;
mod placeholders;

/// Most bytes of a persona's file.
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
    match read_whole(file, text) {
        Ok((persona, notes)) => {
            personas.problems.extend(notes);
            let surprises = placeholders::of(&persona).into_iter().map(|(field, found)| {
                let line = text.lines().position(|line| line.contains(&found)).map(|index| index + 1);
                let message = format!(
                    "holds {found}, which nothing fills in: the agent reads it as it stands. Write what is meant; what \
                     differs from job to job belongs into the job's goal"
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
    let text = String::from_utf8(bytes).map_err(|e| {
        format!("is not UTF-8 text (byte {} is the first that is not); save it as UTF-8", e.utf8_error().valid_up_to())
    })?;
    // Some editors begin a file with a byte order mark; it means nothing in UTF-8.
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// The persona that `text` describes, or everything that is wrong with it.
pub fn parse(file: &Path, text: &str) -> Result<PersonaTemplate, Vec<PersonaFileProblem>> {
    read_whole(file, text).map(|(persona, _)| persona)
}

/// The same, with how what is written otherwise was read.
fn read_whole(file: &Path, text: &str) -> Result<(PersonaTemplate, Vec<PersonaFileProblem>), Vec<PersonaFileProblem>> {
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
        return PersonaFileProblem::error(
            file,
            None,
            None,
            "is empty; posse persona new writes one to begin with".into(),
        );
    }
    if error.is_syntax() || error.is_eof() {
        let message = format!("is no valid JSON: {said} (column {})", error.column());
        return PersonaFileProblem::error(file, line, None, message);
    }
    let field = said.split('`').nth(1).map(str::to_owned);
    if let (Some(field), Some((_, allowed))) = (&field, said.split_once("expected one of ")) {
        let allowed: Vec<_> = allowed.split(", ").map(|name| name.trim_matches('`')).collect();
        let near = nearest(field, allowed.iter().copied());
        let near = near.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
        let message = format!("is no field of a persona{near} Fields are {}", allowed.join(", "));
        return PersonaFileProblem::error(file, line, Some(field), message);
    }
    if let (Some(field), true) = (&field, said.starts_with("missing field")) {
        return PersonaFileProblem::error(
            file,
            None,
            Some(field),
            "is missing; every persona has a role and a goal".into(),
        );
    }
    // serde names no field for a value of the wrong type; the line shows it.
    let on_line = line.and_then(|line| text.lines().nth(line - 1)).and_then(key_on);
    PersonaFileProblem::error(file, line, on_line.as_deref(), format!("has the wrong kind of value: {said}"))
}

fn key_on(line: &str) -> Option<String> {
    let (before, _) = line.split_once(':')?;
    let key = before.trim().trim_start_matches('{').trim().strip_prefix('"')?.strip_suffix('"')?;
    Some(key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn load(files: &[(&str, &[u8])]) -> Personas {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, bytes) in files {
            fs::write(folder.path().join(name), bytes).expect("written");
        }
        let mut loaded = load_all(folder.path()).expect("readable");
        for p in &mut loaded.problems {
            p.file = p.file.file_name().expect("a name").into();
            p.message = p.message.replace(&format!("{}/", folder.path().display()), "");
        }
        loaded
    }

    fn check(text: &str, expected: &str) {
        let loaded = load(&[("a.json", text.as_bytes())]);
        let said: Vec<_> = loaded.problems.iter().map(ToString::to_string).collect();
        assert!(loaded.personas.is_empty(), "{text}");
        assert!(said.join("\n").contains(expected), "{said:?} lacks {expected}");
    }

    #[test]
    fn messages_name_file_line_field_and_the_way_out() {
        check("", "a.json: is empty; posse persona new");
        check("{\n\"role\": \"a\",\n}", "a.json:3: is no valid JSON: trailing comma");
        check("{\"role\": \"a\"", "is no valid JSON: EOF");
        check("{\"goal\": \"g\"}", "a.json: role is missing");
        check(
            "{\"role\":\"a\",\"goal\":\"g\",\n\"tolls\":[]}",
            "a.json:2: tolls is no field of a persona; did you mean tools?",
        );
        check("{\"role\":\"a\",\"goal\":\"g\",\"limits\":{\"turns\":1}}", "limits.turns is no field");
        let many = "{\"role\":\"a\",\"tolls\":[],\n\"temperature\":3,\"limits\":{\n\"max_turns\":\"many\",\n\"max_tokens\":-1,\"max_secs\":1}}";
        for words in [
            "a.json: goal is missing",
            "a.json:1: tolls is no field of a persona; did you mean tools?",
            "a.json:2: temperature is 3",
            "a.json:3: limits.max_turns is \"many\"; it must be a number from 1",
            "a.json:4: limits.max_tokens is -1; it must be a number from 1",
            "a.json:4: limits.max_secs is no field of limits",
        ] {
            check(many, words);
        }
        check(
            "{\"role\":\"a\",\"goal\":\"g\",\"limits\":{\"max_turns\":0}}",
            "limits.max_turns is 0, so nothing could run",
        );
        check("{\"role\":\"a\",\"goal\":\"g\",\"tools\":[\"x\",7]}", "tools[1] is 7; it must be a text");
        check(
            "{\"role\":\"a\",\"goal\":\"Say here in one sentence what a a is for.\"}",
            "goal is still what posse persona new wrote",
        );
        check("{\"role\":\"a\",\n\"goal\": 7}", "a.json:2: goal is 7; it must be a text");
        check("{\"role\":\"Big/Boss\",\"goal\":\"g\"}", "a.json:1: role 'big/boss' contains '/'");
        check("{\"role\":\"a\",\n\"goal\":\" \",\n\"temperature\":3}", "a.json:2: goal is empty");
        check("{\"role\":\"a\",\n\"goal\":\" \",\n\"temperature\":3}", "a.json:3: temperature is 3");
    }

    #[test]
    fn a_persona_of_another_shape_is_read_and_noted() {
        let text = "{\"id\": \"reviewer-v1\",\n\"role\": \"Code  REVIEWER\",\n\"goal\": \"g\",\n\"backstory\": \"b\",\n\
                    \"toolNames\": [\"filesystem\"]}";
        let loaded = load(&[("Code Reviewer.json", text.as_bytes())]);
        assert_eq!(loaded.roles(), ["code-reviewer"]);
        let persona = &loaded.get("CODE reviewer").expect("found as it is written").persona;
        assert_eq!((persona.tools.as_slice(), &persona.id), (&["filesystem".to_owned()][..], &None));
        let said: Vec<_> = loaded.problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "Code Reviewer.json:2: role 'Code  REVIEWER' is read as 'code-reviewer': jobs are addressed to that",
                "Code Reviewer.json:1: id 'reviewer-v1' is read and means nothing: jobs are addressed to the role, \
                 'code-reviewer'",
                "Code Reviewer.json:5: toolNames is read as 'tools'",
            ]
        );
        assert!(loaded.problems.iter().all(|p| p.severity == Severity::Note));
        let twice = load(&[
            ("a.json", b"{\"role\": \"a\", \"goal\": \"g\"}"),
            ("b.json", b"{\"role\": \"A\", \"goal\": \"g\"}"),
        ]);
        assert_eq!(twice.roles(), ["a"], "two spellings are one role");
        assert!(twice.problems.iter().any(|p| p.severity == Severity::Error && p.message.contains("played by a.json")));
    }

    #[test]
    fn one_broken_file_leaves_the_others_working() {
        let good = |role: &str| format!("\u{feff}{{\"role\": \"{role}\", \"goal\": \"g\"}}").into_bytes();
        let (a, b, huge) = (good("a"), good("b"), vec![b' '; MAX_FILE_BYTES as usize + 1]);
        let loaded = load(&[
            ("b.json", &b),
            ("a.json", &a),
            ("a2.json", &a),
            ("bin.json", b"\xff\xfe\0"),
            ("huge.json", &huge),
            ("notes.txt", b"x"),
            (".hidden.json", b"x"),
        ]);
        assert_eq!(loaded.roles(), ["a", "b"]);
        let said: Vec<_> = loaded.problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "a2.json: role 'a' is played by a.json already, so this file is left out; give each file its own role",
                "bin.json: is not UTF-8 text (byte 0 is the first that is not); save it as UTF-8",
                "huge.json: has more than 262144 bytes, which is no persona; shorten it",
                "notes.txt: is not read: a persona is a JSON file, and its name ends in .json; posse persona new ROLE writes \
                 one, posse persona schema says what it may hold",
            ]
        );
        let other_name = load(&[("chief.json", &a)]);
        assert_eq!(other_name.roles(), ["a"]);
        assert_eq!(other_name.problems[0].severity, Severity::Warning);
    }

    #[test]
    fn links_are_followed_and_odd_files_never_hang() {
        let folder = tempfile::tempdir().expect("a folder");
        let real = folder.path().join("real");
        fs::write(&real, r#"{"role": "a", "goal": "g"}"#).expect("written");
        symlink(&real, folder.path().join("a.json")).expect("linked");
        symlink(folder.path().join("gone"), folder.path().join("gone.json")).expect("linked");
        fs::create_dir(folder.path().join("dir.json")).expect("made");
        let fifo = std::ffi::CString::new(folder.path().join("pipe.json").into_os_string().into_encoded_bytes());
        // SAFETY: the path is a valid C string for the length of the call.
        assert_eq!(unsafe { libc::mkfifo(fifo.expect("no NUL").as_ptr(), 0o600) }, 0);
        let loaded = load_all(folder.path()).expect("readable");
        assert_eq!(loaded.roles(), ["a"]);
        assert_eq!(loaded.problems.len(), 4, "what is no persona is said to be none");
        assert!(load_all(&folder.path().join("nowhere")).is_err());
    }
}
