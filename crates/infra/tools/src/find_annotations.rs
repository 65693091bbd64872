//! `annotation_list`, `annotation_search` and `annotation_tag`: the remarks on jobs that are there already.
//!
//! What they give was written by people and by agents, which read what strangers wrote: it is shown as data.

use std::fmt::Write as _;

use posse_core::annotation::{Annotation, AnnotationFilter, words_of};
use posse_core::id::JobId;
use posse_core::run::results::{is_data, quoted};
use posse_core::text::{plural, rfc3339, visible_line};
use posse_core::tool::{EffectClass, Stored, ToolContext, ToolError, ToolOutput, Writes};
use schemars::JsonSchema;
use serde::Deserialize;

use super::FnTool;
use super::failure::{failed, invalid, missing};

/// Remarks that one call gives.
const PAGE: usize = 20;

/// Bytes that are shown of each of several remarks, and of one alone.
const OF_MANY: usize = 1000;
const OF_ONE: usize = 16 * 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListArgs {
    /// The number of the job whose remarks to list; 0 for those of all jobs. This job when absent.
    #[serde(default)]
    job: Option<i64>,
    /// Only remarks with this tag.
    #[serde(default)]
    tag: Option<String>,
    /// Only the remark of this number, with all of its text.
    #[serde(default)]
    id: Option<i64>,
    /// Only remarks with numbers below this one: the next page.
    #[serde(default)]
    before: Option<i64>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SearchArgs {
    /// Words to look for, separated by spaces. Remarks with most of them come first.
    #[schemars(length(min = 1))]
    words: String,
    /// Only remarks with this tag.
    #[serde(default)]
    tag: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TagArgs {
    /// The number of the remark.
    #[schemars(range(min = 1))]
    id: i64,
    /// Words that it is found by from now on, beside those it has.
    #[schemars(length(min = 1))]
    tags: Vec<String>,
}

/// Only people take tags away: by one of them they may be looking for what needs them.
pub(super) fn tag() -> FnTool {
    FnTool::new(
        "annotation_tag",
        "Adds tags to a remark that is saved already, so that others find it by them.",
        EffectClass::Idempotent,
        |cx: ToolContext, TagArgs { id, tags }| async move {
            let add: Vec<_> = tags.iter().map(|tag| tag.trim().to_owned()).collect();
            let told = visible_line(&format!("Remark {id} has the tags {} too.", add.join(", ")));
            match stored(&cx)?.0.tag(id, add).await.map_err(invalid)? {
                Some(_) => Ok(told.into()),
                None => Err(missing(no_such(&format!("of number {id}")))),
            }
        },
    )
    .writing(Writes::Nothing)
    .in_own_words()
}

pub(super) fn list() -> FnTool {
    FnTool::new(
        "annotation_list",
        "Lists remarks that agents and people saved about this job or others, newest first.",
        EffectClass::Pure,
        |cx: ToolContext, ListArgs { job, tag, id, before }| async move {
            let (job, about) = match (id, job) {
                (Some(_), _) => (None, "of that number".into()),
                (None, Some(0)) => (None, "about any job".into()),
                (None, Some(job)) => (Some(JobId(job)), format!("about job {job}")),
                (None, None) => (Some(cx.job), "about this job".into()),
            };
            let filter = AnnotationFilter { id, job, before, ..filter(tag.as_deref())? };
            let mut found = find(&cx, filter).await?;
            let has_more = found.len() > PAGE;
            found.truncate(PAGE);
            let more = found.last().filter(|_| has_more).map(|last| format!("annotation_list with before {}", last.id));
            told(&found, &about, "newest first", more)
        },
    )
    .writing(Writes::Nothing)
}

pub(super) fn search() -> FnTool {
    FnTool::new(
        "annotation_search",
        "Finds remarks that agents and people saved about any job, by words in their text or tags.",
        EffectClass::Pure,
        |cx: ToolContext, SearchArgs { words, tag }| async move {
            let words = words_of(&words);
            if words.is_empty() {
                return Err(invalid("words has no word in it: name one or more that the remarks may have"));
            }
            let filter = AnnotationFilter { words, ..filter(tag.as_deref())? };
            let mut found = find(&cx, filter).await?;
            found.truncate(PAGE);
            told(&found, "with such words", "the nearest first", None)
        },
    )
    .writing(Writes::Nothing)
}

fn filter(tag: Option<&str>) -> Result<AnnotationFilter, ToolError> {
    let tags: Vec<_> = tag.map(|tag| tag.trim().to_owned()).filter(|tag| !tag.is_empty()).into_iter().collect();
    // One more than is shown tells whether there is a next page.
    Ok(AnnotationFilter { tags, limit: PAGE as u32 + 1, ..AnnotationFilter::default() })
}

fn stored(cx: &ToolContext) -> Result<&Stored, ToolError> {
    cx.remarks.as_ref().ok_or_else(|| failed("There are no remarks here: this call is for no job of a database"))
}

fn no_such(which: &str) -> String {
    format!(
        "there is no remark {which}; annotation_list with job 0 lists those of all jobs, annotation_search finds them by \
         words"
    )
}

async fn find(cx: &ToolContext, filter: AnnotationFilter) -> Result<Vec<Annotation>, ToolError> {
    stored(cx)?.0.find(filter).await.map_err(|why| failed(format!("the remarks cannot be read: {why}")))
}

fn told(found: &[Annotation], which: &str, order: &str, more: Option<String>) -> Result<ToolOutput, ToolError> {
    if found.is_empty() {
        return Err(missing(no_such(which)));
    }
    let most = if found.len() == 1 { OF_ONE } else { OF_MANY };
    let mut told = format!("{} {which}, {order}. {}\n", plural(found.len() as u64, "remark"), is_data());
    for Annotation { id, job, author, text, tags, created_at } in found {
        let tags = if tags.is_empty() { String::new() } else { format!(", tags {}", tags.join(", ")) };
        let at = rfc3339(*created_at).map(|at| format!(", {at}")).unwrap_or_default();
        let head = format!("Remark {id} about job {job}, by {author}{at}{tags}");
        let end = text.floor_char_boundary(most);
        let _ = write!(told, "\n{}\n{}\n", visible_line(&head), quoted(&text[..end]));
        if end < text.len() {
            let all = plural(text.len() as u64, "byte");
            let rest =
                if most == OF_MANY { format!("; annotation_list with id {id} shows more") } else { String::new() };
            let _ = writeln!(told, "(the first {end} of {all}{rest})");
        }
    }
    if let Some(more) = more {
        let _ = write!(told, "\nThere are more: {more} lists them.");
    }
    Ok(told.trim_end().to_owned().into())
}
