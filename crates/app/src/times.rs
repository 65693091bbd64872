//! Times as people write them.

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use posse_core::clock::Millis;

/// A moment: with a zone, or by the clocks of `zone`; a day alone means its beginning.
pub fn moment_in(text: &str, zone: &TimeZone) -> Result<Millis, String> {
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return Ok(at.as_millisecond());
    }
    let civil = text.parse::<DateTime>().or_else(|_| text.parse::<Date>().map(|day| day.at(0, 0, 0, 0)));
    let civil = civil.map_err(|_| "write it as 2026-05-01T09:00:00Z, or 2026-05-01T09:00 without a zone".to_owned())?;
    let zoned = civil.to_zoned(zone.clone()).map_err(|e| e.to_string())?;
    Ok(zoned.timestamp().as_millisecond())
}

/// A moment: with a zone, or by this machine's clocks.
pub fn moment(text: &str) -> Result<Millis, String> {
    moment_in(text, &TimeZone::system())
}

/// A length of time in milliseconds, at most ten years: `90s`, `10m`, `2h`, `1d`.
pub fn span(text: &str) -> Result<Millis, String> {
    let wrong = || "write a number and a unit: 90s, 10m, 2h or 1d".to_owned();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim() {
        "ms" => 1,
        "s" => 1000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    let number: Millis = number.parse().map_err(|_| wrong())?;
    const MOST: Millis = 3650 * 86_400_000;
    number.checked_mul(factor).filter(|ms| *ms <= MOST).ok_or_else(|| "at most 3650d are allowed".into())
}

/// How long something is kept: a length of time, or `forever`, which is none.
pub fn keep(text: &str) -> Result<Option<Millis>, String> {
    if text == "forever" {
        return Ok(None);
    }
    span(text).map(Some).map_err(|_| "write a time like 12h or 30d, or forever; at most 3650d are allowed".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_people_write_them() {
        assert_eq!(
            ["90s", "10m", "2h", "1d", "5 min"].map(|t| span(t).ok()),
            [Some(90_000), Some(600_000), Some(7_200_000), Some(86_400_000), Some(300_000)]
        );
        for wrong in ["", "10", "-5m", "5x", "99999999999999999999d", "9999d"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
        assert_eq!(moment("1970-01-01T00:00:01Z"), Ok(1000));
        assert_eq!(moment("1970-01-01T02:00:01+02:00"), Ok(1000));
        assert!(moment("1970-01-01T00:00").is_ok());
        assert!(moment("tomorrow").is_err());
        let oslo = TimeZone::get("Europe/Oslo").expect("a zone");
        assert_eq!(moment_in("2027-01-01", &oslo), moment("2026-12-31T23:00:00Z"));
    }
}
