//! What a tool is: a name, a schema, an effect class and one function.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::annotation::{NewAnnotation, Remarks};
use crate::clock::Millis;
use crate::id::JobId;
use crate::memory::block::{BlockEdit, BlockEdited};
use crate::memory::{Forgetting, MemoryFound, MemoryId, MemoryItem, MemorySearch, NewMemory, Remembered, Revision};
use crate::stop::Stop;
use crate::text::{is_default, named};
use crate::workspace::folder::FolderId;
use crate::workspace::protected::Protected;
use calls::Calls;
use tasks::Tasks;
use web::{Method, WebRules};

pub mod calls;
pub mod mcp;
pub mod tasks;
pub mod web;

/// What the model is told of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolSpec {
    /// 1 to 64 of `[a-zA-Z0-9_-]`; unique in the registry.
    pub name: String,
    /// One or two sentences for the model.
    pub description: String,
    /// JSON Schema (2020-12, no `$ref`) of the arguments: an object.
    pub parameters: Value,
}

/// What happens if a call runs twice. Decides what a worker may do with a call that was in flight
/// when a process died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// Only reads: may run again, and beside others.
    Pure,
    /// Changes something, but running it twice with one effect key is the same as once.
    Idempotent,
    /// Must not run twice; after a crash the model is told that it may or may not have happened.
    Once,
}

named!(EffectClass: Pure = "pure", Idempotent = "idempotent", Once = "once");

impl EffectClass {
    /// What a request of the web does if it is made twice.
    pub fn of_request(method: Method) -> EffectClass {
        match method {
            Method::Get | Method::Head => EffectClass::Pure,
            // By what the web's protocol says they are.
            Method::Put | Method::Delete => EffectClass::Idempotent,
            Method::Post | Method::Patch => EffectClass::Once,
        }
    }

    /// Whether a call whose fate is unknown may simply run again.
    pub fn repeatable(self) -> bool {
        !matches!(self, EffectClass::Once)
    }
}

/// What a call may change of its workspace, as far as its tool says. One that only reads changes nothing, whatever it
/// says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Writes {
    /// Nothing.
    Nothing,
    /// The file that its argument `path` names, and only if it does what was asked.
    File,
    /// Whatever it likes.
    #[default]
    Anything,
}

/// A tool as it was offered to the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OfferedTool {
    /// What the model is told.
    pub spec: ToolSpec,
    /// What happens if it runs twice.
    pub effect: EffectClass,
    /// What it may change of the workspace.
    #[serde(default, skip_serializing_if = "is_default")]
    pub writes: Writes,
    /// Whether nothing that it gives was written by others.
    #[serde(default, skip_serializing_if = "is_default")]
    pub own_words: bool,
}

impl OfferedTool {
    /// The tool as it is now.
    pub fn of(tool: &dyn Tool) -> OfferedTool {
        OfferedTool {
            spec: tool.spec().clone(),
            effect: tool.effect(),
            writes: tool.writes(),
            own_words: tool.gives_own_words(),
        }
    }
}

/// Who reads what a call gives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reader {
    /// What it was asked to do: of what is too long for it, it is shown what is nearest to that.
    pub task: String,
    /// How many bytes it reads at once without trouble, where that is known.
    pub room: Option<usize>,
    /// Whether it is a program, which takes what is long as it takes what is short.
    pub computes: bool,
}

/// The remarks on jobs that a call may read.
#[derive(Clone)]
pub struct Stored(pub Arc<dyn Remarks>);

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stored")
    }
}

/// What agents of a role remember, as far as a call may read and change it. Each change is durable when its method
/// returns, and none is made once the job is no longer this worker's.
#[async_trait]
pub trait Memory: Send + Sync + fmt::Debug {
    /// Saves an item, unless the same is known, or this call has saved it before.
    async fn save(&self, new: NewMemory) -> Result<Remembered, ToolError>;
    /// Replaces an item by a changed one.
    async fn revise(&self, id: MemoryId, to: Revision) -> Result<Remembered, ToolError>;
    /// Has an item hold no more; whether it held.
    async fn forget(&self, id: MemoryId, how: Forgetting) -> Result<bool, ToolError>;
    /// Changes a block that runs of the role begin with.
    async fn edit_block(&self, name: &str, edit: BlockEdit) -> Result<BlockEdited, ToolError>;
    /// One item, whatever became of it.
    async fn item(&self, id: MemoryId) -> Result<Option<MemoryItem>, ToolError>;
    /// Searches.
    async fn search(&self, what: MemorySearch) -> Result<MemoryFound, ToolError>;
    /// The time.
    fn now(&self) -> Millis;
}

