//! What compaction does to conversations, through its doors: every change keeps a conversation
//! legal, and doing what is decided until it may be sent ends.

// A failed `unwrap` is how a test fails.
#![allow(clippy::unwrap_used)]

use posse_core::model::{CallRequest, Message};
use posse_core::run::compaction::{
    Cut, Decision, DoesNotFit, History, Part, Purpose, Room, Settings, Shortening, Summariser, SummaryRoom, accept,
    decide, summary_message,
};
use posse_core::run::structured;
use posse_core::tokens;
use proptest::prelude::*;

fn user(text: &str) -> Message {
    Message::User { text: text.into() }
}

fn head() -> Vec<Message> {
    vec![Message::System { text: "You test.".into() }, user("Your task:\nFind the ship that sails to Spain.")]
}

/// Some words, about `bytes` long.
fn words(bytes: usize) -> String {
    "the ship sails on, ".chars().cycle().take(bytes).collect::<String>() + "."
}

/// One turn of a conversation.
#[derive(Debug, Clone)]
struct TurnShape {
    /// Bytes of each result, and whether it is pinned. None: the agent only spoke.
    results: Vec<(usize, bool)>,
    said: usize,
    /// A user message after it, with whether it is pinned.
    note: Option<(usize, bool)>,
}

/// Puts a turn at the end; of the results only the first `there`, if given.
fn push_turn(history: &mut History, native: bool, turn: &TurnShape, number: usize, there: Option<usize>) {
    let id = |i: usize| format!("c{number:05}{i:03}");
    let call = |i: usize| CallRequest {
        id: id(i),
        name: "read_file".into(),
        arguments: format!("{{\"path\":\"{number}/{i}.md\"}}"),
        extra: None,
    };
    let calls = if native { (0..turn.results.len()).map(call).collect() } else { Vec::new() };
    let text = format!("Step {number} with {} calls. {}", turn.results.len(), words(turn.said));
    history.push(Message::Assistant { text, reasoning: None, calls }, Part::Plain);
    for (i, (bytes, pinned)) in turn.results.iter().enumerate().take(there.unwrap_or(usize::MAX)) {
        let text = format!("result {number}.{i} {}", words(*bytes));
        let message = match native {
            true => Message::Tool { call_id: id(i), name: "read_file".into(), text },
            false => user(&structured::result("read_file", &text)),
        };
        history.push(message, if *pinned { Part::Pinned } else { Part::Result });
    }
    if let (Some((bytes, pinned)), None) = (turn.note, there) {
        let part = if pinned { Part::Pinned } else { Part::Plain };
        history.push(user(&format!("note {number} {}", words(bytes))), part);
    }
}

/// Breaks of the rules: a call without its results directly after it, a result without its call, an
/// empty message.
fn check_legal(history: &History, open: bool) -> Result<(), TestCaseError> {
    let messages = history.messages();
    let last_turn = messages.iter().rposition(|m| matches!(m, Message::Assistant { .. }));
    let mut at = 0;
    while at < messages.len() {
        let from = at;
        at += 1;
        match &messages[from] {
            Message::Assistant { calls, text, .. } => {
                let said = text.split(' ').nth(3).and_then(|n| n.parse().ok()).unwrap_or(0);
                let is_result = |at: usize| match calls.is_empty() {
                    true => {
                        matches!(&messages[at], Message::User { text } if !text.starts_with("note"))
                            && history.part(at) != Some(Part::Summary)
                    }
                    false => matches!(&messages[at], Message::Tool { .. }),
                };
                while at < messages.len() && is_result(at) {
                    at += 1;
                }
                if !(open && last_turn == Some(from)) {
                    prop_assert_eq!(at - from - 1, said, "turn at {} lost results", from);
                }
                let mut answered: Vec<_> = messages[from + 1..at]
                    .iter()
                    .filter_map(|m| if let Message::Tool { call_id, .. } = m { Some(call_id) } else { None })
                    .collect();
                answered.sort();
                answered.dedup();
                if !calls.is_empty() {
                    prop_assert_eq!(answered.len(), at - from - 1, "a call answered twice at {}", from);
                    prop_assert!(answered.iter().all(|id| calls.iter().any(|c| c.id == **id)), "orphan at {}", from);
                }
            }
            Message::Tool { call_id, .. } => prop_assert!(false, "orphan result {} at {}", call_id, from),
            Message::System { text } | Message::User { text } => prop_assert!(!text.trim().is_empty()),
        }
    }
    Ok(())
}

fn of_part(history: &History, part: Part) -> Vec<Message> {
    let messages = history.messages().iter().enumerate();
    messages.filter(|(at, _)| history.part(*at) == Some(part)).map(|(_, m)| m.clone()).collect()
}

