//! The composition root, to be read from top to bottom: settings become a store, models, tools and
//! personas; those become worker services.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use posse_app::Code;
use posse_core::clock::Clock;
use posse_core::model::Models;
use posse_core::persona::PersonaTemplate;
use posse_core::port::{Database, RepositoryError, Store};
use posse_core::queue::retention::Retention;
use posse_core::skill::SkillScope;
use posse_core::skill::shelf::{self, FIND_SKILLS};
use posse_core::tool::Tools as _;
use posse_infra::agent::GenericAgentExecutor;
use posse_infra::hook::HookRegistry;
use posse_infra::local_model;
use posse_infra::persona::{Loaded, PersonaFile, PersonaFileProblem, Severity, load_all, nearest, problem, warning};
use posse_infra::process::SystemClock;
use posse_infra::sandbox::{Commands, Exact};
use posse_infra::skill::{self, LoadedSkills, SkillFileProblem, SkillRoot};
use posse_infra::sqlite::{Options, SqliteDatabase, SqliteStore, Synchronous, extension};
use posse_infra::tool::{RUN_COMMAND, ToolRegistry};

use crate::exit::{fail, not_found, usage};
use crate::models::{self, Catalog};
use crate::output::text::{count, plural, visible};
use crate::settings::{self, DEFAULT_DATABASE, ModelKind, Settings, Tokenizer};
use crate::trust::{Distrust, Extent};
use crate::workspace;

/// The personas that are used where a project has no folder of its own; `posse init` writes them.
pub const BUILT_IN: [(&str, &str); 4] = [
    ("researcher", include_str!("../../../config/personas/researcher.json")),
    ("reviewer", include_str!("../../../config/personas/reviewer.json")),
    ("scribe", include_str!("../../../config/personas/scribe.json")),
    ("triager", include_str!("../../../config/personas/triager.json")),
];

/// The skills that are used where a project has no `config/skills`; `posse init` writes them.
pub const BUILT_IN_SKILLS: [(&str, &str); 1] =
    [("summarise-files", include_str!("../../../config/skills/summarise-files/SKILL.md"))];

/// The current time.
pub fn now() -> posse_core::clock::Millis {
    SystemClock.now()
}

/// The vector extension: the one built in, or a build of it that a trusted project brings.
pub fn register_extension(settings: &Settings) -> Result<()> {
    let folder = settings.root.join("sqlite_extensions");
    extension::register_from(Some(folder.as_path()).filter(|_| settings.is_trusted))?;
    Ok(())
}

/// Where the usual database is about to be made in a folder that is nobody's project: whoever makes it may use it.
fn trust_own_database(settings: &Settings) -> Result<()> {
    let is_new = settings.root.join(".posse").symlink_metadata().is_err();
    if settings.is_trusted || !is_new || settings.database != settings.root.join(DEFAULT_DATABASE) {
        return Ok(());
    }
    let mut trust = settings.trust.clone();
    match trust.of(&settings.root) {
        Ok(_) => return Ok(()),
        Err(why @ Distrust::Workspace { .. }) => {
            let root = settings.root.display();
            return Err(usage(format!("no database is made in {root}: {why}. Name one elsewhere (--db, POSSE_DB)")));
        }
        Err(_) => {}
    }
    if let Err(error) = trust.give(&settings.root, Extent::Database) {
        tracing::warn!("the next command will ask whether {} is trusted: {error:#}", settings.root.display());
    }
    Ok(())
}

/// Opens the database to be changed by a command that tells of it then; makes it, and its folder, if it is not there.
pub fn open_store(settings: &Settings) -> Result<Arc<dyn Store>> {
    crate::output::before_change()?;
    open_to_work(settings)
}

/// Opens the database to be worked.
fn open_to_work(settings: &Settings) -> Result<Arc<dyn Store>> {
    register_extension(settings)?;
    make_database_folder(settings)?;
    let path = &settings.database;
    let is_new = !path.exists();
    let synchronous = match settings.synchronous {
        settings::Synchronous::Full => Synchronous::Full,
        settings::Synchronous::Normal => Synchronous::Normal,
    };
    let retention = Some(Retention::default().with(&settings.retention));
    let store =
        SqliteStore::open(path, Options { synchronous, keys: settings.keys.clone(), retention, ..Options::default() })?;
    if let Err(error) = settings.trust.clone().note_database(path) {
        tracing::debug!("it is not remembered that {} is a database: {error:#}", path.display());
    }
    if is_new && settings.file.is_none() {
        // Whoever is in the wrong folder would look for the job in the right one.
        let text = format!("there is no project here or above, so a database was made at {}", path.display());
        let way_out = "posse init begins a project; --db and POSSE_DB name another database";
        crate::output::stream::stderr().send(format!("{}; {way_out}\n", visible(&text)));
    }
    Ok(Arc::new(store))
}

