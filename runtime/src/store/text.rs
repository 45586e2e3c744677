//! Error texts, as both databases can store them.

use crate::supervision::ERROR_BYTES_MAX;

/// Longest text that is stored beside a row of the outbox or the retry table, in bytes.
const TEXT_BYTES_MAX: usize = 8 * 1024;

/// The text without NUL (PostgreSQL's `text` cannot hold one; it becomes U+FFFD), cut at 8 KiB
/// between two characters.
pub(crate) fn storable(text: &str) -> String {
    cut(text, TEXT_BYTES_MAX)
}

/// A dead letter's error, likewise, cut at 64 KiB: whole, if Posta has made a text of it.
pub(crate) fn storable_error(text: &str) -> String {
    cut(text, ERROR_BYTES_MAX)
}

fn cut(text: &str, bytes_max: usize) -> String {
    let mut text = text.replace('\0', "\u{fffd}");
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_text_has_no_nul_and_ends_between_characters() {
        assert_eq!(storable("a\0b"), "a\u{fffd}b");
        let cut = storable(&"é".repeat(TEXT_BYTES_MAX));
        assert!(cut.len() <= TEXT_BYTES_MAX && cut.chars().all(|c| c == 'é'));
        assert_eq!(
            storable(&format!("x{}", "é".repeat(TEXT_BYTES_MAX))).len(),
            TEXT_BYTES_MAX - 1
        );
        let long = "é".repeat(TEXT_BYTES_MAX);
        assert_eq!(storable_error(&long), long);
        assert_eq!(
            storable_error(&"é".repeat(ERROR_BYTES_MAX)).len(),
            ERROR_BYTES_MAX
        );
    }
}
