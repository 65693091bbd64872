//! Tokens counted by the model's own tokenizer, where a decision hangs on them.

use posse_core::model::tokens;
use posse_core::model::{Message, ModelReply, Usage};
use posse_core::run::Run;
use posse_core::run::journal::{Entry, Opening};
use posse_core::run::machine::{Effect, Input, step};
use proptest::prelude::*;
use serde_json::json;

use super::kit::{Harness, Tokenizer, call, finish, half_the_bytes, opening, phased, reply};

fn by_window(mut opening: Opening, window: u32) -> Opening {
    opening.context_window = Some(window);
    opening.has_tokenizer = true;
    opening.persona.limits.max_turns = 200;
    opening
}

/// One turn with a result of about so many bytes.
fn turn(h: &mut Harness, n: usize, bytes: usize) {
    h.calls(vec![call("look", json!({"n": n}))])
        .run_calls_with(|_| Ok(format!("result {n}: {}", "the ship sails on, ".repeat(bytes / 19)).into()));
}

fn estimated(h: &Harness) -> u64 {
    h.run.messages().iter().map(tokens::message).sum()
}

/// What the messages have by the tokenizer.
fn counted(h: &Harness) -> u64 {
    let of = |message: &Message| {
        let texts = tokens::texts(message).map(|text| (h.tokenizer)(text).unwrap());
        texts.sum::<u64>() + tokens::around(message)
    };
    h.run.messages().iter().map(of).sum()
}

/// The places of the messages that were to be counted, request by request.
fn places(h: &Harness) -> Vec<Vec<Option<usize>>> {
    h.to_count.iter().map(|all| all.iter().map(|one| one.message).collect()).collect()
}

#[test]
fn what_fits_by_any_count_is_not_counted_and_nothing_is_counted_twice() {
    let mut h = Harness::begin(by_window(opening(), 10_000));
    turn(&mut h, 0, 2_000);
    assert_eq!((h.count("counted"), h.to_count.len()), (0, 0), "{} tokens at most", estimated(&h) * 4);
    turn(&mut h, 1, 6_000);
    assert_eq!(places(&h), [vec![None, Some(0), Some(1), Some(2), Some(3), Some(4), Some(5)]], "tools, then all");
    assert_eq!(h.to_count[0][1].texts, ["You test."]);
    turn(&mut h, 2, 400);
    assert_eq!(h.to_count.len(), 1, "a little more fits all the same");
    turn(&mut h, 3, 4_000);
    assert_eq!(places(&h)[1..], [vec![Some(6), Some(7), Some(8), Some(9)]], "what is new");
    h.calls(vec![finish("42")]);
    assert_eq!(h.effect, Effect::End);
}

#[test]
fn nothing_is_counted_without_a_tokenizer_or_a_window() {
    let mut without = by_window(opening(), 4_000);
    without.has_tokenizer = false;
    let mut unknown = by_window(opening(), 4_000);
    unknown.context_window = None;
    for opening in [without, unknown] {
        let mut h = Harness::begin(opening);
        turn(&mut h, 0, 9_000);
        assert_eq!((h.to_count.len(), h.count("counted")), (0, 0));
    }
}

#[test]
fn the_tokenizer_decides_and_not_the_estimate() {
    // Estimated at more than the budget of 3,200, tools included; in truth a quarter of that.
    let few: Tokenizer = |text| Some(text.len().div_ceil(20) as u64);
    let mut h = Harness::begin_with(by_window(opening(), 4_000), few);
    (0..4).for_each(|n| turn(&mut h, n, 4_400));
    assert!(estimated(&h) > 3_600 && counted(&h) < 1_200, "{} and {}", estimated(&h), counted(&h));
    assert_eq!((h.effect.clone(), h.count("compacted")), (Effect::AskModel, 0));

    // Estimated at less than that; in truth twice as much.
    let many: Tokenizer = half_the_bytes;
    let mut h = Harness::begin_with(by_window(opening(), 4_000), many);
    let mut turns = 0;
    while h.effect == Effect::AskModel {
        turn(&mut h, turns, 1_800);
        turns += 1;
    }
    assert!(estimated(&h) < 2_000 && counted(&h) > 2_400, "{} and {}", estimated(&h), counted(&h));
    let cut = h.to_summarise().cut;
    h.summarise(Ok("the ship sailed on"));
    assert!(cut.to > cut.from && counted(&h) < 2_400, "{}", counted(&h));
    assert_eq!(h.effect, Effect::AskModel);
}

#[test]
fn without_an_answer_the_estimate_decides_and_the_next_request_asks_again() {
    let silent: Tokenizer = |_| None;
    let mut h = Harness::begin_with(by_window(opening(), 5_000), silent);
    turn(&mut h, 0, 4_000);
    assert_eq!((h.effect.clone(), h.to_count.len(), h.count("counted")), (Effect::AskModel, 1, 0));
    h.tokenizer = half_the_bytes;
    turn(&mut h, 1, 400);
    assert_eq!((h.effect.clone(), h.to_count.len(), h.count("counted")), (Effect::AskModel, 2, 1));
    assert_eq!(places(&h)[1].len(), 7, "all that was not counted before");
}

