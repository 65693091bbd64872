//! The composition root, to be read from top to bottom: settings become a store, models, tools and
//! personas; those become worker services.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use posse_app::Code;
use posse_app::enqueue::LOCAL_MODEL;
use posse_app::personas::{self, Offer, Sources};
use posse_core::clock::{Clock, Millis};
use posse_core::model::Models;
use posse_core::persona::{PersonaFile, Personas};
use posse_core::port::{Database, RepositoryError, Store};
use posse_core::queue::retention::Retention;
use posse_core::skill::SkillScope;
use posse_core::tool::Tools;
use posse_core::worker::executor::Delegation;
use posse_core::workspace::protected::Protected;
use posse_infra::agent::GenericAgentExecutor;
use posse_infra::hook::HookRegistry;
use posse_infra::local_model;
use posse_infra::persona::PersonaFolder;
use posse_infra::process::SystemClock;
use posse_infra::sandbox::{Commands, Exact};
use posse_infra::skill::{self, SkillFolders};
use posse_infra::sqlite::{Options, SqliteDatabase, SqliteStore, Synchronous, extension};
use posse_infra::tool::mcp::Servers;
use posse_infra::tool::own::OwnProblem;
use posse_infra::tool::web::Web;
use posse_infra::tool::{CodeLimits, RUN_COMMAND, ToolRegistry};

use crate::env;
use crate::exit::{fail, usage};
use crate::faults::warn_of_skills_of;
use crate::fleet::RoleWork;
use crate::models::{self, Catalog};
use crate::output::text::visible;
use crate::settings::{self, DEFAULT_DATABASE, ModelKind, Settings, Tokenizer};
use crate::trust::{Distrust, Extent};
use crate::workspace;

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
    match SqliteStore::open_read_only(path, settings.keys.clone()) {
        Ok(store) => Ok(Some(Arc::new(store))),
        // Another process is making it at this moment: there is nothing in it yet.
        Err(RepositoryError::Unavailable(_)) if path.metadata().is_ok_and(|meta| meta.len() == 0) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Opens the database to be changed, where there is one: else it is not made, and `none` says what is not there.
pub fn open_existing<E: Into<anyhow::Error>>(settings: &Settings, none: impl FnOnce() -> E) -> Result<Arc<dyn Store>> {
    open_reader(settings)?.ok_or_else(|| none().into())?;
    open_store(settings)
}

/// The database as it lies there, for what is done to it while it is closed.
pub fn database(settings: &Settings) -> Box<dyn Database> {
    Box::new(SqliteDatabase { path: settings.database.clone(), keys: settings.keys.clone() })
}

/// How commands of agents run, and what all tools keep away from: of what a workspace has of this project's own, the
/// databases and keys are not to be seen, and what decides about agents is not to be changed. The same goes for other
/// projects that the person trusts, and for what is kept of the person.
pub fn commands(settings: &Settings) -> Commands {
    let Settings { root, database, personas, file, trust, .. } = settings;
    let others = trust.folders().iter().map(|trusted| &trusted.folder).chain(&trust.named);
    let mut hidden: Vec<_> = others.chain([root]).map(|folder| folder.join(".posse")).collect();
    hidden.extend(settings.key_file.clone());
    hidden.extend(trust.file.as_deref().and_then(Path::parent).map(Path::to_owned));
    hidden.extend(local_model::server::state_dir());
    let others = trust.folders().iter().filter(|trusted| trusted.extent == Extent::Project);
    let others = others.map(|trusted| &trusted.folder).chain(&trust.named).chain([root]);
    let mut fixed: Vec<_> =
        others.flat_map(|folder| ["config", ".agents", "sqlite_extensions"].map(|name| folder.join(name))).collect();
    fixed.push(personas.clone());
    fixed.extend(file.clone());
    fixed.extend(settings.models.values().filter_map(|model| match &model.tokenizer {
        Some(Tokenizer::File(path)) => Some(path.clone()),
        _ => None,
    }));
    // The person's own: their skills, and the models that run here.
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".agents")).filter(|path| path.is_absolute());
    fixed.extend(home.into_iter().chain(local_model::cache::models_dir()).filter(|path| path.is_dir()));
    let protected = Protected { hidden, fixed, databases: vec![database.clone()] };
    Commands { limits: settings.commands, protected, known: trust.databases().to_vec() }
}

pub fn tools(settings: &Settings) -> ToolRegistry {
    tools_and_problems(settings).0
}

