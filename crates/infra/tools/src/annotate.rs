//! `annotate`: a remark on the job, for people to find later.

use posse_core::annotation::{MAX_TEXT_BYTES, NewAnnotation, check_tag, check_text};
use posse_core::text::has_too_many;
use posse_core::tool::{EffectClass, ToolContext, ToolError, ToolOutput};
use schemars::JsonSchema;
use serde::Deserialize;

use super::FnTool;
use super::failure::{invalid, over_limit};

/// What an agent finds by one of more tags than these, nobody finds; people may set as many as they like.
const MAX_TAGS: usize = 16;

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
    Ok(ToolOutput { text: saved, annotations: vec![NewAnnotation { text: text.to_owned(), tags }] })
}

#[cfg(test)]
mod tests {
    use posse_core::annotation::MAX_TAG_BYTES;
    use posse_core::tool::ToolErrorCategory;

    use super::*;

    fn with(text: &str, tags: &[&str]) -> Result<ToolOutput, ToolError> {
        annotate(Args { text: text.into(), tags: tags.iter().map(|tag| (*tag).to_owned()).collect() })
    }

    #[test]
    fn the_remark_comes_back_as_a_value() {
        let output = with(" Price is unclear. ", &["price", " price", "doubt"]).unwrap();
        assert_eq!(output.text, "Saved with the tags price, doubt.");
        let tags = vec!["price".into(), "doubt".into()];
        assert_eq!(output.annotations, [NewAnnotation { text: "Price is unclear.".into(), tags }]);
    }

    #[test]
    fn empty_and_endless_remarks_are_refused() {
        let (long, many) = ("x".repeat(MAX_TEXT_BYTES + 1), vec!["t"; MAX_TAGS + 1]);
        assert!(with(" \n", &[]).is_err());
        let refused = with(&long, &[]).unwrap_err();
        assert_eq!(refused.category, ToolErrorCategory::LimitExceeded, "{}", refused.message);
        assert!(refused.message.ends_with("Shorten it"), "{}", refused.message);
        assert!(with("x", &[" "]).is_err());
        assert!(with("x", &["a\nb"]).is_err());
        assert!(with(&long[1..], &["t".repeat(MAX_TAG_BYTES).as_str()]).is_ok(), "as people may");
        assert!(with("a\0b", &[]).is_err());
        assert!(with("x", &many).is_ok(), "one tag, many times");
        let different: Vec<_> = (0..=MAX_TAGS).map(|n| n.to_string()).collect();
        assert!(with("x", &different.iter().map(String::as_str).collect::<Vec<_>>()).is_err());
    }
}
