//! Skills as folders: each has a `SKILL.md` in it, as the Agent Skills standard has it.
//!
//! A skill that is broken is reported and left out; it never takes the others down. Nothing that
//! lies outside a folder of skills is read, wherever links lead.

mod front;
mod scan;

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use posse_core::port::SkillRepository;
use posse_core::skill::{Severity, SkillFileProblem, SkillProblem, SkillScope, SkillSource, Skills, examine};
use posse_core::text::nearest;
use posse_core::tool::Tools as _;
use sha2::{Digest, Sha256};

use crate::persona::{entries, stamp, text_of};
use front::Parts;
use posse_tools::ToolRegistry;
use posse_tools::workspace::{Dir, Links};

/// Most bytes of a skill's file: all of it stands in every request of the child that works by it.
pub const MAX_FILE_BYTES: u64 = 64 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillRoot {
    /// The folder; it need not be there.
    pub folder: PathBuf,
    pub scope: SkillScope,
}

/// The folders in which skills are looked for, the one that wins first: the project's own, the one
/// the project shares with other clients, the user's.
pub fn roots(project: &Path, home: Option<&Path>) -> Vec<SkillRoot> {
    let shared = Path::new(".agents/skills");
    let mut roots = vec![
        SkillRoot { folder: project.join("config/skills"), scope: SkillScope::Project },
        SkillRoot { folder: project.join(shared), scope: SkillScope::Project },
    ];
    let users = home.filter(|home| !home.as_os_str().is_empty()).map(|home| home.join(shared));
    // A project may be the home folder itself.
    if let Some(folder) = users.filter(|folder| roots.iter().all(|root| root.folder != *folder)) {
        roots.push(SkillRoot { folder, scope: SkillScope::User });
    }
    roots
}

/// Folders of skills, and those that are used where a project has none of its own.
pub struct SkillFolders {
    pub roots: Vec<SkillRoot>,
    /// Folders whose skills are left out, and why.
    pub left_out: Vec<(PathBuf, String)>,
    /// By name and text.
    pub built_in: &'static [(&'static str, &'static str)],
    /// Those whose names no skill may have.
    pub tools: Arc<ToolRegistry>,
}

impl SkillRepository for SkillFolders {
    fn skills(&self) -> Skills {
        let mut skills = load_all(&self.roots, self.built_in, &self.tools);
        let left_out = self.left_out.iter().filter(|(folder, _)| folder.is_dir());
        skills.problems.extend(left_out.map(|(folder, why)| SkillFileProblem::new(folder, Severity::Note, why)));
        skills
    }

    fn stamp(&self) -> u64 {
        let folders = self.roots.iter().map(|root| &root.folder).chain(self.left_out.iter().map(|(folder, _)| folder));
        stamp(folders.flat_map(|folder| entries(folder)).map(|entry| entry.join("SKILL.md")))
    }
}

#[derive(Default)]
struct Found(Skills);

impl Found {
    /// Takes in the text of one skill's file, unless there is one of its name already.
    fn add(&mut self, text: &str, source: SkillSource, tools: &ToolRegistry) {
        let file = source.file.clone();
        let mut report = |problem| self.0.problems.push(SkillFileProblem { file: file.clone(), problem });
        let Parts { front, body, problems } = match front::parse(text) {
            Ok(parts) => parts,
            Err(problem) => return report(problem),
        };
        problems.into_iter().for_each(&mut report);
        let (skill, problems) = examine(&front, body, source);
        problems.into_iter().for_each(&mut report);
        let Some(skill) = skill else { return };
        let mut about = |field: &str, severity, message| {
            let location = front.fields.iter().find(|written| written.name == field).map(|written| written.location);
            report(SkillProblem { field: Some(field.into()), location, message, severity });
        };
        let name = &skill.name;
        if tools.get(&skill.tool_name()).is_some() {
            let what = format!("'{name}' is the name of a tool, so the skill cannot be called; give it another");
            return about("name", Severity::Error, what);
        }
        if let Some(first) = self.0.skills.iter().find(|first| first.name == *name) {
            let (by, scope) = (first.source.file.display(), first.source.scope);
            return if scope == skill.source.scope {
                about("name", Severity::Error, format!("'{name}' is described by {by} already; give each its own"))
            } else {
                let what = format!("'{name}' is hidden by the skill of the {}, {by}", scope.as_str());
                about("name", Severity::Note, what)
            };
        }
        for wrong in skill.allowed_tools.iter().flatten().filter_map(|tool| not_a_tool(tool, tools)) {
            about("allowed-tools", Severity::Warning, wrong);
        }
        let at = self.0.skills.partition_point(|other| other.name < skill.name);
        self.0.skills.insert(at, skill);
    }

