//! `posse memory`: what agents and people remember.

use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use posse_app::memory::{self, Import, MemoryDocument, Reindexed, no_such};
use posse_app::{Code, filter};
use posse_core::clock::Millis;
use posse_core::memory::told::heading;
use posse_core::memory::{
    Became, Forgetting, Hit, MAX_TEXT_BYTES, MemoryFilter, MemoryFound, MemoryId, MemoryItem, MemorySearch, NewMemory,
    Origin, PERSON, Remembered, Revision, SHARED, check,
};
use posse_core::port::Store;
use posse_core::worker::{Questions, search_memory};
use posse_infra::process::SystemClock;
use serde_json::{Map, Value};

use super::enqueue::read_words;
use super::lists::FullArgs;
use super::memory_block;
use super::prelude::*;
use crate::embedder;
use crate::output::table::{Cell, painted, plain};
use crate::output::text::{ago, count, excerpt, moment, one_line, plural, visible};

/// Items given a vector, after which it is told how many there are.
const TOLD_EVERY: u64 = 1_000;

/// Longer lines of a file are no items.
const MAX_LINE: u64 = 256 * 1024;

#[derive(Subcommand)]
pub enum MemoryCommand {
    /// Save something for agents to find
    Add(AddArgs),
    /// Search by words, or by a question
    Search(SearchArgs),
    /// Items, newest first
    List(ListArgs),
    /// One item: what it says, where it comes from, what it was before
    Show {
        /// Its number
        id: i64,
    },
    /// Change an item; what it said before stays to be read
    Edit(EditArgs),
    /// Forget items for good: their texts are erased, and those of the items that they replaced
    Forget(ForgetArgs),
    /// Save the items of a file, one JSON object in a line; what is known already is not saved twice
    Import {
        /// The file; `-` reads standard input
        file: PathBuf,
    },
    /// Items as JSON lines, which import reads
    Export(WhichArgs),
    /// Make the indexes anew, and give all items a vector, so that they are found by their meaning
    Reindex,
    /// Blocks of text that runs have before them from their beginning
    #[command(subcommand)]
    Block(memory_block::BlockCommand),
}

#[derive(Args)]
pub struct AddArgs {
    /// What it says; `-` reads it from standard input
    #[arg(required = true)]
    text: Vec<String>,
    /// Whose it is: a persona's role; every persona's when absent
    #[arg(long, default_value = SHARED, value_name = "ROLE", value_parser = super::role)]
    scope: String,
    /// Words to find it by; may be given more than once
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// What else is known of it; may be given more than once
    #[arg(long, value_name = "KEY=VALUE", value_parser = filter::meta)]
    meta: Vec<(String, String)>,
}

/// Which items
#[derive(Args)]
pub struct WhichArgs {
    /// Items for which all of this holds: `job=5 persona=scribe`. Keys: scope, tag, persona, job, tool, source, thread,
    /// untrusted, tier, since, until
    #[arg(id = "filter", long = "where", value_name = "KEY=VALUE")]
    terms: Vec<String>,
}

impl WhichArgs {
    fn filter(&self) -> Result<MemoryFilter> {
        memory::filter(&self.terms, wire::now()).map_err(|error| usage(format!("--where: {error}")))
    }
}

#[derive(Args)]
pub struct SearchArgs {
    /// What is searched for
    #[arg(required = true)]
    query: Vec<String>,
    #[command(flatten)]
    which: WhichArgs,
    /// At most so many
    #[arg(long, short = 'n', default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=200))]
    limit: u32,
}

#[derive(Args)]
pub struct ListArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// Also those that were replaced or forgotten
    #[arg(long)]
    all: bool,
    /// At most so many
    #[arg(long, short = 'n', default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Only with numbers below this one: the next page
    #[arg(long, value_name = "ID")]
    before: Option<i64>,
    #[command(flatten)]
    full: FullArgs,
}

