//! The keys that texts are sealed with: from the environment, or from a file that only its owner may read.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::Result;
use posse_core::store::seal::{KEYS_VARIABLE, Keys};

use crate::env::{Env, text};
use crate::exit::usage;

const FILE_BYTES: u64 = 64 << 10;

/// The keys of `POSSE_SEAL_KEYS`, else those of the file; none where neither is named. An error says where it
/// is and nothing of a key.
pub fn keys(env: Env<'_>, file: Option<&Path>) -> Result<Keys> {
    if let Some(said) = text(env, KEYS_VARIABLE)?.filter(|said| !said.trim().is_empty()) {
        return Keys::parse(&said).map_err(|why| usage(format!("{KEYS_VARIABLE}: {why}")));
    }
    let Some(path) = file else { return Ok(Keys::default()) };
    let shown = path.display();
    let unreadable = |error| usage(format!("the keys in {shown} ([sealing] key_file) cannot be read: {error}"));
    let file = File::open(path).map_err(unreadable)?;
    let data = file.metadata().map_err(unreadable)?;
    if !data.is_file() {
        return Err(usage(format!("{shown} ([sealing] key_file) is no file")));
    }
    if data.mode() & 0o077 != 0 {
        return Err(usage(format!(
            "the keys in {shown} ([sealing] key_file) may be read by others than their owner; chmod 600 {shown}"
        )));
    }
    let mut said = String::new();
    file.take(FILE_BYTES).read_to_string(&mut said).map_err(unreadable)?;
    Keys::parse(&said).map_err(|why| usage(format!("{shown} ([sealing] key_file): {why}")))
}
