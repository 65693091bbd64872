//! The environment's variables.

use std::ffi::OsString;

use anyhow::Result;

use crate::exit::usage;

/// Reads a variable; a parameter so that tests need not change the process.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<OsString>;

pub fn own(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// A variable's text; one that is not UTF-8 is named rather than ignored.
pub fn text(env: Env<'_>, name: &str) -> Result<Option<String>> {
    let value = env(name).map(|value| value.into_string().map_err(|_| usage(format!("{name} is not valid UTF-8"))));
    value.transpose()
}