#[derive(Args)]
pub struct EditArgs {
    /// The item's number
    id: i64,
    /// What it says from now on; `-` reads it from standard input. Without it the text stays, and you vouch for it
    text: Vec<String>,
    /// The words it is found by from now on; may be given more than once
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// What else is known of it from now on; may be given more than once
    #[arg(long, value_name = "KEY=VALUE", value_parser = filter::meta)]
    meta: Vec<(String, String)>,
}

#[derive(Args)]
pub struct ForgetArgs {
    /// The items' numbers
    ids: Vec<i64>,
    /// All items for which this holds, replaced ones too: `job=5`. Keys: scope, tag, persona, job, tool, source, thread,
    /// untrusted, tier, since, until
    #[arg(long = "where", value_name = "KEY=VALUE", conflicts_with = "ids")]
    terms: Vec<String>,
    /// Why; kept where the item was
    #[arg(long, default_value = "a person had it forgotten", value_name = "TEXT")]
    reason: String,
}

pub async fn dispatch(cx: &Context, command: MemoryCommand) -> Result<Exit> {
    match command {
        MemoryCommand::Add(args) => add(cx, args).await,
        MemoryCommand::Search(args) => search(cx, args).await,
        MemoryCommand::List(args) => list(cx, args).await,
        MemoryCommand::Show { id } => show(cx, MemoryId(id)).await,
        MemoryCommand::Edit(args) => edit(cx, args).await,
        MemoryCommand::Forget(args) => forget(cx, args).await,
        MemoryCommand::Import { file } => import(cx, &file).await,
        MemoryCommand::Export(args) => export(cx, args).await,
        MemoryCommand::Reindex => reindex(cx).await,
        MemoryCommand::Block(command) => memory_block::dispatch(cx, command).await,
    }
}

fn by_person() -> Origin {
    Origin { author: PERSON.into(), ..Origin::default() }
}

fn object(meta: Vec<(String, String)>) -> Map<String, Value> {
    meta.into_iter().map(|(key, value)| (key, Value::String(value))).collect()
}

async fn add(cx: &Context, args: AddArgs) -> Result<Exit> {
    let text = read_words("text", args.text, MAX_TEXT_BYTES)?.trim().to_owned();
    let (scope, metadata) = (args.scope, object(args.meta));
    let new = NewMemory { scope, text, metadata, tags: args.tag, origin: by_person(), ..NewMemory::default() };
    check(&new).map_err(|(field, why)| usage(format!("the {field} {why}")))?;
    let saved = wire::open_store(&cx.plain_settings()?)?.remember(vec![new], None, wire::now()).await?;
    let Some(saved) = saved.first() else { return Err(fail(Code::Failed, "nothing was saved")) };
    told(cx, saved)
}

fn told(cx: &Context, Remembered { id, became }: &Remembered) -> Result<Exit> {
    let line = match became {
        Became::Saved => format!("saved as item {id}"),
        Became::Known | Became::Again => format!("known already as item {id} (posse memory show {id})"),
    };
    cx.out.say(&json!({"id": id, "became": became}), line)
}

