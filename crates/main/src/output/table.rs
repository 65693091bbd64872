//! Tables: columns as wide as what is in them, the last one gets what is left. Where that is too little,
//! wide columns give way; where even that does not do, each row becomes a block of lines.

use super::text::{columns, truncate, visible, wrap};

/// A cell: its text, and how it is coloured once it is padded.
pub struct Cell {
    text: String,
    paint: Box<dyn Fn(&str) -> String + Send>,
}

pub fn plain(text: impl Into<String>) -> Cell {
    painted(text, str::to_owned)
}

pub fn painted(text: impl Into<String>, paint: impl Fn(&str) -> String + Send + 'static) -> Cell {
    // Whatever it says, a cell is part of one line.
    let text = visible(&text.into()).split_whitespace().collect::<Vec<_>>().join(" ");
    Cell { text, paint: Box::new(paint) }
}

/// Columns that are given up by none but the last column.
const NARROW: usize = 14;
/// Columns that the last one keeps.
const LAST: usize = 16;
const GAP: usize = 2;

pub fn render(titles: &[&str], rows: Vec<Vec<Cell>>, width: usize, title: impl Fn(&str) -> String) -> Vec<String> {
    let mut widths: Vec<usize> = titles.iter().map(|t| columns(t)).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(columns(&cell.text));
        }
    }
    if !fit(&mut widths, width) {
        return blocks(titles, rows, width, title);
    }
    let last = widths.len() - 1;
    let pad = |text: &str, column: usize| {
        let spaces = if column == last { 0 } else { widths[column].saturating_sub(columns(text)) + GAP };
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

/// Makes the columns fit, if they can: the last gives way first, then whichever is widest.
fn fit(widths: &mut [usize], width: usize) -> bool {
    let last = widths.len() - 1;
    let too_wide = |widths: &[usize]| (widths.iter().sum::<usize>() + GAP * last).saturating_sub(width);
    let given = too_wide(widths).min(widths[last].saturating_sub(LAST));
    widths[last] -= given;
    while too_wide(widths) > 0 {
        match widths[..last].iter_mut().max() {
            Some(widest) if *widest > NARROW => *widest -= 1,
            _ => return false,
        }
    }
    true
}

fn blocks(titles: &[&str], rows: Vec<Vec<Cell>>, width: usize, title: impl Fn(&str) -> String) -> Vec<String> {
    let column = titles.iter().map(|t| columns(t)).max().unwrap_or(0).min(width / 3);
    let mut lines = Vec::new();
    for (i, row) in rows.into_iter().enumerate() {
        if i > 0 {
            lines.push(String::new());
        }
        for (name, cell) in titles.iter().zip(row).filter(|(_, cell)| !cell.text.is_empty()) {
            for (j, line) in wrap(&cell.text, width - column - GAP).into_iter().enumerate() {
                let name = truncate(if j == 0 { name } else { "" }, column, false);
                let spaces = " ".repeat(column - columns(&name) + GAP);
                lines.push(format!("{}{spaces}{}", title(&name), (cell.paint)(&line)));
            }
        }
    }
    lines
}
