//! Flags, environment and file become checked settings, once.
//!
//! Flags win over the environment, the environment over the file, the file over the defaults. Paths
//! in the file are relative to the project's folder; paths in flags and variables to the current one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use posse_core::job::DEFAULT_PRIORITY_STEP_MS;
use posse_core::job::deaths::MOST_CRASHES;
use posse_core::job::enqueue::MAX_PRIORITY_STEP_MS;
use posse_core::queue::retention::Keep;
use posse_core::store::seal::Keys;
use posse_infra::sandbox::CommandLimits;

use crate::exit::usage;
use crate::records::USUALLY_KEPT;
use crate::trust::{Extent, Trust, Untrusted, found_in};

pub mod file;
pub mod sealing;

pub use file::{Calling, FileModel, ModelKind, Synchronous, Tokenizer};

/// Reads an environment variable; a parameter so that tests need not change the process.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// What the command line says of the default model's endpoint.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Where it is, up to and including `/v1`.
    pub base_url: Option<String>,
    /// The environment variable with its key; empty for none.
    pub api_key_env: Option<String>,
    /// The organisation billed.
    pub organization: Option<String>,
    /// Further headers; `${NAME}` in a value stands for an environment variable.
    pub headers: BTreeMap<String, String>,
}

/// What the command line says over everything else.
#[derive(Debug, Default, Clone)]
pub struct Overrides {
    /// The settings file.
    pub config: Option<PathBuf>,
    /// The database.
    pub database: Option<PathBuf>,
    /// The default model.
    pub model: Option<String>,
    /// The default model's endpoint.
    pub endpoint: Endpoint,
    /// Jobs each role works at once.
    pub slots: Option<usize>,
}

/// Everything that is configured.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The project's folder; absolute.
    pub root: PathBuf,
    /// The settings file, if there is one.
    pub file: Option<PathBuf>,
    /// Whether the project's own skills and libraries are used; without it there is no project but a folder.
    pub is_trusted: bool,
    /// Which folders are.
    pub trust: Trust,
    /// The SQLite database; absolute.
    pub database: PathBuf,
    /// The folder of personas; absolute.
    pub personas: PathBuf,
    /// Whether somebody named that folder, so that its absence is an error.
    pub personas_named: bool,
    /// The folder tools are confined to where a job names none; absolute.
    pub workspace: PathBuf,
    /// Jobs each role works at once.
    pub slots: usize,
    /// How long a lease stands without a heartbeat.
    pub lease: Duration,
    /// How long steps in progress may take to end on shutdown.
    pub grace: Duration,
    /// How durable a commit is.
    pub synchronous: Synchronous,
    /// How much waiting one step of priority is worth, to jobs enqueued from here.
    pub priority_step: Duration,
    /// Deaths of workers in a row that a job may meet without getting any further, where its persona does not say.
    pub max_crashes: Option<u32>,
    /// Of how many runs files are kept beside the database; 0 for none.
    pub run_files: usize,
    /// How long what has ended is to be kept, as far as the file says. The database decides.
    pub retention: Vec<Keep>,
    /// What texts in the database are sealed with.
    pub keys: Keys,
    /// The file with those keys, if one is named; absolute.
    pub key_file: Option<PathBuf>,
    /// What a command of an agent may use.
    pub commands: CommandLimits,
    /// The models in the file.
    pub models: BTreeMap<String, FileModel>,
    /// The default model's name, if somebody named one.
    pub default_model: Option<String>,
    /// What the command line says of the default model's endpoint.
    pub endpoint: Endpoint,
}

/// `path` as seen from `folder`, without the steps that lead nowhere (`/.`); `..` stays, for it may lead through a link.
fn joined(folder: &Path, path: &Path) -> PathBuf {
    folder.join(path).components().collect()
}

/// Where the database is unless configured.
pub const DEFAULT_DATABASE: &str = ".posse/posse.db";

/// Jobs each role works at once unless configured: a model's answer is waited for, not computed.
const DEFAULT_SLOTS: usize = 4;

/// What a step of priority is worth unless configured.
const DEFAULT_PRIORITY_STEP: Duration = Duration::from_millis(DEFAULT_PRIORITY_STEP_MS as u64);

