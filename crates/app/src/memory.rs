//! What is remembered: which items are meant, files of items, and how they are shown.

use std::sync::Arc;

use posse_core::clock::{Clock, Millis};
use posse_core::job::JobId;
use posse_core::job::lease::WorkerId;
use posse_core::memory::{
    Became, MemoryFilter, MemoryId, MemoryItem, MemoryStanding, NewMemory, Origin, PERSON, Remembered, SHARED, Spot,
    Tier, block, check,
};
use posse_core::model::embedder::Embedder;
use posse_core::port::{MemoryQueries, MemoryRepository, Store};
use posse_core::session::turns::THREAD;
use posse_core::text::plural;
use posse_core::worker::{Embedding, EmbeddingError, Round};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::filter::since;
use crate::{Code, Error, jsonl};

/// Items of a file that are saved in one transaction.
pub const AT_ONCE: usize = 500;

/// Items that an export reads at once.
const PAGE: u32 = 500;

const KEYS: [&str; 11] =
    ["scope", "tag", "persona", "job", "tool", "source", "thread", "untrusted", "tier", "since", "until"];

/// The filter that terms make: `job=5 persona=scribe`, all of which must hold, with spaces between them or given one by
/// one. A value goes on to the next key, so that it may have spaces itself.
pub fn filter(terms: &[String], now: Millis) -> Result<MemoryFilter, String> {
    let mut filter = MemoryFilter::default();
    let known = format!("keys are {}", KEYS.join(", "));
    for term in terms {
        let mut parts: Vec<(&str, String)> = Vec::new();
        for word in term.split_whitespace() {
            match (word.split_once('='), parts.last_mut()) {
                (Some((key, value)), _) if KEYS.contains(&key) => parts.push((key, value.to_owned())),
                (_, Some((_, value))) => *value = format!("{value} {word}"),
                (Some((key, _)), None) => return Err(format!("'{key}' is no key; {known}")),
                (None, None) => return Err(format!("'{word}' is no key=value; {known}")),
            }
        }
        if parts.is_empty() {
            return Err(format!("it is empty; write key=value, {known}"));
        }
        for (key, value) in parts {
            take(&mut filter, key, value, now).map_err(|error| format!("{key}: {error}"))?;
        }
    }
    Ok(filter)
}

fn take(filter: &mut MemoryFilter, key: &str, value: String, now: Millis) -> Result<(), String> {
    if value.is_empty() {
        return Err("has no value".into());
    }
    fn once<T>(place: &mut Option<T>, value: T) -> Result<(), String> {
        match place.replace(value) {
            None => Ok(()),
            Some(_) => Err("is given twice; all must hold".into()),
        }
    }
    match key {
        "scope" => once(&mut filter.scopes, vec![value]),
        "tag" => {
            filter.tags.push(value);
            Ok(())
        }
        "persona" => once(&mut filter.author, value),
        "job" => {
            let id = value.parse().map_err(|_| format!("'{value}' is no number of a job"))?;
            once(&mut filter.job, JobId(id))
        }
        "tool" => once(&mut filter.tool, value),
        "source" => once(&mut filter.source, value),
        "thread" => once(&mut filter.thread, value),
        "untrusted" => match value.as_str() {
            "yes" => once(&mut filter.untrusted, true),
            "no" => once(&mut filter.untrusted, false),
            _ => Err(format!("'{value}' is neither yes nor no")),
        },
        "tier" => once(&mut filter.tier, value.parse()?),
        "since" => once(&mut filter.since, since(&value, now)?),
        _ => once(&mut filter.until, since(&value, now)?),
    }
}

/// An item with all that it was: the document of `posse memory show --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct MemoryDocument {
    /// The item.
    #[serde(flatten)]
    pub item: MemoryItem,
    /// What it was before it was changed and what became of it, oldest first, itself among them.
    pub history: Vec<MemoryItem>,
}

impl MemoryDocument {
    /// Reads an item.
    pub async fn read(queries: &dyn MemoryQueries, id: MemoryId) -> crate::Result<MemoryDocument> {
        let item = queries.memory_item(id).await?.ok_or_else(|| no_such(id))?;
        Ok(MemoryDocument { item, history: queries.memory_history(id).await? })
    }
}

/// That there is no such item.
pub fn no_such(id: MemoryId) -> Error {
    Error::new(Code::MemoryNotFound, format!("there is no item {id}; posse memory list shows those there are"))
}

/// An item in a file: a line of `posse memory export`, and what `posse memory import` reads.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryLine {
    /// What it says.
    pub text: String,
    /// Whose it is: a persona's role, or `shared`, which it is when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Words to find it by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// What else is known of it.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// The conversation it is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// Its place there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<i64>,
    /// Its tier, `core` of a version of a block; `archival` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// When it was said, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Millis>,
    /// The same for people, as an export has it; not read.
    #[serde(default, skip_serializing)]
    pub at_rfc3339: Option<String>,
    /// Who said it: a persona's role, or `person`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// Whether nobody vouches for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untrusted: bool,
    /// What its author had read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

impl From<MemoryItem> for MemoryLine {
    fn from(item: MemoryItem) -> MemoryLine {
        let (thread, place) = item.spot.map(|spot| (spot.thread, spot.place)).unzip();
        MemoryLine {
            text: item.text,
            scope: Some(item.scope),
            tier: Some(item.tier).filter(|tier| *tier != Tier::default()),
            tags: item.tags,
            metadata: item.metadata,
            thread,
            place,
            at: Some(item.created_at),
            at_rfc3339: None,
            author: Some(item.origin.author),
            untrusted: item.origin.untrusted,
            source: item.origin.source,
        }
    }
}

