//! Cron rules: five fields that say which minutes of which local days, and when the next one comes.
//!
//! ```text
//! minute 0-59   hour 0-23   day of month 1-31   month 1-12 or JAN-DEC   day of week 0-7 or SUN-SAT
//! ```
//!
//! A field is `*`, a number, a range `9-17`, a step `*/15` or `9-17/2`, or a list of these. 0 and 7
//! are both Sunday. Where days of the month and of the week are both given, either is enough, as cron
//! has always had it. `@hourly`, `@daily`, `@weekly`, `@monthly` and `@yearly` stand for the usual five.
//!
//! **When clocks are set forward or back.** A rule that names hours means local times of day, and each
//! of them comes once a day: one that is skipped runs at the first moment after the gap (two that
//! would meet there are one run), and one that comes twice runs the first time only. A rule for every
//! hour (`*` in the hour's place) means moments that pass: it runs whenever the local minute fits, so
//! also in the hour that comes twice, and never in one that does not exist.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};

use crate::clock::Millis;
use crate::text::plural;

/// The longest time between two runs: 29 February, over a year like 2100 that leaps no day.
const YEARS_AHEAD: i16 = 9;

/// A rule in a time zone.
#[derive(Debug, Clone)]
pub struct Timetable {
    rule: Rule,
    zone: TimeZone,
}

/// The sets of the five fields, a bit for each value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Either day is enough, since both were given.
    either_day: bool,
}

const EVERY_HOUR: u64 = (1 << 24) - 1;

impl Timetable {
    /// Reads a rule for a zone of the IANA database (`Europe/Oslo`, `UTC`). Says in words what is wrong
    /// with either, also that a rule can never run.
    pub fn parse(cron: &str, zone: &str) -> Result<Timetable, String> {
        let zone = TimeZoneDatabase::bundled().get(zone).map_err(|_| {
            format!("there is no time zone '{zone}'; name one like Europe/Oslo, America/New_York or UTC")
        })?;
        let timetable = Timetable { rule: Rule::parse(cron)?, zone };
        // A leap day comes within nine years from any moment, or never.
        match timetable.next_after(0) {
            Some(_) => Ok(timetable),
            None => Err(format!("'{cron}' can never run: no month it names has such a day")),
        }
    }

    /// The first run after `at`, in milliseconds; never `at` itself. None where there is none within
    /// what a calendar can hold.
    pub fn next_after(&self, at: Millis) -> Option<Millis> {
        let at = Timestamp::from_millisecond(at).ok()?;
        let next = if self.rule.hours == EVERY_HOUR { self.next_moment(at) } else { self.next_time_of_day(at) };
        next.map(Timestamp::as_millisecond)
    }

    /// The next of a rule that names hours.
    fn next_time_of_day(&self, at: Timestamp) -> Option<Timestamp> {
        let begin = self.zone.to_datetime(at).date();
        self.days_from(begin).find_map(|day| {
            let hours = (0..24).filter(|hour| has(self.rule.hours, *hour));
            let mut times = hours.flat_map(|hour| {
                let minutes = (0..60).filter(|minute| has(self.rule.minutes, *minute));
                minutes.map(move |minute| day.at(hour, minute, 0, 0))
            });
            times.find_map(|time| self.once(time).filter(|moment| *moment > at))
        })
    }

    /// The one moment that stands for a local time of day.
    fn once(&self, time: DateTime) -> Option<Timestamp> {
        match self.zone.to_ambiguous_timestamp(time).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(time).ok(),
            // The one before the clock is set back is the first of both.
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(time).ok(),
            // With the later offset it lies before the change, which is then the next one.
            AmbiguousOffset::Gap { after, .. } => {
                self.zone.following(after.to_timestamp(time).ok()?).next().map(|change| change.timestamp())
            }
        }
    }

    /// The next of a rule for every hour: the local minute is looked at as the moments pass.
    fn next_moment(&self, at: Timestamp) -> Option<Timestamp> {
        let minute = at.as_second().div_euclid(60) + 1;
        let mut moment = Timestamp::from_second(minute * 60).ok()?;
        let begin = self.zone.to_datetime(moment).date();
        for day in self.days_from(begin) {
            let first = self.zone.to_ambiguous_timestamp(day.at(0, 0, 0, 0)).compatible().ok()?;
            moment = moment.max(first);
            loop {
                let local = self.zone.to_datetime(moment);
                if local.date() != day {
                    break;
                }
                if local.second() == 0 && has(self.rule.minutes, local.minute()) {
                    return Some(moment);
                }
                moment = Timestamp::from_second(moment.as_second() + 60).ok()?;
            }
        }
        None
    }

    /// The days from `begin` on that the rule names.
    fn days_from(&self, begin: Date) -> impl Iterator<Item = Date> + '_ {
        let last = begin.year().saturating_add(YEARS_AHEAD);
        let days = std::iter::successors(Some(begin), |day| day.tomorrow().ok());
        days.take_while(move |day| day.year() <= last).filter(|day| self.rule.names(*day))
    }
}

