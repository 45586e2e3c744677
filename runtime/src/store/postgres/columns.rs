use std::collections::BTreeMap;

use bytes::Bytes;
use diesel::data_types::PgTimestamp;
use diesel::sql_types::{Binary, Integer, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use serde_json::value::RawValue;
use time::macros::datetime;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::message::{Envelope, Malformed, RawMessage};
use crate::store::{StoreError, StoreErrorKind};

/// The eight columns of a message, in the order in which every statement here returns them: id,
/// type, version, key, headers (as text), content type, payload, time of enqueueing.
pub(super) type MessageColumns = (
    SqlUuid,
    Text,
    Integer,
    Nullable<Text>,
    Text,
    Text,
    Binary,
    Nullable<Timestamptz>,
);

/// A message as those columns give it.
pub(super) type MessageRow = (
    Uuid,
    String,
    i32,
    Option<String>,
    String,
    String,
    Vec<u8>,
    Option<PgTimestamp>,
);

/// PostgreSQL counts time from here.
const EPOCH: OffsetDateTime = datetime!(2000-01-01 0:00 UTC);

/// The envelope of a row that plain SQL may have written.
pub(super) fn parsed(row: MessageRow) -> Result<Envelope, Malformed> {
    let (id, message_type, version, key, headers, content_type, payload, enqueued_at) = row;
    let mut raw = RawMessage {
        id: Some(id.to_string()),
        message_type: Some(message_type),
        version: Some(i64::from(version)),
        key,
        headers: BTreeMap::new(),
        content_type: Some(content_type),
        payload: Bytes::from(payload),
        enqueued_at: enqueued_at.and_then(instant),
    };
    match texts(&headers, &mut raw.headers) {
        Ok(()) => raw.parse(),
        Err(reason) => Err(Malformed {
            reason,
            raw: Box::new(raw),
        }),
    }
}

/// The envelope of a row that only Posta writes: anything malformed there is corruption.
pub(super) fn trusted(row: MessageRow, operation: &'static str) -> Result<Envelope, StoreError> {
    parsed(row)
        .map_err(|malformed| StoreError::new(operation, StoreErrorKind::Corrupt, malformed.reason))
}

/// Takes a JSON object's members as texts. One that is no text is an error, and is kept as its JSON
/// for whoever looks into it.
pub(super) fn texts(headers: &str, texts: &mut BTreeMap<String, String>) -> Result<(), String> {
    let members: BTreeMap<String, &RawValue> =
        serde_json::from_str(headers).map_err(|error| format!("headers: {error}"))?;
    let mut result = Ok(());
    for (name, value) in members {
        let text = serde_json::from_str(value.get()).unwrap_or_else(|_| {
            result = Err(format!("header {name:?} is no text"));
            value.get().to_owned()
        });
        texts.insert(name, text);
    }
    result
}

/// A point in time that `time` can hold: none for PostgreSQL's infinities and years beyond 9999.
pub(super) fn instant(PgTimestamp(micros): PgTimestamp) -> Option<OffsetDateTime> {
    EPOCH.checked_add(Duration::microseconds(micros))
}

/// A point in time as PostgreSQL holds it.
pub(super) fn timestamp(instant: OffsetDateTime) -> Option<PgTimestamp> {
    i64::try_from((instant - EPOCH).whole_microseconds())
        .ok()
        .map(PgTimestamp)
}

/// A point in time to compare with. PostgreSQL's times begin later than `time`'s; nothing here is as
/// old as that.
pub(super) fn bound(instant: OffsetDateTime) -> PgTimestamp {
    timestamp(instant.max(datetime!(0001-01-01 0:00 UTC))).unwrap_or(PgTimestamp(i64::MAX))
}

/// A point in time that Posta's own statements have written.
pub(super) fn stored(
    stored: PgTimestamp,
    operation: &'static str,
) -> Result<OffsetDateTime, StoreError> {
    instant(stored).ok_or_else(|| {
        let why = format!("a time is {} microseconds from the year 2000", stored.0);
        StoreError::new(operation, StoreErrorKind::Corrupt, why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_is_no_text_is_named_and_none_is_lost() {
        let mut found = BTreeMap::new();
        assert_eq!(texts(r#"{"a": "x\u00e9"}"#, &mut found), Ok(()));
        assert_eq!(found["a"], "xé");
        let refused = texts(r#"{"n": 1e999, "o": {"b": [true]}, "t": "t"}"#, &mut found);
        assert_eq!(refused, Err(r#"header "o" is no text"#.to_owned()));
        assert_eq!(found["n"], "1e999");
        assert_eq!(found["o"], r#"{"b": [true]}"#);
        assert_eq!(found["t"], "t");
    }

    #[test]
    fn infinity_is_no_instant() {
        assert_eq!(instant(PgTimestamp(i64::MAX)), None);
        assert_eq!(instant(PgTimestamp(i64::MIN)), None);
        let now = OffsetDateTime::from_unix_timestamp(1_700_000_000).unwrap();
        assert_eq!(timestamp(now).and_then(instant), Some(now));
    }
}