async fn search(cx: &Context, args: SearchArgs) -> Result<Exit> {
    let (text, filter) = (args.query.join(" "), args.which.filter()?);
    let what = MemorySearch { text, filter, limit: args.limit, ..MemorySearch::default() };
    let embedder = embedder::of_process(&cx.plain_settings()?).map(|chosen| chosen.embedder);
    let questions = embedder.map(|embedder| Questions::new(embedder, Arc::new(SystemClock)));
    let found = cx.read(async |store| search_memory(store, questions.as_ref(), what).await).await?;
    if cx.out.json {
        return cx.out.document(&found);
    }
    let MemoryFound { items, words, left_out, too_many, newest, not_loaded, meaning } = found;
    let now = wire::now();
    let paint = cx.out.paint;
    if items.is_empty() {
        cx.out.line("nothing is remembered of that")?;
    }
    if newest && !items.is_empty() {
        cx.out.line(paint.dim("there is no word to search for; the newest:"))?;
    }
    for Hit { item, score, words, around, likeness, .. } in &items {
        let title = paint.bold(visible(&heading(item, now)));
        let alike = likeness.map(|likeness| format!(", {likeness:.2} alike")).unwrap_or_default();
        cx.out.line(format!("{title}  {}", paint.dim(format!("{score:.2}{alike}"))))?;
        for line in excerpt(&item.text, cx.out.width.saturating_sub(2), 8, false).lines() {
            cx.out.line(format!("  {line}"))?;
        }
        let beside = if around.is_empty() { String::new() } else { format!("; beside it: {}", around.join(" ")) };
        if !words.is_empty() || !around.is_empty() {
            cx.out.line(paint.dim(visible(&format!("  words: {}{beside}", words.join(" ")))))?;
        }
    }
    if !left_out.is_empty() {
        cx.out.hint(format!("searched for {}; left out: {}", visible(&words.join(" ")), visible(&left_out.join(" "))));
    }
    if too_many > 0 {
        cx.out.hint(format!("of the question were left out: {} more", plural(too_many as u64, "word")));
    }
    if let Some(why_not) = &meaning.why_not {
        cx.out.hint(format!("found by words alone: {}", visible(why_not)));
    }
    if meaning.words_alone > 0 {
        let (what, model) = (plural(meaning.words_alone, "item"), meaning.model.as_deref().unwrap_or("its model"));
        cx.out.hint(format!("{what} without a vector of {} found by words alone", visible(model)));
    }
    if not_loaded > 0 {
        let what = plural(not_loaded, "item");
        cx.out.warn(format!("not looked at, because texts are sealed and no more of them are held in memory: {what}"));
    }
    Ok(Exit::Ok)
}

async fn list(cx: &Context, args: ListArgs) -> Result<Exit> {
    let filter = MemoryFilter { ended: args.all, ..args.which.filter()? };
    let before = MemoryId(args.before.unwrap_or(i64::MAX));
    let mut items = cx.read(async |store| store.memory_items(filter, before, args.limit + 1).await).await?;
    let more = items.len() > args.limit as usize;
    items.truncate(args.limit as usize);
    let next = items.last().filter(|_| more).map(|item| item.id.0);
    let now = wire::now();
    let titles = ["ID", "SCOPE", "BY", "SAVED", "TAGS", "TEXT"];
    let none = "nothing is remembered; posse memory add \"<text>\" saves something";
    if cx.out.json {
        return cx.out.list("items", posse_app::json::listed(&items, args.full.full)?, next);
    }
    cx.out.list_or_table(("items", args.full.full), &items, none, &titles, |item| row(cx, item, now))?;
    if let Some(next) = next {
        cx.out.hint(format!("posse memory list --before {next} shows more"));
    }
    Ok(Exit::Ok)
}

fn row(cx: &Context, item: &MemoryItem, now: Millis) -> Vec<Cell> {
    let paint = cx.out.paint;
    let text = match (&item.superseded_by, item.ended_at) {
        (Some(by), _) => format!("(replaced by {by}) {}", item.text),
        (None, Some(_)) => format!("(forgotten) {}", item.text),
        (None, None) if item.origin.untrusted => format!("(untrusted) {}", item.text),
        (None, None) => item.text.clone(),
    };
    let ended = item.ended_at.is_some();
    vec![
        plain(item.id.to_string()),
        plain(one_line(&item.scope, 24)),
        plain(one_line(&item.origin.author, 24)),
        plain(ago(item.created_at, now)),
        plain(one_line(&item.tags.join(" "), 24)),
        painted(one_line(&text, 200), move |t| if ended { paint.dim(t) } else { t.to_owned() }),
    ]
}

