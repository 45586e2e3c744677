#![allow(unused_imports)]
use diesel_async::AsyncPgConnection;
use std::time::Duration;

use super::PostgresStore;
use crate::message::*;
use crate::store::*;

impl ReplayStore for PostgresStore {
    async fn begin_run(
        &self,
        _connection: &mut AsyncPgConnection,
        _filter: &LetterFilter,
        _run: &NewReplayRun,
    ) -> Result<(RunId, u64), StoreError> {
        todo!()
    }
    async fn runs(
        &self,
        _connection: &mut AsyncPgConnection,
        _only: Option<RunId>,
        _limit: usize,
    ) -> Result<Vec<ReplayRun>, StoreError> {
        todo!()
    }
    async fn change_run(
        &self,
        _connection: &mut AsyncPgConnection,
        _run: RunId,
        _from: &[RunState],
        _to: RunState,
    ) -> Result<bool, StoreError> {
        todo!()
    }
    async fn take_run(
        &self,
        _connection: &mut AsyncPgConnection,
    ) -> Result<Option<ReplayRun>, StoreError> {
        todo!()
    }
    async fn settle_run(
        &self,
        _connection: &mut AsyncPgConnection,
        _run: RunId,
    ) -> Result<(), StoreError> {
        todo!()
    }
    async fn next_letters(
        &self,
        _connection: &mut AsyncPgConnection,
        _run: RunId,
        _limit: usize,
    ) -> Result<Vec<LetterId>, StoreError> {
        todo!()
    }
    async fn mark_letters(
        &self,
        _connection: &mut AsyncPgConnection,
        _run: RunId,
        _replaying: &[LetterId],
        _left: &[LetterId],
    ) -> Result<(), StoreError> {
        todo!()
    }
    async fn pace_run(
        &self,
        _connection: &mut AsyncPgConnection,
        _run: RunId,
        _pause: Duration,
    ) -> Result<(), StoreError> {
        todo!()
    }
    async fn next_step(
        &self,
        _connection: &mut AsyncPgConnection,
    ) -> Result<Option<Duration>, StoreError> {
        todo!()
    }
}
