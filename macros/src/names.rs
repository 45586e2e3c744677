//! The rules that names and numbers keep at compile time: the only place in this crate that states
//! them.
//!
//! `posta` states the same rules for what comes from rows and from the network; it depends on this
//! crate, so this crate cannot ask it. The test at the end holds the two together.

use std::time::Duration;

/// Longest message type, in bytes: AMQP's short string of 255 bytes less the `.63` that the routing
/// key adds.
const MESSAGE_TYPE_BYTES_MAX: usize = 252;

/// Longest consumer name, in bytes.
const CONSUMER_NAME_BYTES_MAX: usize = 100;

/// Largest schema version: the outbox keeps it in a 32-bit signed column.
const VERSION_MAX: u32 = i32::MAX.unsigned_abs();

/// Most partitions of a consumer: one for each slot.
const PARTITIONS_MAX: u8 = 64;

/// Most tries that a retry policy can allow.
const ATTEMPTS_MAX: u32 = 1000;

/// The longest delay between two tries.
const CAP_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest time that a handler may take: below RabbitMQ's patience of 30 minutes.
const DEADLINE_MAX: Duration = Duration::from_secs(29 * 60);

/// What is wrong with a message type.
pub(crate) fn message_type_mistake(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some(
            "the message type is empty; it is a dotted name such as `document.signed`".into(),
        );
    }
    if name.len() > MESSAGE_TYPE_BYTES_MAX {
        return Some(format!(
            "the message type has {} bytes, more than the {MESSAGE_TYPE_BYTES_MAX} that AMQP's \
             routing key leaves it",
            name.len()
        ));
    }
    let allowed = |c: char| c.is_ascii_graphic() && c != '*' && c != '#';
    let forbidden = name.chars().find(|c| !allowed(*c))?;
    Some(format!(
        "the message type holds {forbidden:?}; it is made of printable ASCII without blanks, \
         and without `*` and `#`, which are wildcards in AMQP's routing keys"
    ))
}

/// What is wrong with a consumer's name.
pub(crate) fn consumer_name_mistake(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("the consumer's name is empty".into());
    }
    if name.len() > CONSUMER_NAME_BYTES_MAX {
        return Some(format!(
            "the consumer's name has {} bytes, more than the {CONSUMER_NAME_BYTES_MAX} allowed",
            name.len()
        ));
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let forbidden = name.chars().find(|c| !allowed(*c))?;
    Some(format!(
        "the consumer's name holds {forbidden:?}; it is made of `a-z`, `A-Z`, `0-9`, `.`, `_` \
         and `-`"
    ))
}

/// The schema version of a number as written, or what is wrong with it.
pub(crate) fn version_of(digits: &str) -> Result<u32, String> {
    match digits.parse() {
        Ok(version @ 1..=VERSION_MAX) => Ok(version),
        _ => Err(format!(
            "version {digits}: a schema version is 1 to {VERSION_MAX}"
        )),
    }
}

/// The number of partitions of a number as written, or what is wrong with it.
pub(crate) fn partitions_of(digits: &str) -> Result<u8, String> {
    match digits.parse() {
        Ok(partitions @ 1..=PARTITIONS_MAX) => Ok(partitions),
        _ => Err(format!(
            "{digits} partitions: a consumer has 1 to {PARTITIONS_MAX}, the number of slots"
        )),
    }
}

/// The number of tries of a number as written, or what is wrong with it.
pub(crate) fn attempts_of(digits: &str) -> Result<u32, String> {
    match digits.parse() {
        Ok(attempts @ 1..=ATTEMPTS_MAX) => Ok(attempts),
        _ => Err(format!("{digits} attempts: there are 1 to {ATTEMPTS_MAX}")),
    }
}

/// The number of immediate tries of a number as written, or what is wrong with it.
pub(crate) fn immediate_of(digits: &str) -> Result<u32, String> {
    match digits.parse() {
        Ok(tries @ 0..ATTEMPTS_MAX) => Ok(tries),
        _ => Err(format!(
            "immediate {digits}: there are 0 to {}, fewer than attempts",
            ATTEMPTS_MAX - 1
        )),
    }
}

