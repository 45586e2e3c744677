use unicode_width::UnicodeWidthChar as _;

/// Marks without a width that may follow each other: more of them are no writing.
const MARKS_MAX: usize = 8;

/// A foreign text on one line of a terminal: without control characters, which could move its
/// cursor, without the marks that turn the direction of what follows, and without what nobody sees.
pub(crate) fn printable(text: &str) -> String {
    safe(&text.replace(['\n', '\r', '\t'], " "))
}

/// The same of a line whose blanks are told apart.
pub(crate) fn safe(line: &str) -> String {
    let mut marks = 0;
    line.chars()
        .map(|c| match unsafe_for_terminals(c) {
            true => '\u{fffd}',
            false => c,
        })
        .filter(|c| {
            marks = match c.width() {
                Some(0) => marks + 1,
                _ => 0,
            };
            marks <= MARKS_MAX
        })
        .collect()
}

/// Whether a terminal would act upon a character, or show nothing at all, instead of showing it.
fn unsafe_for_terminals(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

/// `1 letter`, `2 letters`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

/// How many columns a text takes, at most: as terminals have it that know no sequences.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// A text of at most so many columns; `…` stands for what was cut.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut cut = String::new();
    let mut used = 0;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used >= columns {
            break;
        }
        cut.push(c);
    }
    cut.push('…');
    cut
}

/// A text in lines of at most so many columns, broken at blanks where it can be.
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_inclusive(' ') {
        if used > 0 && used + width(word.trim_end()) > columns {
            lines.push(String::new());
            used = 0;
        }
        for c in word.chars() {
            let wide = c.width().unwrap_or(0);
            if used + wide > columns {
                if c == ' ' {
                    continue;
                }
                lines.push(String::new());
                used = 0;
            }
            if let Some(line) = lines.last_mut() {
                line.push(c);
            }
            used += wide;
        }
    }
    lines
        .iter()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_foreign_reaches_the_terminal_unchanged() {
        assert_eq!(
            printable("a\x1b[31mred\nb\u{202e}c\u{7}"),
            "a\u{fffd}[31mred b\u{fffd}c\u{fffd}"
        );
    }

    #[test]
    fn what_nobody_would_see_is_shown_and_marks_do_not_pile_up() {
        assert_eq!(
            printable("k\u{200b}1 \u{feff}\u{61c}\u{e0041}"),
            "k\u{fffd}1 \u{fffd}\u{fffd}\u{fffd}"
        );
        let marks = printable(&format!("e{}x", "\u{301}".repeat(5_000)));
        assert_eq!(marks.chars().count(), 1 + MARKS_MAX + 1);
        // Terminals that know no sequences show four people.
        let family = "👨‍👩‍👧‍👦".repeat(40);
        assert_eq!(width(&family), 320);
        assert!(width(&cut(&family, 100)) <= 100);
    }

    #[test]
    fn a_cut_text_has_no_more_columns_than_asked_for() {
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("longer", 5), "long…");
        // Wide characters take two columns each.
        assert_eq!(cut("漢字漢字", 5), "漢字…");
        assert!(width(&cut("漢字漢字", 4)) <= 4);
    }

    #[test]
    fn lines_break_at_blanks_where_they_can() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrap("", 4), [""]);
        for line in wrap("漢字漢字 a bb ccc dddd 漢字", 5) {
            assert!(width(&line) <= 5, "{line}");
        }
    }
}
