//! What is remembered, between processes.

use posse_core::memory::{Origin, PERSON};

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
