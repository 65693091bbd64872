//! `posse annotation`: remarks on jobs.

use posse_core::annotation::{Annotation, AnnotationFilter, SEARCHED_AT_MOST, Tagging, words_of};
use posse_core::clock::Millis;
use posse_core::job::JobId;

use super::lists::FullArgs;
use super::prelude::*;
use crate::output::table::{Cell, painted, plain};
use crate::output::text::{ago, count, one_line, visible};

#[derive(Subcommand)]
pub enum AnnotationCommand {
    /// Remarks on jobs, newest first
    List(ListArgs),
    /// Remarks that have these words, those with most of them first
    Search(SearchArgs),
    /// Change the tags of a remark
    Tag(TagArgs),
}

#[derive(Args)]
pub struct WhichArgs {
    /// Only with this tag, clarification_needed for instance; may be given more than once
    #[arg(long, short, value_name = "TAG")]
    tag: Vec<String>,
    /// Only about this job
    #[arg(long, value_name = "ID")]
    job: Option<i64>,
    /// Only by this author: a role, or person
    #[arg(long, value_name = "NAME")]
    author: Option<String>,
    #[command(flatten)]
    full: FullArgs,
    /// At most so many
    #[arg(long, short = 'n', default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
}

#[derive(Args)]
pub struct ListArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// Only with numbers below this one: the next page
    #[arg(long, value_name = "ID")]
    before: Option<i64>,
}

#[derive(Args)]
pub struct SearchArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// What to look for
    #[arg(required = true)]
    words: Vec<String>,
}

#[derive(Args)]
pub struct TagArgs {
    /// The remark's number
    id: i64,
    /// Tags to add
    #[arg(required_unless_present = "remove")]
    tags: Vec<String>,
    /// A tag to take away; may be given more than once
    #[arg(long, value_name = "TAG")]
    remove: Vec<String>,
}

pub async fn dispatch(cx: &Context, command: AnnotationCommand) -> Result<Exit> {
    match command {
        AnnotationCommand::List(ListArgs { which, before }) => {
            let (limit, full) = (which.limit as usize, which.full);
            // One more than is shown tells whether there is a next page.
            let filter = AnnotationFilter { before, limit: which.limit + 1, ..filter(which) };
            let mut found = cx.read(async |store| store.find_annotations(filter).await).await?;
            let next = (found.len() > limit).then(|| found[limit - 1].id);
            found.truncate(limit);
            shown(cx, &found, full, next, "no such remarks; posse job annotate ID \"<remark>\" makes one")
        }
        AnnotationCommand::Tag(TagArgs { id, tags, remove }) => {
            let no_such = || not_found(format!("there is no remark {id}; posse annotation list shows those there are"));
            let tagging = Tagging { add: tags, remove };
            tagging.of(&[]).map_err(usage)?;
            let store = wire::open_existing(&cx.plain_settings()?, no_such)?;
            let tagged = store.tag_annotation(id, tagging, None).await?.ok_or_else(no_such)?;
            let tags = if tagged.tags.is_empty() { "no tags".into() } else { tagged.tags.join(", ") };
            cx.out.say(&tagged, visible(&format!("remark {id}: {tags}")))
        }
        AnnotationCommand::Search(SearchArgs { which, words }) => {
            let words = words_of(&words.join(" "));
            if words.is_empty() {
                return Err(usage("there is no word to look for"));
            }
            let full = which.full;
            let filter = AnnotationFilter { words, ..filter(which) };
            let found = cx.read(async |store| store.find_annotations(filter).await).await?;
            if !cx.out.json {
                let most = count(u64::from(SEARCHED_AT_MOST));
                cx.out.hint(format!("the newest {most} that fit otherwise were searched"));
            }
            shown(cx, &found, full, None, "no remark has any of these words")
        }
    }
}

fn filter(WhichArgs { tag, job, author, limit, .. }: WhichArgs) -> AnnotationFilter {
    AnnotationFilter { tags: tag, job: job.map(JobId), author, limit, ..AnnotationFilter::default() }
}

fn shown(cx: &Context, found: &[Annotation], full: FullArgs, next: Option<i64>, none: &str) -> Result<Exit> {
    let titles = ["id", "job", "by", "saved", "tags", "remark"];
    let now = wire::now();
    if cx.out.json {
        return cx.out.page(("annotations", full.full), found, next, none, &titles, |note| row(cx, note, now));
    }
    cx.out.page(("annotations", full.full), found, None, none, &titles, |note| row(cx, note, now))?;
    if let Some(next) = next {
        cx.out.hint(format!("more: --before {next}"));
    }
    Ok(Exit::Ok)
}

fn row(cx: &Context, note: &Annotation, now: Millis) -> Vec<Cell> {
    let paint = cx.out.paint;
    vec![
        plain(note.id.to_string()),
        plain(note.job.to_string()),
        plain(one_line(&note.author, 24)),
        plain(ago(note.created_at, now)),
        painted(one_line(&note.tags.join(", "), 60), move |t| paint.cyan(t)),
        plain(one_line(&note.text, 200)),
    ]
}
