use std::time::Duration;

use similar::TextDiff;

use super::COLUMNS;
use super::payload::{hex, reflowed};
use super::text::{cut, safe};

/// How long to look for the smallest diff: of two long payloads that have little in common it would
/// take minutes.
const TIME_MAX: Duration = Duration::from_secs(1);
/// Lines of a diff that are shown, at most.
const LINES_MAX: usize = 200;

/// The unified diff of two payloads; JSON is compared value by value, bytes in hexadecimal.
pub(crate) fn diff(before: &[u8], after: &[u8], names: (&str, &str)) -> String {
    let (before, after) = (comparable(before), comparable(after));
    if before == after {
        return "(they differ in blanks only)\n".to_owned();
    }
    TextDiff::configure()
        .timeout(TIME_MAX)
        .diff_lines(&before, &after)
        .unified_diff()
        .header(names.0, names.1)
        .to_string()
}

/// The same for people: lines that fit, without what a terminal would act upon.
pub(crate) fn shown(diff: &str) -> String {
    let mut text = String::new();
    let lines: Vec<&str> = diff.lines().collect();
    for line in lines.iter().take(LINES_MAX) {
        text.push_str(&cut(&safe(&line.replace('\t', "    ")), COLUMNS));
        text.push('\n');
    }
    if lines.len() > LINES_MAX {
        text.push_str(&format!("… {} more lines\n", lines.len() - LINES_MAX));
    }
    text
}

fn comparable(payload: &[u8]) -> String {
    match std::str::from_utf8(payload) {
        Ok(text) => reflowed(text),
        Err(_) => payload
            .chunks(24)
            .map(|bytes| format!("{}\n", hex(bytes, " ")))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_on_one_line_is_compared_value_by_value() {
        let names = ("revision 0", "revision 1");
        let diff = diff(br#"{"a":1,"b":2}"#, br#"{"a":1,"b":3}"#, names);
        assert_eq!(
            diff,
            "--- revision 0\n+++ revision 1\n@@ -1,4 +1,4 @@\n {\n   \"a\": 1,\n-  \"b\": 2\n+  \"b\": 3\n }\n"
        );
    }

    #[test]
    fn a_line_that_is_not_ended_says_so() {
        let diff = diff(b"abc", b"abc\n", ("a", "b"));
        assert!(
            diff.ends_with("-abc\n\\ No newline at end of file\n+abc\n"),
            "{diff}"
        );
    }

    #[test]
    fn long_payloads_without_a_line_in_common_are_compared_in_seconds() {
        let lines = |of: u64| -> String { (0..60_000).map(|n| format!("{}\n", n * of)).collect() };
        let (before, after) = (lines(3), lines(7_919));
        let began = std::time::Instant::now();
        let diff = diff(before.as_bytes(), after.as_bytes(), ("a", "b"));
        assert!(diff.lines().count() > 60_000);
        assert!(began.elapsed() < TIME_MAX * 20, "{:?}", began.elapsed());
    }

    #[test]
    fn bytes_are_compared_in_hexadecimal() {
        let diff = diff(b"\xff\x01", b"\xff\x02", ("a", "b"));
        assert!(diff.contains("-ff 01\n+ff 02\n"), "{diff}");
    }
}
