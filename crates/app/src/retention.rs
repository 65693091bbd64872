//! How long what has ended is kept, in words; and what follows where settings and database differ.

use posse_core::clock::Millis;
use posse_core::queue::retention::{Keep, Retention};

/// A length of time as one would write it; `forever` for none.
pub fn words(keep: Option<Millis>) -> String {
    let Some(ms) = keep else { return "forever".into() };
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let fits = units.into_iter().find(|(unit, _)| ms >= *unit && ms % unit == 0);
    fits.map_or_else(|| format!("{ms}ms"), |(unit, name)| format!("{}{name}", ms / unit))
}

/// Where settings say otherwise than the database: what, and the way out.
pub fn disagreement(stored: &Retention, said: &[Keep]) -> Option<(String, String)> {
    let unlike = stored.unlike(said);
    if unlike.is_empty() {
        return None;
    }
    let each: Vec<_> = unlike
        .iter()
        .map(|(kind, keep)| format!("{} {}, not {}", kind.as_str(), words(stored.of(*kind)), words(*keep)))
        .collect();
    let what = format!(
        "[retention] in the settings is not what the database keeps ({}); what the database says is done",
        each.join("; ")
    );
    Some((what, "posse db retention --from-settings has the database follow the settings".into()))
}
