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
