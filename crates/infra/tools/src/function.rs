//! The adapter that makes a tool of a function and the type of its arguments.

use std::any::Any;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use posse_core::tool::{EffectClass, Tool, ToolContext, ToolError, ToolOutput, ToolSpec, Writes, schema_of};
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinError;

use super::failure::{failed, invalid};

type ToolResult = Result<ToolOutput, ToolError>;
type Call = dyn Fn(ToolContext, Value) -> serde_json::Result<BoxFuture<'static, ToolResult>> + Send + Sync;

/// How many calls that block run at once in this process; others wait their turn. Each has a few files open, and a
/// processor to itself: a thousand at once would be slower, and run out of descriptors.
const BLOCKING_AT_ONCE: usize = 32;
static BLOCKING: Semaphore = Semaphore::const_new(BLOCKING_AT_ONCE);

/// A tool made of a function. The schema comes from the type of the arguments, whose doc comments
/// become the descriptions of its fields; give it `#[serde(deny_unknown_fields)]`, so that a
/// misspelt field is an error and not ignored.
pub struct FnTool {
    spec: ToolSpec,
    effect: EffectClass,
    writes: Writes,
    effect_of: Option<fn(&Value) -> EffectClass>,
    own_words: bool,
    call: Box<Call>,
}

impl FnTool {
    pub fn new<A, F, Fut>(name: &str, description: &str, effect: EffectClass, function: F) -> Self
    where
        A: DeserializeOwned + JsonSchema,
        F: Fn(ToolContext, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ToolResult> + Send + 'static,
    {
        let call = move |cx: ToolContext, args: Value| -> serde_json::Result<BoxFuture<'static, ToolResult>> {
            Ok(function(cx, serde_json::from_value(args)?).boxed())
        };
        let (name, description) = (name.to_owned(), description.to_owned());
        let spec = ToolSpec { name, description, parameters: parameters_of::<A>() };
        let (writes, effect_of, own_words) = (Writes::Anything, None, false);
        FnTool { spec, effect, writes, effect_of, own_words, call: Box::new(call) }
    }

    /// The same, which changes no more of the workspace than that.
    pub fn writing(self, writes: Writes) -> Self {
        FnTool { writes, ..self }
    }

    /// The same, of which a call may do less if it runs twice, by its arguments.
    pub fn with_effect_of(self, effect_of: fn(&Value) -> EffectClass) -> Self {
        FnTool { effect_of: Some(effect_of), ..self }
    }

    /// The same, of whose results nothing was written by others.
    pub fn in_own_words(self) -> Self {
        FnTool { own_words: true, ..self }
    }

    /// A tool whose function blocks, on files for instance. It runs on a thread of its own and is
    /// not interrupted when the call is dropped, so it looks at `cx.stop` in its loops and right
    /// before its effect.
    pub fn blocking<A, F>(name: &str, description: &str, effect: EffectClass, function: F) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        F: Fn(&ToolContext, A) -> ToolResult + Send + Sync + 'static,
    {
        let (tool, function) = (name.to_owned(), Arc::new(function));
        Self::new(name, description, effect, move |cx: ToolContext, args: A| {
            let (tool, function) = (tool.clone(), function.clone());
            async move {
                // Never closed. The thread keeps its place, also when the call is dropped.
                let place = BLOCKING.acquire().await;
                let work = move || {
                    let _place = place;
                    function(&cx, args)
                };
                match tokio::task::spawn_blocking(work).await.map_err(JoinError::try_into_panic) {
                    Ok(outcome) => outcome,
                    // Caught where those of all functions are.
                    Err(Ok(panic)) => resume_unwind(panic),
                    Err(Err(_)) => Err(failed(format!("{tool} was cut off: the process is ending"))),
                }
            }
        })
    }

    /// The same, with other words for an argument, whose type it shares with another tool.
    pub(crate) fn describing(mut self, argument: &str, words: &str) -> Self {
        self.spec.parameters["properties"][argument]["description"] = words.into();
        self
    }
}

#[async_trait]
impl Tool for FnTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> EffectClass {
        self.effect
    }

    fn effect_of(&self, args: &Value) -> EffectClass {
        self.effect_of.map_or(self.effect, |effect_of| effect_of(args))
    }

    fn writes(&self) -> Writes {
        self.writes
    }

    fn gives_own_words(&self) -> bool {
        self.own_words
    }

    async fn call(&self, cx: &ToolContext, args: Value) -> ToolResult {
        let name = &self.spec.name;
        let misfit = |error| invalid(format!("the arguments of {name} do not fit: {error}"));
        let running = (self.call)(cx.clone(), args).map_err(misfit)?;
        AssertUnwindSafe(running).catch_unwind().await.unwrap_or_else(|panic| Err(panicked(name, &*panic)))
    }
}

/// A bug in one tool is that call's failure, never the worker's.
fn panicked(tool: &str, panic: &(dyn Any + Send)) -> ToolError {
    let text = posse_core::panic::message(panic);
    tracing::error!(tool, panic = text, "tool {tool} panicked: {text}");
    failed(format!("{tool} broke down ({text}). This is a fault of the tool, not of the arguments"))
}

/// The schema of a tool's arguments, with only what each provider and a small model can read.
fn parameters_of<A: JsonSchema>() -> Value {
    let mut parameters = schema_of::<A>();
    if let Ok(schema) = <&mut Schema>::try_from(&mut parameters) {
        RecursiveTransform(Plain).transform(schema);
        // What the type is stands in the tool's own description.
        schema.remove("description");
    }
    parameters
}

/// Leaves out what providers refuse or models stumble over: number formats that only Rust has, and
/// `null` as a second type of an optional field. An absent field says the same, and the argument
/// check takes a `null` there as absent.
#[derive(Clone)]
struct Plain;

impl Transform for Plain {
    fn transform(&mut self, schema: &mut Schema) {
        let Some(object) = schema.as_object_mut() else { return };
        if let Some(Value::Array(types)) = object.get_mut("type") {
            types.retain(|kind| kind != "null");
            if let [only] = types.as_slice() {
                let only = only.clone();
                object.insert("type".into(), only);
            }
            if let Some(Value::Array(options)) = object.get_mut("enum") {
                options.retain(|option| !option.is_null());
            }
        }
        if let Some(Value::Array(choices)) = object.get_mut("anyOf") {
            choices.retain(|choice| choice.get("type").is_none_or(|kind| kind != "null"));
            if let [Value::Object(only)] = choices.as_slice() {
                let only = only.clone();
                object.remove("anyOf");
                for (key, value) in only {
                    object.entry(key).or_insert(value);
                }
            }
        }
        let number = object.get("type").is_some_and(|kind| kind == "integer" || kind == "number");
        if number {
            object.remove("format");
        }
        if object.get("default").is_some_and(Value::is_null) {
            object.remove("default");
        }
    }
}
