//! Conversations, and what holds of them.

use posse_core::model::conversation::told_result;
use posse_core::model::tokens;
use posse_core::model::{CallRequest, Message};
use posse_core::persona::ContextRules;
use posse_core::run::compaction::{
    Cut, Decision, DoesNotFit, History, Part, Room, Shortening, accept, decide, summary_message,
};
use proptest::prelude::*;

pub fn user(text: &str) -> Message {
    Message::User { text: text.into() }
}

pub fn head() -> Vec<Message> {
    vec![Message::System { text: "You test.".into() }, user("Your task:\nFind the ship that sails to Spain.")]
}

/// Some words, about `bytes` long.
pub fn words(bytes: usize) -> String {
    "the ship sails on, ".chars().cycle().take(bytes).collect::<String>() + "."
}

/// One turn of a conversation.
#[derive(Debug, Clone)]
pub struct TurnShape {
    /// Bytes of each result, and whether it is pinned. None: the agent only spoke.
    pub results: Vec<(usize, bool)>,
    pub said: usize,
    /// A user message after it, with whether it is pinned.
    pub note: Option<(usize, bool)>,
}

/// Puts a turn at the end; of the results only the first `there`, if given.
pub fn push_turn(history: &mut History, native: bool, turn: &TurnShape, number: usize, there: Option<usize>) {
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
            false => user(&told_result("read_file", &text)),
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
pub fn check_legal(history: &History, open: bool) -> Result<(), TestCaseError> {
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

pub fn of_part(history: &History, part: Part) -> Vec<Message> {
    let messages = history.messages().iter().enumerate();
    messages.filter(|(at, _)| history.part(*at) == Some(part)).map(|(_, m)| m.clone()).collect()
}

/// Two summaries never stand where nothing that must stay lies between them.
pub fn check_summaries(history: &History) -> Result<(), TestCaseError> {
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

pub type Count = fn(&Message) -> u64;

pub const COUNTERS: [Count; 2] = [tokens::message, |m| {
    let text = serde_json::to_string(m).map_or(0, |text| text.len());
    (text as u64).div_ceil(3)
}];

pub fn total(history: &History, count: Count) -> u64 {
    history.messages().iter().map(count).sum()
}

/// The place where the last `keep` closed turns begin.
pub fn kept_from(history: &History, open: bool, keep: usize) -> usize {
    let is_turn = |at: &usize| matches!(history.messages()[*at], Message::Assistant { .. });
    let turns = (0..history.messages().len()).rev().filter(is_turn);
    turns.skip(usize::from(open)).nth(keep.saturating_sub(1)).unwrap_or(history.head())
}

/// One change, as a journal would keep it.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    Summarised(Cut, String),
    Shortened(Vec<Shortening>),
}

pub fn apply(history: &mut History, change: &Change) {
    match change {
        Change::Summarised(cut, text) => history.summarise(cut, text),
        Change::Shortened(list) => history.shorten(list),
    }
}

/// Does what is decided until the conversation may be sent, and checks every change.
pub fn settle(
    history: &mut History,
    open: bool,
    rules: &ContextRules,
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
        let change = match decide(history, open && !native, rules, room, &count) {
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
                if tokens <= hard && rules.keep_last > 0 {
                    prop_assert!(cut.to <= kept_from(history, open, rules.keep_last as usize), "kept turns were cut");
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
pub fn last_turn(history: &History) -> Option<(&Message, usize)> {
    let messages = history.messages();
    let at = messages.iter().rposition(|m| matches!(m, Message::Assistant { .. }))?;
    Some((&messages[at], messages.len() - at))
}

pub fn turn_shape() -> impl Strategy<Value = TurnShape> {
    let bytes = prop_oneof![6 => 0usize..400, 2 => 400usize..4_000, 1 => 4_000usize..20_000];
    let result = (bytes, prop::bool::weighted(0.04));
    let note = prop::option::weighted(0.15, (0usize..300, prop::bool::weighted(0.3)));
    (prop::collection::vec(result, 0..4), 0usize..600, note).prop_map(|(results, said, note)| TurnShape {
        results,
        said,
        note,
    })
}

pub fn rules() -> impl Strategy<Value = ContextRules> {
    (4u32..60, 0.1f32..=1.0, 0u32..=12, 0.0f64..=1.0).prop_map(|(max_messages, budget_share, keep_last, chunk)| {
        let chunk = 2 + (f64::from(max_messages - 2) * chunk) as u32;
        ContextRules { max_messages: Some(max_messages), chunk, budget_share, keep_last, summary_model: None }
    })
}

pub fn room() -> impl Strategy<Value = Room> {
    let window =
        prop_oneof![1 => Just(None), 4 => (300u32..20_000).prop_map(Some), 1 => (20_000u32..200_000).prop_map(Some)];
    (window, 0u32..2_000, 0u64..500).prop_map(|(window, reply, beside)| Room::new(window, Some(reply), beside))
}
