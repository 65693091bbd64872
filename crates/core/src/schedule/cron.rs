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
    /// Reads a rule for a zone of the IANA database, or says what is wrong, also that it can never run.
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

    /// The first run after `at`, in milliseconds; none where no calendar has one.
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
