//! What is remembered, found by its meaning: vectors of one model at a time, made in the background.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::SeqCst};

use async_trait::async_trait;
use posse_core::clock::{ManualClock, Millis};
use posse_core::job::lease::WorkerId;
use posse_core::memory::meaning::{Meaning, Space, unit};
use posse_core::memory::{
    Forgetting, MemoryFilter, MemoryFound, MemoryId, MemorySearch, MemoryStanding, NewMemory, Revision, SHARED, Spot,
};
use posse_core::model::embedder::{Again, EmbedError, Embedder, EmbedderProfile};
use posse_core::worker::{Embedding, Questions, Round, search_memory};

use super::memory::{of, save};
use super::{Store, T0};

/// Words that mean the same.
const CONCEPTS: [&[&str]; 5] = [
    &["car", "automobile", "vehicle"],
    &["buy", "purchase", "acquire"],
    &["doctor", "physician"],
    &["big", "large", "huge"],
    &["house", "home", "dwelling"],
];

/// An embedder whose vectors are alike where texts have words that mean the same, and mean nothing to those of another name.
pub struct Concepts {
    pub space: Space,
    pub asked: AtomicUsize,
    /// Texts with this word in them are refused.
    pub refuses: &'static str,
    /// Fails as often as this.
    pub failures: AtomicI64,
}

pub fn concepts(model: &str, dimension: usize) -> Arc<Concepts> {
    let space = Space { model: model.into(), dimension };
    Arc::new(Concepts { space, asked: AtomicUsize::new(0), refuses: "\0", failures: AtomicI64::new(0) })
}

impl Concepts {
    pub fn vector(&self, text: &str) -> Vec<f32> {
        let mut sum = vec![0.001f32; self.space.dimension];
        for word in text.to_lowercase().split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
            let concept = CONCEPTS.iter().position(|same| same.contains(&word));
            let named = concept.map_or_else(|| word.to_owned(), |at| format!("concept {at}"));
            // A direction of its own for each, other ones with each model.
            let mut seed =
                self.space.model.bytes().chain(named.bytes()).fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
                    (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
                });
            for x in &mut sum {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *x += (seed >> 40) as f32 / (1 << 23) as f32 - 1.0;
            }
        }
        unit(sum).expect("has a direction")
    }

    pub fn meaning(&self, text: &str) -> Meaning {
        Meaning { space: self.space.clone(), vector: self.vector(text) }
    }
}

#[async_trait]
impl Embedder for Concepts {
    async fn profile(&self) -> Result<EmbedderProfile, EmbedError> {
        Ok(EmbedderProfile { space: self.space.clone(), most_tokens: None })
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        self.asked.fetch_add(1, SeqCst);
        if self.failures.fetch_sub(1, SeqCst) > 0 {
            return Err(EmbedError { again: Again::Later { after: None }, message: "out of order".into() });
        }
        if texts.iter().any(|text| text.contains(self.refuses)) {
            return Err(EmbedError { again: Again::Never, message: "not with this text".into() });
        }
        Ok(texts.iter().map(|text| self.vector(text)).collect())
    }
}

/// A process that began then.
pub fn process(store: &Arc<dyn Store>, embedder: &Arc<Concepts>, name: &str, began: Option<Millis>) -> Embedding {
    let clock = Arc::new(ManualClock::at(T0));
    Embedding::new(Arc::clone(store), Arc::clone(embedder) as _, clock, WorkerId(name.into()), began)
}

/// Goes on until there is nothing more to do; gives how many were given a vector.
pub async fn to_the_end(embedding: &mut Embedding) -> u64 {
    let mut made = 0;
    loop {
        match embedding.round().await.expect("works") {
            Round::Made(some) => made += some,
            Round::Idle => return made,
            other => panic!("{other:?} after {made}"),
        }
    }
}

pub async fn embed_all(store: &Arc<dyn Store>, embedder: &Arc<Concepts>, began: Millis) -> u64 {
    to_the_end(&mut process(store, embedder, "one", Some(began))).await
}

