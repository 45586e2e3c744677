use diesel::data_types::PgTimestamp;
use diesel::sql_types::{Array, BigInt, Integer, Nullable, Text, Timestamptz};
use diesel_async::AsyncPgConnection;

use super::PostgresStore;
use super::columns::stored;
use super::statement::{Statement, statements};
use crate::message::MessageType;
use crate::store::text::storable;
use crate::store::{Action, HandledType, LetterId, NewAction, RecordStore, RunId, StoreError};

statements!(RecordTexts {
    record = "
INSERT INTO {posta}operator_action (who, action, reason, dead_letter, replay_run, details)
VALUES ($1, $2, $3, $4, $5, $6)";

    actions = "
SELECT position, done_at, who, action, reason, dead_letter, replay_run, details
FROM {posta}operator_action
WHERE $1::bigint IS NULL OR dead_letter = $1
ORDER BY position DESC LIMIT $2";

    // In one order for all, since processes that start together announce together.
    announce = "
INSERT INTO {posta}handled_type AS h (consumer, message_type, version)
SELECT $1, t.message_type, max(t.version) FROM unnest($2::text[], $3::integer[]) AS t (message_type, version)
GROUP BY t.message_type ORDER BY t.message_type
ON CONFLICT (consumer, message_type)
DO UPDATE SET version = greatest(h.version, excluded.version), seen_at = clock_timestamp()";

    handled_types = "
SELECT consumer, message_type, version, seen_at FROM {posta}handled_type ORDER BY consumer, message_type";
});

const READ: &str = "read the record";

type ActionColumns = (
    BigInt,
    Timestamptz,
    Text,
    Text,
    Text,
    Nullable<BigInt>,
    Nullable<BigInt>,
    Text,
);

type ActionRow = (
    i64,
    PgTimestamp,
    String,
    String,
    String,
    Option<i64>,
    Option<i64>,
    String,
);

impl RecordStore for PostgresStore {
    async fn record(
        &self,
        connection: &mut AsyncPgConnection,
        action: &NewAction,
    ) -> Result<(), StoreError> {
        Statement::new(&self.texts().record.record)
            .bind::<Text, _>(storable(&action.who))
            .bind::<Text, _>(storable(&action.action))
            .bind::<Text, _>(storable(&action.reason))
            .bind::<Nullable<BigInt>, _>(action.letter.map(|letter| letter.0))
            .bind::<Nullable<BigInt>, _>(action.run.map(|run| run.0))
            .bind::<Text, _>(storable(&action.details))
            .run(connection, "record an action")
            .await?;
        Ok(())
    }

    async fn actions(
        &self,
        connection: &mut AsyncPgConnection,
        letter: Option<LetterId>,
        limit: usize,
    ) -> Result<Vec<Action>, StoreError> {
        let rows: Vec<ActionRow> = Statement::new(&self.texts().record.actions)
            .bind::<Nullable<BigInt>, _>(letter.map(|letter| letter.0))
            .bind::<BigInt, _>(i64::try_from(limit).unwrap_or(i64::MAX))
            .returning::<ActionColumns>()
            .rows(connection, READ)
            .await?;
        rows.into_iter().map(action).collect()
    }

    async fn announce(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
        types: &[(MessageType, u32)],
    ) -> Result<(), StoreError> {
        if types.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = types.iter().map(|(name, _)| name.as_str()).collect();
        let versions: Vec<i32> = types
            .iter()
            .map(|(_, version)| i32::try_from(*version).unwrap_or(i32::MAX))
            .collect();
        Statement::new(&self.texts().record.announce)
            .bind::<Text, _>(consumer)
            .bind::<Array<Text>, _>(names)
            .bind::<Array<Integer>, _>(versions)
            .run(connection, "announce what a consumer handles")
            .await?;
        Ok(())
    }

    async fn handled_types(
        &self,
        connection: &mut AsyncPgConnection,
    ) -> Result<Vec<HandledType>, StoreError> {
        const OPERATION: &str = "read what consumers handle";
        let rows: Vec<(String, String, i32, PgTimestamp)> =
            Statement::new(&self.texts().record.handled_types)
                .returning::<(Text, Text, Integer, Timestamptz)>()
                .rows(connection, OPERATION)
                .await?;
        rows.into_iter()
            .map(|(consumer, message_type, version, seen_at)| {
                Ok(HandledType {
                    consumer,
                    message_type,
                    version: u32::try_from(version).unwrap_or_default(),
                    seen_at: stored(seen_at, OPERATION)?,
                })
            })
            .collect()
    }
}

fn action(row: ActionRow) -> Result<Action, StoreError> {
    let (position, done_at, who, action, reason, letter, run, details) = row;
    Ok(Action {
        position,
        done_at: stored(done_at, READ)?,
        what: NewAction {
            who,
            action,
            reason,
            letter: letter.map(LetterId),
            run: run.map(RunId),
            details,
        },
    })
}
