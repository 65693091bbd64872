//! What remembered items mean: their vectors, made in the background, and those of questions.
//!
//! Saving never waits for a model. Of the processes on a database one at a time makes vectors, some items in a
//! transaction, in the order in which they were saved; one that dies leaves items without, and the next goes on there.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tracing::{info, warn};

use crate::clock::{Clock, Millis};
use crate::job::lease::WorkerId;
use crate::memory::meaning::{Meaning, Space};
use crate::memory::{MemoryFound, MemoryId, MemorySearch, ToEmbed};
use crate::model::embedder::{Again, EmbedError, Embedder};
use crate::port::{MemoryQueries, RepositoryError, Store};

/// Items in one request and one transaction.
const BATCH: u32 = 32;

/// For how long a process takes the duty at a time.
const DUTY_MS: Millis = 120_000;

/// What only one process does at a time.
const DUTY: &str = "embed";

/// Between two tries where nothing is known of when to try again.
pub(super) const REST: Duration = Duration::from_secs(30);

/// Texts that are refused one after the other before it is their model that is at fault.
const REFUSED_AT_MOST: usize = 3;

/// How long a search waits for what its question means.
const PATIENCE: Duration = Duration::from_secs(4);

/// The embedder of a process.
#[derive(Clone)]
pub struct ChosenEmbedder {
    /// It. Not asked before there is something to be embedded.
    pub embedder: Arc<dyn Embedder>,
    /// Whether somebody chose it. One that nobody chose takes no other's place.
    pub is_chosen: bool,
}

/// Makes vectors of items.
pub struct Embedding {
    store: Arc<dyn Store>,
    embedder: Arc<dyn Embedder>,
    clock: Arc<dyn Clock>,
    worker: WorkerId,
    /// When the process began, where somebody chose its embedder.
    began: Option<Millis>,
    /// Whether there ever was anything to embed.
    is_needed: bool,
    has_duty: bool,
    /// Items that the model does not take, or that no key here opens.
    refused: HashSet<MemoryId>,
}

/// What came of one go at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Round {
    /// All items have a vector, but for those that were refused.
    Idle,
    /// So many were given one, and there may be more.
    Made(u64),
    /// Another process does it.
    Elsewhere,
    /// The vectors of another model are compared, which this process is not to replace.
    Other(Space),
}

