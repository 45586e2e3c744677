//! Values of an AMQP table, from whatever publisher, as text, number and time.

use lapin::types::{AMQPValue, DecimalValue};
use time::OffsetDateTime;

/// A value as text. Bytes that are no UTF-8 become U+FFFD, and so does NUL, which PostgreSQL's
/// `text` cannot hold.
pub(super) fn text(value: &AMQPValue) -> String {
    match value {
        AMQPValue::LongString(text) => clean(&String::from_utf8_lossy(text.as_bytes())),
        AMQPValue::ShortString(text) => clean(text.as_str()),
        AMQPValue::ByteArray(bytes) => clean(&String::from_utf8_lossy(bytes.as_slice())),
        AMQPValue::Boolean(value) => value.to_string(),
        AMQPValue::ShortShortInt(value) => value.to_string(),
        AMQPValue::ShortShortUInt(value) => value.to_string(),
        AMQPValue::ShortInt(value) => value.to_string(),
        AMQPValue::ShortUInt(value) => value.to_string(),
        AMQPValue::LongInt(value) => value.to_string(),
        AMQPValue::LongUInt(value) => value.to_string(),
        AMQPValue::LongLongInt(value) => value.to_string(),
        AMQPValue::Float(value) => value.to_string(),
        AMQPValue::Double(value) => value.to_string(),
        AMQPValue::Timestamp(value) => value.to_string(),
        AMQPValue::DecimalValue(value) => decimal(value),
        AMQPValue::FieldArray(values) => {
            let values: Vec<String> = values.as_slice().iter().map(text).collect();
            format!("[{}]", values.join(", "))
        }
        AMQPValue::FieldTable(table) => {
            let fields: Vec<String> = table
                .into_iter()
                .map(|(name, value)| format!("{}: {}", clean(name.as_str()), text(value)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
        AMQPValue::Void => String::new(),
    }
}

/// A value as a whole number, also one that was sent as text.
pub(super) fn integer(value: &AMQPValue) -> Option<i64> {
    match value {
        AMQPValue::ShortShortInt(value) => Some((*value).into()),
        AMQPValue::ShortShortUInt(value) => Some((*value).into()),
        AMQPValue::ShortInt(value) => Some((*value).into()),
        AMQPValue::ShortUInt(value) => Some((*value).into()),
        AMQPValue::LongInt(value) => Some((*value).into()),
        AMQPValue::LongUInt(value) => Some((*value).into()),
        AMQPValue::LongLongInt(value) => Some(*value),
        AMQPValue::LongString(_) | AMQPValue::ShortString(_) => text(value).trim().parse().ok(),
        _ => None,
    }
}

/// A header's name in the characters that an envelope's may have: others become `_`.
pub(super) fn name(name: &str) -> String {
    match name {
        "" => "_".to_owned(),
        name => name
            .chars()
            .map(|c| if c.is_ascii_graphic() { c } else { '_' })
            .collect(),
    }
}

/// A timestamp property, in seconds; `None` if it lies beyond the calendar.
pub(super) fn time(seconds: u64) -> Option<OffsetDateTime> {
    i64::try_from(seconds)
        .ok()
        .and_then(|it| OffsetDateTime::from_unix_timestamp(it).ok())
}

/// Text without NUL.
pub(super) fn clean(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

fn decimal(value: &DecimalValue) -> String {
    let scale = usize::from(value.scale);
    let digits = format!("{:0>width$}", value.value, width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    if fraction.is_empty() {
        whole.to_owned()
    } else {
        format!("{whole}.{fraction}")
    }
}

#[cfg(test)]
mod tests {
    use lapin::types::{FieldArray, FieldTable, LongString};

    use super::*;

    #[test]
    fn a_value_of_any_type_becomes_text_without_nul() {
        let mut table = FieldTable::default();
        table.insert("a".into(), AMQPValue::LongInt(1));
        let cases = [
            (
                AMQPValue::LongString(LongString::from(&b"a\xff\0b"[..])),
                "a\u{fffd}\u{fffd}b",
            ),
            (AMQPValue::Boolean(true), "true"),
            (AMQPValue::LongLongInt(-7), "-7"),
            (AMQPValue::Double(0.5), "0.5"),
            (
                AMQPValue::DecimalValue(DecimalValue { scale: 2, value: 5 }),
                "0.05",
            ),
            (
                AMQPValue::DecimalValue(DecimalValue {
                    scale: 0,
                    value: 12,
                }),
                "12",
            ),
            (AMQPValue::Void, ""),
            (
                AMQPValue::FieldArray(FieldArray::from(vec![true.into(), false.into()])),
                "[true, false]",
            ),
            (AMQPValue::FieldTable(table), "{a: 1}"),
        ];
        for (value, expected) in cases {
            assert_eq!(text(&value), expected, "{value:?}");
        }
    }

    #[test]
    fn numbers_are_read_from_any_integer_and_from_text() {
        assert_eq!(integer(&AMQPValue::ShortShortUInt(7)), Some(7));
        assert_eq!(integer(&AMQPValue::LongString("7".into())), Some(7));
        assert_eq!(integer(&AMQPValue::LongString("seven".into())), None);
        assert_eq!(integer(&AMQPValue::Boolean(true)), None);
    }

    #[test]
    fn a_time_beyond_the_calendar_is_no_time() {
        assert_eq!(time(u64::MAX), None);
        assert_eq!(time(i64::MAX as u64), None);
        assert_eq!(time(0), Some(OffsetDateTime::UNIX_EPOCH));
    }
}