async fn show(cx: &Context, id: MemoryId) -> Result<Exit> {
    let store = wire::open_reader(&cx.plain_settings()?)?.ok_or_else(|| no_such(id))?;
    let shown = MemoryDocument::read(&*store, id).await?;
    if cx.out.json {
        return cx.out.document(&shown);
    }
    let (MemoryDocument { item, history }, now) = (shown, wire::now());
    cx.out.line(cx.out.paint.bold(visible(&heading(&item, now))))?;
    for line in visible(&item.text).lines() {
        cx.out.line(format!("  {line}"))?;
    }
    let metadata = (!item.metadata.is_empty()).then(|| Value::Object(item.metadata.clone()).to_string());
    let spot = item.spot.as_ref().map(|spot| format!("{}, place {}", spot.thread, spot.place));
    let ended = match (&item.superseded_by, item.ended_at, &item.reason) {
        (Some(by), ..) => Some(format!("replaced by item {by}")),
        (None, Some(at), reason) => {
            let why = reason.as_deref().unwrap_or("for no reason that is known");
            Some(format!("forgotten {}: {why}", ago(at, now)))
        }
        (None, None, _) => None,
    };
    cx.out.fields([
        ("scope", Some(visible(&item.scope))),
        ("saved", Some(format!("{} by {}", moment(item.created_at), visible(&item.origin.author)))),
        ("with", item.origin.tool.clone()),
        ("thread", spot.map(|spot| visible(&spot))),
        ("metadata", metadata.map(|json| visible(&json))),
        ("ended", ended.map(|ended| visible(&ended))),
    ])?;
    if history.len() > 1 {
        cx.out.line(cx.out.paint.dim("  history:"))?;
        for MemoryItem { id, version, text, created_at, .. } in &history {
            let when = ago(*created_at, now);
            cx.out.line(format!("    {version}. item {id}, {when}: {}", one_line(text, 160)))?;
        }
    }
    Ok(Exit::Ok)
}

async fn edit(cx: &Context, args: EditArgs) -> Result<Exit> {
    let id = MemoryId(args.id);
    let text = match args.text.is_empty() {
        true => None,
        false => Some(read_words("text", args.text, MAX_TEXT_BYTES)?.trim().to_owned()),
    };
    let given = |list: Vec<String>| (!list.is_empty()).then_some(list);
    let to = Revision {
        text: text.clone(),
        tags: given(args.tag),
        metadata: (!args.meta.is_empty()).then(|| object(args.meta)),
        origin: by_person(),
        effect_key: None,
    };
    let would_be = NewMemory {
        text: text.unwrap_or_else(|| "unchanged".into()),
        tags: to.tags.clone().unwrap_or_default(),
        metadata: to.metadata.clone().unwrap_or_default(),
        ..NewMemory::default()
    };
    check(&would_be).map_err(|(field, why)| usage(format!("the {field} {why}")))?;
    let store = existing(cx, id).await?;
    let revised = store.revise_memory(id, to, None, wire::now()).await?;
    let line = match revised.became {
        Became::Known => format!("item {id} is replaced by item {}, which says so already", revised.id),
        Became::Saved | Became::Again => format!("item {id} is now item {}", revised.id),
    };
    cx.out.say(&json!({"id": revised.id, "became": revised.became, "supersedes": id}), line)
}

/// The database, where the item is.
async fn existing(cx: &Context, id: MemoryId) -> Result<Arc<dyn Store>> {
    let store = wire::open_existing(&cx.plain_settings()?, || no_such(id))?;
    store.memory_item(id).await?.ok_or_else(|| no_such(id))?;
    Ok(store)
}

