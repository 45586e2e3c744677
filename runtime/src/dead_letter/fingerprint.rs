use std::iter::Peekable;
use std::str::CharIndices;

/// Longest fingerprint, in bytes.
pub const FINGERPRINT_BYTES_MAX: usize = 200;

/// Runs of hexadecimal digits of this length or more are taken for an identity, not for a word.
const HEX_LENGTH_MIN: usize = 8;

/// An error without what differs between two occurrences of it, so that dead letters can be
/// grouped by it.
///
/// UUIDs become `#uuid`, runs of eight or more hexadecimal digits `#hex`, numbers `#`, quoted texts
/// `'#'` in their quotes, and white space one blank. At most 200 bytes, cut between two characters.
///
/// ```
/// use posta::dead_letter::fingerprint;
///
/// let error = "the handler failed: no order 4711 of \"Jane\" (0190c6f2-1111-7000-8000-00000000000a)";
/// assert_eq!(fingerprint(error), "the handler failed: no order # of \"#\" (#uuid)");
/// ```
#[must_use]
pub fn fingerprint(error: &str) -> String {
    let mut print = String::new();
    let mut before = ' ';
    let mut chars = error.char_indices().peekable();
    while let Some(&(at, c)) = chars.peek() {
        if print.len() > FINGERPRINT_BYTES_MAX {
            break;
        }
        let rest = &error[at..];
        let (length, stand_in) = if c.is_whitespace() {
            let length = rest.find(|c: char| !c.is_whitespace());
            (length.unwrap_or(rest.len()), " ".to_owned())
        } else if let Some(length) = quoted(rest, before) {
            (length, format!("{c}#{c}"))
        } else if before.is_ascii_alphanumeric() && !c.is_ascii_digit() {
            (c.len_utf8(), c.to_string())
        } else if let Some((length, stand_in)) = identity(rest, before) {
            (length, stand_in.to_owned())
        } else {
            (c.len_utf8(), c.to_string())
        };
        print.push_str(&stand_in);
        before = rest[..length].chars().next_back().unwrap_or(c);
        skip(&mut chars, at + length);
    }
    let print = print.trim();
    let mut end = print.len().min(FINGERPRINT_BYTES_MAX);
    while !print.is_char_boundary(end) {
        end -= 1;
    }
    print[..end].to_owned()
}

fn skip(chars: &mut Peekable<CharIndices<'_>>, to: usize) {
    while chars.next_if(|(at, _)| *at < to).is_some() {}
}

/// The length of a quoted text with its quotes. An apostrophe within or behind a word is no quote.
fn quoted(text: &str, before: char) -> Option<usize> {
    let quote = text.chars().next().filter(|c| "\"'`".contains(*c))?;
    if before.is_alphanumeric() {
        return None;
    }
    let inside = &text[1..];
    let mut escaped = false;
    for (at, c) in inside.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => {
                let after = inside[at + 1..].chars().next();
                let ends = quote != '\'' || !after.is_some_and(char::is_alphanumeric);
                if ends {
                    return Some(1 + at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// A UUID, a run of hexadecimal digits, or a number at the beginning of a text.
fn identity(text: &str, before: char) -> Option<(usize, &'static str)> {
    let word = !before.is_ascii_alphanumeric();
    let hex = leading(text, |c| c.is_ascii_hexdigit());
    if word && is_uuid(text) {
        return Some((36, "#uuid"));
    }
    let ends = |length: usize| {
        !text[length..]
            .chars()
            .next()
            .is_some_and(|c| c.is_alphanumeric())
    };
    if word && hex >= HEX_LENGTH_MIN && ends(hex) && !is_decimal(&text[..hex]) {
        return Some((hex, "#hex"));
    }
    let mut length = leading(text, |c| c.is_ascii_digit());
    if length == 0 {
        return None;
    }
    // Decimals, times and dates are one number each.
    while let Some(separator) = text[length..]
        .chars()
        .next()
        .filter(|c| ".,:_".contains(*c))
    {
        let digits = leading(&text[length + separator.len_utf8()..], |c| {
            c.is_ascii_digit()
        });
        if digits == 0 {
            break;
        }
        length += separator.len_utf8() + digits;
    }
    Some((length, "#"))
}

fn leading(text: &str, of: impl Fn(char) -> bool) -> usize {
    text.find(|c| !of(c)).unwrap_or(text.len())
}

fn is_decimal(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_uuid(text: &str) -> bool {
    let Some(uuid) = text.as_bytes().get(..36) else {
        return false;
    };
    let shaped = uuid.iter().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    let after = text.as_bytes().get(36);
    shaped && !after.is_some_and(u8::is_ascii_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_occurrences_of_one_error_have_one_fingerprint() {
        for (error, print) in [
            ("order 17 not found", "order # not found"),
            (
                "order-17: took 1.5 s at 12:30:01.5",
                "order-#: took # s at #",
            ),
            (
                "no row 'Jane\\'s' of \"x y\" in `t1`",
                "no row '#' of \"#\" in `#`",
            ),
            ("it's the shop's 3rd", "it's the shop's #rd"),
            ("id 0190C6F2-1111-7000-8000-00000000000a.", "id #uuid."),
            ("etag 9f86d081884c7d65 and 00ff", "etag #hex and #ff"),
            ("commit deadbeef, 123456789", "commit #hex, #"),
            ("many\n\t  blanks ", "many blanks"),
            ("utf8 and k3", "utf# and k#"),
            ("an open \"quote", "an open \"quote"),
            ("straße 5 — ünïcode", "straße # — ünïcode"),
            ("", ""),
        ] {
            assert_eq!(fingerprint(error), print, "{error:?}");
        }
    }

    #[test]
    fn it_is_cut_between_two_characters() {
        for length in 195..205 {
            let error = format!("{}ééééé", "x".repeat(length));
            let print = fingerprint(&error);
            assert!(print.len() <= FINGERPRINT_BYTES_MAX && error.starts_with(&print));
            assert!(print.len() >= FINGERPRINT_BYTES_MAX - 1);
        }
    }
}
