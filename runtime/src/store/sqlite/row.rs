//! A message's columns, and an envelope of them.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use diesel::result::Error;
use diesel::sql_types::{BigInt, Binary, Nullable};
use serde_json::value::RawValue;
use time::OffsetDateTime;
use uuid::Uuid;

use super::statement::Statement;
use crate::message::{Envelope, Headers, Malformed, RawMessage};

/// The columns of a message, to select. Text is read as bytes, since SQLite does not see to it that
/// text is UTF-8.
pub(super) const COLUMNS: &str = "CAST(message_id AS BLOB), CAST(message_type AS BLOB), CAST(version AS INTEGER), \
     CAST(ordering_key AS BLOB), CAST(headers AS BLOB), CAST(content_type AS BLOB), enqueued_at, CAST(payload AS BLOB)";

/// The types of [`COLUMNS`].
pub(super) type ColumnTypes = (
    Binary,
    Binary,
    BigInt,
    Nullable<Binary>,
    Binary,
    Binary,
    Nullable<BigInt>,
    Binary,
);

/// The values of [`COLUMNS`].
pub(super) type Columns = (
    Vec<u8>,
    Vec<u8>,
    i64,
    Option<Vec<u8>>,
    Vec<u8>,
    Vec<u8>,
    Option<i64>,
    Vec<u8>,
);

/// The envelope in a row that anybody may have written.
pub(super) fn envelope(columns: Columns) -> Result<Envelope, Malformed> {
    let (id, message_type, version, key, headers, content_type, enqueued_at, payload) = columns;
    let mut problem = None;
    let mut text = |field: &str, bytes: Vec<u8>| {
        String::from_utf8(bytes).unwrap_or_else(|error| {
            problem.get_or_insert_with(|| format!("{field} is not UTF-8"));
            String::from_utf8_lossy(error.as_bytes()).into_owned()
        })
    };
    let mut raw = RawMessage {
        id: Some(match Uuid::from_slice(&id) {
            Ok(id) => id.to_string(),
            Err(_) => text("message id", id),
        }),
        message_type: Some(text("message type", message_type)),
        version: Some(version),
        key: key.map(|key| text("ordering key", key)),
        headers: BTreeMap::new(),
        content_type: Some(text("content type", content_type)),
        payload: Bytes::from(payload),
        enqueued_at: enqueued_at.and_then(|at| time_of(at).ok()),
    };
    if let Err(reason) = read_headers(&headers, &mut raw.headers) {
        problem.get_or_insert(reason);
    }
    match problem {
        None => raw.parse(),
        Some(reason) => Err(Malformed {
            reason,
            raw: Box::new(raw),
        }),
    }
}

/// A message id for people, whatever plain SQL has written.
pub(super) fn id_text(id: &[u8]) -> String {
    match Uuid::from_slice(id) {
        Ok(id) => id.to_string(),
        Err(_) => String::from_utf8_lossy(id).into_owned(),
    }
}

/// The envelope in a row that only Posta writes.
pub(super) fn own_envelope(columns: Columns) -> Result<Envelope, Error> {
    envelope(columns).map_err(|malformed| corrupt(malformed.reason))
}

/// An invariant of Posta's own tables is broken.
pub(super) fn corrupt(reason: impl Into<String>) -> Error {
    Error::DeserializationError(reason.into().into())
}

/// A time from its column.
pub(super) fn time_of(micros: i64) -> Result<OffsetDateTime, time::error::ComponentRange> {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(micros) * 1000)
}

/// A time from a column that only Posta writes.
pub(super) fn time(micros: i64) -> Result<OffsetDateTime, Error> {
    time_of(micros).map_err(|error| corrupt(error.to_string()))
}

/// The same of a column that can be NULL.
pub(super) fn time_if_any(micros: Option<i64>) -> Result<Option<OffsetDateTime>, Error> {
    micros.map(time).transpose()
}

/// A time's column.
pub(super) fn micros_of(time: OffsetDateTime) -> i64 {
    // A year of at most four digits is far inside 64 bits of microseconds.
    i64::try_from(time.unix_timestamp_nanos() / 1000).unwrap_or(i64::MAX)
}

/// Reads the headers' JSON object into a map; what is not text there is kept as its JSON, and said
/// to be wrong.
fn read_headers(json: &[u8], headers: &mut BTreeMap<String, String>) -> Result<(), String> {
    let values: BTreeMap<String, &RawValue> = match serde_json::from_slice(json) {
        Ok(values) => values,
        Err(error) => {
            headers.insert(
                "headers".to_owned(),
                String::from_utf8_lossy(json).into_owned(),
            );
            return Err(format!("headers are no JSON object of texts: {error}"));
        }
    };
    let mut problem = Ok(());
    for (name, value) in values {
        let text = serde_json::from_str::<String>(value.get()).unwrap_or_else(|_| {
            problem = Err(format!("header {name:?} is no text"));
            value.get().to_owned()
        });
        headers.insert(name, text);
    }
    problem
}

/// The headers' column.
pub(super) fn headers_json(headers: &Headers) -> String {
    serde_json::to_string(headers).expect("a map of texts has a JSON form")
}

/// Binds an envelope's message id, type, version, key, headers, content type and payload, in this
/// order.
pub(super) fn bind_envelope(statement: Statement, envelope: &Envelope) -> Statement {
    statement
        .bind(envelope.id.as_uuid())
        .bind(envelope.message_type.as_str())
        .bind(envelope.version)
        .bind(envelope.key.as_ref().map(|key| key.as_str().to_owned()))
        .bind(headers_json(&envelope.headers))
        .bind(envelope.content_type.as_str())
        .bind(envelope.payload.clone())
}

/// A count's column: never negative, by its check.
pub(super) fn count(value: i64) -> u32 {
    u32::try_from(value.max(0)).unwrap_or(u32::MAX)
}

/// A number of rows.
pub(super) fn number(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// The microseconds between two times; zero if the second came first.
pub(super) fn duration(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}