/// Makes the folder for the database if it is not there.
pub fn make_database_folder(settings: &Settings) -> Result<()> {
    trust_own_database(settings)?;
    if let Some(folder) = settings.database.parent().filter(|folder| !folder.is_dir()) {
        make_folder(folder).map_err(|error| {
            let what = format!(
                "the folder {} for the database cannot be made: {error}. Name another with --db or POSSE_DB",
                folder.display()
            );
            fail(Code::DatabaseUnusable, what)
        })?;
    }
    Ok(())
}

fn make_folder(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    // Our own folder keeps itself out of version control; any other is none of our business.
    if folder.file_name().is_some_and(|name| name == ".posse") {
        std::fs::write(folder.join(".gitignore"), "*\n")?;
    }
    Ok(())
}

/// Opens the database to be looked at, without writing anything. None where there is none yet.
pub fn open_reader(settings: &Settings) -> Result<Option<Arc<dyn Store>>> {
    let path = &settings.database;
    match path.try_exists() {
        Ok(true) => {}
        Ok(false) => return Ok(None),
        Err(error) => {
            return Err(fail(
                Code::DatabaseUnusable,
                format!("the database {} cannot be reached: {error}", path.display()),
            ));
        }
    }
    register_extension(settings)?;
    match SqliteStore::open_read_only_with(path, settings.keys.clone()) {
        Ok(store) => Ok(Some(Arc::new(store))),
        // Another process is making it at this moment: there is nothing in it yet.
        Err(RepositoryError::Unavailable(_)) if path.metadata().is_ok_and(|meta| meta.len() == 0) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The database as it lies there, for what is done to it while it is closed.
pub fn database(settings: &Settings) -> Box<dyn Database> {
    Box::new(SqliteDatabase { path: settings.database.clone(), keys: settings.keys.clone() })
}

/// Where sessions keep what happens in them: beside the database, and under its name where that is not the
/// usual one, for other databases in the folder have sessions of the same numbers.
pub fn sessions_folder(settings: &Settings) -> PathBuf {
    let name = settings.database.file_name().unwrap_or_default().to_string_lossy();
    match &*name {
        "posse.db" => settings.database.with_file_name("sessions"),
        other => settings.database.with_file_name(format!("{other}.sessions")),
    }
}

/// How commands of agents run, and what all tools keep away from: of what a workspace has of this project's own, the
/// databases and keys are not to be seen, and what decides about agents is not to be changed. The same goes for other
/// projects that the person trusts, and for what is kept of the person.
pub fn commands(settings: &Settings) -> Commands {
    let Settings { root, database, personas, file, trust, .. } = settings;
    let mut commands = Commands::new(settings.commands).hide_database(database);
    commands = commands.knowing(trust.databases().iter().cloned());
    let others = trust.folders().iter().map(|trusted| &trusted.folder).chain(trust.named());
    for folder in others.chain([root]) {
        commands = commands.hide(folder.join(".posse"));
    }
    let others = trust.folders().iter().filter(|trusted| trusted.extent == Extent::Project);
    for folder in others.map(|trusted| &trusted.folder).chain(trust.named()).chain([root]) {
        commands = ["config", ".agents", "sqlite_extensions"]
            .map(|name| folder.join(name))
            .into_iter()
            .fold(commands, Commands::keep);
    }
    let secret = settings.key_file.clone().into_iter().chain(trust.file().and_then(Path::parent).map(Path::to_owned));
    commands = secret.chain(local_model::server::state_dir()).fold(commands, Commands::hide);
    let tokenizers = settings.models.values().filter_map(|model| match &model.tokenizer {
        Some(Tokenizer::File(path)) => Some(path.clone()),
        _ => None,
    });
    // The person's own: their skills, and the models that run here.
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".agents")).filter(|path| path.is_absolute());
    let own = home.into_iter().chain(local_model::cache::models_dir()).filter(|path| path.is_dir());
    [personas.clone()].into_iter().chain(file.clone()).chain(tokenizers).chain(own).fold(commands, Commands::keep)
}

