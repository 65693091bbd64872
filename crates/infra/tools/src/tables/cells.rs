//! What stands in a column: numbers, where each value is one, with the same unit or none.

/// A value of a table.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) enum Cell {
    Nothing,
    Integer(i64),
    Real(f64),
    Text(String),
}

/// Stand where there is no number in a column of them.
const NOTHING: [&str; 7] = ["", "-", "–", "none", "n/a", "unknown", "?"];

/// The cells of a column, and the unit of its numbers.
pub(super) fn column<'a>(texts: impl Iterator<Item = &'a str> + Clone) -> (Vec<Cell>, Option<String>) {
    let is_nothing = |text: &str| NOTHING.iter().any(|none| text.eq_ignore_ascii_case(none));
    let mut numbers = texts.clone().filter(|text| !is_nothing(text)).map(number);
    let unit = match numbers.next() {
        Some(Some((_, unit))) if numbers.all(|number| number.is_some_and(|(_, other)| other == unit)) => unit,
        _ => {
            let cell = |text: &str| if text.is_empty() { Cell::Nothing } else { Cell::Text(text.to_owned()) };
            return (texts.map(cell).collect(), None);
        }
    };
    let cells = texts.map(|text| number(text).map_or(Cell::Nothing, |(cell, _)| cell)).collect();
    (cells, Some(unit.to_owned()).filter(|unit| !unit.is_empty()))
}

pub(super) fn is_number(text: &str) -> bool {
    number(text).is_some()
}

/// A number with the unit before or behind it. What begins with 0 and goes on with a digit is a code or a telephone number,
/// and so is more digits than a number keeps.
fn number(text: &str) -> Option<(Cell, &str)> {
    const CURRENCIES: [char; 4] = ['€', '$', '£', '¥'];
    let text = text.trim();
    let (text, before) = match text.chars().next().filter(|c| CURRENCIES.contains(c)) {
        Some(currency) => (text[currency.len_utf8()..].trim_start(), &text[..currency.len_utf8()]),
        None => (text, ""),
    };
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | '+' | '-' | '−');
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    let (digits, unit) = (&text[..end], text[end..].trim_start());
    let is_unit = unit.chars().all(|c| c.is_alphabetic() || matches!(c, '%' | '°' | '€' | '$' | '£' | '/' | '²' | '³'));
    let is_short = unit.chars().count() <= 12;
    if !(is_unit && is_short && (before.is_empty() || unit.is_empty())) {
        return None;
    }
    let unit = if before.is_empty() { unit } else { before };
    let sign = if digits.starts_with(['-', '−']) { -1 } else { 1 };
    let digits = digits.trim_start_matches(['+', '-', '−']);
    let (whole, fraction) = digits.split_once('.').map_or((digits, None), |(whole, rest)| (whole, Some(rest)));
    let whole = without_separators(whole)?;
    let is_code = whole.len() > 1 && whole.starts_with('0') || whole.len() > 15;
    if whole.is_empty() || is_code {
        return None;
    }
    match fraction {
        None => Some((Cell::Integer(sign * whole.parse::<i64>().ok()?), unit)),
        Some(rest) if !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()) => {
            Some((Cell::Real(sign as f64 * format!("{whole}.{rest}").parse::<f64>().ok()?), unit))
        }
        Some(_) => None,
    }
}

/// `1,204,000` is one number; `1,2` is not.
fn without_separators(whole: &str) -> Option<String> {
    let mut groups = whole.split(',');
    let first = groups.next().filter(|first| first.bytes().all(|b| b.is_ascii_digit()))?;
    let mut out = first.to_owned();
    for group in groups {
        let is_group = group.len() == 3 && group.bytes().all(|b| b.is_ascii_digit());
        if !is_group || !(1..=3).contains(&first.len()) {
            return None;
        }
        out.push_str(group);
    }
    Some(out)
}