pub async fn ask(store: &dyn Store, embedder: &Concepts, text: &str, filter: MemoryFilter) -> MemoryFound {
    let meaning = Some(embedder.meaning(text));
    store.search_memory(MemorySearch { text: text.into(), meaning, filter, limit: 10 }).await.expect("is no error")
}

pub fn first(found: &MemoryFound) -> &str {
    found.items.first().map_or("nothing", |hit| &hit.item.text)
}

pub async fn faults(store: &dyn Store) -> (u64, u64, u64) {
    let MemoryStanding { without_vector, unindexed_vectors, stray_vectors, .. } =
        store.memory_standing().await.expect("can be read");
    (without_vector, unindexed_vectors, stray_vectors)
}

pub async fn an_item_is_found_by_what_it_means(store: Arc<dyn Store>) {
    let embedder = concepts("a", 384);
    let bought = save(&*store, of("r", "Ada will purchase an automobile")).await.id;
    save(&*store, of(SHARED, "the harbour opens at six")).await;
    let tagged = NewMemory { tags: vec!["t".into()], ..of("s", "a huge vehicle") };
    let huge = save(&*store, tagged).await.id;
    let all = MemoryFilter::default();
    assert!(ask(&*store, &embedder, "buy car", all.clone()).await.items.is_empty(), "no vector yet, and no word of it");
    assert_eq!(embed_all(&store, &embedder, 1).await, 3);
    let found = ask(&*store, &embedder, "buy car", all.clone()).await;
    let ids: Vec<_> = found.items.iter().map(|hit| hit.item.id).collect();
    assert_eq!(ids, [bought, huge], "the harbour is not alike at all");
    assert!(found.items[0].likeness > found.items[1].likeness && found.items[0].bm25.is_none(), "{found:?}");
    assert_eq!((found.meaning.model.as_deref(), found.meaning.words_alone), (Some("a"), 0));
    assert_eq!((found.items[0].item.model.as_deref(), found.items[0].item.dimension), (Some("a"), Some(384)));
    // A word that stands there counts for more than likeness.
    assert_eq!(first(&ask(&*store, &embedder, "the car at the harbour", all).await), "the harbour opens at six");
    for (filter, wanted) in [
        (MemoryFilter { scopes: Some(vec!["s".into()]), ..MemoryFilter::default() }, vec![huge]),
        (MemoryFilter { scopes: Some(vec!["s".into(), "r".into()]), ..MemoryFilter::default() }, vec![bought, huge]),
        (MemoryFilter { tags: vec!["t".into()], ..MemoryFilter::default() }, vec![huge]),
        (MemoryFilter { until: Some(T0), ..MemoryFilter::default() }, vec![]),
    ] {
        let found = ask(&*store, &embedder, "buy car", filter.clone()).await;
        assert_eq!(found.items.iter().map(|hit| hit.item.id).collect::<Vec<_>>(), wanted, "{filter:?}");
    }
    // What ends is not found by what it meant, and what replaces it once it has a vector.
    let to = Revision { text: Some("Ada saw a physician".into()), ..Revision::default() };
    store.revise_memory(bought, to, None, T0).await.expect("is replaced");
    let forgetting = Forgetting { reason: "no".into(), erase: true };
    store.forget_memory(vec![huge], forgetting, None, T0).await.expect("is forgotten");
    let found = ask(&*store, &embedder, "buy car", MemoryFilter::default()).await;
    assert_eq!((found.items.len(), found.meaning.words_alone), (0, 1), "{found:?}");
    assert_eq!(embed_all(&store, &embedder, 1).await, 1);
    assert_eq!(first(&ask(&*store, &embedder, "doctor", MemoryFilter::default()).await), "Ada saw a physician");
    assert_eq!(faults(&*store).await, (0, 0, 0));
}

