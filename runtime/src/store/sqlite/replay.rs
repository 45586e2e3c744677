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

/// The letters of a selection, for good. What keeps its place comes by its place, so of each key the
/// head first; what has none goes to the end of its key anyway.
const FREEZE: &str = "INSERT INTO {posta}replay_item (run, number, dead_letter)
     SELECT ?, ROW_NUMBER() OVER (ORDER BY place IS NULL, place, position), position
     FROM (
         SELECT l.position, CASE WHEN l.parked = 1 THEN COALESCE(
                 (SELECT MIN(p.position) FROM {posta}retry AS p WHERE p.dead_letter = l.position AND p.parked = 1),
                 (SELECT MIN(p.position) FROM {posta}outbox AS p WHERE p.dead_letter = l.position AND p.parked = 1))
             END AS place
         FROM {posta}dead_letter AS l WHERE {where})";

/// Runs, with how many of their letters are in which state. What comes behind chooses them.
const RUNS: &str =
    "SELECT position, state, who, reason, selection, rate, failures_max, created_at, ended_at,
         waiting, replaying, replayed, failed, left_out
     FROM {posta}replay_run";

/// What became of letters that were on their way. One that an operator has dropped had died again;
/// one that is there no more is nobody's to tell.
///
/// By the index of letters on their way: a run's others may be many.
const BECAME: &str = "SELECT i.dead_letter, COALESCE(
         CASE l.state WHEN 'replayed' THEN 'replayed' WHEN 'dead' THEN 'failed' WHEN 'discarded' THEN 'failed' END, 'left')
     FROM {posta}replay_item AS i INDEXED BY {posta}replay_item_replaying
         LEFT JOIN {posta}dead_letter AS l ON l.position = i.dead_letter
     WHERE i.run = ? AND i.state = 'replaying' AND l.state IS NOT 'replaying'";

