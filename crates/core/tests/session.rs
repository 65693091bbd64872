//! A session: a conversation between a person and an agent, over many jobs.

use posse_core::job::{JobId, JobState};
use posse_core::session::*;

#[test]
fn names_become_folders() {
    for good in ["a", "Ada.Lovelace", "x_1-2", "0a", "console", "com", "com10", "aux-1", &"x".repeat(64)] {
        assert_eq!(check_name(good), Ok(()), "{good}");
    }
    let long = ["x".repeat(65), "x".repeat(10_000), "é".repeat(64), ".".repeat(64)];
    let bad = ["", "12", ".hidden", "..", "../../etc", "a/b", "a b", "é", "a\0b", "---", "1/2", "a.", "CON", "nul.txt"];
    let more = ["Com1", "lpt9.a.b", "con/", "\u{202e}a", "日本語", "a\nb", "-rf", "~", "$HOME", "a:b"];
    for bad in bad.into_iter().chain(more).chain(long.iter().map(String::as_str)) {
        let why = check_name(bad).expect_err(bad);
        let (_, rest) = why.split_once("; ").expect("a suggestion");
        let suggestion = rest.strip_suffix(" would do").expect("a suggestion");
        assert_eq!(check_name(suggestion), Ok(()), "{bad:?}: {why}");
    }
}

#[test]
fn the_first_exchange_shown_moves_rarely() {
    assert_eq!(first_shown(&[], 10), 0);
    assert_eq!(first_shown(&[99], 10), 0, "the newest is always shown");
    let (mut moves, mut last) = (0, 0);
    for n in 1..=100 {
        let sizes = vec![10; n];
        let first = first_shown(&sizes, 100);
        assert!(first >= last && (n - first) as u64 * 10 <= 100, "{n}: {first}");
        moves += usize::from(first != last);
        last = first;
    }
    assert!(moves <= 100 / 5, "{moves} moves in 100 exchanges");
}

#[test]
fn a_reply_says_how_far_it_came() {
    let exchange = |state, text: Option<&str>| Exchange {
        job: JobId(1),
        state,
        goal: "g".into(),
        asked: Vec::new(),
        text: text.map(str::to_owned),
        reason: Some("the limit".into()),
        said_at: 0,
        ended_at: None,
        untrusted: false,
    };
    let reply = |state, text| exchange(state, text).reply();
    assert_eq!(reply(JobState::Completed, Some(" yes\n")), "yes");
    assert_eq!(reply(JobState::Cancelled, None), "(interrupted)");
    assert_eq!(reply(JobState::Cancelled, Some("half")), "(interrupted)\nhalf");
    assert_eq!(reply(JobState::Discarded, Some("")), "(not finished: the limit)");
    assert_eq!(reply(JobState::Suspended, None), "(no answer yet)");
    let told = without_model(&vec![exchange(JobState::Completed, Some("yes")); 20]);
    assert!(told.starts_with("(12 earlier turns are left out.)") && told.matches("said: g").count() == 8, "{told}");
}
