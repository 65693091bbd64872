use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts words; fails, or says nothing, at the words that say so.
#[derive(Clone, Default)]
struct Words(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl Tokenizer for Words {
    async fn count(&self, text: &str) -> Result<u64, String> {
        self.0.lock().expect("not poisoned").push(text.to_owned());
        match text {
            "fail" => Err("it is away".into()),
            "hang" => std::future::pending().await,
            text => Ok(text.split_whitespace().count() as u64),
        }
    }
}

impl Words {
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("not poisoned"))
    }
}

fn counter() -> (PatientCounter<Words>, Words) {
    let words = Words::default();
    (PatientCounter::new(words.clone(), "m", PATIENCE), words)
}

#[tokio::test(start_paused = true)]
async fn only_new_texts_are_asked_for() {
    let (counter, words) = counter();
    assert_eq!(counter.count(&["one two", "", "three"]).await, Some(vec![2, 0, 1]));
    assert_eq!(words.asked().len(), 2, "nothing is asked of an empty text");
    assert_eq!(counter.count(&["three", "four five six", "one two"]).await, Some(vec![1, 3, 2]));
    assert_eq!(words.asked(), ["four five six"]);
}

#[tokio::test(start_paused = true)]
async fn one_that_fails_is_left_alone_for_a_while() {
    let (counter, words) = counter();
    assert_eq!(counter.count(&["one"]).await, Some(vec![1]));
    assert_eq!(counter.count(&["one", "fail"]).await, None);
    words.asked();
    assert_eq!(counter.count(&["two"]).await, None, "it rests");
    assert_eq!(counter.count(&["one"]).await, Some(vec![1]), "what is known is known");
    assert_eq!(words.asked(), Vec::<String>::new());
    tokio::time::advance(REST).await;
    assert_eq!(counter.count(&["two"]).await, Some(vec![1]));
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_long_and_what_came_in_time_is_kept() {
    let (counter, words) = counter();
    let begun = Instant::now();
    assert_eq!(counter.count(&["one", "hang", "two"]).await, None);
    assert_eq!(begun.elapsed(), PATIENCE);
    words.asked();
    tokio::time::advance(REST).await;
    assert_eq!(counter.count(&["two", "one"]).await, Some(vec![1, 1]));
    assert_eq!(words.asked(), Vec::<String>::new());
}

#[tokio::test]
async fn a_long_text_is_counted_in_pieces() {
    struct Pieces(AtomicUsize);
    #[async_trait]
    impl Tokenizer for Pieces {
        async fn count(&self, text: &str) -> Result<u64, String> {
            assert!(text.len() <= MAX_BYTES);
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(text.chars().count() as u64)
        }
    }
    // Characters of three bytes: none is cut.
    let text = "港".repeat(MAX_BYTES);
    let counter = PatientCounter::new(Pieces(AtomicUsize::new(0)), "m", PATIENCE);
    assert_eq!(counter.count(&[&text]).await, Some(vec![MAX_BYTES as u64]));
    assert!(counter.tokenizer.0.load(Ordering::Relaxed) <= 2, "the same piece is asked for once");
}