/// The vector of a turn has something of those beside it, for as long as they are there.
pub async fn what_stands_beside_an_item_is_a_part_of_what_it_means(store: Arc<dyn Store>) {
    let embedder = concepts("a", 256);
    let turn = |place, text: &str| NewMemory { spot: Some(Spot { thread: "t".into(), place }), ..of("r", text) };
    let likeness = async |text: &str| {
        let found = ask(&*store, &embedder, text, MemoryFilter::default()).await;
        found.items.iter().find(|hit| hit.item.text == "yes indeed").and_then(|hit| hit.likeness)
    };
    save(&*store, turn(2, "yes indeed")).await;
    embed_all(&store, &embedder, 1).await;
    assert_eq!(likeness("physician").await, None, "not alike");
    let asked = save(&*store, turn(1, "doctor")).await.id;
    assert_eq!(embed_all(&store, &embedder, 1).await, 1);
    assert!(likeness("physician").await.is_some_and(|likeness| likeness > 0.2));
    let forgetting = Forgetting { reason: "no".into(), erase: false };
    store.forget_memory(vec![asked], forgetting, None, T0).await.expect("is forgotten");
    assert_eq!(likeness("physician").await, None, "and what is gone is no part of it");
    assert_eq!(faults(&*store).await, (0, 0, 0));
}

/// Case M-3.
pub async fn vectors_of_two_models_are_never_compared(store: Arc<dyn Store>) {
    let (a, b) = (concepts("a", 32), concepts("b", 32));
    let items = (0..1000).map(|n| of("r", &format!("automobile number n{n}"))).collect();
    store.remember(items, None, T0).await.expect("are saved");
    assert_eq!(embed_all(&store, &a, 1).await, 1000);
    let mut process = process(&store, &b, "two", Some(2));
    assert_eq!(process.round().await.expect("works"), Round::Made(0), "there were none of b before");
    let all = MemoryFilter::default;
    let found = ask(&*store, &b, "vehicle", all()).await;
    assert_eq!((found.items.len(), found.meaning.words_alone), (0, 1000), "{:?}", found.meaning);
    let found = ask(&*store, &a, "vehicle", all()).await;
    assert!(found.meaning.why_not.is_some_and(|why| why.contains("vectors of b (32 numbers)")), "nor the other way");
    assert!(found.items.is_empty());
    assert_eq!(ask(&*store, &b, "n77", all()).await.items.len(), 1, "words find all of them");
    assert_eq!(process.round().await.expect("works"), Round::Made(32));
    // It dies here, and the next one goes on.
    drop(process);
    let found = ask(&*store, &b, "vehicle", MemoryFilter::default()).await;
    assert_eq!((found.items.len(), found.meaning.words_alone), (10, 968));
    assert!(found.items.iter().all(|hit| hit.item.model.as_deref() == Some("b")));
    let none_of_a = async || store.memory_to_embed(b.space.clone(), 2000).await.expect("can be read").len();
    assert_eq!(none_of_a().await, 968);
    let mut next = self::process(&store, &b, "two", Some(3));
    assert_eq!(to_the_end(&mut next).await, 968);
    assert_eq!((none_of_a().await, faults(&*store).await), (0, (0, 0, 0)));
    assert_eq!(store.embed_memory(a.space.clone(), vec![(MemoryId(1), a.vector("x"))]).await.expect("no error"), 0);
}

/// Case M-4.
pub async fn another_length_and_back_loses_nothing(store: Arc<dyn Store>) {
    let (long, short) = (concepts("m", 384), concepts("m", 256));
    let items = (0..450).map(|n| of("r", &format!("dwelling number n{n}"))).collect();
    store.remember(items, None, T0).await.expect("are saved");
    assert_eq!(embed_all(&store, &long, 1).await, 450);
    let mut half = process(&store, &short, "one", Some(2));
    for _ in 0..4 {
        half.round().await.expect("works");
    }
    drop(half);
    // Back again: those that still have theirs are put into the index and not made anew.
    let mut back = process(&store, &long, "one", Some(3));
    assert_eq!(back.round().await.expect("works"), Round::Made(0), "some of those that were there");
    // Where texts are sealed there is no index in the file to be filled.
    let is_filled = store.memory_space().await.expect("can be read").expect("is chosen").filled_through.is_none();
    let to_fill = if is_filled { 0 } else { 154 };
    assert_eq!(ask(&*store, &long, "home", MemoryFilter::default()).await.meaning.words_alone, 96 + to_fill);
    drop(back);
    assert_eq!(embed_all(&store, &long, 3).await, 96);
    assert_eq!(faults(&*store).await, (0, 0, 0));
    let mut seen = HashSet::new();
    for n in 0..450 {
        let found = ask(&*store, &long, &format!("home n{n}"), MemoryFilter::default()).await;
        seen.extend(found.items.first().filter(|hit| hit.likeness.is_some()).map(|hit| hit.item.id));
    }
    assert_eq!(seen.len(), 450, "each is found, by its meaning too");
}

