#![allow(unused_imports)]
use diesel_async::AsyncPgConnection;

use super::PostgresStore;
use crate::message::*;
use crate::store::*;

impl RecordStore for PostgresStore {
    async fn record(
        &self,
        _connection: &mut AsyncPgConnection,
        _action: &NewAction,
    ) -> Result<(), StoreError> {
        todo!()
    }
    async fn actions(
        &self,
        _connection: &mut AsyncPgConnection,
        _letter: Option<LetterId>,
        _limit: usize,
    ) -> Result<Vec<Action>, StoreError> {
        todo!()
    }
    async fn announce(
        &self,
        _connection: &mut AsyncPgConnection,
        _consumer: &str,
        _types: &[(MessageType, u32)],
    ) -> Result<(), StoreError> {
        todo!()
    }
    async fn handled_types(
        &self,
        _connection: &mut AsyncPgConnection,
    ) -> Result<Vec<HandledType>, StoreError> {
        todo!()
    }
}