/// Two summaries never stand where nothing that must stay lies between them.
fn check_summaries(history: &History) -> Result<(), TestCaseError> {
    let mut since = false;
    for at in 0..history.messages().len() {
        match history.part(at) {
            Some(Part::Summary) => {
                prop_assert!(!since, "a second summary at {at}");
                since = true;
            }
            Some(Part::Pinned) => since = false,
            _ => {}
        }
    }
    Ok(())
}

type Count = fn(&Message) -> u64;

const COUNTERS: [Count; 2] = [tokens::message, |m| {
    let text = serde_json::to_string(m).map_or(0, |text| text.len());
    (text as u64).div_ceil(3)
}];

fn total(history: &History, count: Count) -> u64 {
    history.messages().iter().map(count).sum()
}

/// The place where the last `keep` closed turns begin.
fn kept_from(history: &History, open: bool, keep: usize) -> usize {
    let is_turn = |at: &usize| matches!(history.messages()[*at], Message::Assistant { .. });
    let turns = (0..history.messages().len()).rev().filter(is_turn);
    turns.skip(usize::from(open)).nth(keep.saturating_sub(1)).unwrap_or(history.head())
}

/// One change, as a journal would keep it.
#[derive(Debug, Clone, PartialEq)]
enum Change {
    Summarised(Cut, String),
    Shortened(Vec<Shortening>),
}

fn apply(history: &mut History, change: &Change) {
    match change {
        Change::Summarised(cut, text) => history.summarise(cut, text),
        Change::Shortened(list) => history.shorten(list),
    }
}

/// Does what is decided until the conversation may be sent, and checks every change.
fn settle(
    history: &mut History,
    open: bool,
    settings: &Settings,
    room: Room,
    count: Count,
    answer: &str,
) -> Result<(Vec<Change>, Option<DoesNotFit>), TestCaseError> {
    let mut changes = Vec::new();
    let hard = room.window.map_or(u64::MAX, |w| u64::from(w).saturating_sub(room.reply + room.beside));
    loop {
        let before = history.clone();
        let tokens = total(&before, count);
        // With native calling, an open call can be seen without being told.
        let native =
            last_turn(&before).is_some_and(|(m, _)| matches!(m, Message::Assistant { calls, .. } if !calls.is_empty()));
        let change = match decide(history, open && !native, settings, room, &count) {
            Err(error) => return Ok((changes, Some(error))),
            Ok(Decision::Send) => {
                prop_assert!(tokens <= hard, "{tokens} of {hard} is not sendable");
                return Ok((changes, None));
            }
            Ok(Decision::Shorten(list)) => {
                prop_assert!(tokens > hard, "shortened though it fits");
                Change::Shortened(list)
            }
            Ok(Decision::Summarise(cut)) => {
                prop_assert!(history.head() <= cut.from && cut.from < cut.to && cut.to <= history.messages().len());
                let replaced = &history.messages()[cut.from..cut.to];
                let summary = accept(answer, replaced, cut.most, &count);
                prop_assert!(!summary.trim().is_empty());
                prop_assert!(count(&summary_message(&summary)) <= cut.most);
                if tokens <= hard && settings.keep_last > 0 {
                    prop_assert!(cut.to <= kept_from(history, open, settings.keep_last), "kept turns were cut");
                }
                Change::Summarised(cut, summary)
            }
        };
        apply(history, &change);
        changes.push(change);
        prop_assert!(total(history, count) < tokens, "{:?} did not shrink {tokens}", changes.last());
        prop_assert_eq!(&history.messages()[..history.head()], &before.messages()[..before.head()]);
        prop_assert_eq!(of_part(history, Part::Pinned), of_part(&before, Part::Pinned));
        if open {
            prop_assert_eq!(last_turn(history), last_turn(&before));
        }
        check_legal(history, open)?;
        check_summaries(history)?;
    }
}

/// What the agent said last, and how many messages followed.
fn last_turn(history: &History) -> Option<(&Message, usize)> {
    let messages = history.messages();
    let at = messages.iter().rposition(|m| matches!(m, Message::Assistant { .. }))?;
    Some((&messages[at], messages.len() - at))
}

fn turn_shape() -> impl Strategy<Value = TurnShape> {
    let bytes = prop_oneof![6 => 0usize..400, 2 => 400usize..4_000, 1 => 4_000usize..20_000];
    let result = (bytes, prop::bool::weighted(0.04));
    let note = prop::option::weighted(0.15, (0usize..300, prop::bool::weighted(0.3)));
    (prop::collection::vec(result, 0..4), 0usize..600, note).prop_map(|(results, said, note)| TurnShape {
        results,
        said,
        note,
    })
}