#[test]
fn what_is_no_count_is_not_taken_for_one() {
    for nonsense in [(|_| Some(0)) as Tokenizer, |text| Some(text.len() as u64 * 3)] {
        let mut h = Harness::begin_with(by_window(opening(), 4_000), nonsense);
        turn(&mut h, 0, 6_000);
        assert_eq!((h.effect.clone(), h.to_count.len(), h.count("counted")), (Effect::AskModel, 1, 0));
    }
    let mut h = Harness::begin(by_window(opening(), 4_000));
    let found = Run::replay(&h.journal);
    for tokens in [Some(Vec::new()), Some(vec![7; 9]), None] {
        let next = step(&mut h.run, Input::Counted { tokens });
        assert_eq!((next.entries, next.effect), (Vec::new(), Effect::AskModel), "nobody asked for it");
        assert_eq!(h.run, found);
    }
}

#[test]
fn a_count_is_of_the_message_it_was_made_of() {
    let mut h = Harness::begin(by_window(opening(), 4_000));
    turn(&mut h, 0, 4_000);
    assert_eq!(h.count("counted"), 1);
    // Somebody changes the goal and forks the run: the task is another one.
    let mut journal = h.journal.clone();
    let Entry::Began { goal, .. } = &mut journal[0].entry else { panic!("no beginning") };
    *goal = "Find the other ship. ".repeat(60);
    let mut run = Run::replay(&journal);
    let Effect::Count(what) = step(&mut run, Input::PickedUp).effect else { panic!("the task is to be counted") };
    assert_eq!(what.iter().map(|one| one.message).collect::<Vec<_>>(), [Some(1)]);
}

#[test]
fn a_view_that_cannot_be_counted_is_estimated_by_what_counts_have_taught() {
    let mut h = Harness::begin(by_window(phased(), 8_000));
    let fill = |h: &mut Harness, n: usize| {
        h.step(super::kit::act("look", json!({"n": n})));
        h.run_calls_with(|_| Ok("the ship sails on, ".repeat(60).into()));
    };
    (0..12).for_each(|n| {
        fill(&mut h, n);
        while matches!(h.effect, Effect::Summarise(_)) {
            h.summarise(Ok("sailed on"));
        }
        assert_eq!(h.effect, Effect::AskModel, "step {n}: {:?}", h.run.ended());
        let request = h.run.request();
        let view = half_the_bytes(&request.tail.unwrap_or_default()).unwrap();
        let all = counted(&h) + view;
        assert!(all < 8_000 - 2_000, "step {n}: {all} of which the view has {view}");
    });
    assert!(h.count("compacted") > 0 && h.count("counted") > 2);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever a tokenizer makes of texts, within what estimates are ever wrong by, no request is sent
    /// that has more tokens than the window leaves, though no reply teaches anything.
    #[test]
    fn no_request_overflows_the_window(
        window in 2_500u32..9_000, bytes_a_token in 2usize..9, sizes in prop::collection::vec(0usize..9_000, 1..16),
    ) {
        const TOKENIZERS: [Tokenizer; 7] = [
            half_the_bytes, |t| Some(t.len().div_ceil(3) as u64), |t| Some(t.len().div_ceil(4) as u64),
            |t| Some(t.len().div_ceil(5) as u64), |t| Some(t.len().div_ceil(6) as u64),
            |t| Some(t.len().div_ceil(7) as u64), |t| Some(t.len().div_ceil(8) as u64),
        ];
        let mut h = Harness::begin_with(by_window(opening(), window), TOKENIZERS[bytes_a_token - 2]);
        for (n, size) in sizes.into_iter().enumerate() {
            turn(&mut h, n, size);
            while matches!(h.effect, Effect::Summarise(_)) {
                h.summarise(Ok("the ship sailed on and on and nothing was found that would be worth a word"));
            }
            prop_assert_eq!(&h.effect, &Effect::AskModel);
            prop_assert!(counted(&h) + u64::from(window / 4) <= u64::from(window), "{} of {}", counted(&h), window);
        }
    }
}

#[test]
fn replies_teach_what_a_template_adds_to_counts() {
    let mut h = Harness::begin(by_window(opening(), 20_000));
    turn(&mut h, 0, 19_000);
    assert_eq!(h.count("counted"), 1);
    // The provider found a fifth more than the texts have.
    let usage = Usage { input: counted(&h) * 6 / 5, output: 5, ..Usage::default() };
    h.say(ModelReply { usage, ..reply("", vec![call("look", json!({"n": 1}))]) });
    // The window leaves room for 15,904 tokens: for this result by the count, and not with a fifth more.
    h.run_calls_with(|_| Ok("the ship sails on, ".repeat(500).into()));
    assert_eq!((h.effect.clone(), h.count("shortened")), (Effect::AskModel, 1));
    assert!(counted(&h) * 6 / 5 < 15_904, "{}", counted(&h));
}