/// Every tool there is.
pub fn tools(settings: &Settings) -> ToolRegistry {
    ToolRegistry::builtin().with_commands(commands(settings))
}

/// Which limits of commands are held exactly here, or why none can run; none if no persona runs any.
pub async fn probe_commands(
    settings: &Settings,
    offer: &Offer,
    personas: &[PersonaFile],
) -> Option<Result<Exact, String>> {
    let wants = |file: &PersonaFile| {
        let tools = offer.tools.resolve(&file.persona.tools).unwrap_or_default();
        tools.iter().any(|tool| tool.spec().name == RUN_COMMAND)
    };
    match personas.iter().any(wants) {
        true => Some(commands(settings).probe(&settings.workspace).await),
        false => None,
    }
}

/// What to do where they cannot.
pub const COMMANDS_WAY_OUT: &str = "let users make namespaces (sysctl user.max_user_namespaces, \
    kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0; in a container, in its settings); \
    until then agents are told that no command can run";

/// Where skills are looked for.
pub fn skill_roots(settings: &Settings) -> Vec<SkillRoot> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    skill::roots(&settings.root, home.as_deref())
}

/// The skills there are: those of the person, and of the project where that is trusted.
fn skills(settings: &Settings, tools: &ToolRegistry) -> LoadedSkills {
    let root = &settings.root;
    let mut roots = skill_roots(settings);
    let left_out = roots.extract_if(.., |one| one.scope == SkillScope::Project && !settings.is_trusted);
    let left_out: Vec<_> = left_out.filter(|one| one.folder.is_dir()).collect();
    let has_own = settings.is_trusted && root.join("config/skills").is_dir();
    let mut skills = skill::load_all(&roots, if has_own { &[] } else { &BUILT_IN_SKILLS }, tools);
    skills.problems.extend(left_out.into_iter().map(|one| {
        let why =
            format!("its skills are left out, for the folder {0} is not trusted (posse trust {0})", root.display());
        SkillFileProblem::of_folder(&one.folder, why)
    }));
    skills
}

/// What personas may name.
pub struct Offer {
    /// The tools.
    pub tools: Arc<ToolRegistry>,
    /// The skills.
    pub skills: LoadedSkills,
    /// The hooks.
    pub hooks: HookRegistry,
    /// The names of the models.
    pub models: BTreeSet<String>,
}

impl Offer {
    /// Gathers it all.
    pub fn gather(settings: &Settings) -> Offer {
        let tools = Arc::new(tools(settings));
        let skills = skills(settings, &tools);
        Offer { tools, skills, hooks: HookRegistry::builtin(), models: models::names(settings) }
    }

    /// The first name in a persona that nothing here has: the field, the name, what is wrong with it.
    fn unknown_name(&self, persona: &PersonaTemplate) -> Option<(&'static str, String, String)> {
        let tools = self.tools.resolve(&persona.tools).err().map(|e| ("tools", e.name.clone(), e.to_string()));
        let skills = || self.skills.resolve(&persona.skills).err().map(|e| ("skills", e.name.clone(), e.to_string()));
        let hooks = || self.hooks.resolve(&persona.hooks).err().map(|e| ("hooks", e.name.clone(), e.to_string()));
        let fallbacks: Vec<_> =
            persona.fallback_tools.iter().flat_map(|(tool, spare)| [tool, spare]).cloned().collect();
        let fallbacks =
            || self.tools.resolve(&fallbacks).err().map(|e| ("fallback_tools", e.name.clone(), e.to_string()));
        let models = || self.unknown_model("model", persona.model.as_ref());
        let summaries = || self.unknown_model("context.summary_model", persona.context.summary_model.as_ref());
        tools
            .or_else(skills)
            .or_else(hooks)
            .or_else(fallbacks)
            .or_else(|| self.fallback_not_offered(persona))
            .or_else(models)
            .or_else(summaries)
    }

    /// That a persona's skills take much of each of its requests, if they do.
    fn weight_of_skills(&self, PersonaFile { file, persona }: &PersonaFile) -> Option<PersonaFileProblem> {
        let named = self.skills.resolve(&persona.skills).ok()?;
        let most = shelf::most_bytes(Some(u32::MAX));
        let left_out = shelf::told_within(&named, most).left_out.len();
        let message = format!(
            "names {}, whose names and descriptions would take {} of every request. At most {}, and a quarter of the model's \
             window, go to skills: agents are told of {} or fewer, and find others with {FIND_SKILLS}. Name those it needs, \
             the most important first, or shorten their descriptions",
            plural(named.len() as u64, "skill"),
            plural(named.iter().map(shelf::weight).sum::<usize>() as u64, "byte"),
            plural(most as u64, "byte"),
            count((named.len() - left_out) as u64)
        );
        (left_out > 0).then(|| warning(file, None, Some("skills"), message))
    }

