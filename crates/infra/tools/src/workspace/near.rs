//! What a path may have meant that leads to nothing: models guess names.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use posse_core::tool::ToolError;
use posse_host::lack::given;
use rustix::io::Errno;

use super::super::failure::{kernel, missing};
use super::{Dir, Kind, Links, Workspace, hidden, shown_entry, shown_name};

/// How many names an answer offers, and how many bytes they may have together.
const MAX_OFFERED: usize = 20;
const MAX_OFFERED_BYTES: usize = 1500;
/// How many of them are offered as what was meant.
const MAX_MEANT: usize = 3;
/// How much of a workspace is looked through for them, and for how long.
const MAX_VISITED: usize = 5000;
const MAX_TIME: Duration = Duration::from_millis(300);
/// How many of a folder's names are looked at.
const MAX_IN_FOLDER: usize = 2000;

/// From here on a name is as good as the one that was asked for: the same but for its ending, case or separators.
const SAME_STEM: f64 = 2.0;
const SAME_NAME: f64 = 3.0;
/// The one has all words of the other, or is a slip of the pen for it.
const PART: f64 = 1.0;
const SLIP: f64 = 0.5;

/// What a walk through a workspace came by.
struct Around {
    entries: Vec<(PathBuf, Kind)>,
    /// Whether that is all there is.
    is_all: bool,
}

impl Workspace {
    /// What the kernel said about a path, with what may have been meant.
    pub(super) fn explain(&self, errno: Errno, doing: &str, raw: &str, path: &Path) -> ToolError {
        match errno {
            Errno::NOENT => self.not_found(raw, path),
            Errno::XDEV => self.perhaps_inside(kernel(errno, doing, raw), path),
            Errno::NOTDIR => {
                let is_file = |path: &&Path| {
                    let meta = self.root.metadata(path, Links::Beneath);
                    meta.is_ok_and(|meta| Kind::of(meta.file_type()) == Kind::File)
                };
                let file = path.ancestors().skip(1).find(is_file);
                let told = |file: &Path| format!("no such file or folder '{raw}': '{}' is a file", shown_name(file));
                file.map_or_else(|| kernel(errno, doing, raw), |file| missing(told(file)))
            }
            _ => kernel(errno, doing, raw),
        }
    }

    /// "Not found", with what is there instead.
    pub(super) fn not_found(&self, raw: &str, path: &Path) -> ToolError {
        let (folder, dir) = match self.nearest_folder(path) {
            Ok(Some(nearest)) => nearest,
            Ok(None) => return hidden(raw),
            Err(errno) => return kernel(errno, "open", raw),
        };
        let around = self.look_around().and_then(|around| {
            let files = around.files();
            let here = if files.is_some() { Vec::new() } else { self.names_in(&dir, folder)? };
            Ok((around.meant_by(path, SLIP), files, here))
        });
        let there = match &around {
            Ok((_, Some(files), _)) if files.is_empty() => "There are no files at all".to_owned(),
            Ok((_, Some(files), _)) => format!("All the files there are: {}", offered(files)),
            Ok((_, None, here)) if here.is_empty() => format!("'{}' is empty", folder.display()),
            Ok((_, None, here)) => format!("In '{}' there are: {}", folder.display(), offered(here)),
            Err(errno) => return kernel(*errno, "open", raw),
        };
        let meant = around.map(|(meant, ..)| did_you_mean(&meant)).unwrap_or_default();
        missing(format!("no such file or folder '{raw}'.{meant} {there}"))
    }

    /// An error about a path outside the workspace, with what it may mean inside.
    pub(super) fn perhaps_inside(&self, error: ToolError, path: &Path) -> ToolError {
        match self.look_around().map(|around| around.meant_by(path, SAME_STEM)) {
            Ok(meant) if !meant.is_empty() => {
                ToolError { message: format!("{}.{}", error.message, did_you_mean(&meant)), ..error }
            }
            _ => error,
        }
    }

    /// The names in a folder, its own path before each.
    pub fn told_of(&self, dir: &Dir, folder: &str) -> Result<String, ToolError> {
        let names = self.names_in(dir, Path::new(folder)).map_err(|errno| kernel(errno, "list", folder))?;
        Ok(if names.is_empty() { "nothing".into() } else { offered(&names) })
    }