pub async fn one_process_at_a_time_makes_vectors(store: Arc<dyn Store>) {
    let embedder = concepts("a", 8);
    let items = (0..40).map(|n| of("r", &format!("n{n}"))).collect();
    store.remember(items, None, T0).await.expect("are saved");
    let (mut one, mut two) = (process(&store, &embedder, "one", Some(1)), process(&store, &embedder, "two", Some(1)));
    assert_eq!(one.round().await.expect("works"), Round::Made(0));
    assert_eq!(two.round().await.expect("works"), Round::Elsewhere);
    assert_eq!(one.round().await.expect("works"), Round::Made(32));
    assert_eq!(two.round().await.expect("works"), Round::Elsewhere);
    assert_eq!(to_the_end(&mut one).await, 8);
    save(&*store, of("r", "one more")).await;
    assert_eq!(two.round().await.expect("works"), Round::Made(1), "who has nothing to do gives the duty back");
}

/// Whoever began later knows the newer settings, and what nobody chose takes no other's place.
pub async fn processes_that_differ_do_not_take_turns(store: Arc<dyn Store>) {
    let (a, b) = (concepts("a", 8), concepts("b", 8));
    save(&*store, of("r", "a text")).await;
    let mut old = process(&store, &a, "old", Some(10));
    let mut new = process(&store, &b, "new", Some(20));
    let mut unchosen = process(&store, &a, "unchosen", None);
    assert_eq!(to_the_end(&mut old).await, 1);
    assert_eq!(to_the_end(&mut new).await, 1, "the later one takes its place");
    assert_eq!(old.round().await.expect("works"), Round::Other(b.space.clone()));
    assert_eq!(unchosen.round().await.expect("works"), Round::Other(b.space.clone()));
    assert_eq!(to_the_end(&mut process(&store, &b, "newer", Some(40))).await, 0, "the same model again");
    assert_eq!(process(&store, &a, "between", Some(30)).round().await.expect("works"), Round::Other(b.space.clone()));
    assert_eq!(to_the_end(&mut process(&store, &a, "newest", Some(50))).await, 1);
}

pub async fn a_model_that_fails_keeps_nobody_from_finding_words(store: Arc<dyn Store>) {
    let refusing = Concepts {
        space: Space { model: "a".into(), dimension: 64 },
        asked: AtomicUsize::new(0),
        refuses: "poison",
        failures: AtomicI64::new(1),
    };
    let embedder = Arc::new(refusing);
    for text in ["a car", "some poison", "a house"] {
        save(&*store, of("r", text)).await;
    }
    let mut process = process(&store, &embedder, "one", Some(1));
    assert_eq!(process.round().await.expect("works"), Round::Made(0));
    process.round().await.expect_err("it is out of order");
    assert_eq!(to_the_end(&mut process).await, 2);
    assert_eq!((process.refused(), faults(&*store).await.0), (1, 1), "one of the texts is not to its taste");
    let questions = Questions::new(embedder.clone() as _, Arc::new(ManualClock::at(T0)));
    let what = |text: &str| MemorySearch { text: text.into(), limit: 5, ..MemorySearch::default() };
    let found = search_memory(&*store, Some(&questions), what("automobile")).await.expect("no error");
    assert_eq!(first(&found), "a car");
    embedder.failures.store(1, SeqCst);
    let asked = embedder.asked.load(SeqCst);
    for _ in 0..2 {
        let found = search_memory(&*store, Some(&questions), what("a car")).await.expect("no error");
        assert_eq!((first(&found), found.meaning.why_not.as_deref()), ("a car", Some("out of order")));
    }
    assert_eq!(embedder.asked.load(SeqCst), asked + 1, "it is left alone for a while");
    let found = search_memory(&*store, None, what("a car")).await.expect("no error");
    assert_eq!(found.meaning.why_not.as_deref(), Some("there is no embedder"));
}
