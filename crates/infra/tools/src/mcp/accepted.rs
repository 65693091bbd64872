//! Which tools of a server a person accepted: a JSON file for each server, which goes with the project's other files.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use posse_core::text::plural;
use posse_core::tool::mcp::Accepted;
use serde::{Deserialize, Serialize};

/// Bytes of such a file.
const MAX_FILE: u64 = 8 << 20;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AcceptedFile {
    tools: Vec<Accepted>,
}

/// The file of a server.
pub fn file(folder: &Path, server: &str) -> PathBuf {
    folder.join(format!("{server}.json"))
}

/// What is accepted of a server; nothing where it has no file. An error says which line is wrong, and how.
pub fn read(folder: &Path, server: &str) -> Result<Vec<Accepted>, (Option<usize>, String)> {
    let path = file(folder, server);
    let unread = |error: std::io::Error| (None, format!("cannot be read: {error}"));
    match fs::metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unread(error)),
        Ok(meta) if !meta.is_file() || meta.len() > MAX_FILE => {
            return Err((None, format!("is no file of at most {}", plural(MAX_FILE, "byte"))));
        }
        Ok(_) => {}
    }
    let text = fs::read_to_string(&path).map_err(unread)?;
    let said: AcceptedFile = serde_json::from_str(&text).map_err(|error| (Some(error.line()), error.to_string()))?;
    Ok(said.tools)
}

/// Writes what is accepted of a server, whole or not at all.
pub fn write(folder: &Path, server: &str, tools: Vec<Accepted>) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    let text = serde_json::to_string_pretty(&AcceptedFile { tools })? + "\n";
    let part = folder.join(format!(".{server}.json.part"));
    let mut to = fs::File::create(&part)?;
    to.write_all(text.as_bytes())?;
    to.sync_all()?;
    fs::rename(&part, file(folder, server))
}