/// The delay of a text such as `1s`, or what is wrong with it.
pub(crate) fn delay_of(name: &str, text: &str) -> Result<Duration, String> {
    let delay = duration_of(text)?;
    if delay > CAP_MAX {
        return Err(format!("{name} {text}: a delay is at most 24h"));
    }
    Ok(delay)
}

/// The deadline of a text such as `30s`, or what is wrong with it.
pub(crate) fn deadline_of(text: &str) -> Result<Duration, String> {
    let deadline = duration_of(text)?;
    if deadline.is_zero() || deadline > DEADLINE_MAX {
        return Err(format!(
            "deadline {text}: it is 1ms to 29m, below the 30 minutes after which RabbitMQ gives up \
             on a consumer"
        ));
    }
    Ok(deadline)
}

/// A whole number and its unit.
fn duration_of(text: &str) -> Result<Duration, String> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let millis = match unit {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60 * 1000),
        "h" => Some(60 * 60 * 1000),
        _ => None,
    };
    let number: Option<u64> = number.parse().ok();
    let duration = number
        .zip(millis)
        .map(|(number, millis)| Duration::from_millis(number.saturating_mul(millis)));
    duration.ok_or_else(|| {
        format!(
            "{text:?} is no duration: it is a whole number and one of `ms`, `s`, `m` and `h`, as in \
             \"30s\""
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use posta::consumer::is_valid_name;
    use posta::message::{MessageType, limits};

    /// Every character of ASCII and some beyond, alone and inside; and lengths around both limits.
    fn candidates() -> impl Iterator<Item = String> {
        let characters = (0u8..128)
            .map(char::from)
            .chain(['é', 'ß', '\u{a0}', '\u{2028}', '𝄞']);
        let around = |c: char| [c.to_string(), format!("a{c}b"), format!("{c}.b")];
        let lengths = [0, 1, 99, 100, 101, 251, 252, 253, 254, 255, 256].into_iter();
        characters
            .flat_map(around)
            .chain(lengths.map(|length| "a".repeat(length)))
    }

    #[test]
    fn the_runtime_and_the_macros_agree_on_names() {
        for name in candidates() {
            let at_run_time = MessageType::new(name.clone()).is_ok();
            assert_eq!(
                message_type_mistake(&name).is_none(),
                at_run_time,
                "type {name:?}"
            );
            assert_eq!(
                consumer_name_mistake(&name).is_none(),
                is_valid_name(&name),
                "{name:?}"
            );
        }
    }

    #[test]
    fn the_runtime_and_the_macros_agree_on_numbers() {
        assert_eq!(VERSION_MAX, limits::VERSION_MAX);
        assert_eq!(PARTITIONS_MAX, posta::consumer::PARTITIONS_MAX);
        assert_eq!(version_of("2147483647"), Ok(VERSION_MAX));
        assert!(version_of("0").is_err() && version_of("2147483648").is_err());
        assert!(version_of("99999999999999999999").is_err());
        assert!(partitions_of("0").is_err() && partitions_of("65").is_err());
    }

    #[test]
    fn the_runtime_and_the_macros_agree_on_policies() {
        assert_eq!(ATTEMPTS_MAX, posta::retry::ATTEMPTS_MAX);
        assert_eq!(CAP_MAX, posta::retry::CAP_MAX);
        assert_eq!(DEADLINE_MAX, posta::retry::DEADLINE_MAX);
        assert_eq!(deadline_of("1ms"), Ok(posta::retry::DEADLINE_MIN));
        assert!(deadline_of("0ms").is_err() && deadline_of("30m").is_err());
        assert!(attempts_of("0").is_err() && attempts_of("1001").is_err());
        assert!(immediate_of("0").is_ok() && immediate_of("1000").is_err());
        assert!(delay_of("cap", "24h").is_ok() && delay_of("cap", "1441m").is_err());
    }

    #[test]
    fn a_duration_is_a_number_and_a_unit() {
        for (text, millis) in [
            ("250ms", 250),
            ("1s", 1000),
            ("5m", 300_000),
            ("2h", 7_200_000),
        ] {
            assert_eq!(duration_of(text), Ok(Duration::from_millis(millis)));
        }
        for text in [
            "",
            "5",
            "s",
            "1.5s",
            "-1s",
            "1 s",
            "5min",
            "1d",
            "99999999999999999999s",
        ] {
            assert!(duration_of(text).is_err(), "{text:?}");
        }
    }
}
