//! What people write: which jobs they mean, times, lengths of time.

use jiff::tz::TimeZone;
use posse_app::{filter, retention, times};
use posse_core::job::JobState;
use posse_core::queue::retention::{Kept, Retention};

#[test]
fn terms_make_a_filter_or_say_what_is_wrong() {
    let parse = |terms: &[&str]| filter::parse(&terms.iter().map(ToString::to_string).collect::<Vec<_>>(), 0);
    let filter = parse(&["state=discarded,cancelled role=scribe search=the big one", "tag=a=b"]).expect("is fine");
    assert_eq!(filter.states, [JobState::Discarded, JobState::Cancelled]);
    assert_eq!((filter.role.as_deref(), filter.text.as_deref()), (Some("scribe"), Some("the big one")));
    assert_eq!(filter.tag.as_deref(), Some("a=b"));
    let meta = parse(&["meta=customer=7 role=scribe"]).expect("is fine").meta;
    assert_eq!(meta, Some(("customer".into(), "7".into())));
    assert_eq!(parse(&["since=1970-01-01T00:00:01Z"]).expect("is fine").created_from, Some(1000));
    for (wrong, words) in [
        ("colour=red", "'colour' is no key; keys are state, role"),
        ("everything", "'everything' is no key=value"),
        (" ", "it is empty"),
        ("state=done", "state: 'done' is no job state"),
        ("role=", "role: has no value"),
        ("role=a role=b", "role: is given twice"),
        ("since=soon", "since: write it as"),
    ] {
        let error = parse(&[wrong]).expect_err(wrong);
        assert!(error.contains(words), "{wrong}: {error}");
    }
}

#[test]
fn times_as_people_write_them() {
    assert_eq!(
        ["90s", "10m", "2h", "1d", "5 min"].map(|text| times::span(text).ok()),
        [Some(90_000), Some(600_000), Some(7_200_000), Some(86_400_000), Some(300_000)]
    );
    for wrong in ["", "10", "-5m", "5x", "99999999999999999999d", "9999d"] {
        assert!(times::span(wrong).is_err(), "{wrong}");
    }
    assert_eq!(times::moment("1970-01-01T00:00:01Z"), Ok(1000));
    assert_eq!(times::moment("1970-01-01T02:00:01+02:00"), Ok(1000));
    assert!(times::moment("1970-01-01T00:00").is_ok());
    assert!(times::moment("tomorrow").is_err());
    let oslo = TimeZone::get("Europe/Oslo").expect("a zone");
    assert_eq!(times::moment_in("2027-01-01", &oslo), times::moment("2026-12-31T23:00:00Z"));
}

#[test]
fn lengths_read_as_they_are_written() {
    for text in ["1ms", "1500ms", "90s", "1m", "36h", "2d", "forever"] {
        assert_eq!(retention::words(times::keep(text).expect("a length")), text);
    }
    assert_eq!(retention::words(Some(0)), "0ms");
}

#[test]
fn of_what_is_kept_what_differs_is_named_and_nothing_else() {
    let stored = Retention::default();
    assert_eq!(retention::disagreement(&stored, &[(Kept::Completed, stored.completed)]), None);
    let said = [(Kept::Completed, Some(1000)), (Kept::Cancelled, stored.cancelled)];
    let (what, _) = retention::disagreement(&stored, &said).expect("they differ");
    assert!(what.contains("completed 30d, not 1s") && !what.contains("cancelled"), "{what}");
}
