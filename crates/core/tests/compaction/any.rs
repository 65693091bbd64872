//! Any conversation.

use posse_core::model::Message;
use posse_core::run::compaction::{History, Part, Purpose, Room, Shortening, Summariser, SummaryRoom};
use proptest::prelude::*;

use super::kit::{
    COUNTERS, Count, TurnShape, apply, check_legal, head, of_part, push_turn, room, rules, settle, total, turn_shape,
    user, words,
};

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn doing_what_is_decided_ends_in_a_legal_conversation_that_fits(
        native: bool,
        turns in prop::collection::vec(turn_shape(), 0..40),
        open in prop::option::of(0usize..3),
        rules in rules(),
        room in room(),
        counter in 0usize..2,
        answer in prop_oneof![Just(String::new()), Just("Clio sails to Spain.".to_owned()), Just(words(30_000))],
    ) {
        let count = COUNTERS[counter];
        let mut history = History::begin(head());
        for (number, turn) in turns.iter().enumerate() {
            push_turn(&mut history, native, turn, number, None);
        }
        if let Some(there) = open {
            let turn = TurnShape { results: vec![(900, false); 3], said: 20, note: None };
            push_turn(&mut history, native, &turn, turns.len(), Some(there));
        }
        let open = open.is_some();
        check_legal(&history, open)?;

        let before = history.clone();
        let (changes, error) = settle(&mut history, open, &rules, room, count, &answer)?;

        let soft = room.window.map_or(f64::INFINITY, |w| f64::from(w) * f64::from(rules.budget_share));
        let sent = (total(&before, count) + room.beside) as f64;
        let fits = room.window.is_none_or(|w| total(&before, count) + room.beside + room.reply <= u64::from(w));
        if before.messages().len() - before.head() <= rules.max_messages.map_or(usize::MAX, |most| most as usize) && sent < soft && fits {
            prop_assert_eq!(&changes, &vec![], "changed below the thresholds");
        }
        if let Some(error) = error {
            check_nothing_left(&history, open, count)?;
            prop_assert_eq!(error.head + error.pinned + error.rest, total(&history, count));
        }
        // A journal that keeps the changes keeps the conversation.
        let mut replayed = before;
        changes.iter().for_each(|change| apply(&mut replayed, change));
        prop_assert_eq!(replayed, history);
    }

    #[test]
    fn every_request_for_a_summary_is_legal_and_fits(
        native: bool,
        turns in prop::collection::vec(turn_shape(), 1..25),
        window in 200u32..30_000,
        reply in 16u32..600,
        counter in 0usize..2,
        answer in prop_oneof![Just(String::new()), Just("Clio sails to Spain.".to_owned()), Just(words(9_000))],
    ) {
        let count = COUNTERS[counter];
        let mut history = History::begin(head());
        for (number, turn) in turns.iter().enumerate() {
            push_turn(&mut history, native, turn, number, None);
        }
        let purpose = Purpose::FailedAttempt { reason: "the ship is not in the list".into() };
        let messages = &history.messages()[2..];
        let room = SummaryRoom { window: Some(window), reply };
        let mut summariser = Summariser::new("Find the ship.", messages, purpose, room, &count);
        let mut asked = 0;
        while let Some(request) = summariser.request() {
            asked += 1;
            let tokens: u64 = request.messages.iter().map(count).sum();
            prop_assert!(tokens + u64::from(reply) <= window.into(), "{tokens} and {reply} in {window}");
            let [Message::System { .. }, Message::User { text }] = &request.messages[..] else { panic!("{request:?}") };
            prop_assert!(text.contains("not in the list") && text.contains("Find the ship."));
            prop_assert!(asked == 1 || answer.is_empty() || text.contains("ship"));
            prop_assert_eq!(request.max_tokens, Some(reply));
            summariser.replied(&answer, &count);
            prop_assert!(count(&user(summariser.notes())) <= u64::from(reply).max(count(&user(""))));
        }
        prop_assert!(asked > 0 || window < 3_000, "no request in a window of {window}");
    }

    #[test]
    fn a_shorter_text_says_how_much_is_missing(bytes in 1usize..5_000, steps in prop::collection::vec((0usize..3_000, 0usize..3_000), 1..5)) {
        let whole: String = "añ港b".chars().cycle().take(bytes).collect();
        let mut history = History::begin(head());
        history.push(Message::Tool { call_id: "c".into(), name: "f".into(), text: whole.clone() }, Part::Result);
        for (begin, end) in steps {
            history.shorten(&[Shortening { at: 2, begin, end }]);
            let Message::Tool { text, .. } = &history.messages()[2] else { unreachable!() };
            let Some((first, rest)) = text.split_once("[… ") else {
                prop_assert_eq!(text, &whole);
                continue;
            };
            let (mark, last) = rest.split_once(']').unwrap();
            let (first, last) = (first.trim_end_matches('\n'), last.trim_start_matches('\n'));
            prop_assert!(whole.starts_with(first) && whole.ends_with(last));
            let missing = whole.len() - first.len() - last.len();
            let number = |word: usize| mark.split(' ').nth(word).unwrap().replace(',', "").parse::<usize>().unwrap();
            prop_assert_eq!((number(0), number(2)), (missing, whole.len()));
        }
    }

    #[test]
    fn after_an_overflow_less_is_sent(
        window in prop::option::of(100u32..200_000), reply in 0u32..8_000, beside in 0u64..4_000,
        named in prop::option::of(100u32..200_000), messages in 100u64..200_000,
    ) {
        let room = Room::new(window, Some(reply), beside).after_overflow(named, messages + beside);
        let window = u64::from(room.window.unwrap());
        prop_assert!(window.saturating_sub(room.reply + room.beside) < messages);
        prop_assert!(named.is_none_or(|named| window <= named.into() || u64::from(named) >= messages));
        prop_assert!(room.reply <= reply.into());
    }
}

/// What could go has gone: beside what must stay there are only summaries and messages that are as
/// short as they get.
fn check_nothing_left(history: &History, open: bool, count: Count) -> Result<(), TestCaseError> {
    const SHORTEST: u64 = 130;
    let messages = history.messages();
    let is_turn = |at: usize| matches!(messages[at], Message::Assistant { .. });
    let mut from = history.head();
    let mut loose = 0;
    while from < messages.len() {
        let mut to = from + 1;
        while is_turn(from) && to < messages.len() && !is_turn(to) && history.part(to) != Some(Part::Summary) {
            to += 1;
        }
        let stays = (from..to).any(|at| history.part(at) == Some(Part::Pinned)) || to == messages.len();
        for (at, message) in messages.iter().enumerate().take(to).skip(from) {
            let tokens = count(message);
            if matches!(history.part(at), Some(Part::Result | Part::Summary)) {
                prop_assert!(tokens <= SHORTEST, "a message of {tokens} tokens could be shorter");
            } else if !stays {
                loose += tokens;
            }
        }
        from = to;
    }
    let pins = of_part(history, Part::Pinned).len() as u64;
    prop_assert!(loose <= (pins + 1) * SHORTEST, "{loose} tokens could go, open: {open}");
    Ok(())
}
