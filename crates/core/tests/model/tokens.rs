//! How many tokens a text has: what the model's own tokenizer counts, where one can be asked

use posse_core::model::tokens::*;
use posse_core::model::{Message, Usage};
use proptest::prelude::*;

/// The estimate is within `percent` of what both of OpenAI's vocabularies say, at the worse one.
fn check(words: &str, [new, old]: [u64; 2], percent: u64) {
    let estimated = text(words);
    for truth in [new, old] {
        let off = estimated.abs_diff(truth) * 100;
        assert!(off <= truth * percent, "{estimated} estimated, {truth} true: {words}");
    }
}

#[test]
fn texts_whose_tokens_are_known() {
    let prose = "The harbour was quiet when the ferry came in. Nobody had expected it before noon, and the two men who unload the parcels were still at breakfast, so the captain tied up alone and waited.\n";
    check(prose, [39, 39], 10);
    let rust = r#"pub fn largest(values: &[u64]) -> Option<u64> {
let mut best = *values.first()?;
for value in &values[1..] {
    if *value > best {
        best = *value;
    }
}
Some(best)
}
"#;
    check(rust, [58, 57], 20);
    let json = r#"{"ship": {"name": "Clio", "built": 1987, "tons": 12500.75, "ports": ["Oslo", "Bergen", "Kiel"], "crew": null, "active": true}, "id": 40213}
"#;
    check(json, [58, 59], 25);
    let ja = "港は静かでした。船長は一人で船をつなぎ、荷物を降ろす人たちが朝食から戻るのを待っていました。\n";
    check(ja, [39, 52], 30);
    let zh = "港口很安静。船长独自把船系好，等着卸货的人吃完早饭回来。没有人想到渡轮会在中午以前到达。\n";
    check(zh, [39, 60], 30);
    let ko = "항구는 조용했다. 선장은 혼자 배를 묶고 짐을 내리는 사람들이 아침 식사에서 돌아오기를 기다렸다.\n";
    check(ko, [33, 53], 35);
    let ru = "В гавани было тихо. Капитан один привязал судно и стал ждать, пока грузчики вернутся с завтрака.\n";
    check(ru, [30, 48], 55);
}

proptest! {
    #[test]
    fn joined_texts_have_no_more_tokens_than_the_texts_apart(a in ".{0,60}", b in ".{0,60}") {
        let joined = format!("{a}{b}");
        prop_assert!(text(&joined) <= text(&a) + text(&b) + 4, "{} {} {}", text(&joined), text(&a), text(&b));
        prop_assert!(joined.is_empty() || text(&joined) > 0 || joined == " " || joined == "\t");
    }

    #[test]
    fn counts_are_right_after_two_turns(
        truth in 0.45f64..3.9, first in 0.8f64..1.2, estimates in prop::collection::vec(100u64..200_000, 3),
    ) {
        let mut calibration = Calibration::default();
        let real = |estimated: u64, noise: f64| (estimated as f64 * truth * noise) as u64;
        // The first turn may be odd; the second is like all that follow.
        calibration.learn(estimates[0], real(estimates[0], first));
        calibration.learn(estimates[1], real(estimates[1], 1.0));
        let (corrected, real) = (calibration.correct(estimates[2]), real(estimates[2], 1.0));
        prop_assert!(corrected.abs_diff(real) * 100 <= real * 12, "{corrected} for {real}");
    }

    #[test]
    fn no_reply_makes_a_count_absurd(replies in prop::collection::vec((any::<u64>(), any::<u64>()), 0..9)) {
        let mut calibration = Calibration::default();
        for (estimated, input) in replies {
            calibration.learn(estimated, input);
        }
        prop_assert!((400..=4_000).contains(&calibration.correct(1_000)));
    }
}

#[test]
fn what_teaches_nothing() {
    let mut gauge = Gauge::default();
    let all = [Tally::estimated(1_000), Tally::counted(1_000)];
    for tally in all {
        gauge.replied(tally, &Usage { input: 3_000, estimated: true, ..Usage::default() });
        gauge.replied(tally, &Usage::default());
    }
    gauge.replied(Tally::estimated(10), &Usage { input: 30, ..Usage::default() });
    gauge.counted(10, 30);
    assert_eq!(gauge, Gauge::default());
}

#[test]
fn a_low_count_is_mended_at_once_and_a_high_one_by_halves() {
    let mut calibration = Calibration::default();
    calibration.learn(1_000, 1_000);
    calibration.learn(1_000, 2_000);
    assert_eq!(calibration.correct(100), 200);
    calibration.learn(1_000, 1_000);
    assert_eq!(calibration.correct(100), 150);
}

#[test]
fn counts_and_estimates_learn_apart() {
    let mut gauge = Gauge::default();
    // A language that our estimate makes half of.
    gauge.counted(1_000, 2_000);
    assert_eq!(gauge.tokens(Tally { counted: 1_000, estimated: 100 }), 1_200, "a count is not corrected by that");
    // The template adds a quarter to all of it.
    gauge.replied(Tally { counted: 1_000, estimated: 100 }, &Usage { input: 1_500, ..Usage::default() });
    assert_eq!((gauge.tokens(Tally::counted(1_000)), gauge.tokens(Tally::estimated(100))), (1_250, 250));
    // Where little was counted, it is the estimate that learns.
    gauge.replied(Tally { counted: 100, estimated: 1_000 }, &Usage { input: 3_875, ..Usage::default() });
    assert_eq!(gauge.tokens(Tally { counted: 100, estimated: 1_000 }), 3_875);
    assert_eq!(gauge.at_most(Tally { counted: 100, estimated: 1_000 }), 5_125);
}

#[test]
fn a_message_is_the_sum_of_its_texts_and_what_is_around_them() {
    use posse_core::model::CallRequest;
    let call = |name: &str| CallRequest { id: "x".into(), name: name.into(), arguments: "{}".into(), extra: None };
    let (words, calls) = ("Two at once.".to_owned(), vec![call("look"), call("peek")]);
    let said = Message::Assistant { text: words, reasoning: None, calls };
    assert_eq!(texts(&said).collect::<Vec<_>>(), ["Two at once.", "look", "{}", "peek", "{}"]);
    assert_eq!(message(&said), texts(&said).map(text).sum::<u64>() + 4 + 2 * 8);
    let result = Message::Tool { call_id: "x".into(), name: "look".into(), text: "a ship".into() };
    assert_eq!(texts(&result).collect::<Vec<_>>(), ["a ship", "look"]);
}
