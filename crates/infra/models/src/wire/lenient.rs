//! Reading fields that servers fill in many ways. A field of the wrong type is a field left out:
//! it never costs the reply it stands in.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The value if it has the type asked for, else that type's default.
pub(super) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    Ok(read(Value::deserialize(deserializer)?))
}

/// A list; `null` and other types are an empty one, a lone object a list of one, and elements that
/// are not objects are left out.
pub(super) fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    Ok(match Value::deserialize(deserializer)? {
        Value::Array(items) => items.into_iter().filter(Value::is_object).map(read).collect(),
        item @ Value::Object(_) => vec![read(item)],
        _ => Vec::new(),
    })
}

/// Text, or a number or truth value written as text. Empty text is none.
pub(super) fn word<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::String(text) if !text.is_empty() => Some(text),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    })
}

/// A count, also from a float or from digits in text; negative ones are none.
pub(super) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Number(number) => number.as_u64().or_else(|| {
            // `as` saturates, so a huge float is a huge count and not a wrapped one.
            number.as_f64().filter(|float| *float >= 0.0).map(|float| float as u64)
        }),
        Value::String(digits) => digits.trim().parse().ok(),
        _ => None,
    })
}

fn read<T: DeserializeOwned + Default>(value: Value) -> T {
    serde_json::from_value(value).unwrap_or_default()
}