impl Settings {
    /// The settings as seen from `cwd`.
    pub fn resolve(cwd: &Path, env: Env<'_>, overrides: &Overrides) -> Result<Settings> {
        let given = overrides.config.clone().or_else(|| env("POSSE_CONFIG").filter(|v| !v.is_empty()).map(Into::into));
        let trust = Trust::load(env)?;
        let untrusted = |folder: &Path, why| Untrusted { folder: folder.into(), found: found_in(folder), why };
        let (root, file, is_trusted) = match given {
            // Whoever names it trusts it.
            Some(path) => {
                let path = joined(cwd, &path);
                (root_of(&path), Some(path), true)
            }
            None => match find_project(cwd) {
                Some((root, file)) => match trust.of_project(&root) {
                    Ok(()) => (root, file, true),
                    Err(why) => return Err(untrusted(&root, why).into()),
                },
                None => (cwd.into(), None, trust.of_project(cwd).is_ok()),
            },
        };
        let mut said = file.as_deref().map(file::read).transpose()?.unwrap_or_default();
        let in_root = |path: &Path| joined(&root, path);
        for model in said.models.values_mut() {
            if let Some(Tokenizer::File(path)) = &mut model.tokenizer {
                *path = in_root(path);
            }
        }
        let database = match overrides.database.clone().or_else(|| env("POSSE_DB").map(Into::into)) {
            Some(path) if path.as_os_str().is_empty() => {
                return Err(usage("the database's path is empty (--db, POSSE_DB)"));
            }
            Some(path) => joined(cwd, &path),
            // A database says what agents shall do, and where. Where there is no project, somebody may have put it here.
            None if !is_trusted && root.join(".posse").symlink_metadata().is_ok() => match trust.of(&root) {
                Ok(Extent::Database | Extent::Project) => in_root(Path::new(DEFAULT_DATABASE)),
                Err(why) => return Err(untrusted(&root, why).into()),
            },
            None => in_root(said.database.as_deref().unwrap_or(Path::new(DEFAULT_DATABASE))),
        };
        let key_file = said.sealing.key_file.as_deref().map(in_root);
        let model = overrides.model.clone().or(text(env, "POSSE_MODEL")?).filter(|name| !name.is_empty());
        let settings = Settings {
            database,
            personas: in_root(said.personas.as_deref().unwrap_or(Path::new("config/personas"))),
            personas_named: said.personas.is_some(),
            workspace: in_root(said.workspace.as_deref().unwrap_or(Path::new("."))),
            slots: overrides.slots.or(said.slots).unwrap_or(DEFAULT_SLOTS),
            lease: Duration::from_secs(said.lease_seconds.unwrap_or(30)),
            grace: Duration::from_secs(said.grace_seconds.unwrap_or(10)),
            synchronous: said.synchronous.unwrap_or_default(),
            priority_step: said
                .priority_step_minutes
                .map_or(DEFAULT_PRIORITY_STEP, |m| Duration::from_secs(60 * u64::from(m))),
            max_crashes: said.max_crashes,
            run_files: said.run_files.unwrap_or(USUALLY_KEPT),
            retention: said.retention.resolve().map_err(usage)?,
            keys: sealing::keys(env, key_file.as_deref())?,
            key_file,
            commands: said.commands.resolve().map_err(usage)?,
            models: said.models,
            default_model: model.or(said.default_model),
            endpoint: overrides.endpoint.clone(),
            root,
            file,
            is_trusted,
            trust,
        };
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<()> {
        let file = self.file.as_ref().map(|f| f.display().to_string()).unwrap_or_else(|| "the settings".into());
        if !(1..=1000).contains(&self.slots) {
            return Err(usage(format!(
                "slots is {}; a role works 1 to 1000 jobs at once (--slots, {file})",
                self.slots
            )));
        }
        if !(1..=3600).contains(&self.lease.as_secs()) {
            return Err(usage(format!(
                "{file}: lease_seconds is {}; it must lie between 1 and 3600",
                self.lease.as_secs()
            )));
        }
        if self.grace.as_secs() > 3600 {
            return Err(usage(format!("{file}: grace_seconds is {}; at most 3600 are allowed", self.grace.as_secs())));
        }
        if let Some(n) = self.max_crashes.filter(|n| !(1..=MOST_CRASHES).contains(n)) {
            return Err(usage(format!("{file}: max_crashes is {n}; it must lie between 1 and {MOST_CRASHES}")));
        }
        let most = MAX_PRIORITY_STEP_MS as u128;
        if self.priority_step.as_millis() > most {
            let (minutes, most) = (self.priority_step.as_secs() / 60, most / 60_000);
            return Err(usage(format!("{file}: priority_step_minutes is {minutes}; at most {most} are allowed")));
        }
        if let Some(url) =
            self.endpoint.base_url.as_deref().filter(|u| !(u.starts_with("http://") || u.starts_with("https://")))
        {
            return Err(usage(format!("--base-url '{url}' must begin with http:// or https://")));
        }
        Ok(())
    }
}

/// A variable's text; one that is not UTF-8 is named rather than ignored.
pub fn text(env: Env<'_>, name: &str) -> Result<Option<String>> {
    let value = env(name).map(|value| value.into_string().map_err(|_| usage(format!("{name} is not valid UTF-8"))));
    value.transpose()
}

/// The nearest folder, upwards from `cwd`, that has a `config` of ours in it.
fn find_project(cwd: &Path) -> Option<(PathBuf, Option<PathBuf>)> {
    for folder in cwd.ancestors() {
        let file = folder.join("config/posse.toml");
        if file.is_file() {
            return Some((folder.into(), Some(file)));
        }
        if folder.join("config/personas").is_dir() {
            return Some((folder.into(), None));
        }
    }
    None
}

/// The project's folder of a settings file: the one that has `config/` in it, else the file's own.
fn root_of(file: &Path) -> PathBuf {
    let folder = file.parent().unwrap_or(Path::new("/"));
    match folder.file_name() {
        Some(name) if name == "config" => folder.parent().unwrap_or(folder).into(),
        _ => folder.into(),
    }
}

/// The settings as this process sees them.
pub fn load(overrides: &Overrides) -> Result<Settings> {
    let cwd = std::env::current_dir().context("the current folder cannot be found; it may have been removed")?;
    Settings::resolve(&cwd, &|name| std::env::var_os(name), overrides)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn resolve(cwd: &Path, env: &[(&str, &str)], overrides: Overrides) -> Result<Settings> {
        let lookup = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v));
        Settings::resolve(cwd, &lookup, &overrides)
    }

    #[test]
    fn flags_win_over_environment_over_file_over_defaults() {
        let project = tempfile::tempdir().expect("a folder");
        let deep = project.path().join("a/b");
        fs::create_dir_all(&deep).expect("made");
        let bare = resolve(&deep, &[], Overrides::default()).expect("all defaults");
        assert_eq!((bare.root.as_path(), bare.file.clone()), (deep.as_path(), None));
        assert_eq!(bare.database, deep.join(".posse/posse.db"));

        fs::create_dir(project.path().join("config")).expect("made");
        let file = "database = 'x.db'\nslots = 7\ndefault_model = 'a'\n[models.a]\nmodel = 'm'\n";
        fs::write(project.path().join("config/posse.toml"), file).expect("written");
        let refused = resolve(&deep, &[], Overrides::default()).expect_err("nobody trusts it").to_string();
        assert!(refused.contains("is not trusted") && refused.contains("config/posse.toml"), "{refused}");
        let trusted = ("POSSE_TRUST", project.path().to_str().expect("UTF-8"));
        let from_file = resolve(&deep, &[trusted], Overrides::default()).expect("legal");
        assert_eq!(from_file.database, project.path().join("x.db"));
        assert_eq!((from_file.slots, from_file.default_model.as_deref()), (7, Some("a")));

        let env = [trusted, ("POSSE_DB", "e.db"), ("POSSE_MODEL", "e")];
        let from_env = resolve(&deep, &env, Overrides::default()).expect("legal");
        assert_eq!((from_env.database, from_env.default_model.as_deref()), (deep.join("e.db"), Some("e")));

        let flags =
            Overrides { database: Some("f.db".into()), model: Some("f".into()), slots: Some(1), ..Default::default() };
        let from_flags = resolve(&deep, &env, flags).expect("legal");
        assert_eq!((from_flags.database, from_flags.default_model.as_deref()), (deep.join("f.db"), Some("f")));
        assert_eq!(from_flags.slots, 1);
    }

    #[test]
    fn limits_are_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let refuse = |overrides| resolve(folder.path(), &[], overrides).expect_err("refused").to_string();
        assert!(refuse(Overrides { slots: Some(0), ..Default::default() }).contains("slots is 0"));
        assert!(
            refuse(Overrides {
                endpoint: Endpoint { base_url: Some("x".into()), ..Endpoint::default() },
                ..Default::default()
            })
            .contains("--base-url 'x'")
        );
        assert!(
            refuse(Overrides { config: Some("no.toml".into()), ..Default::default() })
                .contains("no.toml cannot be read")
        );
    }
}