fn settings() -> impl Strategy<Value = Settings> {
    (4usize..60, 0.1f64..=1.0, 0usize..=12, 0.0f64..=1.0).prop_map(|(max_messages, budget_share, keep_last, chunk)| {
        let chunk = 2 + ((max_messages - 2) as f64 * chunk) as usize;
        Settings { max_messages, chunk, budget_share, keep_last }
    })
}

fn room() -> impl Strategy<Value = Room> {
    let window =
        prop_oneof![1 => Just(None), 4 => (300u32..20_000).prop_map(Some), 1 => (20_000u32..200_000).prop_map(Some)];
    (window, 0u32..2_000, 0u64..500).prop_map(|(window, reply, beside)| Room::new(window, Some(reply), beside))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn doing_what_is_decided_ends_in_a_legal_conversation_that_fits(
        native: bool,
        turns in prop::collection::vec(turn_shape(), 0..40),
        open in prop::option::of(0usize..3),
        settings in settings(),
        room in room(),
        counter in 0usize..2,
        answer in prop_oneof![Just(String::new()), Just("Clio sails to Spain.".to_owned()), Just(words(30_000))],
    ) {
        prop_assert_eq!(settings.check(), Ok(()));
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
        let (changes, error) = settle(&mut history, open, &settings, room, count, &answer)?;

        let soft = room.window.map_or(f64::INFINITY, |w| f64::from(w) * settings.budget_share);
        let sent = (total(&before, count) + room.beside) as f64;
        let fits = room.window.is_none_or(|w| total(&before, count) + room.beside + room.reply <= u64::from(w));
        if before.messages().len() - before.head() <= settings.max_messages && sent < soft && fits {
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

/// The case of a cut within a batch: thirty turns of three calls in a small window, decided before
/// each request, also while one call of the batch waits.
#[test]
fn batches_stay_whole_wherever_the_cut_falls() {
    for (native, keep_last) in [true, false].into_iter().flat_map(|native| (1..=12).map(move |keep| (native, keep))) {
        let settings = Settings { keep_last, ..Settings::default() };
        let room = Room::new(Some(4_000), Some(500), 200);
        let turn = TurnShape { results: vec![(1_200, false); 3], said: 40, note: None };
        let mut history = History::begin(head());
        let mut summaries = 0;
        for number in 0..30 {
            let mut waiting = history.clone();
            push_turn(&mut waiting, native, &turn, number, Some(2));
            settle(&mut waiting, true, &settings, room, tokens::message, "Read.").unwrap();

            push_turn(&mut history, native, &turn, number, None);
            let (changes, error) = settle(&mut history, false, &settings, room, tokens::message, "Read.").unwrap();
            assert_eq!(error, None);
            summaries += changes.iter().filter(|change| matches!(change, Change::Summarised(..))).count();
        }
        assert!((2..=29).contains(&summaries), "{summaries} summaries, keep_last {keep_last}, native {native}");
    }
}

fn settings_of(max_messages: usize, chunk: usize) -> Settings {
    Settings { max_messages, chunk, ..Settings::default() }
}

fn with_turns(turns: usize, bytes: usize) -> History {
    let mut history = History::begin(head());
    for number in 0..turns {
        push_turn(&mut history, true, &TurnShape { results: vec![(bytes, false)], said: 50, note: None }, number, None);
    }
    history
}

#[test]
fn the_oldest_ten_of_more_than_twenty_messages_become_one() {
    let room = Room::new(None, None, 0);
    let history = with_turns(10, 300);
    assert_eq!(decide(&history, false, &Settings::default(), room, &tokens::message), Ok(Decision::Send));
    let mut history = with_turns(11, 300);
    let Ok(Decision::Summarise(cut)) = decide(&history, false, &Settings::default(), room, &tokens::message) else {
        panic!("nothing was summarised")
    };
    assert_eq!((cut.from, cut.to), (2, 12));
    history.summarise(&cut, "Read five files.");
    assert_eq!(history.messages().len(), 2 + 1 + 12);
    assert_eq!(history.part(2), Some(Part::Summary));
    assert_eq!(decide(&history, false, &Settings::default(), room, &tokens::message), Ok(Decision::Send));
}

#[test]
fn an_earlier_summary_goes_into_the_next() {
    let room = Room::new(None, None, 0);
    let mut history = with_turns(40, 300);
    let mut texts = Vec::new();
    while let Ok(Decision::Summarise(cut)) = decide(&history, false, &settings_of(20, 10), room, &tokens::message) {
        texts.push(cut);
        history.summarise(&cut, "Read files.");
        assert_eq!(of_part(&history, Part::Summary).len(), 1);
    }
    assert!(texts.len() > 3 && texts[1..].iter().all(|cut| cut.from == 2), "{texts:?}");
}

#[test]
fn a_cut_for_the_budget_lands_well_below_it() {
    let mut history = with_turns(60, 1_000);
    let room = Room::new(Some(16_000), Some(1_000), 500);
    let settings = settings_of(1_000, 10);
    let Ok(Decision::Summarise(cut)) = decide(&history, false, &settings, room, &tokens::message) else {
        panic!("nothing was summarised")
    };
    history.summarise(&cut, "Read files.");
    let left = total(&history, tokens::message);
    assert!((4_000..=6_500).contains(&left), "{left} tokens are left");
}

#[test]
fn a_huge_last_result_is_shortened_and_says_so() {
    let mut history = with_turns(1, 60_000);
    let room = Room::new(Some(4_000), Some(500), 0);
    let (changes, error) = settle(&mut history, false, &Settings::default(), room, tokens::message, "").unwrap();
    assert_eq!((changes.len(), error), (1, None));
    let Message::Tool { text, .. } = &history.messages()[3] else { panic!("no result") };
    assert!(text.starts_with("result 0.0 the ship") && text.ends_with('.'), "{text}");
    assert!(text.contains(" of 60,012 bytes left out to fit the model's window; the whole is in the run's journal]"));
}

#[test]
fn what_cannot_fit_is_told_in_words() {
    let mut history = History::begin(vec![Message::System { text: words(40_000) }, user("Your task:\nFind it.")]);
    history.push(user(&words(4_000)), Part::Pinned);
    let room = Room::new(Some(4_096), Some(1_024), 300);
    let error = decide(&history, false, &Settings::default(), room, &|m: &Message| match m {
        Message::System { .. } => 9_000,
        _ => 1_000,
    })
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the conversation does not fit the model's window of 4,096 tokens, and nothing in it is left to shorten: \
         10,000 for the system text, examples and task, 1,000 for loaded skills, answers and failure summaries, 0 for \
         the rest, 300 for tools and working memory, 1,024 set aside for the reply. Use a model with a larger window, \
         state the task in fewer words, or lower max_reply_tokens"
    );
}

#[test]
fn without_a_summary_the_calls_are_listed() {
    for native in [true, false] {
        let mut history = History::begin(head());
        history.push(summary_message("Clio was looked for."), Part::Summary);
        if native {
            push_turn(&mut history, true, &TurnShape { results: vec![(30, false)], said: 0, note: None }, 7, None);
        } else {
            let step = r#"{"thinking": "t", "tool": "read_file", "arguments": {"path": "7/0.md"}}"#;
            history.push(Message::Assistant { text: step.into(), reasoning: None, calls: Vec::new() }, Part::Plain);
            history.push(user(&structured::result("read_file", "result 7.0 the ship")), Part::Result);
        }
        let text = accept(" \n", &history.messages()[2..], 500, &tokens::message);
        assert!(text.contains("Clio was looked for."), "{text}");
        assert!(
            text.contains("- read_file {\"path\":\"7/0.md\"} -> ") && text.contains("result 7.0 the ship"),
            "{text}"
        );
    }
}

#[test]
fn settings_out_of_range_are_named() {
    let default = Settings::default;
    for (settings, what) in [
        (Settings { max_messages: 3, ..default() }, "max_messages is 3; it may be 4 to 100,000"),
        (Settings { chunk: 21, ..default() }, "chunk is 21; it may be 2 to max_messages, which is 20"),
        (Settings { chunk: 1, ..default() }, "chunk is 1; it may be 2 to max_messages, which is 20"),
        (Settings { budget_share: f64::NAN, ..default() }, "budget_share is NaN; it may be 0.1 to 1"),
        (Settings { keep_last: 1_001, ..default() }, "keep_last is 1001; it may be 0 to 1,000"),
    ] {
        assert_eq!(settings.check(), Err(what.to_owned()));
    }
}

#[test]
fn a_cut_that_does_not_fit_the_conversation_changes_nothing() {
    let before = with_turns(3, 10);
    for (from, to) in [(0, 3), (1, 2), (4, 4), (5, 4), (3, 99)] {
        let mut history = before.clone();
        history.summarise(&Cut { from, to, most: 10 }, "s");
        assert_eq!(history, before);
    }
    let mut history = before.clone();
    history.shorten(&[Shortening { at: 1, begin: 0, end: 0 }, Shortening { at: 99, begin: 0, end: 0 }]);
    assert_eq!(history, before);
}
