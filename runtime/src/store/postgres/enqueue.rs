use diesel::sql_types::{Array, Binary, Integer, Nullable, Text, Uuid as SqlUuid};
use uuid::Uuid;

use super::statement::{Statement, qualified};
use crate::message::{Envelope, Headers};
use crate::store::Tables;

pub(crate) const OPERATION: &str = "write into the outbox";

/// One insert for any number of messages. The numbers of the outbox are drawn after the sort, so
/// they rise in the order given. `enqueued_at` is the column's own default: the database's clock.
const INSERT: &str = "
INSERT INTO {posta}outbox
    (message_id, message_type, version, ordering_key, headers, content_type, payload)
SELECT m.message_id, m.message_type, m.version, m.ordering_key, m.headers::jsonb, m.content_type, m.payload
FROM unnest($1::uuid[], $2::text[], $3::integer[], $4::text[], $5::text[], $6::text[], $7::bytea[])
    WITH ORDINALITY AS m (message_id, message_type, version, ordering_key, headers, content_type, payload, n)
ORDER BY m.n";

/// The insert for these tables.
pub(crate) fn sql(tables: &Tables) -> String {
    qualified(tables, INSERT)
}

/// The insert with envelopes bound: the same on every kind of connection.
pub(crate) fn statement<'a>(sql: &'a str, envelopes: &'a [Envelope]) -> Statement<'a> {
    let columns = Columns::of(envelopes);
    Statement::new(sql)
        .bind::<Array<SqlUuid>, _>(columns.ids)
        .bind::<Array<Text>, _>(columns.types)
        .bind::<Array<Integer>, _>(columns.versions)
        .bind::<Array<Nullable<Text>>, _>(columns.keys)
        .bind::<Array<Text>, _>(columns.headers)
        .bind::<Array<Text>, _>(columns.content_types)
        .bind::<Array<Binary>, _>(columns.payloads)
}

/// Envelopes turned into one array a column.
pub(super) struct Columns<'a> {
    pub(super) ids: Vec<Uuid>,
    pub(super) types: Vec<&'a str>,
    pub(super) versions: Vec<i32>,
    pub(super) keys: Vec<Option<&'a str>>,
    pub(super) headers: Vec<String>,
    pub(super) content_types: Vec<&'a str>,
    pub(super) payloads: Vec<&'a [u8]>,
}

impl<'a> Columns<'a> {
    pub(super) fn of(envelopes: impl IntoIterator<Item = &'a Envelope> + Clone) -> Self {
        let each = || envelopes.clone().into_iter();
        Self {
            ids: each().map(|e| e.id.as_uuid()).collect(),
            types: each().map(|e| e.message_type.as_str()).collect(),
            // At most VERSION_MAX, which is the column's.
            versions: each()
                .map(|e| i32::try_from(e.version).unwrap_or(i32::MAX))
                .collect(),
            keys: each()
                .map(|e| e.key.as_ref().map(|key| key.as_str()))
                .collect(),
            headers: each().map(|e| json(&e.headers)).collect(),
            content_types: each().map(|e| e.content_type.as_str()).collect(),
            payloads: each().map(|e| &e.payload[..]).collect(),
        }
    }
}

fn json(headers: &Headers) -> String {
    serde_json::to_string(headers).expect("a map of texts has a JSON form")
}
