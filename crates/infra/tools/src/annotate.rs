//! `annotate`: a remark on the job, for people to find later.

use posse_core::annotation::{MAX_TAGS, MAX_TEXT_BYTES, NewAnnotation, check_tag, check_text};
use posse_core::text::has_too_many;
use posse_core::tool::{EffectClass, ToolContext, ToolError, ToolOutput, Writes};
use schemars::JsonSchema;
use serde::Deserialize;

use super::FnTool;
use super::failure::{invalid, over_limit};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    /// The remark.
    #[schemars(length(min = 1))]
    text: String,
    /// Words to find it by.
    #[serde(default)]
    tags: Vec<String>,
}

/// It may run again: nothing happens outside before the worker commits the remark together with
/// the result of the call.
pub(super) fn tool() -> FnTool {
    FnTool::new(
        "annotate",
        "Saves a remark about this job for the people who look at it: a finding, a doubt, a decision.",
        EffectClass::Idempotent,
        |_cx: ToolContext, args| async { annotate(args) },
    )
    .writing(Writes::Nothing)
    .in_own_words()
}

fn annotate(args: Args) -> Result<ToolOutput, ToolError> {
    let text = args.text.trim();
    if text.len() > MAX_TEXT_BYTES {
        let too_many = has_too_many(text.len(), "byte", MAX_TEXT_BYTES);
        return Err(over_limit(format!("the text {too_many}. Shorten it")));
    }
    check_text(text).map_err(|why| invalid(format!("the text of the annotation {why}")))?;
    let mut tags: Vec<String> = Vec::new();
    for tag in args.tags.iter().map(|tag| tag.trim()) {
        check_tag(tag).map_err(|why| invalid(format!("each tag {why}")))?;
        if tags.iter().any(|known| known == tag) {
            continue;
        }
        if tags.len() == MAX_TAGS {
            return Err(over_limit(format!("there are more tags than {MAX_TAGS}, the limit")));
        }
        tags.push(tag.to_owned());
    }
    let saved = if tags.is_empty() { "Saved.".into() } else { format!("Saved with the tags {}.", tags.join(", ")) };
    let annotations = vec![NewAnnotation { text: text.to_owned(), tags }];
    Ok(ToolOutput { text: saved, annotations, ..ToolOutput::default() })
}