impl Rule {
    fn parse(cron: &str) -> Result<Rule, String> {
        let spelled = match cron.trim() {
            "@hourly" => "0 * * * *",
            "@daily" | "@midnight" => "0 0 * * *",
            "@weekly" => "0 0 * * 0",
            "@monthly" => "0 0 1 * *",
            "@yearly" | "@annually" => "0 0 1 1 *",
            other => other,
        };
        let fields: Vec<_> = spelled.split_ascii_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else {
            return Err(format!(
                "'{cron}' has {}; write five: minute, hour, day of month, month, day of week",
                plural(fields.len() as u64, "field")
            ));
        };
        let weekdays = set(weekday, "day of week", 0, 7, &WEEKDAYS)?;
        Ok(Rule {
            minutes: set(minute, "minute", 0, 59, &[])?,
            hours: set(hour, "hour", 0, 23, &[])?,
            days: set(day, "day of month", 1, 31, &[])?,
            months: set(month, "month", 1, 12, &MONTHS)?,
            // 7 is Sunday too.
            weekdays: (weekdays | weekdays >> 7) & 0x7f,
            either_day: !day.starts_with('*') && !weekday.starts_with('*'),
        })
    }

    fn names(&self, day: Date) -> bool {
        let in_month = has(self.days, day.day());
        let in_week = has(self.weekdays, day.weekday().to_sunday_zero_offset());
        let fits = if self.either_day { in_month || in_week } else { in_month && in_week };
        fits && has(self.months, day.month())
    }
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// The values that a field names. `names` are other words for the values from `low` on.
fn set(field: &str, what: &str, low: u8, high: u8, names: &[&str]) -> Result<u64, String> {
    let wrong = |part: &str| {
        let or = names.first().map(|name| format!(" or {}", name.to_uppercase())).unwrap_or_default();
        format!("{what} '{part}' is not understood: numbers{or} from {low} to {high}, as in *, 5, 1-5, */15 or 1,15")
    };
    let value = |text: &str, part: &str| -> Result<u8, String> {
        let named = names.iter().position(|name| name.eq_ignore_ascii_case(text)).map(|at| low + at as u8);
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = named.or_else(|| text.parse().ok().filter(|_| digits));
        number.filter(|number| (low..=high).contains(number)).ok_or_else(|| wrong(part))
    };
    let mut values = 0;
    for part in field.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => {
                let step = step.parse().ok().filter(|step| (1..=high).contains(step)).ok_or_else(|| wrong(part))?;
                (range, Some(step))
            }
            None => (part, None),
        };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (low, high),
            Some((first, last)) => (value(first, part)?, value(last, part)?),
            None => {
                let first = value(range, part)?;
                (first, if step.is_some() { high } else { first })
            }
        };
        if first > last {
            return Err(format!("{what} '{part}' goes backwards; write two ranges, {first}-{high},{low}-{last}"));
        }
        (first..=last).step_by(usize::from(step.unwrap_or(1))).for_each(|value| values |= 1 << value);
    }
    Ok(values)
}

fn has(set: u64, value: i8) -> bool {
    set & (1 << value) != 0
}

// Days of the week are counted as cron counts them.
const _: () = assert!(Weekday::Sunday.to_sunday_zero_offset() == 0);

#[cfg(test)]
mod tests {
    use super::*;
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
        assert_eq!(
            samoa,
            ["2011-12-29T22:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z", "2011-12-31T22:00:00Z"]
        );
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
}