/// The tools, those of the project among them, and what is wrong with the files of others.
pub fn tools_and_problems(settings: &Settings) -> (ToolRegistry, Vec<OwnProblem>) {
    let (commands, web) = (commands(settings), Web::new(settings.web.clone()));
    let tools = ToolRegistry::builtin().with_commands(commands.clone()).with_web(web).with_code(CodeLimits::default());
    if !settings.is_trusted {
        return (tools, Vec::new());
    }
    let (tools, mut problems) = tools.with_own(&settings.root.join("config/tools"), &commands, &variable);
    let said_in = settings.file.clone().unwrap_or_default();
    let (tools, more) = tools.with_mcp(&mcp_servers(settings), &mcp_folder(settings), &said_in);
    problems.extend(more);
    (tools, problems)
}

/// The MCP servers that the settings name. None is started.
pub fn mcp_servers(settings: &Settings) -> Servers {
    let expand = |written: &str| settings::expanded("it", written, &env::own);
    Servers::of(&settings.mcp_servers, &mcp_folder(settings), &commands(settings), &variable, &expand)
}

/// The files that servers bring, and those that say what of them is accepted.
pub fn mcp_folder(settings: &Settings) -> PathBuf {
    settings.root.join("config/mcp")
}

/// The hooks, those of the project among them, and what is wrong with the files of others.
pub fn hooks_and_problems(settings: &Settings, tools: &Arc<dyn Tools>) -> (HookRegistry, Vec<OwnProblem>) {
    let hooks = HookRegistry::builtin();
    match settings.is_trusted {
        true => hooks.with_own(&settings.root.join("config/hooks"), tools, &commands(settings), &variable),
        false => (hooks, Vec::new()),
    }
}

/// What a variable of this process's environment says.
fn variable(name: &str) -> Option<String> {
    env::own(name)?.into_string().ok()
}

/// Which limits of commands are held exactly here, or why none can run; none if no persona runs any.
pub async fn probe_commands(
    settings: &Settings,
    offer: &Offer,
    personas: &[PersonaFile],
) -> Option<Result<Exact, String>> {
    match offer.any_has(personas, RUN_COMMAND) {
        true => Some(commands(settings).probe(&settings.workspace).await),
        false => None,
    }
}

pub const COMMANDS_WAY_OUT: &str = "let users make namespaces (sysctl user.max_user_namespaces, \
    kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0; in a container, in its settings); \
    until then agents are told that no command can run";

/// Personas by role, and skills by name: used where a project has no folder of its own for them, and written by `posse init`.
pub const BUILT_IN_PERSONAS: [(&str, &str); 8] = [
    ("analyst", include_str!("../../../config/personas/analyst.json")),
    ("assistant", include_str!("../../../config/personas/assistant.json")),
    ("browser", include_str!("../../../config/personas/browser.json")),
    ("coordinator", include_str!("../../../config/personas/coordinator.json")),
    ("researcher", include_str!("../../../config/personas/researcher.json")),
    ("reviewer", include_str!("../../../config/personas/reviewer.json")),
    ("scribe", include_str!("../../../config/personas/scribe.json")),
    ("triager", include_str!("../../../config/personas/triager.json")),
];

pub const BUILT_IN_SKILLS: [(&str, &str); 1] =
    [("summarise-files", include_str!("../../../config/skills/summarise-files/SKILL.md"))];

/// Where the personas are, and what they may name. Of a project that is not trusted no skill is used.
pub fn sources(settings: &Settings) -> Sources {
    let Settings { root, personas: folder, personas_named, is_trusted, .. } = settings;
    let tools = Arc::new(tools(settings));
    let (hooks, _) = hooks_and_problems(settings, &(Arc::clone(&tools) as Arc<dyn Tools>));
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let roots = skill::roots(root, home.as_deref());
    let (roots, left_out): (Vec<_>, Vec<_>) =
        roots.into_iter().partition(|one| *is_trusted || one.scope != SkillScope::Project);
    let why = format!("its skills are left out, for the folder {0} is not trusted (posse trust {0})", root.display());
    let left_out = left_out.into_iter().map(|one| (one.folder, why.clone())).collect();
    let has_own = *is_trusted && root.join("config/skills").is_dir();
    let built_in: &[_] = if has_own { &[] } else { &BUILT_IN_SKILLS };
    Sources {
        personas: Arc::new(PersonaFolder {
            folder: folder.clone(),
            is_named: *personas_named,
            built_in: &BUILT_IN_PERSONAS,
        }),
        skills: Arc::new(SkillFolders { roots, left_out, built_in, tools: Arc::clone(&tools) }),
        tools,
        hooks: Arc::new(hooks),
        models: models::names(settings),
    }
}

