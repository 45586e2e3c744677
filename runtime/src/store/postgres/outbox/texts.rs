use super::behind::behind;
use crate::store::postgres::statement::{never, statements};

/// Failed rows `h` of the key of a row `o`, before it.
///
/// That the key is in a range of itself says nothing new but to the planner, which then thinks such
/// rows rare: where it believes that most rows are on hold, and of few keys, it would look for the
/// first one by position, through all of the table.
macro_rules! before {
    ($h:literal, $o:literal) => {
        concat!(
            "FROM {posta}outbox ",
            $h,
            "
                   WHERE ",
            $h,
            ".slot = ",
            $o,
            ".slot AND ",
            $h,
            ".ordering_key = ",
            $o,
            ".ordering_key
                     AND ",
            $h,
            ".position < ",
            $o,
            ".position
                     AND ",
            $h,
            ".ordering_key >= ",
            $o,
            ".ordering_key AND ",
            $h,
            ".ordering_key <= ",
            $o,
            ".ordering_key"
        )
    };
}
pub(super) use before;

/// Rows that leave, as they are returned: with the key of one that others may have waited for.
macro_rules! gone {
    ($row:literal) => {
        concat!(
            $row,
            ".slot, ",
            $row,
            ".position,
       CASE WHEN ",
            $row,
            ".attempts > 0 OR ",
            $row,
            ".dead_letter IS NOT NULL THEN ",
            $row,
            ".ordering_key END, ",
            $row,
            ".dead_letter"
        )
    };
}

