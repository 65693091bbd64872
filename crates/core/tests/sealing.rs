//! Texts that are sealed: they open where they were stored, unchanged and with their key, and nowhere else.

use posse_core::store::seal::{Closed, KEY_BYTES, Keys, Place};
use proptest::prelude::*;

fn keys(seeds: &[u8]) -> Keys {
    let words: Vec<_> = seeds.iter().map(|seed| format!("{seed:02x}").repeat(KEY_BYTES)).collect();
    Keys::parse(&words.join(",")).expect("are keys")
}

fn places() -> impl Strategy<Value = (i64, i64)> {
    (0..3_i64, 0..3_i64)
}

proptest! {
    #[test]
    fn what_is_sealed_opens_at_its_place_alone(
        text in "(\u{1}(s:|c:)?)?\\PC{0,40}", here in places(), there in places(), sealed in any::<bool>(),
    ) {
        let keys = if sealed { keys(&[7, 8]) } else { Keys::default() };
        let place = |(a, b)| Place::entry(a, b);
        let stored = keys.seal(place(here), text.as_str());
        prop_assert_eq!(keys.open(place(here), &stored), Ok(text.as_str().into()));
        prop_assert_eq!(stored.key().is_some(), sealed);
        let bytes = keys.seal_bytes(place(here), text.as_bytes()).into_owned();
        if sealed {
            prop_assert!(here == there || keys.open(place(there), &stored).is_err());
            prop_assert!(keys.open(Place::remembered(here.0, here.1), &stored).is_err());
            prop_assert!(here == there || keys.open_bytes(place(there), bytes.clone()).is_err());
        }
        prop_assert_eq!(keys.open_bytes(place(here), bytes), Ok(text.into_bytes()));
    }

    #[test]
    fn a_changed_byte_is_noticed(text in "\\PC{0,40}", at in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let (keys, place) = (keys(&[7]), Place::payload(1));
        let mut bytes = keys.seal_bytes(place, text.as_bytes()).into_owned();
        let begin = keys.prefix().len();
        let at = begin + at.index(bytes.len() - begin);
        bytes[at] ^= 1 << bit;
        prop_assert_eq!(keys.open_bytes(place, bytes), Err(Closed::Broken(keys.ids()[0].to_owned())));
    }
}

#[test]
fn the_first_key_seals_and_all_open() {
    let (old, new, both) = (keys(&[1]), keys(&[2]), keys(&[2, 1]));
    let place = Place::schedule("x");
    let before = old.seal(place, "a goal");
    assert_eq!(both.open(place, &before), Ok("a goal".into()));
    assert_eq!(both.seal(place, "a goal").key(), new.sealing());
    let closed = new.open(place, &before).expect_err("its key is not there");
    assert_eq!(closed, Closed::NoKey(old.ids()[0].to_owned()));
    assert!(new.show(place, &before).contains(old.ids()[0]));
    assert_ne!(both.seal(place, "a goal"), both.seal(place, "a goal"), "each has a nonce of its own");
}

#[test]
fn a_key_is_never_shown() {
    let word = "5a".repeat(KEY_BYTES);
    let keys = Keys::parse(&format!("\n{word}\n")).expect("is a key");
    assert!(!format!("{keys:?}").contains("5a5a"));
    for (wrong, at) in
        [(word[1..].to_owned(), 1), (format!("{word},{word}z"), 2), (format!("{word} {}", "g".repeat(64)), 2)]
    {
        let why = Keys::parse(&wrong).expect_err("is no key");
        assert!(why.contains(&format!("key {at} ")) && !why.contains("5a5a"), "{why}");
    }
    assert!(Keys::parse(" ,\n").is_err());
}