/// What a call is told about its circumstances.
#[derive(Debug, Clone)]
pub struct ToolContext {
    /// The job it works for.
    pub job: JobId,
    /// The role of the persona that calls.
    pub role: String,
    /// The same on every retry of this call and different for every other call, on any machine:
    /// pass it to the outside world as its idempotency key.
    pub effect_key: String,
    /// The folder the tool is confined to.
    pub workspace: PathBuf,
    /// The folder that is to be there, if it is known: another one is not touched.
    pub workspace_id: Option<FolderId>,
    /// What the tool keeps away from, in the workspace and anywhere.
    pub protected: Arc<Protected>,
    /// The file of the workspace that the agent was told its rules from, if it was. It may not change
    /// it: later runs would follow what it wrote.
    pub rules_file: Option<PathBuf>,
    /// The folder of the skill that is being worked by, if one is.
    pub skill_folder: Option<PathBuf>,
    /// Who reads what it gives.
    pub reader: Reader,
    /// What it may reach of the web.
    pub web: WebRules,
    /// The remarks on jobs that are there; none where it is called for no job of a database.
    pub remarks: Option<Stored>,
    /// What was left of the run's time when the call began; none where it is not limited.
    pub time_left: Option<Duration>,
    /// Who is asked about tasks, where the run may give any.
    pub tasks: Option<Arc<dyn Tasks>>,
    /// Who is asked for the calls of a program, where the call runs one for a job.
    pub calls: Option<Arc<dyn Calls>>,
    /// The entry of the job's journal before which it is made.
    pub step: u64,
    /// What the run has read that others wrote: names of tools, and where else it comes from.
    pub heard: Vec<String>,
    /// What agents of its role remember; none where nothing can be kept.
    pub memory: Option<Arc<dyn Memory>>,
    /// Fires when the call should end early.
    pub stop: Stop,
}

/// What a call gave.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOutput {
    /// What the model reads.
    pub text: String,
    /// Annotations to be saved in the same transaction as the result.
    pub annotations: Vec<NewAnnotation>,
    /// Jobs that must have ended before there is a result, where there are any: the run is suspended until then, without a
    /// slot, and the call is made again. So the tool must be one that may run twice, and nothing else of this counts.
    pub waits_for: Vec<JobId>,
}

impl From<String> for ToolOutput {
    fn from(text: String) -> Self {
        ToolOutput { text, ..ToolOutput::default() }
    }
}

/// What kind of failure a tool had; the model is told, and reacts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolErrorCategory {
    /// The arguments do not fit the schema or each other.
    InvalidArguments,
    /// The thing named is not there.
    NotFound,
    /// It is there and may not be touched.
    PermissionDenied,
    /// It is too large, too long, or took too long.
    LimitExceeded,
    /// It is not in the state the call expects (already exists, text not found, changed meanwhile).
    Conflict,
    /// The call was stopped.
    Stopped,
    /// The call was stopped in the middle, so nobody knows what it had done by then: its outcome is recorded as
    /// unknown, not as this failure.
    Interrupted,
    /// Not begun, because this worker or its machine has run out of something (open files, memory) that says nothing
    /// about the call: it is made again later or elsewhere, and the model never hears of it.
    #[serde(skip)]
    WorkerUnfit,
    /// Everything else.
    Failed,
}

impl ToolErrorCategory {
    /// Whether such a failure came before anything was done, and would come again.
    pub fn says_nothing_was_done(self) -> bool {
        match self {
            Self::InvalidArguments | Self::NotFound | Self::PermissionDenied | Self::Conflict => true,
            Self::LimitExceeded | Self::Stopped | Self::Interrupted | Self::WorkerUnfit | Self::Failed => false,
        }
    }
}

/// A call that did not do what was asked. Its text is written for the model: what is wrong, and
/// what to do instead.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// What kind of failure.
    pub category: ToolErrorCategory,
    /// What is wrong and the way out.
    pub message: String,
}

impl ToolError {
    /// A failure of the given kind.
    pub fn new(category: ToolErrorCategory, message: impl Into<String>) -> Self {
        ToolError { category, message: message.into() }
    }
}

/// One thing an agent can do.
#[async_trait]
pub trait Tool: Send + Sync {
    /// What the model is told.
    fn spec(&self) -> &ToolSpec;

    /// What happens if it runs twice.
    fn effect(&self) -> EffectClass;

    /// What happens if a call with these arguments runs twice: less, perhaps, than all that the tool can do.
    fn effect_of(&self, _args: &Value) -> EffectClass {
        self.effect()
    }