    /// Says which skills name others that are not there.
    fn check_sub_skills(&mut self) {
        let mut problems = Vec::new();
        for skill in &self.0.skills {
            for name in skill.allowed_skills.iter().filter(|name| self.0.get(name).is_none()) {
                let unknown = self.0.unknown(name).to_string();
                let message = format!("names '{name}', but {unknown}");
                let field = Some(format!("metadata.{}", posse_core::skill::SUB_SKILLS_KEY));
                let problem = SkillProblem { field, location: None, message, severity: Severity::Warning };
                problems.push(SkillFileProblem { file: skill.source.file.clone(), problem });
            }
        }
        self.0.problems.extend(problems);
    }

    fn scan(&mut self, root: &SkillRoot, dir: &Dir, tools: &ToolRegistry) {
        let scan = scan::scan(dir);
        for (path, message, severity) in scan.passed {
            self.0.problems.push(SkillFileProblem::new(&root.folder.join(path), severity, message));
        }
        for file in scan.files {
            self.load(root, dir, &file, tools);
        }
    }

    fn load(&mut self, root: &SkillRoot, dir: &Dir, file: &Path, tools: &ToolRegistry) {
        let path = root.folder.join(file);
        match read(dir, file) {
            Ok((text, sha256)) => {
                let files = scan::other_files(dir, file.parent().unwrap_or(Path::new("")));
                self.add(&text, SkillSource { file: path, scope: root.scope, sha256, files }, tools);
            }
            Err(message) => self.0.problems.push(SkillFileProblem::new(&path, Severity::Error, message)),
        }
    }
}

/// Loads the skills below each root, and then those that are built in, by name and text. A root that
/// is not there has none; of two skills of one name the first is used. `tools` are those whose names
/// no skill may have.
pub fn load_all(roots: &[SkillRoot], built_in: &[(&str, &str)], tools: &ToolRegistry) -> Skills {
    let mut found = Found::default();
    for root in roots {
        match Dir::at(&root.folder) {
            Ok(dir) => found.scan(root, &dir, tools),
            Err(errno) if io::Error::from(errno).kind() == io::ErrorKind::NotFound => {}
            Err(errno) => {
                let what = format!("cannot be opened as a folder of skills: {errno}");
                found.0.problems.push(SkillFileProblem::new(&root.folder, Severity::Warning, what));
            }
        }
    }
    for (name, text) in built_in {
        let file = Path::new("(built in)").join(name).join("SKILL.md");
        let (scope, sha256) = (SkillScope::BuiltIn, hash(text.as_bytes()));
        found.add(text, SkillSource { file, scope, sha256, files: Vec::new() }, tools);
    }
    found.check_sub_skills();
    found.0
}

/// Loads what a path names: a skill's file, its folder, or a folder with skills below it. The error
/// is about the path itself. Sub-skills are looked for only among what is found.
pub fn load_path(path: &Path, tools: &ToolRegistry) -> io::Result<Skills> {
    let path = path.canonicalize()?;
    let mut found = Found::default();
    let (folder, file) = match path.is_file() {
        true => (path.parent().unwrap_or(&path), path.file_name().map(PathBuf::from)),
        false => (path.as_path(), None),
    };
    let dir = Dir::at(folder)?;
    let root = SkillRoot { folder: folder.into(), scope: SkillScope::Project };
    match file.or_else(|| scan::skill_file(&dir, Path::new(""))) {
        Some(file) => found.load(&root, &dir, &file, tools),
        None => {
            found.scan(&root, &dir, tools);
            found.check_sub_skills();
        }
    }
    Ok(found.0)
}

/// Why a name among a skill's tools allows nothing, if it does not.
fn not_a_tool(name: &str, tools: &ToolRegistry) -> Option<String> {
    if tools.get(name).is_some() {
        return None;
    }
    if let Some(pack) = tools.packs().get(name) {
        let pack = pack.join(" ");
        return Some(format!("names '{name}', which is a pack and allows nothing; name its tools: {pack}"));
    }
    let near = nearest(name, tools.packs().values().flatten().map(String::as_str));
    let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
    Some(format!("names '{name}', which is no tool here and allows nothing{near}"))
}

/// The hash by which a run knows a skill's file.
pub fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The text of a skill's file and its hash.
fn read(dir: &Dir, file: &Path) -> Result<(String, String), String> {
    let meta = dir.metadata(file, Links::Beneath).map_err(scan::why_not)?;
    if !meta.is_file() {
        return Err("is no regular file; a skill is a text file in a folder of its own".into());
    }
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let (opened, _) = dir.file(file, Links::Beneath, &name).map_err(|error| error.message)?;
    let mut bytes = Vec::new();
    opened.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let more = "move details into files beside it, which are read when they are needed";
        return Err(format!("has more than {MAX_FILE_BYTES} bytes; {more}"));
    }
    let (sha256, nul) = (hash(&bytes), bytes.iter().position(|byte| *byte == 0));
    let text = text_of(bytes)?;
    if let Some(at) = nul {
        return Err(format!("contains a NUL character at byte {at}; remove it"));
    }
    Ok((text.replace("\r\n", "\n"), sha256))
}
