//! Conversations that once went wrong, or show how it goes right.

use posse_core::model::Message;
use posse_core::model::conversation::told_result;
use posse_core::model::tokens;
use posse_core::persona::ContextRules;
use posse_core::run::compaction::{Cut, Decision, History, Part, Room, Shortening, accept, decide, summary_message};

use super::kit::{Change, TurnShape, head, of_part, push_turn, settle, total, user, words};

/// The case of a cut within a batch: thirty turns of three calls in a small window, decided before
/// each request, also while one call of the batch waits.
#[test]
fn batches_stay_whole_wherever_the_cut_falls() {
    for (native, keep_last) in [true, false].into_iter().flat_map(|native| (1..=12).map(move |keep| (native, keep))) {
        let rules = ContextRules { keep_last, ..by_number() };
        let room = Room::new(Some(4_000), Some(500), 200);
        let turn = TurnShape { results: vec![(1_200, false); 3], said: 40, note: None };
        let mut history = History::begin(head());
        let mut summaries = 0;
        for number in 0..30 {
            let mut waiting = history.clone();
            push_turn(&mut waiting, native, &turn, number, Some(2));
            settle(&mut waiting, true, &rules, room, tokens::message, "Read.").unwrap();

            push_turn(&mut history, native, &turn, number, None);
            let (changes, error) = settle(&mut history, false, &rules, room, tokens::message, "Read.").unwrap();
            assert_eq!(error, None);
            summaries += changes.iter().filter(|change| matches!(change, Change::Summarised(..))).count();
        }
        assert!((2..=29).contains(&summaries), "{summaries} summaries, keep_last {keep_last}, native {native}");
    }
}

/// The usual rules, with the usual number of messages also where the window is known.
fn by_number() -> ContextRules {
    rules_of(20, 10)
}

fn rules_of(max_messages: u32, chunk: u32) -> ContextRules {
    ContextRules { max_messages: Some(max_messages), chunk, ..ContextRules::default() }
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
    assert_eq!(decide(&history, false, &ContextRules::default(), room, &tokens::message), Ok(Decision::Send));
    let mut history = with_turns(11, 300);
    let Ok(Decision::Summarise(cut)) = decide(&history, false, &ContextRules::default(), room, &tokens::message) else {
        panic!("nothing was summarised")
    };
    assert_eq!((cut.from, cut.to), (2, 12));
    history.summarise(&cut, "Read five files.");
    assert_eq!(history.messages().len(), 2 + 1 + 12);
    assert_eq!(history.part(2), Some(Part::Summary));
    assert_eq!(decide(&history, false, &ContextRules::default(), room, &tokens::message), Ok(Decision::Send));
}

#[test]
fn an_earlier_summary_goes_into_the_next() {
    let room = Room::new(None, None, 0);
    let mut history = with_turns(40, 300);
    let mut texts = Vec::new();
    while let Ok(Decision::Summarise(cut)) = decide(&history, false, &by_number(), room, &tokens::message) {
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
    let rules = rules_of(1_000, 10);
    let Ok(Decision::Summarise(cut)) = decide(&history, false, &rules, room, &tokens::message) else {
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
    let (changes, error) = settle(&mut history, false, &by_number(), room, tokens::message, "").unwrap();
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
    let error = decide(&history, false, &by_number(), room, &|m: &Message| match m {
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
            history.push(user(&told_result("read_file", "result 7.0 the ship")), Part::Result);
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
