//! Tables: columns as wide as what is in them, the last one gets what is left.

use super::text::{columns, truncate};

/// A cell: its text, and how it is coloured once it is padded.
pub struct Cell {
    text: String,
    paint: Box<dyn Fn(&str) -> String>,
}

/// A cell without colour.
pub fn plain(text: impl Into<String>) -> Cell {
    Cell { text: text.into(), paint: Box::new(str::to_owned) }
}

/// A cell with colour.
pub fn painted(text: impl Into<String>, paint: impl Fn(&str) -> String + 'static) -> Cell {
    Cell { text: text.into(), paint: Box::new(paint) }
}

/// The lines of a table of `width` columns.
pub fn render(titles: &[&str], rows: Vec<Vec<Cell>>, width: usize, title: impl Fn(&str) -> String) -> Vec<String> {
    let mut widths: Vec<usize> = titles.iter().map(|t| columns(t)).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(columns(&cell.text));
        }
    }
    let last = widths.len() - 1;
    let before: usize = widths[..last].iter().map(|w| w + 2).sum();
    widths[last] = widths[last].min(width.saturating_sub(before).max(16));
    let pad = |text: &str, column: usize| {
        let spaces = if column == last { 0 } else { widths[column].saturating_sub(columns(text)) + 2 };
        " ".repeat(spaces)
    };
    let mut lines = Vec::with_capacity(rows.len() + 1);
    let head: String = titles.iter().enumerate().map(|(i, t)| format!("{t}{}", pad(t, i))).collect();
    lines.push(title(head.trim_end()));
    for row in rows {
        let mut line = String::new();
        for (i, cell) in row.iter().enumerate() {
            let text = truncate(&cell.text, widths[i], false);
            line.push_str(&(cell.paint)(&text));
            line.push_str(&pad(&text, i));
        }
        lines.push(line.trim_end().to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_the_last_is_cut() {
        let rows = vec![
            vec![plain("1"), painted("ok", |t| format!("<{t}>")), plain("a long goal that does not fit")],
            vec![plain("100"), plain("日本"), plain("b")],
        ];
        let lines = render(&["ID", "STATE", "GOAL"], rows, 30, str::to_owned);
        assert_eq!(lines, ["ID   STATE  GOAL", "1    <ok>     a long goal that …", "100  日本   b"]);
    }
}
