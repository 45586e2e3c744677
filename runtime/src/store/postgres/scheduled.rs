#![allow(unused_imports)]
use diesel_async::AsyncPgConnection;
use std::time::Duration;

use super::PostgresStore;
use crate::message::*;
use crate::store::*;

impl ScheduleStore for PostgresStore {
    async fn enqueue_due(
        &self,
        _connection: &mut AsyncPgConnection,
        _fences: &[Fence],
        _lanes: &[Slot],
        _limit: usize,
    ) -> Result<usize, StoreError> {
        todo!()
    }
    async fn next_scheduled(
        &self,
        _connection: &mut AsyncPgConnection,
        _lanes: &[Slot],
    ) -> Result<Option<Duration>, StoreError> {
        todo!()
    }
    async fn scheduled(&self, _connection: &mut AsyncPgConnection) -> Result<u64, StoreError> {
        todo!()
    }
}
