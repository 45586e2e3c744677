use super::COLUMNS;
use super::text::{cut, safe};

/// Lines of a payload that are shown, at most.
const LINES_MAX: usize = 40;
/// Bytes of a payload that is no text that are shown, at most.
const BYTES_MAX: usize = 256;

/// How many times as long a text may become with one value a line, above so many bytes.
const GROWTH_MAX: usize = 8;
const GROWTH_FREE: usize = 64 * 1024;

/// A payload for people: JSON with one value a line, other text as it is, bytes in hexadecimal;
/// indented, and cut where it is long.
pub(crate) fn shown(payload: &[u8]) -> String {
    let mut text = String::new();
    let lines = lines(payload);
    for line in lines.iter().take(LINES_MAX) {
        text.push_str(&cut(&format!("  {}", safe(line)), COLUMNS));
        text.push('\n');
    }
    if lines.len() > LINES_MAX {
        let rest = lines.len() - LINES_MAX;
        text.push_str(&format!("  … {rest} more lines; --payload writes all\n"));
    }
    text
}

/// A payload's lines.
fn lines(payload: &[u8]) -> Vec<String> {
    match std::str::from_utf8(payload) {
        Ok("") => vec!["(empty)".to_owned()],
        Ok(text) => reflowed(text)
            .lines()
            .map(|line| line.replace('\t', "    "))
            .collect(),
        Err(_) => {
            let mut lines: Vec<String> = payload
                .chunks(24)
                .take(BYTES_MAX.div_ceil(24))
                .enumerate()
                .map(|(index, bytes)| format!("{:08x}  {}", index * 24, hex(bytes, " ")))
                .collect();
            if payload.len() > lines.len() * 24 {
                lines.push(format!("… {} bytes in all", payload.len()));
            }
            lines
        }
    }
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8], between: &str) -> String {
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(between)
}

/// JSON on one line as JSON with one value a line; nothing but blanks between its tokens changes,
/// so that two payloads can be compared line by line. Everything else as it is, also JSON so deep
/// that it would be mostly blanks.
pub(crate) fn reflowed(text: &str) -> String {
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    if !is_json || text.trim().contains('\n') {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() * 2);
    let mut depth = 0;
    let mut chars = text.trim().chars().peekable();
    let new_line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.push_str(&"  ".repeat(depth));
    };
    while let Some(c) = chars.next() {
        if out.len() > text.len() * GROWTH_MAX + GROWTH_FREE {
            return text.to_owned();
        }
        match c {
            '"' => {
                out.push(c);
                while let Some(c) = chars.next() {
                    out.push(c);
                    match c {
                        '\\' => out.extend(chars.next()),
                        '"' => break,
                        _ => {}
                    }
                }
            }
            '{' | '[' => {
                out.push(c);
                while chars.next_if(|c| c.is_whitespace()).is_some() {}
                if let Some(end) = chars.next_if(|&next| next == '}' || next == ']') {
                    out.push(end);
                } else {
                    depth += 1;
                    new_line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = usize::saturating_sub(depth, 1);
                new_line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                new_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c if c.is_whitespace() => {}
            c => out.push(c),
        }
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_gets_a_line_for_each_value_and_keeps_its_tokens() {
        let text = r#"{"a":1.10,"b":[],"c":[{"d":"x,{\"}"}, null],"e":{}}"#;
        let lines = reflowed(text);
        assert_eq!(
            lines,
            "{\n  \"a\": 1.10,\n  \"b\": [],\n  \"c\": [\n    {\n      \"d\": \"x,{\\\"}\"\n    },\n    null\n  ],\n  \"e\": {}\n}\n"
        );
        assert_eq!(reflowed("no json"), "no json");
        assert_eq!(reflowed("{\n \"a\": 1 }"), "{\n \"a\": 1 }");
    }

    #[test]
    fn json_of_any_depth_costs_no_more_than_a_few_times_its_length() {
        let deep = format!("{}{}", "[".repeat(500_000), "]".repeat(500_000));
        assert_eq!(reflowed(&deep), deep);
        assert!(shown(deep.as_bytes()).starts_with("  [[["));
        let shallow = format!("{}{}", "[".repeat(100), "]".repeat(100));
        assert_eq!(reflowed(&shallow).lines().count(), 199);
    }

    #[test]
    fn bytes_are_shown_in_hexadecimal_and_long_payloads_cut() {
        assert!(shown(b"\xff\x00").contains("00000000  ff 00"));
        assert!(shown(&[0xff; 1_000]).contains("1000 bytes in all"));
        assert!(shown("x\n".repeat(100).as_bytes()).contains("60 more lines"));
        assert!(!shown(b"\x1b[31m").contains('\x1b'));
    }
}
