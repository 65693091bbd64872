//! `core_memory_edit`: what an agent has before it from the beginning of each of its tasks.

use posse_core::memory::block::{BlockEdit, CORE_MEMORY_EDIT, Change, edited};
use posse_core::memory::check_text;
use posse_core::tool::{EffectClass, ToolContext, ToolError, ToolOutput, Writes};
use schemars::JsonSchema;
use serde::Deserialize;

use super::FnTool;
use super::failure::invalid;
use super::memory::{memory, origin};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    /// `profile` is about the people you work for, `notes` is your own.
    block: String,
    /// What is to stand in it, in short lines. Empty removes what is replaced.
    text: String,
    /// The words of the block that the text takes the place of, exactly as they stand there. Without it the text is added.
    #[serde(default)]
    replaces: Option<String>,
}

/// The same call changes a block once, whatever dies: it is known by its effect key.
pub(super) fn tool() -> FnTool {
    FnTool::new(
        CORE_MEMORY_EDIT,
        "Changes a block of text that you have before you in all later tasks. Only for what matters in nearly every task, \
         such as a person's name or how they like their answers; save anything else with memory_save.",
        EffectClass::Idempotent,
        |cx: ToolContext, args: Args| async move { edit(&cx, args).await },
    )
    .writing(Writes::Nothing)
    .in_own_words()
}

async fn edit(cx: &ToolContext, args: Args) -> Result<ToolOutput, ToolError> {
    let text = args.text.trim().to_owned();
    let replaces = args.replaces.filter(|old| !old.trim().is_empty());
    if replaces.is_none() || !text.is_empty() {
        check_text(&text).map_err(|why| invalid(format!("the text {why}")))?;
    }
    let change = match replaces {
        Some(old) => Change::Replace(old, text),
        None => Change::Add(text),
    };
    let edit = BlockEdit { change, origin: origin(cx, CORE_MEMORY_EDIT), effect_key: Some(cx.effect_key.clone()) };
    let made = memory(cx)?.edit_block(args.block.trim(), edit).await?;
    Ok(edited(&made).into())
}
