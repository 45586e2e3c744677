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

/// A run as it is read: what `run` takes.
macro_rules! run {
    () => {
        "
SELECT position, state, who, reason, selection, rate, failures_max, created_at, ended_at,
       waiting, replaying, replayed, failed, left_out
FROM {posta}replay_run
"
    };
}

/// What has become of a letter `d` that was on its way. One that is there no longer had ended
/// before.
macro_rules! became {
    () => {
        "CASE d.state WHEN 'replayed' THEN 'replayed' WHEN 'dead' THEN 'failed' WHEN 'discarded' THEN 'failed' ELSE 'left' END"
    };
}

statements!(ReplayTexts {
    // One statement, so that the selection is of one instant. What keeps its place comes by its
    // place, so of each key the head first; what has none goes to the end of its key anyway.
    begin = concat!("
WITH chosen AS MATERIALIZED (
    SELECT position, row_number() OVER (ORDER BY place NULLS LAST, position) AS number
    FROM (
        SELECT d.position, CASE WHEN d.parked THEN coalesce(
                   (SELECT min(p.position) FROM {posta}retry p WHERE p.dead_letter = d.position AND p.parked),
                   (SELECT min(p.position) FROM {posta}outbox p WHERE p.dead_letter = d.position AND p.parked)) END AS place
        FROM {posta}dead_letter d
        WHERE ", chosen!(), "
    ) AS letter
), run AS (
    INSERT INTO {posta}replay_run (who, reason, selection, rate, failures_max, waiting)
    SELECT $14, $15, $16, $17, $18, count(*) FROM chosen
    RETURNING position, waiting
), item AS (
    INSERT INTO {posta}replay_item (run, number, dead_letter)
    SELECT run.position, chosen.number, chosen.position FROM run CROSS JOIN chosen
)
SELECT position, waiting FROM run");

    runs = concat!(run!(), "WHERE $1::bigint IS NULL OR position = $1
ORDER BY position DESC LIMIT $2");

    change = "
UPDATE {posta}replay_run
SET state = $2, ended_at = CASE WHEN $2 IN ('cancelled', 'finished') THEN statement_timestamp() END
WHERE position = $1 AND state = ANY ($3::text[])";

    // SKIP LOCKED: a run that another process is at, or an operator just changes, is left to them.
    take = concat!(run!(), "WHERE state = 'running' AND next_at <= statement_timestamp()
ORDER BY next_at, position LIMIT 1 FOR UPDATE SKIP LOCKED");

    settle = concat!("
WITH settled AS (
    UPDATE {posta}replay_item i SET state = ", became!(), "
    FROM {posta}replay_item o LEFT JOIN {posta}dead_letter d ON d.position = o.dead_letter
    WHERE o.run = $1 AND o.state = 'replaying' AND d.state IS DISTINCT FROM 'replaying'
      AND i.run = o.run AND i.number = o.number
    RETURNING i.state
), n AS (
    SELECT count(*) AS settled, count(*) FILTER (WHERE state = 'replayed') AS replayed,
           count(*) FILTER (WHERE state = 'failed') AS failed, count(*) FILTER (WHERE state = 'left') AS left_out
    FROM settled
)
UPDATE {posta}replay_run r
SET replaying = r.replaying - n.settled, replayed = r.replayed + n.replayed, failed = r.failed + n.failed,
    left_out = r.left_out + n.left_out
FROM n WHERE r.position = $1 AND n.settled > 0");

    // What `settle` would write down.
    unsettled = concat!("
SELECT count(*) FILTER (WHERE state = 'replayed'), count(*) FILTER (WHERE state = 'failed'),
       count(*) FILTER (WHERE state = 'left')
FROM (
    SELECT ", became!(), " AS state
    FROM {posta}replay_item o LEFT JOIN {posta}dead_letter d ON d.position = o.dead_letter
    WHERE o.run = $1 AND o.state = 'replaying' AND d.state IS DISTINCT FROM 'replaying'
) AS settled");

    next_letters = "
SELECT dead_letter FROM {posta}replay_item WHERE run = $1 AND state = 'waiting' ORDER BY number LIMIT $2";

    on_their_way = "
SELECT dead_letter FROM {posta}replay_item WHERE run = $1 AND state = 'replaying' ORDER BY number";

    mark = "
WITH marked AS (
    UPDATE {posta}replay_item
    SET state = CASE WHEN dead_letter = ANY ($2::bigint[]) THEN 'replaying' ELSE 'left' END
    WHERE run = $1 AND state = 'waiting' AND dead_letter = ANY ($2::bigint[] || $3::bigint[])
    RETURNING state
), n AS (
    SELECT count(*) AS marked, count(*) FILTER (WHERE state = 'replaying') AS replaying FROM marked
)
UPDATE {posta}replay_run r
SET waiting = r.waiting - n.marked, replaying = r.replaying + n.replaying, left_out = r.left_out + n.marked - n.replaying
FROM n WHERE r.position = $1 AND n.marked > 0";

    // In whatever run it is on its way: seldom more than one.
    recalled = "
WITH recalled AS (
    UPDATE {posta}replay_item SET state = 'left' WHERE dead_letter = $1 AND state = 'replaying'
    RETURNING run
)
UPDATE {posta}replay_run r SET replaying = r.replaying - 1, left_out = r.left_out + 1
FROM recalled WHERE r.position = recalled.run";

    // Whose key's first row is the place of another letter. In the outbox only what has failed is
    // looked at: a row that has not goes out, and only what is before the letter's own row, if it
    // has one, is in its way.
    waiting_for = "
SELECT d.position, f.dead_letter
FROM {posta}dead_letter d
CROSS JOIN LATERAL (
    SELECT r.parked, r.dead_letter FROM {posta}retry r
    WHERE r.consumer = d.consumer AND r.slot = {posta}slot_of(d.ordering_key) AND r.ordering_key = d.ordering_key
    ORDER BY r.position LIMIT 1
) f
WHERE d.position = ANY ($1::bigint[]) AND f.parked AND f.dead_letter <> d.position
UNION ALL
SELECT d.position, f.dead_letter
FROM {posta}dead_letter d
CROSS JOIN LATERAL (
    SELECT o.parked, o.dead_letter FROM {posta}outbox o
    WHERE o.slot = {posta}slot_of(d.ordering_key) AND o.ordering_key = d.ordering_key AND o.held_until IS NOT NULL
      AND o.position < coalesce(
          (SELECT min(w.position) FROM {posta}outbox w WHERE w.dead_letter = d.position), 9223372036854775807)
    ORDER BY o.position LIMIT 1
) f
WHERE d.position = ANY ($1::bigint[]) AND d.consumer IS NULL AND f.parked
ORDER BY 1";

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

    async fn unsettled(
        &self,
        connection: &mut AsyncPgConnection,
        run: RunId,
    ) -> Result<RunCounts, StoreError> {
        let (replayed, failed, left): (i64, i64, i64) =
            Statement::new(&self.texts().replay.unsettled)
                .bind::<BigInt, _>(run.0)
                .returning::<(BigInt, BigInt, BigInt)>()
                .row(connection, READ)
                .await?;
        Ok(RunCounts {
            replayed: replayed.unsigned_abs(),
            failed: failed.unsigned_abs(),
            left: left.unsigned_abs(),
            ..RunCounts::default()
        })
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
        Ok(ids(letters))
    }

    async fn letters_on_their_way(
        &self,
        connection: &mut AsyncPgConnection,
        run: RunId,
    ) -> Result<Vec<LetterId>, StoreError> {
        let letters: Vec<(i64,)> = Statement::new(&self.texts().replay.on_their_way)
            .bind::<BigInt, _>(run.0)
            .returning::<(BigInt,)>()
            .rows(connection, STEP)
            .await?;
        Ok(ids(letters))
    }

    async fn waiting_for(
        &self,
        connection: &mut AsyncPgConnection,
        letters: &[LetterId],
    ) -> Result<Vec<(LetterId, LetterId)>, StoreError> {
        if letters.is_empty() {
            return Ok(Vec::new());
        }
        let found: Vec<(i64, i64)> = Statement::new(&self.texts().replay.waiting_for)
            .bind::<Array<BigInt>, _>(positions(letters))
            .returning::<(BigInt, BigInt)>()
            .front_rows(connection, "read what letters wait for")
            .await?;
        Ok(found
            .into_iter()
            .map(|(letter, head)| (LetterId(letter), LetterId(head)))
            .collect())
    }

    async fn mark_letters(
        &self,
        connection: &mut AsyncPgConnection,
        run: RunId,
        replaying: &[LetterId],
        left: &[LetterId],
    ) -> Result<(), StoreError> {
        Statement::new(&self.texts().replay.mark)
            .bind::<BigInt, _>(run.0)
            .bind::<Array<BigInt>, _>(positions(replaying))
            .bind::<Array<BigInt>, _>(positions(left))
            .run(connection, STEP)
            .await?;
        Ok(())
    }

    async fn leave_recalled(
        &self,
        connection: &mut AsyncPgConnection,
        letter: LetterId,
    ) -> Result<(), StoreError> {
        Statement::new(&self.texts().replay.recalled)
            .bind::<BigInt, _>(letter.0)
            .run(connection, "take a letter out of its run")
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

fn ids(letters: Vec<(i64,)>) -> Vec<LetterId> {
    letters.into_iter().map(|(id,)| LetterId(id)).collect()
}

fn positions(letters: &[LetterId]) -> Vec<i64> {
    letters.iter().map(|letter| letter.0).collect()
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
