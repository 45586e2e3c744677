use diesel::QueryResult;
use diesel::sql_types::{BigInt, Nullable, Text};

use super::connection::on_thread;
use super::{Connection, SqliteStore, row};
use crate::message::MessageType;
use crate::store::text::storable;
use crate::store::{Action, HandledType, LetterId, NewAction, RecordStore, RunId, StoreError};

const ACTIONS: &str =
    "SELECT position, done_at, who, action, reason, dead_letter, replay_run, details
     FROM {posta}operator_action";

type ActionTypes = (
    BigInt,
    BigInt,
    Text,
    Text,
    Text,
    Nullable<BigInt>,
    Nullable<BigInt>,
    Text,
);

type ActionRow = (
    i64,
    i64,
    String,
    String,
    String,
    Option<i64>,
    Option<i64>,
    String,
);

impl RecordStore for SqliteStore {
    async fn record(
        &self,
        connection: &mut Connection,
        action: &NewAction,
    ) -> Result<(), StoreError> {
        let record = self
            .sql(
                "INSERT INTO {posta}operator_action (who, action, reason, dead_letter, replay_run, details)
                 VALUES (?, ?, ?, ?, ?, ?)",
            )
            .bind(storable(&action.who))
            .bind(storable(&action.action))
            .bind(storable(&action.reason))
            .bind(action.letter.map(|letter| letter.0))
            .bind(action.run.map(|run| run.0))
            .bind(storable(&action.details));
        on_thread(connection, "record an action", |connection| {
            record.execute(connection).map(|_| ())
        })
        .await
    }

    async fn actions(
        &self,
        connection: &mut Connection,
        letter: Option<LetterId>,
        limit: usize,
    ) -> Result<Vec<Action>, StoreError> {
        let newest = "ORDER BY position DESC LIMIT ?";
        let actions = match letter {
            None => self.sql(&format!("{ACTIONS} {newest}")).statement(),
            Some(letter) => self
                .sql(&format!("{ACTIONS} WHERE dead_letter = ? {newest}"))
                .bind(letter.0),
        }
        .bind(limit);
        on_thread(connection, "read the record", |connection| {
            actions
                .rows::<ActionTypes, ActionRow>(connection)?
                .into_iter()
                .map(action)
                .collect()
        })
        .await
    }

    async fn announce(
        &self,
        connection: &mut Connection,
        consumer: &str,
        types: &[(MessageType, u32)],
    ) -> Result<(), StoreError> {
        let announce = self.sql(
            "INSERT INTO {posta}handled_type (consumer, message_type, version) VALUES (?, ?, ?)
             ON CONFLICT (consumer, message_type)
                 DO UPDATE SET version = MAX(version, excluded.version), seen_at = excluded.seen_at",
        );
        let (consumer, types) = (consumer.to_owned(), types.to_vec());
        on_thread(connection, "announce what is handled", move |connection| {
            types.into_iter().try_for_each(|(message_type, version)| {
                announce
                    .bind(consumer.as_str())
                    .bind(message_type.as_str())
                    .bind(version)
                    .execute(connection)
                    .map(|_| ())
            })
        })
        .await
    }

    async fn handled_types(
        &self,
        connection: &mut Connection,
    ) -> Result<Vec<HandledType>, StoreError> {
        let types = self
            .sql(
                "SELECT consumer, message_type, version, seen_at FROM {posta}handled_type
                 ORDER BY consumer, message_type",
            )
            .statement();
        on_thread(connection, "read what is handled", |connection| {
            types
                .rows::<(Text, Text, BigInt, BigInt), (String, String, i64, i64)>(connection)?
                .into_iter()
                .map(|(consumer, message_type, version, seen_at)| {
                    Ok(HandledType {
                        consumer,
                        message_type,
                        version: row::count(version),
                        seen_at: row::time(seen_at)?,
                    })
                })
                .collect()
        })
        .await
    }
}

fn action(
    (position, done_at, who, action, reason, letter, run, details): ActionRow,
) -> QueryResult<Action> {
    Ok(Action {
        position,
        done_at: row::time(done_at)?,
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
