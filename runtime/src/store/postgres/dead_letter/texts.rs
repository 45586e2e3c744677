use super::filter::chosen;
use crate::store::postgres::statement::statements;

/// How many messages wait behind a letter `d` at its consumer: those of its key that came later.
/// Only Posta's own code parks, and a place is never without its key.
macro_rules! successors {
    () => {
        "CASE
           WHEN NOT d.parked OR d.consumer IS NULL THEN 0
           ELSE (
               SELECT count(*) FROM {posta}retry p
               JOIN {posta}retry s ON s.consumer = p.consumer AND s.slot = p.slot AND s.ordering_key = p.ordering_key
                                  AND s.position > p.position
               WHERE p.consumer = d.consumer AND p.dead_letter = d.position AND NOT s.parked)
       END"
    };
}

/// Which rows of the outbox are of the keys of the places (slot, place) in `letter`.
///
/// No index leads from a key to the rows that never failed: each enqueue would pay for it (a fifth
/// of its log). So the outbox is read once for all letters, if any has a place there. FULL, because
/// such a join is never a loop over the outbox for each key, whatever the planner believes of the
/// numbers; OFFSET 0 keeps it so. Who counts them sorts them with the places by key and position,
/// and sums up from the end; a place that goes out again is one of them too, and not counted for
/// itself.
macro_rules! queued {
    () => {
        "(
        SELECT o.slot, o.ordering_key, o.position, k.slot IS NOT NULL AS waits
        FROM (SELECT DISTINCT slot, place FROM letter WHERE place IS NOT NULL) k
        FULL JOIN (
            SELECT slot, ordering_key, position FROM {posta}outbox
            WHERE NOT parked AND ordering_key IS NOT NULL AND EXISTS (SELECT FROM letter WHERE place IS NOT NULL)
        ) o ON o.slot = k.slot AND o.ordering_key = k.place
        OFFSET 0
    ) o
    WHERE o.waits AND o.position IS NOT NULL"
    };
}

/// A letter `d` as it is read, with its current revision `v`: what `letter` takes.
macro_rules! letter {
    () => {
        concat!(
            "
SELECT d.position, d.consumer, d.message_id, d.message_type, d.ordering_key, d.headers::text, d.enqueued_at,
       CASE WHEN v.dead_letter IS NULL THEN d.version ELSE v.version END,
       CASE WHEN v.dead_letter IS NULL THEN d.content_type ELSE v.content_type END,
       CASE WHEN v.dead_letter IS NULL THEN d.payload ELSE v.payload END,
       d.reason, d.error, d.fingerprint, d.attempts, d.replays, d.revision, d.state, d.parked, d.slot,
       d.first_failed_at, d.dead_at, d.ended_at,
       ",
            successors!(),
            "
FROM {posta}dead_letter d
LEFT JOIN {posta}dead_letter_revision v ON v.dead_letter = d.position AND v.revision = d.revision
"
        )
    };
}

/// The letters among $1 that are in the state that a change begins with, locked in the order of
/// their ids.
macro_rules! change {
    ($from:literal, $set:literal) => {
        concat!(
            "
WITH here AS MATERIALIZED (
    SELECT position FROM {posta}dead_letter WHERE position = ANY ($1::bigint[]) AND ",
            $from,
            "
    ORDER BY position FOR UPDATE
)
UPDATE {posta}dead_letter d SET ",
            $set,
            "
FROM here WHERE d.position = here.position
RETURNING d.position"
        )
    };
}

