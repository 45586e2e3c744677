#![allow(unused_imports)]
use super::{Connection, SqliteStore};
use crate::message::*;
use crate::store::*;
use std::time::Duration;

impl ScheduleStore for SqliteStore {
    async fn enqueue_due(
        &self,
        _connection: &mut Connection,
        _fences: &[Fence],
        _lanes: &[Slot],
        _limit: usize,
    ) -> Result<usize, StoreError> {
        todo!()
    }
    async fn next_scheduled(
        &self,
        _connection: &mut Connection,
        _lanes: &[Slot],
    ) -> Result<Option<Duration>, StoreError> {
        todo!()
    }
    async fn scheduled(&self, _connection: &mut Connection) -> Result<u64, StoreError> {
        todo!()
    }
}
