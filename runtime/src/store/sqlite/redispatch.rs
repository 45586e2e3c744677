#![allow(unused_imports)]
use super::{Connection, SqliteStore};
use crate::message::*;
use crate::store::*;
use time::OffsetDateTime;

impl RedispatchStore for SqliteStore {
    async fn now(&self, _connection: &mut Connection) -> Result<OffsetDateTime, StoreError> {
        todo!()
    }
    async fn preview_redispatch(
        &self,
        _connection: &mut Connection,
        _filter: &RedispatchFilter,
    ) -> Result<RedispatchPreview, StoreError> {
        todo!()
    }
    async fn redispatch(
        &self,
        _connection: &mut Connection,
        _filter: &RedispatchFilter,
        _limit: usize,
    ) -> Result<usize, StoreError> {
        todo!()
    }
}
