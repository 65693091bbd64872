//! Reading fields that servers fill in many ways. A field that is missing or of the wrong type is a field left out: it
//! never costs the reply it stands in.

use serde_json::Value;

/// The objects of a list; a lone object is a list of one.
pub(crate) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    let items = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    items.iter().filter(|item| item.is_object())
}

/// Text, or a number or truth value written as text. Empty text is none.
pub(crate) fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

/// A count, also from a float or from digits in text; negative ones are none.
pub(crate) fn count(value: &Value) -> Option<u64> {
    match value {
        // `as` saturates, so a huge float is a huge count and not a wrapped one.
        Value::Number(number) => {
            number.as_u64().or_else(|| number.as_f64().filter(|float| *float >= 0.0).map(|float| float as u64))
        }
        Value::String(digits) => digits.trim().parse().ok(),
        _ => None,
    }
}
