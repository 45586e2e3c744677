#![allow(unused_imports)]
use super::{Connection, SqliteStore};
use crate::message::*;
use crate::store::*;

impl RecordStore for SqliteStore {
    async fn record(
        &self,
        _connection: &mut Connection,
        _action: &NewAction,
    ) -> Result<(), StoreError> {
        todo!()
    }
    async fn actions(
        &self,
        _connection: &mut Connection,
        _letter: Option<LetterId>,
        _limit: usize,
    ) -> Result<Vec<Action>, StoreError> {
        todo!()
    }
    async fn announce(
        &self,
        _connection: &mut Connection,
        _consumer: &str,
        _types: &[(MessageType, u32)],
    ) -> Result<(), StoreError> {
        todo!()
    }
    async fn handled_types(
        &self,
        _connection: &mut Connection,
    ) -> Result<Vec<HandledType>, StoreError> {
        todo!()
    }
}