/// The lanes that are still those of the fences, whose parts are these placeholders.
macro_rules! owned {
    ($owners:literal, $numbers:literal, $epochs:literal) => {
        concat!("
WITH owned AS (
    SELECT l.number FROM unnest(", $owners, "::uuid[], ", $numbers, "::smallint[], ", $epochs, "::bigint[]) AS f (owner, number, epoch)
    JOIN {posta}lease l ON l.resource = 'outbox' AND l.number = f.number AND l.owner = f.owner AND l.epoch = f.epoch
    WHERE l.expires_at > statement_timestamp()
)")
    };
}
pub(in crate::store::postgres) use owned;

/// The first rows of a lane, with their ranks in it, that can be dispatched now. See
/// [`OutboxTexts`].
macro_rules! first_rows {
    ($lane:literal, $after:literal, $limit:literal) => {
        concat!(
            "SELECT position, row_number() OVER (ORDER BY position) AS rank
        FROM (
            (SELECT o.position
             FROM {posta}outbox o
             WHERE o.slot = ", $lane, ".slot AND o.held_until IS NULL AND o.position + 0 > ", $after, "
               AND o.position NOT IN (SELECT unnest($2::bigint[]))
               AND NOT EXISTS (
                   SELECT ", before!("h", "o"), "
                     AND h.held_until IS NOT NULL AND h.position NOT IN (SELECT position FROM over)
                   OFFSET 0)
             ORDER BY o.position + 0
             LIMIT ", $limit, ")
            UNION ALL
            SELECT over.position FROM over WHERE over.slot = ", $lane, ".slot AND over.position > ", $after, "
        ) AS either
        ORDER BY position
        LIMIT ", $limit
        )
    };
}

statements!(OutboxTexts {
    // In rounds, so that lanes share the limit and none starves. First, each lane gives its first
    // rows, up to an equal share; if that leaves room, the lanes that gave their whole share read
    // on, up to twice an equal share of the room; what then is left, any of them may fill. (Without
    // the second round, many lanes would each read as much as only one of them can give.) Whose
    // last row is one too many is left to chance (random()), or the same lanes would always lose.
    //
    // All in one statement, that is on one snapshot: of two commits one after the other, a later
    // round with a snapshot of its own could see the second's row ahead and miss the first's, with
    // a lower number, behind.
    //
    // A lane's rows come from two indexes, since held rows may be many (a broker without a binding
    // gives back every row) and must not be walked over: `outbox_waiting` has the rows that never
    // failed, `outbox_due` those that did, by the end of their hold. Of the latter the first failed
    // one of each key is `over`. A row that never failed comes only if each failed row of its key
    // before it is one of those: so, wherever a limit cuts, no row comes without its predecessors.
    // `outbox_held` finds them, by key. Rows whose key waits are walked over; how they do not become
    // many is told in `behind`, whose rows are like failed ones here.
    //
    // Three things keep the planner to that. `position + 0` is an order that only `outbox_waiting`
    // has. `before!` and OFFSET 0 keep an EXISTS a lookup by key for each row; the other ways are
    // quick only while few rows are on hold. The rows in flight are a hashed subplan (NOT IN). Payloads are fetched
    // last, for the rows chosen.
    //
    // statement_timestamp() is one instant for the whole statement, moves on within a transaction,
    // and unlike clock_timestamp() can be compared with by an index.
    pending = concat!("
WITH lane AS MATERIALIZED (
    SELECT slot, greatest(1, ceil($3::float8 / count(*) OVER ()))::bigint AS share
    FROM unnest($1::smallint[]) AS l (slot)
), over AS MATERIALIZED (
    SELECT lane.slot, o.position
    FROM lane CROSS JOIN LATERAL (
        SELECT o.position
        FROM {posta}outbox o
        WHERE o.slot = lane.slot AND o.held_until <= statement_timestamp()
          AND o.position NOT IN (SELECT unnest($2::bigint[]))
          AND NOT EXISTS (
              SELECT ", before!("h", "o"), "
                AND h.held_until IS NOT NULL
              OFFSET 0)
        ORDER BY o.held_until, o.position
        LIMIT lane.share
    ) o
), first AS MATERIALIZED (
    SELECT lane.slot, lane.share, o.position, o.rank
    FROM lane CROSS JOIN LATERAL (", first_rows!("lane", "0", "lane.share"), ") o
), second_lane AS MATERIALIZED (
    SELECT slot, max(position) AS position,
           2 * ceil(greatest(0, $3 - (SELECT count(*) FROM first))::float8 / count(*) OVER ())::bigint AS share
    FROM first GROUP BY slot, share HAVING count(*) = share
), second AS MATERIALIZED (
    SELECT l.slot, l.share, o.position, o.rank
    FROM second_lane l CROSS JOIN LATERAL (", first_rows!("l", "l.position", "l.share"), ") o
), third_lane AS MATERIALIZED (
    SELECT slot, max(position) AS position,
           greatest(0, $3 - (SELECT count(*) FROM first) - (SELECT count(*) FROM second)) AS share
    FROM second GROUP BY slot, share HAVING count(*) = share
), third AS (
    SELECT l.slot, l.share, o.position, o.rank
    FROM third_lane l CROSS JOIN LATERAL (", first_rows!("l", "l.position", "l.share"), ") o
), chosen AS (
    SELECT position
    FROM (
        SELECT position, 1 AS round, rank FROM first
        UNION ALL SELECT position, 2, rank FROM second
        UNION ALL SELECT position, 3, rank FROM third
    ) AS rows
    ORDER BY round, rank, random()
    LIMIT $3
)
SELECT o.slot, o.position, o.attempts, o.failed_at, o.dead_letter,
       o.message_id, o.message_type, o.version, o.ordering_key, o.headers::text,
       o.content_type, o.payload, o.enqueued_at
FROM chosen JOIN {posta}outbox o USING (position)
ORDER BY o.position");

    // One statement, so that a row is never in both tables or in none. The lease is read and not
    // locked: a lock would stop its renewal and its taking over for as long as this transaction
    // lives. A new owner that reads a row just before this commits publishes it again (N1) and then
    // finds nothing to settle.
    //
    // What is parked is an operator's, here and below: no settle touches it.
    mark_dispatched = concat!(owned!("$3", "$4", "$5"), ", gone AS (
    DELETE FROM {posta}outbox o
    USING unnest($1::smallint[], $2::bigint[]) AS r (slot, position)
    WHERE o.position = r.position AND o.slot = r.slot AND NOT o.parked AND o.slot IN (SELECT number FROM owned)
    RETURNING o.*
), kept AS (
    INSERT INTO {posta}dispatched (position, message_id, message_type, version, ordering_key, headers, content_type, payload,
                                   enqueued_at, slot, attempts)
    SELECT position, message_id, message_type, version, ordering_key, headers, content_type, payload, enqueued_at, slot, attempts
    FROM gone
)
SELECT ", gone!("gone"), " FROM gone");

    // attempts stops short of its column's end.
    mark_failed = concat!(owned!("$5", "$6", "$7"), "
UPDATE {posta}outbox o
SET attempts = least(o.attempts, 2147483646) + 1,
    last_error = r.error,
    held_until = statement_timestamp() + r.hold * interval '1 microsecond',
    failed_at = coalesce(o.failed_at, statement_timestamp())
FROM unnest($1::smallint[], $2::bigint[], $3::text[], $4::bigint[]) AS r (slot, position, error, hold)
WHERE o.position = r.position AND o.slot = r.slot AND NOT o.parked AND o.slot IN (SELECT number FROM owned)
RETURNING o.slot, o.position");

    remove = concat!(owned!("$3", "$4", "$5"), "
DELETE FROM {posta}outbox o
USING unnest($1::smallint[], $2::bigint[]) AS r (slot, position)
WHERE o.position = r.position AND o.slot = r.slot AND NOT o.parked AND o.slot IN (SELECT number FROM owned)
RETURNING ", gone!("o"));

    // A row that is parked has failed, whatever the reason, and says so to those who read the table.
    park = concat!(owned!("$4", "$5", "$6"), "
UPDATE {posta}outbox o
SET parked = true, dead_letter = r.letter, held_until = ", never!(), ", payload = '',
    attempts = least(o.attempts, 2147483646) + 1, last_error = coalesce(o.last_error, 'dead letter ' || r.letter),
    failed_at = coalesce(o.failed_at, statement_timestamp())
FROM unnest($1::smallint[], $2::bigint[], $3::bigint[]) AS r (slot, position, letter)
WHERE o.position = r.position AND o.slot = r.slot AND NOT o.parked AND o.slot IN (SELECT number FROM owned)
RETURNING o.slot, o.position");

    // Back into its place. What else is in the row has stayed as it was.
    readmit_place = "
UPDATE {posta}outbox
SET parked = false, held_until = NULL, attempts = 0, last_error = NULL, failed_at = NULL,
    message_type = $2, version = $3, headers = $4::jsonb, content_type = $5, payload = $6,
    enqueued_at = coalesce($7, enqueued_at)
WHERE dead_letter = $1 AND parked";

    // To the end.
    readmit = "
INSERT INTO {posta}outbox (dead_letter, message_type, version, headers, content_type, payload, enqueued_at, message_id,
                           ordering_key)
VALUES ($1, $2, $3, $4::jsonb, $5, $6, coalesce($7, clock_timestamp()), $8, $9)
ON CONFLICT (message_id) DO NOTHING";

    unpark = "
DELETE FROM {posta}outbox WHERE dead_letter = $1 AND parked RETURNING slot, ordering_key";

    // Only holds that last: a row whose hold is over is pending like any other (or in flight), and
    // must not wake anybody again.
    next_due = concat!("
SELECT (extract(epoch FROM min(o.held_until) - statement_timestamp()) * 1000000)::bigint
FROM unnest($1::smallint[]) AS lane (slot)
CROSS JOIN LATERAL (
    SELECT held_until FROM {posta}outbox
    WHERE slot = lane.slot AND held_until > statement_timestamp() AND held_until < ", behind!(), "
    ORDER BY held_until LIMIT 1
) o");

    // Counts the rows, all of them: for health and metrics, not for a loop.
    backlog = concat!("
SELECT count(*) FILTER (WHERE NOT parked), count(held_until) FILTER (WHERE held_until < ", behind!(), "), count(*) FILTER (WHERE parked),
       (extract(epoch FROM statement_timestamp() - min(enqueued_at) FILTER (WHERE NOT parked)) * 1000000)::bigint
FROM {posta}outbox");
});
