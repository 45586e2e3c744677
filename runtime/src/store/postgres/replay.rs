use std::time::Duration;

use diesel::data_types::PgTimestamp;
use diesel::sql_types::{Array, BigInt, Integer, Nullable, Text, Timestamptz};
use diesel_async::AsyncPgConnection;

use super::PostgresStore;
use super::columns::{instant, stored};
use super::dead_letter::{chosen, filtered};
use super::duration::{duration, micros};
use super::statement::{Statement, statements};
use crate::store::text::storable;
use crate::store::{
    LetterFilter, LetterId, LetterState, NewReplayRun, ReplayRun, ReplayStore, RunCounts, RunId,
    RunState, StoreError, StoreErrorKind,
};

/// A run `r` as it is read: what `run` takes.
macro_rules! run {
    ($from:literal) => {
        concat!(
            "
SELECT r.position, r.state, r.who, r.reason, r.selection, r.rate, r.failures_max, r.created_at, r.ended_at,
       n.waiting, n.replaying, n.replayed, n.failed, n.left_out
FROM ",
            $from,
            " r
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE i.state = 'waiting') AS waiting,
           count(*) FILTER (WHERE i.state = 'replaying') AS replaying,
           count(*) FILTER (WHERE i.state = 'replayed') AS replayed,
           count(*) FILTER (WHERE i.state = 'failed') AS failed,
           count(*) FILTER (WHERE i.state = 'left') AS left_out
    FROM {posta}replay_item i WHERE i.run = r.position
) n
"
        )
    };
}