    /// What it may change of the workspace.
    fn writes(&self) -> Writes {
        Writes::Anything
    }

    /// Whether nothing that it gives was written by others: no text of a file, a page or another agent, in which there
    /// may be instructions that nobody here gave.
    fn gives_own_words(&self) -> bool {
        false
    }

    /// Runs it. `args` fit the schema in [`Tool::spec`]; the caller has checked.
    async fn call(&self, cx: &ToolContext, args: Value) -> Result<ToolOutput, ToolError>;
}

/// Which tools there are, by name and by pack.
pub trait Tools: Send + Sync {
    /// The tools that tool and pack names stand for, each once, by name: their order is part of the prompt's prefix.
    fn resolve(&self, names: &[String]) -> Result<Vec<Arc<dyn Tool>>, UnknownTool>;

    /// The tool of that name.
    fn get(&self, name: &str) -> Option<Arc<dyn Tool>>;

    /// The packs, each with the names of its tools.
    fn packs(&self) -> &BTreeMap<String, Vec<String>>;

    /// Reads the arguments of a call as the model wrote them, by the schema in `spec`.
    fn validate_args(&self, spec: &ToolSpec, raw: &str) -> Result<Value, ToolError>;

    /// What all of the tools keep away from.
    fn protected(&self) -> &Arc<Protected>;

    /// Which of these files are there, in the workspace of a call, by their paths or else by their own names. Those that
    /// cannot be told of are left out. Blocks.
    fn are_there(&self, _cx: &ToolContext, _paths: &[String]) -> BTreeMap<String, bool> {
        BTreeMap::new()
    }

    /// Looks through the workspace of a call that reads files. Blocks, for about a second at most.
    fn survey(&self, _cx: &ToolContext) -> Survey {
        Survey::default()
    }
}

/// Whether a path, as an answer or a goal has it, may mean the file at `path` of the workspace: by its own name where it
/// names no folder, and else by the folders too, but those before the workspace or left out.
pub fn may_mean(named: &str, path: &str) -> bool {
    let plain = |path: &str| path.trim_start_matches("./").trim_end_matches('/').to_lowercase();
    let (named, path) = (plain(named), plain(path));
    let ends =
        |long: &str, short: &str| long.strip_suffix(short).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'));
    let is_whole = path.contains('/') || named.starts_with('/');
    ends(&path, &named) || is_whole && ends(&named, &path)
}

/// What a look through a workspace found, in the order of the paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    /// Files that tools may read.
    pub files: Vec<SurveyedFile>,
    /// Tables that they make, for whoever has a tool that reads them.
    pub tables: Vec<SurveyedTable>,
    /// Whether there may be more.
    pub has_more: bool,
}

/// A table that files of a workspace make.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SurveyedTable {
    /// As a query names it.
    pub name: String,
    /// The file, or the folder of the files with `/` behind it.
    pub path: String,
    /// Their names, with what their numbers are given in.
    pub columns: Vec<String>,
    /// How many rows it has, where it was read to its end.
    pub rows: Option<u64>,
}

/// A file of a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SurveyedFile {
    /// Relative to the workspace, as tools are given it.
    pub path: String,
    /// How long it is.
    pub bytes: u64,
    /// The beginning of its text; empty where it is none, or was not read.
    pub head: String,
}

/// A persona asks for a tool that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownTool {
    /// What was asked for.
    pub name: String,
    /// Existing names that look like it, the nearest first.
    pub near: Vec<String>,
    /// Why it is not there, where that is known.
    pub why: Option<String>,
    /// All packs, each with its tools.
    pub packs: BTreeMap<String, Vec<String>>,
}

impl std::error::Error for UnknownTool {}

impl fmt::Display for UnknownTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.why {
            return write!(f, "there is no tool or pack '{}': {why}", self.name.escape_debug());
        }
        let near = self.near.join(" or ");
        let near = if near.is_empty() { ".".into() } else { format!("; did you mean {near}?") };
        write!(f, "there is no tool or pack '{}'{near} There are:", self.name.escape_debug())?;
        for (pack, tools) in &self.packs {
            write!(f, " {pack} ({})", tools.join(", "))?;
        }
        Ok(())
    }
}

/// The JSON Schema of a type as every provider takes it: draft 2020-12, without `$ref` and `$schema`.
pub fn schema_of<T: schemars::JsonSchema>() -> Value {
    let mut settings = schemars::generate::SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Some(object) = schema.as_object_mut() {
        object.remove("title");
    }
    schema
}