/// What a conversation of a file is called here: a session of that number may be here too, and another one.
fn from_elsewhere(thread: String) -> String {
    if thread.starts_with(THREAD) { format!("imported {thread}") } else { thread }
}

impl MemoryLine {
    /// The item that it becomes.
    pub fn item(self) -> Result<NewMemory, String> {
        let spot = match (self.thread, self.place) {
            (Some(thread), Some(place)) => Some(Spot { thread: from_elsewhere(thread), place }),
            (None, None) => None,
            (Some(_), None) => return Err("has a thread and no place in it; say both".into()),
            (None, Some(_)) => return Err("has a place and no thread; say both".into()),
        };
        let author = self.author.unwrap_or_else(|| PERSON.into());
        let new = NewMemory {
            scope: self.scope.unwrap_or_else(|| SHARED.into()),
            text: self.text,
            metadata: self.metadata,
            tier: self.tier.unwrap_or_default(),
            tags: self.tags,
            origin: Origin { author, untrusted: self.untrusted, source: self.source, ..Origin::default() },
            spot,
            at: self.at,
            ..NewMemory::default()
        };
        if new.scope.trim().is_empty() || new.scope.len() > 128 {
            return Err("has a scope that is no role; name a persona's role, or shared".into());
        }
        check(&new).map_err(|(field, why)| format!("has a {field} that {why}"))?;
        block::check(&new)?;
        Ok(new)
    }
}

/// What became of a file of items: the document of `posse memory import --json`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Imported {
    /// Items that were saved.
    pub saved: u64,
    /// Items that were known already.
    pub known: u64,
}

/// Items of a file on their way into the store, a few in a transaction. Who is interrupted imports the file again: what
/// is there already is known.
#[derive(Debug, Default)]
pub struct Import {
    waiting: Vec<NewMemory>,
    done: Imported,
    lines: u64,
}

impl Import {
    /// Takes a line; an empty one means nothing.
    pub async fn take(&mut self, line: &[u8], store: &dyn MemoryRepository, now: Millis) -> crate::Result<()> {
        self.lines += 1;
        let line = jsonl::without_mark(line);
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let item = jsonl::parse::<MemoryLine>(line).and_then(MemoryLine::item);
        let item = item.map_err(|why| {
            let before = plural(self.lines - 1, "line");
            Error::invalid(format!(
                "line {} {why}. What stands before it was imported ({before}); mend it and import the file again",
                self.lines
            ))
        });
        match item {
            Ok(item) => self.waiting.push(item),
            Err(error) => {
                self.save(store, now).await?;
                return Err(error);
            }
        }
        match self.waiting.len() >= AT_ONCE {
            true => self.save(store, now).await,
            false => Ok(()),
        }
    }

    /// Saves what is left, and tells what became of all.
    pub async fn end(mut self, store: &dyn MemoryRepository, now: Millis) -> crate::Result<Imported> {
        self.save(store, now).await?;
        Ok(self.done)
    }

    async fn save(&mut self, store: &dyn MemoryRepository, now: Millis) -> crate::Result<()> {
        let saved = store.remember(std::mem::take(&mut self.waiting), None, now).await?;
        for Remembered { became, .. } in saved {
            match became {
                Became::Saved => self.done.saved += 1,
                Became::Known | Became::Again => self.done.known += 1,
            }
        }
        Ok(())
    }
}

/// What became of the indexes: the document of `posse memory reindex --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Reindexed {
    /// How they stand now.
    #[serde(flatten)]
    pub standing: MemoryStanding,
    /// Items that were given a vector.
    pub embedded: u64,
    /// Why some have none, where that is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

/// Makes the indexes anew, and gives all items a vector that have none of the embedder; `progress` hears how many have been
/// given one.
pub async fn reindex(
    store: Arc<dyn Store>,
    embedder: Option<Arc<dyn Embedder>>,
    clock: Arc<dyn Clock>,
    process: u32,
    mut progress: impl FnMut(u64),
) -> crate::Result<Reindexed> {
    store.reindex_memory().await?;
    let mut embedded = 0;
    let why_not = match embedder {
        None => Some("there is no embedder".to_owned()),
        Some(embedder) => {
            let worker = WorkerId(format!("posse memory reindex {process}"));
            // A person chose it at this moment.
            let began = Some(clock.now());
            let mut embedding = Embedding::new(Arc::clone(&store), embedder, clock, worker, began);
            loop {
                match embedding.round().await {
                    Ok(Round::Made(some)) => {
                        embedded += some;
                        progress(embedded);
                    }
                    Ok(Round::Idle) if embedding.refused() > 0 => {
                        break Some(format!("the model did not take {}", plural(embedding.refused(), "item")));
                    }
                    Ok(Round::Idle) => break None,
                    Ok(Round::Elsewhere) => break Some("another process gives them theirs".into()),
                    Ok(Round::Other(space)) => break Some(format!("the vectors of {} are compared", space.model)),
                    Err(EmbeddingError::Store(error)) => return Err(error.into()),
                    Err(EmbeddingError::Embedder(error)) => break Some(error.message),
                }
            }
        }
    };
    Ok(Reindexed { standing: store.memory_standing().await?, embedded, why_not })
}

/// Hands all items that fit to `line`, newest first.
pub async fn export(
    queries: &dyn MemoryQueries,
    filter: &MemoryFilter,
    mut line: impl FnMut(MemoryLine) -> crate::Result<()>,
) -> crate::Result<()> {
    let mut before = MemoryId(i64::MAX);
    loop {
        let items = queries.memory_items(filter.clone(), before, PAGE).await?;
        let Some(last) = items.last() else { return Ok(()) };
        before = last.id;
        items.into_iter().try_for_each(|item| line(item.into()))?;
    }
}