pub struct Project {
    pub models: Arc<Catalog>,
    pub sources: Sources,
    pub offer: Offer,
    pub personas: Personas,
    /// The real path of the folder in which jobs are worked that name none.
    pub workspace: PathBuf,
    /// What tasks begin with that agents give.
    tasks: Delegation,
}

impl Project {
    pub async fn gather(settings: &Settings) -> Result<Project> {
        let (tools, mut problems) = tools_and_problems(settings);
        problems.extend(hooks_and_problems(settings, &(Arc::new(tools) as Arc<dyn Tools>)).1);
        for problem in problems {
            tracing::warn!("{}", visible(&problem.to_string()));
        }
        let sources = sources(settings);
        let (offer, personas) = sources.look()?;
        let workspace = &settings.workspace;
        if !workspace.is_dir() {
            let what = "is no folder; set workspace in config/posse.toml";
            return Err(usage(format!("the workspace {} {what}", workspace.display())));
        }
        if let Err(error) = settings.trust.clone().note_workspace(&settings.root, workspace) {
            tracing::debug!("it is not remembered that agents work in {}: {error:#}", workspace.display());
        }
        let workspace = workspace::real_path(settings, workspace)?;
        let models = Arc::new(Catalog::find(settings, &env::own).await?);
        let priority_step_ms = settings.priority_step.as_millis() as Millis;
        let tasks = Delegation { priority_step_ms, max_crashes: settings.max_crashes, to: Vec::new() };
        Ok(Project { models, sources, offer, personas, workspace, tasks })
    }

    /// Gathers it for one persona and those to whom its tasks may go, whose jobs are worked in this process by `model`, or by
    /// their own. A missing key is told of here, before there is a job.
    pub async fn gather_for(
        out: &crate::output::Out,
        settings: &Settings,
        role: &str,
        model: Option<&str>,
    ) -> Result<(Project, Vec<PersonaFile>, Vec<RoleWork>)> {
        let project = Project::gather(settings).await?;
        project.models.insist();
        personas::find(&project.personas, role)?;
        let files: Vec<_> = project.personas.team(role).into_iter().cloned().collect();
        let mut team = Vec::new();
        for file in &files {
            warn_of_skills_of(out, &project.offer.skills, &file.persona);
            let executor = project.executor(&project.offer, &project.personas, file)?;
            project.models.get(model.or(file.persona.model.as_deref()))?;
            team.push(RoleWork { role: file.persona.role.clone(), executor });
        }
        Ok((project, files, team))
    }

    /// Opens the database, to be worked. From now on the models here are asked as often as all processes on it may ask
    /// them together.
    pub fn open(&self, settings: &Settings) -> Result<Arc<dyn Store>> {
        let store = open_to_work(settings)?;
        self.models.share(store.clone());
        Ok(store)
    }

    /// Who works the jobs of `persona`, one of `personas`, which may name what is in `offer`.
    pub fn executor(
        &self,
        offer: &Offer,
        personas: &Personas,
        persona: &PersonaFile,
    ) -> Result<Arc<GenericAgentExecutor>> {
        let (persona, models) = (&persona.persona, self.models.clone() as Arc<dyn Models>);
        let made = GenericAgentExecutor::new(persona.clone(), Arc::clone(&offer.tools), models, self.workspace.clone());
        let made = made.with_context(|| format!("the persona '{}' cannot be used", persona.role))?;
        let hooks = offer.hooks.resolve(&persona.hooks)?;
        let delegation = Delegation { to: personas.delegates(persona), ..self.tasks.clone() };
        let made = made.with_skills(offer.skills.skills.clone()).with_hooks(hooks);
        Ok(Arc::new(made.with_delegation(delegation)))
    }
}

/// Whether a model, by its configured name, runs on this machine and so costs nothing.
pub fn free_models(settings: &Settings) -> Box<dyn Fn(&str) -> bool + Send> {
    let models = settings.models.clone();
    Box::new(move |name| match models.get(name) {
        // A server on this machine may pass requests on to one that costs: only price_input = 0
        // says that it is free.
        Some(table) => table.kind == ModelKind::Local,
        None => name == LOCAL_MODEL || name == "ollama",
    })
}