/// Why a go at it failed.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddingError {
    /// The database.
    #[error(transparent)]
    Store(#[from] RepositoryError),
    /// The model.
    #[error(transparent)]
    Embedder(#[from] EmbedError),
}

impl Embedding {
    /// One of this process, whose id is `worker`. `began` is when it began, where somebody chose the embedder.
    pub fn new(
        store: Arc<dyn Store>,
        embedder: Arc<dyn Embedder>,
        clock: Arc<dyn Clock>,
        worker: WorkerId,
        began: Option<Millis>,
    ) -> Embedding {
        let (is_needed, has_duty, refused) = (false, false, HashSet::new());
        Embedding { store, embedder, clock, worker, began, is_needed, has_duty, refused }
    }

    /// Items that have no vector and will not be given one by this process.
    pub fn refused(&self) -> u64 {
        self.refused.len() as u64
    }

    /// Gives some items a vector.
    pub async fn round(&mut self) -> Result<Round, EmbeddingError> {
        // Whatever has no vector of this: all that holds.
        let none = Space { model: String::new(), dimension: 0 };
        self.is_needed = self.is_needed || !self.store.memory_to_embed(none, 1).await?.is_empty();
        if !self.is_needed {
            return Ok(Round::Idle);
        }
        let space = self.embedder.profile().await?.space;
        let mut chosen = self.store.memory_space().await?;
        let is_to_choose = chosen.as_ref().is_none_or(|chosen| {
            let is_later = self.began.is_some_and(|began| began > chosen.chosen_at);
            chosen.yields_to(&space, self.began) || chosen.space == space && is_later
        });
        if is_to_choose {
            let now = self.store.choose_memory_space(space.clone(), self.began).await?;
            if let Some(before) = chosen.filter(|before| before.space != now.space) {
                info!("items are given vectors of {} in the place of those of {}", space.model, before.space.model);
            }
            chosen = Some(now);
        }
        let Some(chosen) = chosen.filter(|chosen| chosen.space == space) else {
            let other = self.store.memory_space().await?.map_or(space, |chosen| chosen.space);
            return Ok(Round::Other(other));
        };
        let most = BATCH + u32::try_from(self.refused.len()).unwrap_or(u32::MAX - BATCH);
        let mut items = self.store.memory_to_embed(space.clone(), most).await?;
        items.retain(|item| !self.refused.contains(&item.id));
        if items.is_empty() && chosen.filled_through.is_none() {
            self.hold_duty(0).await?;
            return Ok(Round::Idle);
        }
        if !self.hold_duty(DUTY_MS).await? {
            return Ok(Round::Elsewhere);
        }
        if chosen.filled_through.is_some() {
            self.store.fill_memory_vectors().await?;
            return Ok(Round::Made(0));
        }
        let made = self.vectors(items).await?;
        Ok(Round::Made(self.store.embed_memory(space, made).await?))
    }

    /// Takes the duty for so long, or gives it back; whether this process has it then.
    async fn hold_duty(&mut self, for_ms: Millis) -> Result<bool, RepositoryError> {
        if for_ms > 0 || self.has_duty {
            let now = self.clock.now();
            self.has_duty = self.store.take_duty(DUTY, self.worker.clone(), now + for_ms, now).await? && for_ms > 0;
        }
        Ok(self.has_duty)
    }

    async fn vectors(&mut self, items: Vec<ToEmbed>) -> Result<Vec<(MemoryId, Vec<f32>)>, EmbedError> {
        let (open, closed): (Vec<_>, Vec<_>) = items.into_iter().partition(|item| item.text.is_some());
        self.refused.extend(closed.iter().map(|item| item.id));
        let ids: Vec<_> = open.iter().map(|item| item.id).collect();
        let texts: Vec<_> = open.iter().filter_map(|item| item.text.as_deref()).collect();
        match self.embedder.embed(&texts).await {
            Ok(vectors) => return Ok(ids.into_iter().zip(vectors).collect()),
            Err(error) if error.again != Again::Never => return Err(error),
            Err(_) => {}
        }
        // One of them is not to its taste, which is no reason to leave out the others.
        let (mut made, mut refused) = (Vec::new(), Vec::new());
        for (id, text) in ids.into_iter().zip(texts) {
            match self.embedder.embed(&[text]).await {
                Ok(vectors) => made.extend(vectors.into_iter().map(|vector| (id, vector))),
                Err(error) if error.again == Again::Never => {
                    refused.push(id);
                    if made.is_empty() && refused.len() >= REFUSED_AT_MOST {
                        return Err(EmbedError { again: Again::Mended, ..error });
                    }
                    warn!(memory.id = id.0, "item {id} is found by its words alone: {error}");
                }
                Err(error) => return Err(error),
            }
        }
        self.refused.extend(refused);
        Ok(made)
    }
}

/// How long to wait before another try.
pub(super) fn rest(again: Again) -> Duration {
    match again {
        Again::Later { after } => after.unwrap_or(REST).max(REST),
        Again::Mended | Again::Never => 2 * REST,
    }
}

/// Asks an embedder what questions mean. One that failed is left alone for a while.
pub struct Questions {
    embedder: Arc<dyn Embedder>,
    clock: Arc<dyn Clock>,
    /// Until when, by [`Clock::elapsed`], and why.
    resting: Mutex<Option<(Millis, String)>>,
}

impl Questions {
    /// Of this embedder.
    pub fn new(embedder: Arc<dyn Embedder>, clock: Arc<dyn Clock>) -> Questions {
        Questions { embedder, clock, resting: Mutex::default() }
    }

    /// What a text means, or why that is not known.
    async fn meaning(&self, text: &str, among: &Space) -> Result<Meaning, String> {
        let now = self.clock.elapsed();
        let resting = |until: &Mutex<Option<(Millis, String)>>| {
            let resting = until.lock().unwrap_or_else(PoisonError::into_inner);
            resting.clone().filter(|(until, _)| *until > now)
        };
        if let Some((_, why)) = resting(&self.resting) {
            return Err(why);
        }
        let ask = async {
            let space = self.embedder.profile().await?.space;
            if space != *among {
                return Ok(Err(among.differs_from(&space)));
            }
            let vector = self.embedder.embed(&[text]).await?.pop();
            Ok(vector.map(|vector| Meaning { space, vector }).ok_or_else(|| "the embedder gave no vector".to_owned()))
        };
        let (why, rest) = match tokio::time::timeout(PATIENCE, ask).await {
            Ok(Ok(answer)) => return answer,
            Ok(Err(EmbedError { again, message })) => (message, rest(again)),
            Err(_) => (format!("the embedder gave no answer within {} s", PATIENCE.as_secs()), REST),
        };
        let until = now + i64::try_from(rest.as_millis()).unwrap_or(i64::MAX);
        *self.resting.lock().unwrap_or_else(PoisonError::into_inner) = Some((until, why.clone()));
        Err(why)
    }
}

/// What a question finds, by its words, and by its meaning where there is somebody to ask what that is. Whatever fails
/// there, words find what they find, and the answer says why.
pub async fn search_memory(
    queries: &dyn MemoryQueries,
    questions: Option<&Questions>,
    what: MemorySearch,
) -> Result<MemoryFound, RepositoryError> {
    let why_not = match (questions, queries.memory_space().await?) {
        _ if what.text.trim().is_empty() => None,
        (None, _) => Some("there is no embedder".to_owned()),
        (Some(_), None) => Some("no item has a vector yet".to_owned()),
        (Some(questions), Some(chosen)) => match questions.meaning(&what.text, &chosen.space).await {
            Ok(meaning) => return queries.search_memory(MemorySearch { meaning: Some(meaning), ..what }).await,
            Err(why) => Some(why),
        },
    };
    let mut found = queries.search_memory(what).await?;
    found.meaning.why_not = why_not;
    Ok(found)
}
