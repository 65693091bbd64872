//! What is remembered, between processes.

use posse_core::memory::{MemoryFilter, Origin, PERSON};

use super::meaning::{ask, concepts, embed_all, first};
use super::memory::{of, save, texts, to};
use super::{Door, T0};

pub async fn what_one_process_saves_another_finds(door: &dyn Door) {
    let (here, there) = (door.fresh().await, door.again().await);
    assert!(texts(&*there, "ladder").await.is_empty());
    let id = save(&*here, of("r", "the ladder is red")).await.id;
    assert_eq!(texts(&*there, "ladder").await, ["the ladder is red"]);
    let person = Origin { author: PERSON.into(), ..Origin::default() };
    here.revise_memory(id, to("the ladder is blue", person), None, T0).await.expect("works");
    assert_eq!(texts(&*there, "ladder").await, ["the ladder is blue"]);
    assert!(texts(&*there, "red").await.is_empty());
}

pub async fn what_one_process_embeds_another_finds(door: &dyn Door) {
    let (here, there) = (door.fresh().await, door.again().await);
    let embedder = concepts("a", 64);
    save(&*here, of("r", "a large dwelling")).await;
    embed_all(&here, &embedder, 1).await;
    assert_eq!(first(&ask(&*there, &embedder, "big house", MemoryFilter::default()).await), "a large dwelling");
    embed_all(&there, &concepts("b", 16), 2).await;
    let found = ask(&*here, &embedder, "big house", MemoryFilter::default()).await;
    assert!(found.items.is_empty() && found.meaning.why_not.is_some(), "{found:?}");
}
