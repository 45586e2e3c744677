/// Longest fingerprint, in bytes.
const FINGERPRINT_BYTES_MAX: usize = 200;

/// An error without what differs between two occurrences of it, at most 200 bytes: runs of digits
/// become `#`.
#[must_use]
pub fn fingerprint(error: &str) -> String {
    let mut text = String::new();
    for character in error.chars() {
        let character = if character.is_ascii_digit() {
            '#'
        } else {
            character
        };
        if character == '#' && text.ends_with('#') {
            continue;
        }
        if text.len() + character.len_utf8() > FINGERPRINT_BYTES_MAX {
            break;
        }
        text.push(character);
    }
    text
}
