//! Cron rules: five fields that say which minutes of which local days, and when the next one comes.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZoneDatabase;
use posse_core::clock::Millis;
use posse_core::schedule::Timetable;
use proptest::prelude::*;

fn ms(text: &str) -> Millis {
    text.parse::<Timestamp>().expect("a moment").as_millisecond()
}

/// The runs in a span of time, both ends included.
fn runs(cron: &str, zone: &str, from: &str, to: &str) -> Vec<String> {
    let timetable = Timetable::parse(cron, zone).expect("a rule");
    let mut at = ms(from) - 1;
    let mut runs = Vec::new();
    while let Some(next) = timetable.next_after(at).filter(|next| *next <= ms(to)) {
        runs.push(Timestamp::from_millisecond(next).expect("a moment").to_string());
        at = next;
    }
    runs
}

/// A day's runs, by the local day's usual bounds.
fn day(cron: &str, zone: &str, day: &str) -> Vec<String> {
    let zone_of = TimeZoneDatabase::bundled().get(zone).expect("a zone");
    let day: Date = day.parse().expect("a day");
    let bound = |day: Date| {
        let first = zone_of.to_ambiguous_timestamp(day.at(0, 0, 0, 0)).compatible().expect("a moment");
        first.to_string()
    };
    let before_next = ms(&bound(day.tomorrow().expect("a day"))) - 1;
    let to = Timestamp::from_millisecond(before_next).expect("a moment").to_string();
    runs(cron, zone, &bound(day), &to)
}

#[test]
fn every_row_of_the_table_of_changing_clocks() {
    assert_eq!(day("30 2 * * *", "America/New_York", "2027-03-14"), ["2027-03-14T07:00:00Z"], "gap");
    assert_eq!(day("30 2 * * *", "America/New_York", "2027-03-15"), ["2027-03-15T06:30:00Z"], "and on");
    assert_eq!(day("30 1 * * *", "America/New_York", "2027-11-07"), ["2027-11-07T05:30:00Z"], "overlap");
    let half_hours = runs("*/30 * * * *", "America/New_York", "2027-11-07T04:00:00Z", "2027-11-07T07:59:59Z");
    let every: Vec<_> = (4..8).flat_map(|h| ["00", "30"].map(|m| format!("2027-11-07T0{h}:{m}:00Z"))).collect();
    assert_eq!(half_hours, every);
    assert_eq!(day("0 0 * * *", "America/Santiago", "2027-09-05"), ["2027-09-05T04:00:00Z"], "no midnight");
    assert_eq!(day("45 1 * * *", "Australia/Lord_Howe", "2027-04-04"), ["2027-04-03T14:45:00Z"], "half an hour");
    let march_only = runs("0 9 31 * *", "UTC", "2027-02-01T00:00:00Z", "2027-04-30T23:59:59Z");
    assert_eq!(march_only, ["2027-03-31T09:00:00Z"]);
    let never = Timetable::parse("0 9 30 2 *", "UTC").expect_err("is refused");
    assert!(never.contains("can never run"), "{never}");
}

#[test]
fn rules_that_name_hours_run_once_for_each_time_of_day() {
    // Four times that do not exist are one run; four that come twice are four.
    let gap = day("*/15 2 * * *", "America/New_York", "2027-03-14");
    assert_eq!(gap, ["2027-03-14T07:00:00Z"]);
    let overlap = day("*/15 1 * * *", "America/New_York", "2027-11-07");
    assert_eq!(overlap.len(), 4);
    assert_eq!((overlap[0].as_str(), overlap[3].as_str()), ("2027-11-07T05:00:00Z", "2027-11-07T05:45:00Z"));
    let every_other = day("0 */2 * * *", "America/New_York", "2027-03-14");
    assert_eq!(every_other.len(), 12, "{every_other:?}");
    // A whole day that did not exist: its run comes at the first moment of the next.
    let samoa = runs("0 12 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z", "2012-01-01T00:00:00Z");
    assert_eq!(samoa, ["2011-12-29T22:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z", "2011-12-31T22:00:00Z"]);
}

#[test]
fn rules_for_every_hour_follow_the_moments() {
    assert_eq!(day("0 * * * *", "America/New_York", "2027-03-14").len(), 23);
    assert_eq!(day("0 * * * *", "America/New_York", "2027-11-07").len(), 25);
    assert_eq!(day("*/15 * * * *", "Australia/Lord_Howe", "2027-04-04").len(), 98, "24.5 hours");
}

#[test]
fn fields_mean_what_cron_means() {
    let in_week = |cron| runs(cron, "UTC", "2027-03-01T00:00:00Z", "2027-03-07T23:59:59Z");
    assert_eq!(in_week("0 9 * * MON-fri").len(), 5);
    assert_eq!(in_week("0 9 * * 7"), ["2027-03-07T09:00:00Z"]);
    assert_eq!(in_week("0 9 * * 0"), in_week("0 9 * * 7"));
    assert_eq!(in_week("0 9 2 * 3"), ["2027-03-02T09:00:00Z", "2027-03-03T09:00:00Z"], "either day");
    assert_eq!(in_week("0 9 */2 * 3"), ["2027-03-03T09:00:00Z"], "a day that begins with * is not given");
    assert_eq!(in_week("5/20 8-9 1,3 mar *").len(), 12);
    assert_eq!(in_week("@daily").len(), 7);
    assert_eq!(runs("0 0 29 2 *", "UTC", "2097-01-01T00:00:00Z", "2105-01-01T00:00:00Z").len(), 1);
    for (cron, said) in [
        ("* * * *", "has 4 fields"),
        ("60 * * * *", "minute '60'"),
        ("* * 0 * *", "day of month '0'"),
        ("* * * * MUN", "numbers or SUN from 0 to 7"),
        ("*/0 * * * *", "minute '*/0'"),
        ("+5 * * * *", "minute '+5'"),
        ("* 17-9 * * *", "goes backwards; write two ranges, 17-23,0-9"),
        ("0 9 31 2,4 *", "can never run"),
    ] {
        let error = Timetable::parse(cron, "UTC").expect_err(cron);
        assert!(error.contains(said), "{cron}: {error}");
    }
    assert!(Timetable::parse("* * * * *", "Mars/Olympus").expect_err("no zone").contains("no time zone"));
}

proptest! {
    /// From anywhere: the next run lies ahead, on the minute, and there is none between.
    #[test]
    fn runs_come_in_order_and_none_is_skipped(
        minute in 0u8..60, hour in prop::option::of(0u8..24),
        zone in prop::sample::select(&["America/New_York", "Australia/Lord_Howe", "America/Santiago", "UTC"][..]),
        from in 1_700_000_000_000_i64..2_000_000_000_000, ahead in 0i64..400_000_000,
    ) {
        let hours = hour.map_or("*".into(), |hour| hour.to_string());
        let timetable = Timetable::parse(&format!("{minute} {hours} * * *"), zone).expect("a rule");
        let next = timetable.next_after(from).expect("it goes on for ever");
        prop_assert!(next > from && next % 60_000 == 0);
        let between = from + ahead % (next - from);
        prop_assert_eq!(timetable.next_after(between), Some(next), "from any moment before it");
    }
}