/// Letters whose key's first row is the place of another one. In the outbox only what has failed is
/// looked at: a row that has not goes out, and only what is before the letter's own row, if it has
/// one, is in its way.
const WAITING_FOR: &str = "SELECT l.position, p.dead_letter
     FROM json_each(?) AS j CROSS JOIN {posta}dead_letter AS l ON l.position = j.value
         CROSS JOIN {posta}retry AS p ON p.position = (
             SELECT MIN(r.position) FROM {posta}retry AS r
             WHERE r.consumer = l.consumer AND r.ordering_key = l.ordering_key)
     WHERE p.parked = 1 AND p.dead_letter <> l.position
     UNION ALL
     SELECT l.position, p.dead_letter
     FROM json_each(?) AS j CROSS JOIN {posta}dead_letter AS l ON l.position = j.value
         CROSS JOIN {posta}outbox AS p ON p.position = (
             SELECT MIN(o.position) FROM {posta}outbox AS o
             WHERE o.slot = l.slot AND o.ordering_key = l.ordering_key AND o.held_until IS NOT NULL
               AND o.position < COALESCE(
                   (SELECT MIN(w.position) FROM {posta}outbox AS w WHERE w.dead_letter = l.position), 9223372036854775807))
     WHERE l.consumer IS NULL AND p.parked = 1
     ORDER BY 1";

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
            store
                .sql("UPDATE {posta}replay_run SET waiting = ? WHERE position = ?")
                .bind(letters)
                .bind(run)
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
            None => self.sql(&format!("{RUNS} {newest}")).statement(),
            Some(run) => self
                .sql(&format!("{RUNS} WHERE position = ? {newest}"))
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
            .sql(&format!(
                "{RUNS} WHERE state = 'running' AND next_at <= {{now}} ORDER BY next_at, position LIMIT 1"
            ))
            .statement();
        on_thread(connection, "take a replay run", |connection| {
            Ok(read(run, connection)?.pop())
        })
        .await
    }

    async fn settle_run(&self, connection: &mut Connection, run: RunId) -> Result<(), StoreError> {
        let became = self.sql(BECAME).bind(run.0);
        let settle = self.sql(
            "UPDATE {posta}replay_item SET state = ? WHERE run = ? AND dead_letter = ? AND state = 'replaying'",
        );
        let count = self.sql(
            "UPDATE {posta}replay_run SET replaying = replaying - ?, replayed = replayed + ?, failed = failed + ?,
                 left_out = left_out + ? WHERE position = ?",
        );
        on_thread(connection, "settle a replay run", move |connection| {
            let became = became.rows::<(BigInt, Text), (i64, String)>(connection)?;
            for (letter, state) in &became {
                settle
                    .bind(state.as_str())
                    .bind(run.0)
                    .bind(*letter)
                    .execute(connection)?;
            }
            let settled = settled(&became);
            count
                .bind(became.len())
                .bind(settled.replayed as usize)
                .bind(settled.failed as usize)
                .bind(settled.left as usize)
                .bind(run.0)
                .execute(connection)
                .map(|_| ())
        })
        .await
    }

    async fn unsettled(
        &self,
        connection: &mut Connection,
        run: RunId,
    ) -> Result<RunCounts, StoreError> {
        let became = self.sql(BECAME).bind(run.0);
        on_thread(connection, "read replay runs", |connection| {
            let became = became.rows::<(BigInt, Text), (i64, String)>(connection)?;
            Ok(settled(&became))
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

    async fn letters_on_their_way(
        &self,
        connection: &mut Connection,
        run: RunId,
    ) -> Result<Vec<LetterId>, StoreError> {
        let on_their_way = self
            .sql(
                "SELECT dead_letter FROM {posta}replay_item INDEXED BY {posta}replay_item_replaying
                 WHERE run = ? AND state = 'replaying' ORDER BY number",
            )
            .bind(run.0);
        on_thread(connection, "read a run's letters", |connection| {
            let letters = on_their_way.rows::<BigInt, i64>(connection)?;
            Ok(letters.into_iter().map(LetterId).collect())
        })
        .await
    }

    async fn waiting_for(
        &self,
        connection: &mut Connection,
        letters: &[LetterId],
    ) -> Result<Vec<(LetterId, LetterId)>, StoreError> {
        let letters: Vec<i64> = letters.iter().map(|letter| letter.0).collect();
        let waiting = self
            .sql(WAITING_FOR)
            .bind(Value::json(&letters))
            .bind(Value::json(&letters));
        on_thread(connection, "read what letters wait for", |connection| {
            let found = waiting.rows::<(BigInt, BigInt), (i64, i64)>(connection)?;
            let pair = |(letter, head)| (LetterId(letter), LetterId(head));
            Ok(found.into_iter().map(pair).collect())
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
        let count = self.sql(
            "UPDATE {posta}replay_run SET waiting = waiting - ?, replaying = replaying + ?, left_out = left_out + ?
             WHERE position = ?",
        );
        let (replaying, left) = (replaying.to_vec(), left.to_vec());
        on_thread(connection, "mark a run's letters", move |connection| {
            let mut marked = |state: &str, letters: &[LetterId]| {
                letters.iter().try_fold(0, |marked, letter| {
                    let mark = mark.bind(state).bind(run.0).bind(letter.0);
                    mark.execute(connection).map(|changed| marked + changed)
                })
            };
            let replaying = marked("replaying", &replaying)?;
            let left = marked("left", &left)?;
            count
                .bind(replaying + left)
                .bind(replaying)
                .bind(left)
                .bind(run.0)
                .execute(connection)
                .map(|_| ())
        })
        .await
    }

    async fn leave_recalled(
        &self,
        connection: &mut Connection,
        letter: LetterId,
    ) -> Result<(), StoreError> {
        // In whatever run it is on its way: seldom more than one.
        let leave = self
            .sql(
                "UPDATE {posta}replay_item SET state = 'left' WHERE dead_letter = ? AND state = 'replaying'
                 RETURNING run",
            )
            .bind(letter.0);
        let count = self.sql(
            "UPDATE {posta}replay_run SET replaying = replaying - 1, left_out = left_out + 1 WHERE position = ?",
        );
        on_thread(
            connection,
            "take a letter out of its run",
            move |connection| {
                let runs = leave.rows::<BigInt, i64>(connection)?;
                runs.into_iter()
                    .try_for_each(|run| count.bind(run).execute(connection).map(|_| ()))
            },
        )
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

/// How many letters have become what.
fn settled(became: &[(i64, String)]) -> RunCounts {
    let count = |word: &str| became.iter().filter(|(_, state)| state == word).count() as u64;
    RunCounts {
        replayed: count("replayed"),
        failed: count("failed"),
        left: count("left"),
        ..RunCounts::default()
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
