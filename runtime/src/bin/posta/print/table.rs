use super::COLUMNS;
use super::text::{cut, printable, width};

/// The gap between two columns.
const GAP: usize = 2;
/// What stands before a note.
const NOTE: &str = "        ";

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    title: &'static str,
    right: bool,
    /// How narrow it may become when the table is too wide; `None`: never narrower than its cells.
    min: Option<usize>,
}

/// A column that is shown whole.
pub(crate) const fn whole(title: &'static str) -> Column {
    Column {
        title,
        right: false,
        min: None,
    }
}

/// A column of numbers.
pub(crate) const fn number(title: &'static str) -> Column {
    Column {
        title,
        right: true,
        min: None,
    }
}

/// A column that may be cut to so many.
pub(crate) const fn text(title: &'static str, min: usize) -> Column {
    Column {
        title,
        right: false,
        min: Some(min),
    }
}

/// An aligned table that fits [`COLUMNS`]: the widest columns that may be cut are.
pub(crate) fn table(columns: &[Column], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| printable(cell)).collect())
        .collect();
    let mut widths: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(index, column)| {
            let cells = rows.iter().map(|row| width(&row[index]));
            cells.max().unwrap_or(0).max(width(column.title))
        })
        .collect();
    let room = COLUMNS - GAP * (columns.len() - 1);
    while widths.iter().sum::<usize>() > room {
        let widest = (0..columns.len())
            .filter(|&index| columns[index].min.is_some_and(|min| widths[index] > min))
            .max_by_key(|&index| widths[index]);
        // Nothing is left to cut: each table's smallest widths fit.
        let Some(widest) = widest else { break };
        widths[widest] -= 1;
    }
    let titles: Vec<String> = columns
        .iter()
        .map(|column| column.title.to_owned())
        .collect();
    let mut text = String::new();
    for row in std::iter::once(&titles).chain(&rows) {
        text.push_str(&line(columns, &widths, row));
        text.push('\n');
    }
    text
}

/// A table with a note below each row, where it has room.
pub(crate) fn noted(columns: &[Column], rows: &[Vec<String>], notes: &[&str]) -> String {
    let mut lines = table(columns, rows)
        .lines()
        .map(str::to_owned)
        .collect::<Vec<_>>();
    for (line, note) in lines.iter_mut().skip(1).zip(notes) {
        let note = format!("{NOTE}{}", printable(note));
        *line = format!("{line}\n{}", cut(note.trim_end(), COLUMNS));
    }
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

fn line(columns: &[Column], widths: &[usize], row: &[String]) -> String {
    let mut line = String::new();
    for ((column, &room), cell) in columns.iter().zip(widths).zip(row) {
        let cell = cut(cell, room);
        let pad = " ".repeat(room.saturating_sub(width(&cell)));
        if !line.is_empty() {
            line.push_str(&" ".repeat(GAP));
        }
        if column.right {
            line.push_str(&pad);
            line.push_str(&cell);
        } else {
            line.push_str(&cell);
            line.push_str(&pad);
        }
    }
    cut(line.trim_end(), COLUMNS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_aligned_and_only_its_texts_are_cut() {
        let columns = [number("letter"), text("key", 4), text("error", 8)];
        let rows = [
            vec!["7".to_owned(), "k".to_owned(), "e".repeat(200)],
            vec!["1234567".to_owned(), "漢字".to_owned(), "short".to_owned()],
        ];
        let table = table(&columns, &rows);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], " letter  key   error");
        assert!(lines[1].starts_with("      7  k     eeee"), "{}", lines[1]);
        assert_eq!(width(lines[1]), COLUMNS);
        assert!(lines[1].ends_with('…'));
        assert_eq!(lines[2], "1234567  漢字  short");
    }
}