statements!(DeadLetterTexts {
    // The numbers are drawn after the sort, so they rise in the order given.
    bury = "
INSERT INTO {posta}dead_letter (consumer, message_id, message_type, version, ordering_key, headers, content_type, payload,
                                enqueued_at, attempts, reason, error, fingerprint, slot, first_failed_at, parked, state,
                                ended_at)
SELECT d.consumer, d.message_id, d.message_type, d.version, d.ordering_key, d.headers::jsonb, d.content_type, d.payload,
       d.enqueued_at, d.attempts, d.reason, d.error, d.fingerprint, d.slot,
       coalesce(d.first_failed_at, statement_timestamp()), d.parked,
       CASE WHEN d.discarded THEN 'discarded' ELSE 'dead' END, CASE WHEN d.discarded THEN statement_timestamp() END
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::bytea[],
            $9::timestamptz[], $10::integer[], $11::text[], $12::text[], $13::text[], $14::smallint[], $15::timestamptz[],
            $16::boolean[], $17::boolean[])
    WITH ORDINALITY AS d (consumer, message_id, message_type, version, ordering_key, headers, content_type, payload,
                          enqueued_at, attempts, reason, error, fingerprint, slot, first_failed_at, parked, discarded, n)
ORDER BY d.n
RETURNING position";

    // What was a letter already. Its message, its revisions, its first failure and its replays stay.
    bury_again = "
UPDATE {posta}dead_letter d
SET state = CASE WHEN a.discarded THEN 'discarded' ELSE 'dead' END,
    ended_at = CASE WHEN a.discarded THEN statement_timestamp() END,
    parked = a.parked, attempts = a.attempts, reason = a.reason, error = a.error, fingerprint = a.fingerprint,
    first_dead_at = coalesce(d.first_dead_at, d.dead_at), dead_at = clock_timestamp()
FROM unnest($1::bigint[], $2::integer[], $3::text[], $4::text[], $5::text[], $6::boolean[], $7::boolean[])
    AS a (position, attempts, reason, error, fingerprint, parked, discarded)
WHERE d.position = a.position
RETURNING d.position";

    // With the row that it went out with, a letter's replay is over. One that dies again is buried
    // again, in the same transaction.
    replayed = change!(
        "state = 'replaying'",
        "state = 'replayed', parked = false, ended_at = statement_timestamp()"
    );

    dead_letters = "
SELECT count(*) FROM {posta}dead_letter
WHERE state = 'dead' AND (consumer = $1 OR $1 IS NULL AND consumer IS NULL)";

    // The consumers that have dead letters, one step in `dead_letter_consumer` a name.
    dead_consumers = "
WITH RECURSIVE name AS (
    (SELECT consumer FROM {posta}dead_letter WHERE consumer IS NOT NULL ORDER BY consumer LIMIT 1)
    UNION ALL
    SELECT n.consumer
    FROM name CROSS JOIN LATERAL (
        SELECT consumer FROM {posta}dead_letter d WHERE d.consumer > name.consumer ORDER BY consumer LIMIT 1
    ) n
)
SELECT consumer FROM name";

    letters = concat!(letter!(), "WHERE ", chosen!(), " AND d.position > $14 ORDER BY d.position LIMIT $15");

    // How many messages wait in the outbox behind each of these letters. Those that nothing waits
    // behind may be missing.
    queued = concat!("
WITH letter AS MATERIALIZED (
    SELECT dead_letter, slot, ordering_key AS place, position FROM {posta}outbox
    WHERE dead_letter = ANY ($1::bigint[])
), row AS (
    SELECT dead_letter, slot, place, position, 0 AS waits FROM letter
    UNION ALL
    SELECT NULL, o.slot, o.ordering_key, o.position, 1 FROM ", queued!(), "
), counted AS (
    SELECT dead_letter, sum(waits) OVER (PARTITION BY slot, place ORDER BY position DESC, waits) AS successors FROM row
)
SELECT dead_letter, successors::bigint FROM counted WHERE dead_letter IS NOT NULL");

    // What `successors!` and `queued` count, one by one.
    successors_in_outbox = "
SELECT s.message_id::text, s.message_type, octet_length(s.payload), s.attempts,
       (extract(epoch FROM statement_timestamp() - s.enqueued_at) * 1000000)::bigint
FROM {posta}outbox p
JOIN {posta}outbox s ON s.slot = p.slot AND s.ordering_key = p.ordering_key AND s.position > p.position
WHERE p.dead_letter = $1 AND p.parked AND NOT s.parked
ORDER BY s.position LIMIT $2";

    successors_in_retry = "
SELECT s.message_id::text, s.message_type, octet_length(s.payload), s.attempts,
       (extract(epoch FROM statement_timestamp() - s.held_at) * 1000000)::bigint
FROM {posta}retry p
JOIN {posta}retry s ON s.consumer = p.consumer AND s.slot = p.slot AND s.ordering_key = p.ordering_key
                   AND s.position > p.position
WHERE p.dead_letter = $1 AND p.parked AND NOT s.parked
ORDER BY s.position LIMIT $2";

    // Two letters of one key may have the same successors: of each key, the longest queue counts.
    letter_groups = concat!("
WITH letter AS MATERIALIZED (
    SELECT d.consumer, d.message_type, d.reason, d.fingerprint, d.ordering_key, d.parked, d.dead_at,
           p.slot, p.ordering_key AS place, p.position, ", successors!(), " AS waits
    FROM {posta}dead_letter d
    LEFT JOIN {posta}outbox p ON p.dead_letter = d.position AND d.parked
    WHERE ", chosen!(), "
), row AS (
    SELECT true AS is_letter, * FROM letter
    UNION ALL
    SELECT false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, o.slot, o.ordering_key, o.position, 1 FROM ", queued!(), "
), counted AS (
    SELECT *, CASE
               WHEN place IS NULL THEN waits
               ELSE sum(waits) OVER (PARTITION BY slot, place ORDER BY position DESC, waits)
           END AS successors
    FROM row
), key AS (
    SELECT consumer, message_type, reason, fingerprint, ordering_key, count(*) AS letters, bool_or(parked) AS parked,
           max(successors) AS successors, min(dead_at) AS oldest, max(dead_at) AS newest
    FROM counted WHERE is_letter
    GROUP BY consumer, message_type, reason, fingerprint, ordering_key
)
SELECT consumer, message_type, reason, fingerprint, sum(letters)::bigint AS letters, count(*) FILTER (WHERE parked),
       sum(successors)::bigint, min(oldest) AS oldest, max(newest)
FROM key
GROUP BY consumer, message_type, reason, fingerprint
ORDER BY letters DESC, oldest, consumer, message_type, reason, fingerprint
LIMIT $14");

    lock = "
SELECT position FROM {posta}dead_letter WHERE position = ANY ($1::bigint[]) ORDER BY position FOR UPDATE";

    // A statement of its own after `lock`, so that it sees what was committed while that waited.
    locked = concat!(letter!(), "WHERE d.position = ANY ($1::bigint[]) ORDER BY d.position");

    // Its key goes on waiting, if it does: the message takes its place.
    replay = change!("state = 'dead'", "state = 'replaying', replays = least(d.replays, 2147483646) + 1, attempts = 0");

    discard = change!("state = 'dead'", "state = 'discarded', parked = false, ended_at = statement_timestamp()");

    restore = change!("state = 'discarded'", "state = 'dead', ended_at = NULL");

    skip = change!("state = 'dead' AND parked", "parked = false");

    recall = change!("state = 'replaying'", "state = 'dead'");

    // The update waits for whoever has the letter, then looks at its state again.
    revise = "
WITH letter AS (
    UPDATE {posta}dead_letter SET revision = revision + 1 WHERE position = $1 AND state = 'dead'
    RETURNING position, revision
)
INSERT INTO {posta}dead_letter_revision (dead_letter, revision, version, content_type, payload, who, reason)
SELECT position, revision, $2, $3, $4, $5, $6 FROM letter
RETURNING revision";

    revisions = "
SELECT 0, payload, version, content_type, '', '', coalesce(first_dead_at, dead_at)
FROM {posta}dead_letter WHERE position = $1
UNION ALL
SELECT revision, payload, version, content_type, who, reason, revised_at
FROM {posta}dead_letter_revision WHERE dead_letter = $1
ORDER BY 1";
});