async fn forget(cx: &Context, args: ForgetArgs) -> Result<Exit> {
    let how = Forgetting { reason: args.reason, erase: true };
    let forgotten = match args.terms.is_empty() {
        true => {
            let ids: Vec<_> = args.ids.into_iter().map(MemoryId).collect();
            let mut store = None;
            for id in &ids {
                store = Some(existing(cx, *id).await?);
            }
            let Some(store) = store else { return Err(usage("name the items to be forgotten, or use --where")) };
            store.forget_memory(ids, how, None, wire::now()).await?
        }
        false => {
            let filter = MemoryFilter { ended: true, ..WhichArgs { terms: args.terms }.filter()? };
            let nothing = || fail(Code::DatabaseNotFound, "there is no database yet, and nothing is remembered");
            let store = wire::open_existing(&cx.plain_settings()?, nothing)?;
            store.forget_memory_like(filter, how, wire::now()).await?
        }
    };
    cx.out.say(&json!({"forgotten": forgotten}), format!("{} forgotten", plural(forgotten, "item")))
}

async fn import(cx: &Context, file: &Path) -> Result<Exit> {
    let from: Box<dyn Read + Send> = match file.to_str() {
        Some("-") => Box::new(std::io::stdin()),
        _ => {
            let opened = std::fs::File::open(file);
            Box::new(opened.map_err(|error| usage(format!("{} cannot be read: {error}", file.display())))?)
        }
    };
    let store = wire::open_store(&cx.plain_settings()?)?;
    let (mut from, mut import, mut line) = (BufReader::new(from), Import::default(), Vec::new());
    loop {
        line.clear();
        let read = from.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut line);
        let read = read.map_err(|error| usage(format!("{} cannot be read: {error}", file.display())))?;
        if read == 0 {
            break;
        }
        if line.len() as u64 > MAX_LINE {
            let most = plural(MAX_LINE, "byte");
            return Err(usage(format!("a line of {} has more than {most}, the most allowed", file.display())));
        }
        import.take(&line, &*store, wire::now()).await?;
    }
    let done = import.end(&*store, wire::now()).await?;
    let line = format!("{} saved, {} known already", plural(done.saved, "item"), count(done.known));
    cx.out.say(&done, line)
}

async fn export(cx: &Context, args: WhichArgs) -> Result<Exit> {
    let filter = args.filter()?;
    let Some(store) = wire::open_reader(&cx.plain_settings()?)? else { return Ok(Exit::Ok) };
    let mut unwritten = None;
    let done = memory::export(&*store, &filter, |line| {
        cx.out.json_line(&line).map_err(|error| {
            let told = posse_app::Error::new(Code::Failed, error.to_string());
            unwritten = Some(error);
            told
        })
    });
    let done = done.await;
    match unwritten {
        Some(error) => Err(error),
        None => Ok(done.map(|()| Exit::Ok)?),
    }
}

async fn reindex(cx: &Context) -> Result<Exit> {
    let nothing = || fail(Code::DatabaseNotFound, "there is no database yet, and nothing is remembered");
    let store = wire::open_existing(&cx.plain_settings()?, nothing)?;
    let embedder = embedder::of_process(&cx.plain_settings()?).map(|chosen| chosen.embedder);
    let mut told = 0;
    let progress = |embedded| {
        if embedded >= told + TOLD_EVERY {
            told = embedded;
            cx.out.hint(format!("{} given a vector", plural(embedded, "item")));
        }
    };
    let done = memory::reindex(store, embedder, Arc::new(SystemClock), std::process::id(), progress).await?;
    let Reindexed { standing, embedded, why_not } = &done;
    let mut line = format!("the words of {} are indexed", plural(standing.items, "item"));
    if let Some(space) = standing.space.as_ref().filter(|_| why_not.is_none() || *embedded > 0) {
        let with = plural(standing.items.saturating_sub(standing.without_vector), "vector");
        line += &format!(", and {with} of {}, {} of them new", visible(&space.model), count(*embedded));
    }
    if let Some(why_not) = why_not {
        line += &format!("; there are no more vectors: {}", visible(why_not));
    }
    cx.out.say(&done, line)
}