    fn unknown_model(&self, field: &'static str, name: Option<&String>) -> Option<(&'static str, String, String)> {
        let name = name.filter(|name| !self.models.contains(*name))?;
        let names: Vec<_> = self.models.iter().map(String::as_str).collect();
        let near = nearest(name, names.iter().copied()).map(|near| format!("; did you mean {near}?"));
        let wrong = format!(
            "there is no such model{} There are: {}. Add [models.{name}] to config/posse.toml, or name one of these",
            near.unwrap_or_else(|| ".".into()),
            names.join(", ")
        );
        Some((field, name.clone(), wrong))
    }

    /// A tool that a persona names as the fallback of another and does not have: it would never be tried.
    fn fallback_not_offered(&self, persona: &PersonaTemplate) -> Option<(&'static str, String, String)> {
        let offered = self.tools.resolve(&persona.tools).ok()?;
        let has = |name: &&String| offered.iter().any(|tool| tool.spec().name == **name);
        let missing = persona.fallback_tools.values().find(|name| !has(name))?;
        let wrong = "this is not one of the persona's tools, so it would never be tried: add it to \"tools\"";
        Some(("fallback_tools", missing.clone(), wrong.into()))
    }
}

/// Says what is wrong with skills.
pub fn warn_of_skills(out: &crate::output::Out, skills: &LoadedSkills) {
    warn_of_each(out, skills.problems.iter());
}

/// Says what is wrong with the skills of one persona.
fn warn_of_skills_of(out: &crate::output::Out, skills: &LoadedSkills, persona: &PersonaTemplate) {
    let named = skills.resolve(&persona.skills).unwrap_or_default();
    warn_of_each(out, skills.problems.iter().filter(|found| named.iter().any(|skill| skill.source.file == found.file)));
}

fn warn_of_each<'a>(out: &crate::output::Out, problems: impl Iterator<Item = &'a SkillFileProblem>) {
    use posse_core::skill::Severity;
    for found in problems {
        let told = visible(&found.to_string());
        match found.problem.severity {
            Severity::Note => out.note(out.note_paint.dim(format!("note: {told}"))),
            Severity::Warning => out.warn(told),
            Severity::Error => out.warn(format!("{told} (left out)")),
        }
    }
}

/// The personas of the project, checked against what there is. What is wrong with one is among the
/// problems; it is not among the personas then.
pub fn personas(settings: &Settings, offer: &Offer) -> Result<Loaded> {
    let folder = &settings.personas;
    let mut loaded = if folder.is_dir() || settings.personas_named {
        let unreadable = |e| {
            usage(format!("the folder of personas {} cannot be read: {e}. Make it with posse init", folder.display()))
        };
        load_all(folder).map_err(unreadable)?
    } else {
        let mut loaded = Loaded::default();
        BUILT_IN
            .iter()
            .for_each(|(role, text)| loaded.add(&Path::new("(built in)").join(format!("{role}.json")), text));
        loaded
    };
    let mut problems = Vec::new();
    loaded.personas.retain(|PersonaFile { file, persona }| match offer.unknown_name(persona) {
        None => true,
        Some((field, name, unknown)) => {
            let line = std::fs::read_to_string(file).ok().and_then(|text| {
                let quoted = format!("\"{name}\"");
                text.lines().position(|line| line.contains(&quoted)).map(|index| index + 1)
            });
            problems.push(problem(file, line, Some(field), format!("names '{name}', but {unknown}")));
            false
        }
    });
    loaded.problems.extend(problems);
    let heavy = loaded.personas.iter().filter_map(|file| offer.weight_of_skills(file));
    loaded.problems.extend(heavy);
    Ok(loaded)
}

