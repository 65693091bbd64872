//! `posse trust`: which folders' settings, personas, skills and libraries are used.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use super::prelude::*;
use crate::env;
use crate::output::Out;
use crate::output::text::visible;
use crate::trust::{Distrust, Extent, Trust, Untrusted, found_in};

#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
What a project's files say is done only where somebody said that they may be trusted: they name models and where these \
are, say what agents may do, and a library in sqlite_extensions/ is run. posse init trusts what it writes. Trust holds for \
one folder, at one path, for one person; it is kept outside of it (~/.local/state/posse/trust.json). A folder in which \
agents of another project work is never trusted. POSSE_TRUST=/a:/b trusts these folders for one command, as --config FILE \
trusts the project of that file."
)]
pub struct TrustArgs {
    #[command(subcommand)]
    command: Option<TrustCommand>,
    /// The folder
    #[arg(default_value = ".", value_name = "DIR")]
    folder: PathBuf,
}

#[derive(Subcommand)]
enum TrustCommand {
    /// Which folders are trusted
    List,
    /// Trust a folder no more
    Revoke {
        /// The folder
        #[arg(default_value = ".", value_name = "DIR")]
        folder: PathBuf,
    },
}

pub fn trust(cx: &Context, args: TrustArgs) -> Result<Exit> {
    match args.command {
        None => give(cx, &args.folder),
        Some(TrustCommand::List) => list(cx),
        Some(TrustCommand::Revoke { folder }) => revoke(cx, &folder),
    }
}

fn give(cx: &Context, folder: &Path) -> Result<Exit> {
    if !folder.is_dir() {
        return Err(usage(format!("{} is no folder; trust is given to a project's folder", folder.display())));
    }
    crate::output::before_change()?;
    let trusted = Trust::load(&env::own)?.give(folder, Extent::Project)?;
    let found = found_in(&trusted.folder);
    if cx.out.json {
        return cx.out.document(&json!({"folder": trusted.folder, "found": found}));
    }
    let found = if found.is_empty() { "nothing yet".into() } else { found.join(", ") };
    let shown = visible(&trusted.folder.display().to_string());
    cx.out.line(format!("{} is trusted; in it there is: {found}", cx.out.paint.bold(shown)))?;
    cx.out.hint("posse trust revoke takes it back");
    Ok(Exit::Ok)
}

fn list(cx: &Context) -> Result<Exit> {
    let trust = Trust::load(&env::own)?;
    let mut shown = Vec::new();
    for trusted in trust.folders() {
        let why = trust.of(&trusted.folder).err().map(|why| why.to_string());
        shown.push((trusted.folder.clone(), trusted.extent, why));
    }
    shown.extend(trust.named.iter().map(|folder| (folder.clone(), Extent::Project, None)));
    if cx.out.json {
        let folders: Vec<_> = shown
            .iter()
            .map(|(folder, extent, why)| json!({"folder": folder, "extent": extent, "not_now": why}))
            .collect();
        return cx.out.document(&json!({"folders": folders, "next": null, "kept_in": trust.file}));
    }
    if shown.is_empty() {
        cx.out.note("no folder is trusted (posse trust DIR)");
    }
    for (folder, extent, why) in shown {
        let what = match (extent, why) {
            (_, Some(why)) => format!("not now: {why}"),
            (Extent::Project, None) => "all of it".into(),
            (Extent::Database, None) => "its database only".into(),
        };
        let folder = visible(&folder.display().to_string());
        cx.out.line(format!("{}  {}", folder, cx.out.paint.dim(visible(&what))))?;
    }
    Ok(Exit::Ok)
}

fn revoke(cx: &Context, folder: &Path) -> Result<Exit> {
    let shown = visible(&folder.display().to_string());
    crate::output::before_change()?;
    if !Trust::load(&env::own)?.revoke(folder)? {
        return Err(not_found(format!("{shown} was not trusted (posse trust list)")));
    }
    cx.out.say(&json!({"folder": folder, "revoked": true}), format!("{shown} is not trusted any more"))
}

/// Whether the person at the terminal trusts a folder, and has it kept. Nobody is asked where nobody sees it.
pub fn agrees(out: &Out, untrusted: &Untrusted) -> bool {
    let is_there = io::stdin().is_terminal() && io::stderr().is_terminal() && !out.json;
    if !is_there || matches!(untrusted.why, Distrust::Workspace { .. }) {
        return false;
    }
    let Untrusted { folder, found, why } = untrusted;
    let (folder_shown, found) = (visible(&folder.display().to_string()), found.join(", "));
    out.warn(format!("the folder {folder_shown} is not trusted: {why}. It has {found}."));
    let mut stderr = io::stderr().lock();
    let _ = write!(stderr, "Do you know who wrote that, and trust it? [y/N] ").and_then(|()| stderr.flush());
    drop(stderr);
    let mut answer = String::new();
    if io::stdin().read_line(&mut answer).is_err() || !matches!(answer.trim(), "y" | "Y" | "yes") {
        return false;
    }
    match Trust::load(&env::own).and_then(|mut trust| trust.give(folder, Extent::Project)) {
        Ok(_) => true,
        Err(error) => {
            out.warn(format!("{error:#}"));
            false
        }
    }
}
