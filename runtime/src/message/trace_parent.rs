use std::fmt;

/// Bytes of a `traceparent` of version 00.
const BYTES: usize = 55;

/// The flag by which the sender says that it records the trace.
const SAMPLED: u8 = 1;

/// A valid `traceparent`: which trace a message belongs to, and which span created it.
///
/// `00-<trace id>-<span id>-<flags>` in lower-case hexadecimal, 32, 16 and 2 digits, as the W3C's
/// Trace Context has it. Neither id is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceParent {
    /// The trace that the span is part of.
    pub trace_id: u128,
    /// The span that created the message.
    pub span_id: u64,
    /// Whether the sender records the trace.
    pub sampled: bool,
}

impl TraceParent {
    /// Reads a header's value; `None` when it is malformed.
    ///
    /// A later version may add fields after the flags; version ff is forbidden. Flags other than
    /// *sampled* are not kept: they are to be zero when a context is passed on by somebody who does
    /// not know them.
    #[must_use]
    pub fn parse(value: &str) -> Option<Self> {
        let bytes = value.as_bytes();
        let (fixed, rest) = bytes.split_at_checked(BYTES)?;
        let version = hex(&fixed[..2])?;
        let is_delimited = [2, 35, 52].iter().all(|&at| fixed[at] == b'-');
        let may_end_so = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.first().is_none_or(|byte| *byte == b'-'),
        };
        if !is_delimited || !may_end_so {
            return None;
        }
        let trace_id = hex(&fixed[3..35]).filter(|id| *id != 0)?;
        let span_id = hex(&fixed[36..52]).filter(|id| *id != 0)?;
        let flags = hex(&fixed[53..])?;
        Some(Self {
            trace_id,
            span_id: span_id as u64,
            sampled: flags as u8 & SAMPLED != 0,
        })
    }
}

/// A number of at most 32 digits. Upper-case digits are malformed here.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number: u128, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(value))
    })
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.sampled) * SAMPLED;
        write!(
            f,
            "00-{:032x}-{:016x}-{flags:02x}",
            self.trace_id, self.span_id
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_valid_traceparent_is_written_as_it_was_read() {
        let parent = TraceParent::parse(VALID).unwrap();
        assert_eq!(parent.trace_id, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!(parent.span_id, 0xb7ad_6b71_6920_3331);
        assert!(parent.sampled);
        assert_eq!(parent.to_string(), VALID);
        let unsampled = VALID.replace("-01", "-00");
        assert_eq!(
            TraceParent::parse(&unsampled).unwrap().to_string(),
            unsampled
        );
    }

    #[test]
    fn unknown_flags_are_dropped_and_later_versions_are_read() {
        let parent = TraceParent::parse(&VALID.replace("-01", "-ff")).unwrap();
        assert_eq!(parent.to_string(), VALID);
        let unsampled = TraceParent::parse(&VALID.replace("-01", "-fe")).unwrap();
        assert!(!unsampled.sampled);
        let later = VALID.replacen("00-", "cc-", 1);
        assert_eq!(TraceParent::parse(&later), Some(parent));
        assert_eq!(
            TraceParent::parse(&format!("{later}-what-comes")),
            Some(parent)
        );
        assert_eq!(TraceParent::parse(&format!("{later}x")), None);
    }

    #[test]
    fn a_malformed_traceparent_is_refused() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let span = "b7ad6b7169203331";
        for malformed in [
            String::new(),
            "00".to_owned(),
            VALID[..54].to_owned(),
            format!("{VALID}-"),
            format!("{VALID}-00"),
            format!(" {VALID}"),
            VALID.to_uppercase(),
            VALID.replacen("00-", "ff-", 1),
            VALID.replacen("00-", "0g-", 1),
            VALID.replace('-', "_"),
            VALID.replace("-01", "-0x"),
            VALID.replace("-01", "-é"),
            VALID.replace(trace, &"0".repeat(32)),
            VALID.replace(trace, &trace[1..]),
            VALID.replace(trace, &trace.replace('a', "A")),
            VALID.replace(span, &"0".repeat(16)),
            VALID.replace(span, &format!("+{}", &span[1..])),
        ] {
            assert_eq!(TraceParent::parse(&malformed), None, "{malformed:?}");
        }
    }
}
