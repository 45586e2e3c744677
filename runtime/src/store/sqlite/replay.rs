#![allow(unused_imports)]
use super::{Connection, SqliteStore};
use crate::message::*;
use crate::store::*;
use std::time::Duration;

impl ReplayStore for SqliteStore {
    async fn begin_run(
        &self,
        _connection: &mut Connection,
        _filter: &LetterFilter,
        _run: &NewReplayRun,
    ) -> Result<(RunId, u64), StoreError> {
        todo!()
    }
    async fn runs(
        &self,
        _connection: &mut Connection,
        _only: Option<RunId>,
        _limit: usize,
    ) -> Result<Vec<ReplayRun>, StoreError> {
        todo!()
    }
    async fn change_run(
        &self,
        _connection: &mut Connection,
        _run: RunId,
        _from: &[RunState],
        _to: RunState,
    ) -> Result<bool, StoreError> {
        todo!()
    }
    async fn take_run(
        &self,
        _connection: &mut Connection,
    ) -> Result<Option<ReplayRun>, StoreError> {
        todo!()
    }
    async fn settle_run(
        &self,
        _connection: &mut Connection,
        _run: RunId,
    ) -> Result<(), StoreError> {
        todo!()
    }
    async fn next_letters(
        &self,
        _connection: &mut Connection,
        _run: RunId,
        _limit: usize,
    ) -> Result<Vec<LetterId>, StoreError> {
        todo!()
    }
    async fn mark_letters(
        &self,
        _connection: &mut Connection,
        _run: RunId,
        _replaying: &[LetterId],
        _left: &[LetterId],
    ) -> Result<(), StoreError> {
        todo!()
    }
    async fn pace_run(
        &self,
        _connection: &mut Connection,
        _run: RunId,
        _pause: Duration,
    ) -> Result<(), StoreError> {
        todo!()
    }
    async fn next_step(
        &self,
        _connection: &mut Connection,
    ) -> Result<Option<Duration>, StoreError> {
        todo!()
    }
}