/// The persona that plays `role`, or why there is none.
pub fn persona<'a>(loaded: &'a Loaded, role: &str) -> Result<&'a PersonaFile> {
    if let Some(found) = loaded.get(role) {
        return Ok(found);
    }
    let errors = loaded.errors_of(role);
    if !errors.is_empty() {
        let told: Vec<_> = errors.iter().map(ToString::to_string).collect();
        return Err(usage(format!("the persona '{role}' cannot be used: {}", told.join("; "))));
    }
    let roles = loaded.roles();
    let near =
        nearest(role, roles.iter().map(String::as_str)).map(|n| format!("; did you mean {n}?")).unwrap_or_default();
    let there_are = if roles.is_empty() { "none".into() } else { roles.join(", ") };
    Err(not_found(format!(
        "there is no persona '{role}'{near} There are: {there_are} (posse persona new {role} makes one)"
    )))
}

/// Says what is wrong with personas that are left out.
pub fn warn_of_problems(out: &crate::output::Out, loaded: &Loaded) {
    loaded.problems.iter().for_each(|problem| warn_of_problem(out, problem));
}

/// Says what is wrong with one, or how it was read.
pub fn warn_of_problem(out: &crate::output::Out, problem: &PersonaFileProblem) {
    match problem.severity {
        Severity::Error => out.warn(format!("{problem} (left out)")),
        Severity::Warning => out.warn(problem.to_string()),
        Severity::Note => out.note(out.note_paint.dim(format!("note: {}", visible(&problem.to_string())))),
    }
}

/// What is known before there is a database.
pub struct Project {
    /// The models.
    pub models: Arc<Catalog>,
    /// What personas may name.
    pub offer: Offer,
    /// The personas.
    pub personas: Loaded,
    /// The real path of the folder in which jobs are worked that name none.
    pub workspace: PathBuf,
}

impl Project {
    /// Gathers it all.
    pub async fn gather(settings: &Settings) -> Result<Project> {
        let offer = Offer::gather(settings);
        let personas = personas(settings, &offer)?;
        let workspace = &settings.workspace;
        if !workspace.is_dir() {
            let what = "is no folder; set workspace in config/posse.toml";
            return Err(usage(format!("the workspace {} {what}", workspace.display())));
        }
        if let Err(error) = settings.trust.clone().note_workspace(&settings.root, workspace) {
            tracing::debug!("it is not remembered that agents work in {}: {error:#}", workspace.display());
        }
        let workspace = workspace::real_path(settings, workspace)?;
        let models = Arc::new(Catalog::find(settings, &|name| std::env::var_os(name)).await?);
        Ok(Project { models, offer, personas, workspace })
    }

    /// Gathers it for one persona, whose jobs are worked in this process by `model`, or by its own. A
    /// missing key is told of here, before there is a job.
    pub async fn gather_for(
        out: &crate::output::Out,
        settings: &Settings,
        role: &str,
        model: Option<&str>,
    ) -> Result<(Project, PersonaFile, Arc<GenericAgentExecutor>)> {
        let project = Project::gather(settings).await?;
        project.models.insist();
        let file = persona(&project.personas, role)?.clone();
        warn_of_skills_of(out, &project.offer.skills, &file.persona);
        let executor = project.executor(&file)?;
        project.models.get(model.or(file.persona.model.as_deref()))?;
        Ok((project, file, executor))
    }

    /// Opens the database, to be worked. From now on the models here are asked as often as all processes on it may ask
    /// them together.
    pub fn open(&self, settings: &Settings) -> Result<Arc<dyn Store>> {
        let store = open_to_work(settings)?;
        self.models.share(store.clone());
        Ok(store)
    }

    /// Who works the jobs of `persona`.
    pub fn executor(&self, persona: &PersonaFile) -> Result<Arc<GenericAgentExecutor>> {
        let models: Arc<dyn Models> = self.models.clone();
        let executor = GenericAgentExecutor::new(
            persona.persona.clone(),
            Arc::clone(&self.offer.tools) as _,
            models,
            self.workspace.clone(),
        );
        let executor = executor.with_context(|| format!("the persona '{}' cannot be used", persona.persona.role))?;
        let hooks = self.offer.hooks.resolve(&persona.persona.hooks)?;
        Ok(Arc::new(executor.with_skills(self.offer.skills.skills.clone()).with_hooks(hooks)))
    }
}

/// Whether a model, by its configured name, runs on this machine and so costs nothing.
pub fn free_models(settings: &Settings) -> Box<dyn Fn(&str) -> bool + Send> {
    let models = settings.models.clone();
    Box::new(move |name| match models.get(name) {
        // A server on this machine may pass requests on to one that costs: only price_input = 0
        // says that it is free.
        Some(table) => table.kind == ModelKind::Local,
        None => name == crate::local::NAME || name == "ollama",
    })
}