    /// The deepest folder on the way that exists, if it is one for tools.
    fn nearest_folder<'p>(&self, path: &'p Path) -> Result<Option<(&'p Path, Dir)>, Errno> {
        for folder in path.ancestors().skip(1) {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            if let Some(dir) = given(self.root.dir(folder, Links::Beneath))? {
                let is_hidden = self.guard.hides(&dir.real_path()?)?;
                return Ok((!is_hidden).then_some((folder, dir)));
            }
        }
        Err(Errno::NOENT)
    }

    fn names_in(&self, dir: &Dir, folder: &Path) -> Result<Vec<String>, Errno> {
        let folder = folder.strip_prefix(".").unwrap_or(folder);
        let mut walk = self.walk(dir, false);
        let names = walk.by_ref().take(MAX_IN_FOLDER).map(|(name, kind)| shown_entry(&folder.join(name), kind));
        let names = names.collect();
        walk.lacked.map_or(Ok(names), Err)
    }

    fn look_around(&self) -> Result<Around, Errno> {
        let began = Instant::now();
        let mut walk = self.walk(&self.root, true);
        let mut entries = Vec::new();
        let mut is_all = true;
        for entry in walk.by_ref() {
            if entries.len() == MAX_VISITED || began.elapsed() > MAX_TIME {
                is_all = false;
                break;
            }
            entries.push(entry);
        }
        let is_all = is_all && walk.cut.is_empty();
        walk.lacked.map_or(Ok(Around { entries, is_all }), Err)
    }
}

impl Around {
    /// All files, where they are few.
    fn files(&self) -> Option<Vec<String>> {
        let files = self.entries.iter().filter(|(_, kind)| *kind != Kind::Folder);
        let files: Vec<_> = files.take(MAX_OFFERED + 1).map(|(path, kind)| shown_entry(path, *kind)).collect();
        (self.is_all && files.len() <= MAX_OFFERED).then_some(files)
    }

    /// Those that look like the path, at least so much, the likest first.
    fn meant_by(&self, path: &Path, least: f64) -> Vec<String> {
        let like = |(there, kind): &(PathBuf, Kind)| Some((likeness(path, there)?, shown_entry(there, *kind)));
        let mut near: Vec<_> = self.entries.iter().filter_map(like).collect();
        near.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        // Beside one that is as good as the one asked for, a slip of the pen is none.
        let least = if near.first().is_some_and(|(best, _)| *best >= SAME_STEM) { SAME_STEM } else { least };
        near.into_iter().filter(|(like, _)| *like >= least).take(MAX_MEANT).map(|(_, shown)| shown).collect()
    }
}

fn did_you_mean(paths: &[String]) -> String {
    if paths.is_empty() { String::new() } else { format!(" Did you mean '{}'?", paths.join("' or '")) }
}

/// As many of the names as an answer has room for, and how many there are beside these.
fn offered(names: &[String]) -> String {
    let mut room = MAX_OFFERED_BYTES;
    let fits = |name: &&String| {
        let fits = room >= name.len();
        room = room.saturating_sub(name.len());
        fits
    };
    let shown = names.iter().take(MAX_OFFERED).take_while(fits).count();
    let more = match names.len() - shown {
        0 => String::new(),
        _ if names.len() == MAX_IN_FOLDER => " and many more".into(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", names[..shown].join(", "))
}

/// Whether the name is of several words, and the few are among them.
fn has_words(name: &str, few: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let (all, few) = (words(name), words(few));
    !few.is_empty() && all.len() > few.len() && few.iter().all(|word| all.contains(word))
}

/// How much a path that is there looks like the one that was asked for; none where it does not.
fn likeness(asked: &Path, there: &Path) -> Option<f64> {
    let text = |part: Option<&OsStr>| part.unwrap_or_default().to_string_lossy().to_lowercase();
    let plain = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>();
    let parts =
        |path: &Path| (text(path.file_name()), text(path.file_stem()), text(path.parent().map(Path::as_os_str)));
    let ((name, stem, parent), (its_name, its_stem, its_parent)) = (parts(asked), parts(there));
    // Comparing is quadratic, and nobody misspells a name this long.
    if stem.len() > 128 || its_stem.len() > 128 || plain(&stem).is_empty() {
        return None;
    }
    let like = if plain(&name) == plain(&its_name) {
        SAME_NAME
    } else if plain(&stem) == plain(&its_stem) {
        SAME_STEM
    } else if has_words(&its_stem, &stem) || has_words(&stem, &its_stem) {
        PART
    } else {
        // One letter in five may be wrong: in short names any other name would do.
        let (long, its_long) = (stem.chars().count(), its_stem.chars().count());
        let most = long.max(its_long) / 5;
        if long.abs_diff(its_long) > most || strsim::damerau_levenshtein(&stem, &its_stem) > most {
            return None;
        }
        SLIP
    };
    Some(like + strsim::jaro_winkler(&parent, &its_parent) / 10.0)
}
