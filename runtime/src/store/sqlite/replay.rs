use std::time::Duration;

use diesel::sql_types::{BigInt, Nullable, Text};
use diesel::{QueryResult, SqliteConnection};

use super::connection::on_thread;
use super::letter_filter::Conditions;
use super::row::{self, corrupt};
use super::statement::{Statement, Value};
use super::{Connection, SqliteStore};
use crate::store::text::storable;
use crate::store::{
    LetterFilter, LetterId, NewReplayRun, ReplayRun, ReplayStore, RunCounts, RunId, RunState,
    StoreError,
};

/// The letters of a selection, in the order of their ids, for good.
const FREEZE: &str = "INSERT INTO {posta}replay_item (run, number, dead_letter)
     SELECT ?, ROW_NUMBER() OVER (ORDER BY l.position), l.position FROM {posta}dead_letter AS l WHERE {where}";

/// Runs, with how many of their letters are in which state. `{which}` chooses them.
const RUNS: &str = "SELECT r.position, r.state, r.who, r.reason, r.selection, r.rate, r.failures_max, r.created_at,
         r.ended_at, SUM(i.state IS 'waiting'), SUM(i.state IS 'replaying'), SUM(i.state IS 'replayed'),
         SUM(i.state IS 'failed'), SUM(i.state IS 'left')
     FROM (SELECT * FROM {posta}replay_run {which}) AS r LEFT JOIN {posta}replay_item AS i ON i.run = r.position
     GROUP BY r.position ORDER BY r.position DESC";

/// What became of letters that were on their way. One that an operator has dropped had died again;
/// one that is there no more is nobody's to tell.
///
/// By its index of letters on their way: a run's others may be many.
const SETTLE: &str = "UPDATE {posta}replay_item INDEXED BY {posta}replay_item_replaying SET state = COALESCE((
         SELECT CASE l.state WHEN 'replaying' THEN 'replaying' WHEN 'replayed' THEN 'replayed' ELSE 'failed' END
         FROM {posta}dead_letter AS l WHERE l.position = {posta}replay_item.dead_letter), 'left')
     WHERE run = ? AND state = 'replaying'";

type RunTypes = (
    (
        BigInt,
        Text,
        Text,
        Text,
        Text,
        Nullable<BigInt>,
        Nullable<BigInt>,
        BigInt,
        Nullable<BigInt>,
    ),
    (BigInt, BigInt, BigInt, BigInt, BigInt),
);

type RunRow = (
    (
        i64,
        String,
        String,
        String,
        String,
        Option<i64>,
        Option<i64>,
        i64,
        Option<i64>,
    ),
    (i64, i64, i64, i64, i64),
);

impl ReplayStore for SqliteStore {
    async fn begin_run(
        &self,
        connection: &mut Connection,
        filter: &LetterFilter,
        run: &NewReplayRun,
    ) -> Result<(RunId, u64), StoreError> {
        let begin = self
            .sql(
                "INSERT INTO {posta}replay_run (who, reason, selection, rate, failures_max)
                 VALUES (?, ?, ?, ?, ?) RETURNING position",
            )
            .bind(storable(&run.who))
            .bind(storable(&run.reason))
            .bind(storable(&run.selection))
            .bind(run.rate.map(i64::from))
            .bind(run.failures_max.map(i64::from));
        let (store, conditions) = (self.clone(), Conditions::of_dead(filter));
        on_thread(connection, "begin a replay run", move |connection| {
            let run = begin.one::<BigInt, i64>(connection)?;
            let letters = conditions
                .statement_after(&store, FREEZE, run)
                .execute(connection)?;
            Ok((RunId(run), letters as u64))
        })
        .await
    }

