//! What an agent remembers beyond its job: `memory_save`, `memory_search`, `memory_update`, `memory_forget`.

use std::sync::Arc;

use posse_core::memory::told::{MEMORY_SEARCH, found, heading};
use posse_core::memory::{
    Became, Forgetting, Hit, MemoryFilter, MemoryId, MemorySearch, NewMemory, Origin, Remembered, Revision, check_tags,
    check_text,
};
use posse_core::text::{folded, head, quoted};
use posse_core::tool::{EffectClass, Memory, ToolContext, ToolError, ToolOutput, Writes};
use schemars::JsonSchema;
use serde::Deserialize;

use super::FnTool;
use super::failure::{failed, invalid};

/// Items that a search gives where it is not said how many.
const USUAL: u32 = 5;
/// The most it gives an agent.
const MOST: u32 = 20;
/// Items near a new one that its author is told of.
const NEAR: usize = 3;
/// Above this likeness two sentences are mostly about the same thing, and as often contradict each other as not.
const ALIKE: f64 = 0.6;
/// Most bytes of such an item that are shown.
const NEAR_BYTES: usize = 200;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Save {
    /// One fact in a whole sentence that can be understood later by itself: who, what, when.
    #[schemars(length(min = 1))]
    text: String,
    /// Words to find it by.
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Search {
    /// What you want to know, as a question or in a few words.
    query: String,
    /// Only items with all of these tags.
    #[serde(default)]
    tags: Vec<String>,
    /// At most so many items, up to 20.
    #[serde(default)]
    #[schemars(range(min = 1, max = 20))]
    limit: Option<u32>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Update {
    /// The number of the item.
    #[schemars(range(min = 1))]
    item: i64,
    /// What is true now, in a whole sentence.
    #[schemars(length(min = 1))]
    text: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Forget {
    /// The number of the item.
    #[schemars(range(min = 1))]
    item: i64,
    /// Why it does not hold any more.
    #[schemars(length(min = 1))]
    reason: String,
}

/// The same call saves once, whatever dies: it is known by its effect key.
pub(super) fn save() -> FnTool {
    FnTool::new(
        "memory_save",
        "Saves a fact for later jobs: what a person told you about themselves, a decision, a result that will be needed \
         again. What is known already is not saved twice.",
        EffectClass::Idempotent,
        |cx: ToolContext, args: Save| async move { save_item(&cx, args).await },
    )
    .writing(Writes::Nothing)
    .in_own_words()
}

pub(super) fn search() -> FnTool {
    FnTool::new(
        MEMORY_SEARCH,
        "Searches what was saved in earlier jobs and said in earlier conversations. Use it before you say that you do \
         not know something about a person, a project or what was done before.",
        EffectClass::Pure,
        |cx: ToolContext, args: Search| async move { search_items(&cx, args).await },
    )
}

pub(super) fn update() -> FnTool {
    FnTool::new(
        "memory_update",
        "Replaces a saved item by what is true now. What it said before can still be read by people.",
        EffectClass::Idempotent,
        |cx: ToolContext, args: Update| async move { update_item(&cx, args).await },
    )
    .writing(Writes::Nothing)
    .in_own_words()
}

pub(super) fn forget() -> FnTool {
    FnTool::new(
        "memory_forget",
        "Has a saved item not be found any more, because it does not hold or should not have been saved.",
        EffectClass::Idempotent,
        |cx: ToolContext, args: Forget| async move { forget_item(&cx, args).await },
    )
    .writing(Writes::Nothing)
    .in_own_words()
}

pub(super) fn memory(cx: &ToolContext) -> Result<&Arc<dyn Memory>, ToolError> {
    cx.memory.as_ref().ok_or_else(|| failed("nothing can be remembered here: there is no database"))
}

/// Where what this call saves comes from.
pub(super) fn origin(cx: &ToolContext, tool: &str) -> Origin {
    Origin {
        author: cx.role.clone(),
        job: Some(cx.job),
        step: Some(cx.step),
        tool: Some(tool.to_owned()),
        untrusted: !cx.heard.is_empty(),
        source: (!cx.heard.is_empty()).then(|| cx.heard.join(", ")),
    }
}

fn tags(tags: Vec<String>) -> Result<Vec<String>, ToolError> {
    let mut each: Vec<String> = Vec::new();
    for tag in tags.iter().map(|tag| tag.trim()) {
        if !each.iter().any(|known| known == tag) {
            each.push(tag.to_owned());
        }
    }
    check_tags(&each).map_err(|why| invalid(format!("the tags: {why}")))?;
    Ok(each)
}

fn text(text: &str) -> Result<String, ToolError> {
    check_text(text).map_err(|why| invalid(format!("the text {why}")))?;
    Ok(text.trim().to_owned())
}

async fn save_item(cx: &ToolContext, args: Save) -> Result<ToolOutput, ToolError> {
    let (text, tags) = (text(&args.text)?, tags(args.tags)?);
    let memory = memory(cx)?;
    let origin = origin(cx, "memory_save");
    let key = Some(cx.effect_key.clone());
    let new = NewMemory { text: text.clone(), tags, origin, effect_key: key, ..NewMemory::default() };
    let Remembered { id, became } = memory.save(new).await?;
    if became == Became::Known {
        return Ok(format!("Already known as item {id}.").into());
    }
    let search = MemorySearch { text, limit: NEAR as u32 + 1, ..MemorySearch::default() };
    let near = memory.search(search).await?.items.into_iter().filter(|hit| hit.item.id != id && is_near(hit));
    // What others wrote is not shown here: it would have to be told apart.
    let near: Vec<_> = near.filter(|hit| !hit.item.origin.untrusted).take(NEAR).collect();
    let mut told = format!("Saved as item {id}.");
    if !near.is_empty() {
        told += "\nWhat is saved already and may be about the same; if the new item makes one of these untrue, update \
                 or forget that one:";
        for Hit { item, .. } in &near {
            let shown = quoted(head(&folded(&item.text), NEAR_BYTES));
            told += &format!("\n{}\n{shown}", heading(item, memory.now()));
        }
    }
    Ok(told.into())
}

/// Whether two items may be about the same: they share more than one word, or say much the same in others.
fn is_near(hit: &Hit) -> bool {
    hit.words.len() > 1 || hit.likeness.is_some_and(|likeness| likeness > ALIKE)
}

async fn search_items(cx: &ToolContext, args: Search) -> Result<ToolOutput, ToolError> {
    let memory = memory(cx)?;
    let filter = MemoryFilter { tags: tags(args.tags)?, ..MemoryFilter::default() };
    let limit = args.limit.unwrap_or(USUAL).clamp(1, MOST);
    let given = memory.search(MemorySearch { text: args.query, filter, limit, ..MemorySearch::default() }).await?;
    Ok(found(&given, memory.now()).into())
}

async fn update_item(cx: &ToolContext, args: Update) -> Result<ToolOutput, ToolError> {
    let text = text(&args.text)?;
    let to = Revision {
        text: Some(text),
        origin: origin(cx, "memory_update"),
        effect_key: Some(cx.effect_key.clone()),
        ..Revision::default()
    };
    let Remembered { id, became } = memory(cx)?.revise(MemoryId(args.item), to).await?;
    Ok(match became {
        Became::Known => format!("Item {} was replaced by item {id}, which says so already.", args.item),
        Became::Saved | Became::Again => format!("Item {} was replaced by item {id}.", args.item),
    }
    .into())
}

async fn forget_item(cx: &ToolContext, args: Forget) -> Result<ToolOutput, ToolError> {
    let reason = text(&args.reason)?;
    let how = Forgetting { reason, erase: false };
    let held = memory(cx)?.forget(MemoryId(args.item), how).await?;
    Ok(match held {
        true => format!("Item {} is forgotten.", args.item),
        false => format!("Item {} was replaced or forgotten before.", args.item),
    }
    .into())
}