statements!(ReplayTexts {
    // One statement, so that the selection is of one instant.
    begin = concat!("
WITH run AS (
    INSERT INTO {posta}replay_run (who, reason, selection, rate, failures_max) VALUES ($14, $15, $16, $17, $18)
    RETURNING position
), item AS (
    INSERT INTO {posta}replay_item (run, number, dead_letter)
    SELECT run.position, row_number() OVER (ORDER BY d.position), d.position
    FROM run CROSS JOIN {posta}dead_letter d
    WHERE ", chosen!(), "
    RETURNING 1
)
SELECT run.position, (SELECT count(*) FROM item) FROM run");

    runs = concat!(run!("{posta}replay_run"), "WHERE $1::bigint IS NULL OR r.position = $1
ORDER BY r.position DESC LIMIT $2");

    change = "
UPDATE {posta}replay_run
SET state = $2, ended_at = CASE WHEN $2 IN ('cancelled', 'finished') THEN statement_timestamp() END
WHERE position = $1 AND state = ANY ($3::text[])";

    // SKIP LOCKED: a run that another process is at, or an operator just changes, is left to them.
    take = concat!("
WITH taken AS MATERIALIZED (
    SELECT * FROM {posta}replay_run WHERE state = 'running' AND next_at <= statement_timestamp()
    ORDER BY next_at, position LIMIT 1 FOR UPDATE SKIP LOCKED
)", run!("taken"));

    // A letter that is there no longer had ended before.
    settle = "
UPDATE {posta}replay_item i
SET state = CASE d.state WHEN 'replayed' THEN 'replayed' WHEN 'dead' THEN 'failed' WHEN 'discarded' THEN 'failed' ELSE 'left' END
FROM {posta}replay_item o LEFT JOIN {posta}dead_letter d ON d.position = o.dead_letter
WHERE o.run = $1 AND o.state = 'replaying' AND d.state IS DISTINCT FROM 'replaying'
  AND i.run = o.run AND i.number = o.number";

    next_letters = "
SELECT dead_letter FROM {posta}replay_item WHERE run = $1 AND state = 'waiting' ORDER BY number LIMIT $2";

    mark = "
UPDATE {posta}replay_item
SET state = CASE WHEN dead_letter = ANY ($2::bigint[]) THEN 'replaying' ELSE 'left' END
WHERE run = $1 AND state = 'waiting' AND dead_letter = ANY ($2::bigint[] || $3::bigint[])";

    pace = "
UPDATE {posta}replay_run SET next_at = statement_timestamp() + $2 * interval '1 microsecond' WHERE position = $1";

    next_step = "
SELECT (extract(epoch FROM min(next_at) - statement_timestamp()) * 1000000)::bigint
FROM {posta}replay_run WHERE state = 'running'";
});

const READ: &str = "read replay runs";
const STEP: &str = "step a replay run";

type HeadColumns = (
    BigInt,
    Text,
    Text,
    Text,
    Text,
    Nullable<Integer>,
    Nullable<Integer>,
    Timestamptz,
    Nullable<Timestamptz>,
);

type Head = (
    i64,
    String,
    String,
    String,
    String,
    Option<i32>,
    Option<i32>,
    PgTimestamp,
    Option<PgTimestamp>,
);

type RunColumns = (HeadColumns, (BigInt, BigInt, BigInt, BigInt, BigInt));

type RunRow = (Head, (i64, i64, i64, i64, i64));

impl ReplayStore for PostgresStore {
    async fn begin_run(
        &self,
        connection: &mut AsyncPgConnection,
        filter: &LetterFilter,
        run: &NewReplayRun,
    ) -> Result<(RunId, u64), StoreError> {
        let limit = |limit: u32| i32::try_from(limit).unwrap_or(i32::MAX);
        let (run, letters): (i64, i64) =
            filtered(&self.texts().replay.begin, filter, &[LetterState::Dead])
                .bind::<Text, _>(storable(&run.who))
                .bind::<Text, _>(storable(&run.reason))
                .bind::<Text, _>(storable(&run.selection))
                .bind::<Nullable<Integer>, _>(run.rate.map(limit))
                .bind::<Nullable<Integer>, _>(run.failures_max.map(limit))
                .returning::<(BigInt, BigInt)>()
                .row(connection, "begin a replay run")
                .await?;
        Ok((RunId(run), letters.unsigned_abs()))
    }

    async fn runs(
        &self,
        connection: &mut AsyncPgConnection,
        only: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<ReplayRun>, StoreError> {
        let rows: Vec<RunRow> = Statement::new(&self.texts().replay.runs)
            .bind::<Nullable<BigInt>, _>(only.map(|run| run.0))
            .bind::<BigInt, _>(i64::try_from(limit).unwrap_or(i64::MAX))
            .returning::<RunColumns>()
            .front_rows(connection, READ)
            .await?;
        rows.into_iter().map(|row| run(row, READ)).collect()
    }

    async fn change_run(
        &self,
        connection: &mut AsyncPgConnection,
        run: RunId,
        from: &[RunState],
        to: RunState,
    ) -> Result<bool, StoreError> {
        let from: Vec<&str> = from.iter().map(|state| state.as_str()).collect();
        let changed = Statement::new(&self.texts().replay.change)
            .bind::<BigInt, _>(run.0)
            .bind::<Text, _>(to.as_str())
            .bind::<Array<Text>, _>(from)
            .run(connection, "change a replay run")
            .await?;
        Ok(changed > 0)
    }

    async fn take_run(
        &self,
        connection: &mut AsyncPgConnection,
    ) -> Result<Option<ReplayRun>, StoreError> {
        let taken: Vec<RunRow> = Statement::new(&self.texts().replay.take)
            .returning::<RunColumns>()
            .front_rows(connection, STEP)
            .await?;
        taken
            .into_iter()
            .next()
            .map(|row| run(row, STEP))
            .transpose()
    }

    async fn settle_run(
        &self,
        connection: &mut AsyncPgConnection,
        run: RunId,
    ) -> Result<(), StoreError> {
        Statement::new(&self.texts().replay.settle)
            .bind::<BigInt, _>(run.0)
            .run(connection, STEP)
            .await?;
        Ok(())
    }

    async fn next_letters(
        &self,
        connection: &mut AsyncPgConnection,
        run: RunId,
        limit: usize,
    ) -> Result<Vec<LetterId>, StoreError> {
        let letters: Vec<(i64,)> = Statement::new(&self.texts().replay.next_letters)
            .bind::<BigInt, _>(run.0)
            .bind::<BigInt, _>(i64::try_from(limit).unwrap_or(i64::MAX))
            .returning::<(BigInt,)>()
            .rows(connection, STEP)
            .await?;
        Ok(letters
            .into_iter()
            .map(|(letter,)| LetterId(letter))
            .collect())
    }

    async fn mark_letters(
        &self,
        connection: &mut AsyncPgConnection,
        run: RunId,
        replaying: &[LetterId],
        left: &[LetterId],
    ) -> Result<(), StoreError> {
        let positions =
            |letters: &[LetterId]| -> Vec<i64> { letters.iter().map(|letter| letter.0).collect() };
        Statement::new(&self.texts().replay.mark)
            .bind::<BigInt, _>(run.0)
            .bind::<Array<BigInt>, _>(positions(replaying))
            .bind::<Array<BigInt>, _>(positions(left))
            .run(connection, STEP)
            .await?;
        Ok(())
    }

    async fn pace_run(
        &self,
        connection: &mut AsyncPgConnection,
        run: RunId,
        pause: Duration,
    ) -> Result<(), StoreError> {
        Statement::new(&self.texts().replay.pace)
            .bind::<BigInt, _>(run.0)
            .bind::<BigInt, _>(micros(pause))
            .run(connection, STEP)
            .await?;
        Ok(())
    }

    async fn next_step(
        &self,
        connection: &mut AsyncPgConnection,
    ) -> Result<Option<Duration>, StoreError> {
        let (wait,): (Option<i64>,) = Statement::new(&self.texts().replay.next_step)
            .returning::<(Nullable<BigInt>,)>()
            .row(connection, READ)
            .await?;
        Ok(wait.map(duration))
    }
}

/// The run of a row.
fn run((head, counts): RunRow, operation: &'static str) -> Result<ReplayRun, StoreError> {
    let (position, state, who, reason, selection, rate, failures_max, created_at, ended_at) = head;
    let (waiting, replaying, replayed, failed, left) = counts;
    let state = RunState::of(&state).ok_or_else(|| {
        let why = format!("replay run {position} is in the state {state:?}");
        StoreError::new(operation, StoreErrorKind::Corrupt, why)
    })?;
    let limit = |limit: i32| u32::try_from(limit).unwrap_or_default();
    Ok(ReplayRun {
        id: RunId(position),
        state,
        who,
        reason,
        selection,
        rate: rate.map(limit),
        failures_max: failures_max.map(limit),
        created_at: stored(created_at, operation)?,
        ended_at: ended_at.and_then(instant),
        counts: RunCounts {
            waiting: waiting.unsigned_abs(),
            replaying: replaying.unsigned_abs(),
            replayed: replayed.unsigned_abs(),
            failed: failed.unsigned_abs(),
            left: left.unsigned_abs(),
        },
    })
}
