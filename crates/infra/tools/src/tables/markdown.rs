//! Tables in Markdown: a line of titles between bars, one of dashes beneath it, and the rows.

use super::Source;

/// Head and rows of each.
pub(super) fn tables(source: &Source<'_>) -> Vec<(Vec<String>, Vec<Vec<String>>)> {
    let mut found = Vec::new();
    let mut lines = source.text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(head) = bars(line) else { continue };
        if lines.next_if(|below| is_rule(below)).is_none() {
            continue;
        }
        let rows: Vec<_> = std::iter::from_fn(|| lines.next_if(|line| bars(line).is_some()).and_then(bars)).collect();
        found.push((head, rows));
    }
    found
}

fn bars(line: &str) -> Option<Vec<String>> {
    let inner = line.trim().strip_prefix('|')?;
    let inner = inner.strip_suffix('|').unwrap_or(inner);
    let plain = |cell: &str| cell.trim().trim_matches(['*', '`']).to_owned();
    Some(inner.split('|').map(plain).collect())
}

fn is_rule(line: &str) -> bool {
    bars(line).is_some_and(|cells| {
        cells.iter().all(|cell| cell.contains('-') && cell.chars().all(|c| matches!(c, '-' | ':')))
    })
}
