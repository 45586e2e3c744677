use std::io::BufRead;

use anyhow::Context;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use uuid::Uuid;

/// A webhook delivery, as far as its sender knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// `X-GitHub-Delivery`: the same at every repetition.
    pub id: Uuid,
    /// `X-GitHub-Event`, such as `push`.
    pub event: String,
    /// The body: JSON, kept byte for byte.
    pub body: Bytes,
}

impl Delivery {
    /// Reads deliveries from JSON Lines, each `{"event": …, "delivery": …, "payload": …}`. The body
    /// is the payload's text as it stands there, not a rendering of its value.
    ///
    /// # Errors
    /// When a line cannot be read or is no such object; the error names the line.
    pub fn read_lines(lines: impl BufRead) -> anyhow::Result<Vec<Self>> {
        let lines = lines.lines().enumerate();
        lines
            .map(|(index, line)| {
                let line = line.with_context(|| format!("line {} cannot be read", index + 1))?;
                Self::of_line(&line).with_context(|| format!("line {} is no delivery", index + 1))
            })
            .collect()
    }

    fn of_line(line: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Line<'l> {
            event: String,
            delivery: Uuid,
            #[serde(borrow)]
            payload: &'l RawValue,
        }
        let Line {
            event,
            delivery,
            payload,
        } = serde_json::from_str(line)?;
        let body = Bytes::copy_from_slice(payload.get().as_bytes());
        Ok(Self {
            id: delivery,
            event,
            body,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_s_payload_is_kept_as_it_is_written() {
        let line = concat!(
            r#"{"event":"push","delivery":"3922dbb8-795b-551c-a288-f492aaf2c6db","#,
            r#""payload":{"b": 1.0,"a":"\u00e9"}}"#
        );
        let read = Delivery::read_lines(line.as_bytes()).unwrap();
        assert_eq!(read[0].event, "push");
        assert_eq!(read[0].body, r#"{"b": 1.0,"a":"\u00e9"}"#);
        let error = Delivery::read_lines(format!("{line}\n{{}}").as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), "line 2 is no delivery");
    }
}