    async fn runs(
        &self,
        connection: &mut Connection,
        only: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<ReplayRun>, StoreError> {
        let newest = "ORDER BY position DESC LIMIT ?";
        let runs = match only {
            None => self.sql(&RUNS.replace("{which}", newest)).statement(),
            Some(run) => self
                .sql(&RUNS.replace("{which}", &format!("WHERE position = ? {newest}")))
                .bind(run.0),
        }
        .bind(limit);
        on_thread(connection, "read replay runs", |connection| {
            read(runs, connection)
        })
        .await
    }

    async fn change_run(
        &self,
        connection: &mut Connection,
        run: RunId,
        from: &[RunState],
        to: RunState,
    ) -> Result<bool, StoreError> {
        let from: Vec<&str> = from.iter().map(|state| state.as_str()).collect();
        let ended = matches!(to, RunState::Cancelled | RunState::Finished);
        let change = self
            .sql(
                "UPDATE {posta}replay_run SET state = ?, ended_at = CASE WHEN ? = 1 THEN {now} END
                 WHERE position = ? AND state IN (SELECT value FROM json_each(?))",
            )
            .bind(to.as_str())
            .bind(ended)
            .bind(run.0)
            .bind(Value::json(&from));
        on_thread(connection, "change a replay run", |connection| {
            change.execute(connection).map(|changed| changed == 1)
        })
        .await
    }

    /// No other transaction is at it: one writes at a time.
    async fn take_run(&self, connection: &mut Connection) -> Result<Option<ReplayRun>, StoreError> {
        let run = self
            .sql(&RUNS.replace(
                "{which}",
                "WHERE state = 'running' AND next_at <= {now} ORDER BY next_at, position LIMIT 1",
            ))
            .statement();
        on_thread(connection, "take a replay run", |connection| {
            Ok(read(run, connection)?.pop())
        })
        .await
    }

    async fn settle_run(&self, connection: &mut Connection, run: RunId) -> Result<(), StoreError> {
        let settle = self.sql(SETTLE).bind(run.0);
        on_thread(connection, "settle a replay run", |connection| {
            settle.execute(connection).map(|_| ())
        })
        .await
    }

    async fn next_letters(
        &self,
        connection: &mut Connection,
        run: RunId,
        limit: usize,
    ) -> Result<Vec<LetterId>, StoreError> {
        let next = self
            .sql(
                "SELECT dead_letter FROM {posta}replay_item INDEXED BY {posta}replay_item_waiting
                 WHERE run = ? AND state = 'waiting' ORDER BY number LIMIT ?",
            )
            .bind(run.0)
            .bind(limit);
        on_thread(connection, "read a run's next letters", |connection| {
            let letters = next.rows::<BigInt, i64>(connection)?;
            Ok(letters.into_iter().map(LetterId).collect())
        })
        .await
    }

    async fn mark_letters(
        &self,
        connection: &mut Connection,
        run: RunId,
        replaying: &[LetterId],
        left: &[LetterId],
    ) -> Result<(), StoreError> {
        let mark = self.sql(
            "UPDATE {posta}replay_item SET state = ? WHERE run = ? AND dead_letter = ? AND state = 'waiting'",
        );
        let replaying = replaying.iter().map(|letter| ("replaying", *letter));
        let left = left.iter().map(|letter| ("left", *letter));
        let marks: Vec<(&str, LetterId)> = replaying.chain(left).collect();
        on_thread(connection, "mark a run's letters", move |connection| {
            marks.into_iter().try_for_each(|(state, letter)| {
                mark.bind(state)
                    .bind(run.0)
                    .bind(letter.0)
                    .execute(connection)
                    .map(|_| ())
            })
        })
        .await
    }

    async fn pace_run(
        &self,
        connection: &mut Connection,
        run: RunId,
        pause: Duration,
    ) -> Result<(), StoreError> {
        let pace = self
            .sql("UPDATE {posta}replay_run SET next_at = {now} + ? WHERE position = ?")
            .bind(pause)
            .bind(run.0);
        on_thread(connection, "pace a replay run", |connection| {
            pace.execute(connection).map(|_| ())
        })
        .await
    }

    async fn next_step(&self, connection: &mut Connection) -> Result<Option<Duration>, StoreError> {
        let next = self
            .sql("SELECT MIN(next_at) - {now} FROM {posta}replay_run WHERE state = 'running'")
            .statement();
        on_thread(connection, "read the next step's time", |connection| {
            let micros = next.one::<Nullable<BigInt>, Option<i64>>(connection)?;
            Ok(micros.map(row::duration))
        })
        .await
    }
}

fn read(runs: Statement, connection: &mut SqliteConnection) -> QueryResult<Vec<ReplayRun>> {
    runs.rows::<RunTypes, RunRow>(connection)?
        .into_iter()
        .map(run)
        .collect()
}

fn run((run, counts): RunRow) -> QueryResult<ReplayRun> {
    let (position, word, who, reason, selection, rate, failures_max, created_at, ended_at) = run;
    let (waiting, replaying, replayed, failed, left) = counts;
    Ok(ReplayRun {
        id: RunId(position),
        state: RunState::of(&word)
            .ok_or_else(|| corrupt(format!("{word:?} is no state of a replay run")))?,
        who,
        reason,
        selection,
        rate: rate.map(row::count),
        failures_max: failures_max.map(row::count),
        created_at: row::time(created_at)?,
        ended_at: row::time_if_any(ended_at)?,
        counts: RunCounts {
            waiting: row::number(waiting),
            replaying: row::number(replaying),
            replayed: row::number(replayed),
            failed: row::number(failed),
            left: row::number(left),
        },
    })
}
