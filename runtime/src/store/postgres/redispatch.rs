#![allow(unused_imports)]
use diesel_async::AsyncPgConnection;
use time::OffsetDateTime;

use super::PostgresStore;
use crate::message::*;
use crate::store::*;

impl RedispatchStore for PostgresStore {
    async fn now(&self, _connection: &mut AsyncPgConnection) -> Result<OffsetDateTime, StoreError> {
        todo!()
    }
    async fn preview_redispatch(
        &self,
        _connection: &mut AsyncPgConnection,
        _filter: &RedispatchFilter,
    ) -> Result<RedispatchPreview, StoreError> {
        todo!()
    }
    async fn redispatch(
        &self,
        _connection: &mut AsyncPgConnection,
        _filter: &RedispatchFilter,
        _limit: usize,
    ) -> Result<usize, StoreError> {
        todo!()
    }
}
