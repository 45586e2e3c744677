use crate::store::postgres::statement::{never, statements};

/// A row as it is read: what `held_rows` takes. The message comes last.
macro_rules! held {
    () => {
        "
SELECT r.position, r.attempts, (extract(epoch FROM statement_timestamp() - r.unhandled_since) * 1000000)::bigint,
       r.failed_at, r.dead_letter, r.parked,
       r.message_id, r.message_type, r.version, r.ordering_key, r.headers::text, r.content_type, r.payload, r.enqueued_at
"
    };
}

/// Whether the partition is the fence's still: $3 to $6. Read and not locked, as for lanes.
macro_rules! owned {
    () => {
        "EXISTS (
      SELECT FROM {posta}lease
      WHERE resource = $3 AND number = $4 AND owner = $5 AND epoch = $6 AND expires_at > statement_timestamp())"
    };
}

statements!(RetryTexts {
    // The place of a dead letter ($14) is never due.
    hold = concat!("
INSERT INTO {posta}retry (consumer, slot, message_id, message_type, version, ordering_key, headers, content_type, payload,
                          enqueued_at, attempts, due_at, last_error, failed_at, parked, dead_letter)
SELECT $1, h.slot, h.message_id, h.message_type, h.version, h.ordering_key, h.headers::jsonb, h.content_type, h.payload,
       h.enqueued_at, h.attempts,
       CASE WHEN h.letter IS NULL THEN statement_timestamp() + h.delay * interval '1 microsecond' ELSE ", never!(), " END,
       h.error, CASE WHEN h.attempts > 0 THEN statement_timestamp() END, h.letter IS NOT NULL, h.letter
FROM unnest($2::smallint[], $3::uuid[], $4::text[], $5::integer[], $6::text[], $7::text[], $8::text[], $9::bytea[],
            $10::timestamptz[], $11::integer[], $12::bigint[], $13::text[], $14::bigint[])
    WITH ORDINALITY AS h (slot, message_id, message_type, version, ordering_key, headers, content_type, payload,
                          enqueued_at, attempts, delay, error, letter, n)
ORDER BY h.n
ON CONFLICT (consumer, message_id) DO NOTHING");

    // Heads whose time has come, slot by slot, by their time. A parked row's never comes, and what is
    // behind it is no head.
    due = concat!("
WITH ready AS (
    SELECT r.position
    FROM generate_series($2::integer, $3::integer) AS s (slot)
    CROSS JOIN LATERAL (
        SELECT r.position, r.due_at FROM {posta}retry r
        WHERE r.consumer = $1 AND r.slot = s.slot AND r.due_at <= statement_timestamp()
          AND NOT EXISTS (
              SELECT FROM {posta}retry e
              WHERE e.consumer = r.consumer AND e.slot = r.slot AND e.ordering_key = r.ordering_key
                AND e.position < r.position OFFSET 0)
        ORDER BY r.due_at, r.position LIMIT $4
    ) r
    ORDER BY r.due_at, r.position LIMIT $4
)", held!(), "FROM ready JOIN {posta}retry r USING (position)
ORDER BY r.position");

    // Successors that have become the first of their key without being told: their head was deleted
    // by hand, or joined and left while they were not yet committed. They have no time by which to
    // find them; so this walks over the keys that have successors, one step in the index a key,
    // however many successors it has.
    orphaned = "
WITH RECURSIVE waiting AS (
    (SELECT slot, ordering_key, position FROM {posta}retry
     WHERE consumer = $1 AND slot BETWEEN $2 AND $3 AND due_at IS NULL
     ORDER BY slot, ordering_key, position LIMIT 1)
    UNION ALL
    SELECT n.slot, n.ordering_key, n.position
    FROM waiting w CROSS JOIN LATERAL (
        SELECT slot, ordering_key, position FROM {posta}retry
        WHERE consumer = $1 AND slot <= $3 AND due_at IS NULL AND (slot, ordering_key) > (w.slot, w.ordering_key)
        ORDER BY slot, ordering_key, position LIMIT 1
    ) n
), orphan AS (
    SELECT w.position FROM waiting w
    WHERE NOT EXISTS (
        SELECT FROM {posta}retry e
        WHERE e.consumer = $1 AND e.slot = w.slot AND e.ordering_key = w.ordering_key AND e.position < w.position OFFSET 0)
    LIMIT $4
)
SELECT (SELECT count(*) FROM waiting), ARRAY (SELECT position FROM orphan)";

    at = concat!(held!(), "FROM {posta}retry r WHERE r.position = ANY ($1::bigint[])");

    // As `due`, with the first time of each slot in place of the rows.
    next_retry = concat!("
SELECT (extract(epoch FROM min(r.due_at) - statement_timestamp()) * 1000000)::bigint
FROM generate_series($2::integer, $3::integer) AS s (slot)
CROSS JOIN LATERAL (
    SELECT r.due_at FROM {posta}retry r
    WHERE r.consumer = $1 AND r.slot = s.slot AND r.due_at < ", never!(), "
      AND NOT EXISTS (
          SELECT FROM {posta}retry e
          WHERE e.consumer = r.consumer AND e.slot = r.slot AND e.ordering_key = r.ordering_key
            AND e.position < r.position OFFSET 0)
    ORDER BY r.due_at LIMIT 1
) r");

    // Whoever runs rows writes it down first. What another process has written stays: only
    // `claim_alone` takes it over. Rows are locked in the order of their positions.
    claim = concat!("
WITH here AS MATERIALIZED (
    SELECT position, claimed_by, deaths FROM {posta}retry
    WHERE position = ANY ($1::bigint[]) AND consumer = $2 AND NOT parked AND ", owned!(), "
    ORDER BY position FOR UPDATE
), claimed AS (
    UPDATE {posta}retry r SET claimed_by = $7 FROM here WHERE r.position = here.position AND here.claimed_by IS NULL
)
SELECT position, coalesce(claimed_by <> $7, false), deaths FROM here ORDER BY position");

    // deaths stops short of its column's end.
    claim_alone = concat!("
WITH here AS MATERIALIZED (
    SELECT position, coalesce(claimed_by <> $7, false) AS abandoned FROM {posta}retry
    WHERE position = $1 AND consumer = $2 AND NOT parked AND ", owned!(), "
    FOR UPDATE
)
UPDATE {posta}retry r
SET claimed_by = $7, deaths = least(r.deaths, 2147483646) + here.abandoned::integer
FROM here WHERE r.position = here.position
RETURNING r.position, here.abandoned, r.deaths");

    unclaim = "
UPDATE {posta}retry SET claimed_by = NULL
WHERE consumer = $1 AND slot BETWEEN $2 AND $3 AND claimed_by = $4";

    // The positions come sorted.
    release = concat!("
DELETE FROM {posta}retry
WHERE position = ANY ($1::bigint[]) AND consumer = $2 AND NOT parked AND ", owned!(), "
RETURNING position, slot, ordering_key, dead_letter");

    // The next of each key, if what has left was before it: if something else is first, that has a
    // time of its own. A statement of its own, so that it sees a successor that was committed while
    // the deletion waited; one that is committed later still is found by `orphaned`.
    promote = "
UPDATE {posta}retry r SET due_at = statement_timestamp()
FROM (
    SELECT f.position
    FROM unnest($2::smallint[], $3::text[], $4::bigint[]) AS k (slot, ordering_key, gone)
    CROSS JOIN LATERAL (
        SELECT position FROM {posta}retry
        WHERE consumer = $1 AND slot = k.slot AND ordering_key = k.ordering_key
        ORDER BY position LIMIT 1
    ) f
    WHERE f.position > k.gone
) next
WHERE r.position = next.position AND NOT r.parked";

    // Without an error ($7) it was not tried: that is no attempt and no failure.
    postpone = concat!("
UPDATE {posta}retry
SET attempts = least(attempts, 2147483646) + ($7::text IS NOT NULL)::integer, last_error = coalesce($7, last_error),
    due_at = statement_timestamp() + $8 * interval '1 microsecond',
    failed_at = CASE WHEN $7 IS NULL THEN failed_at ELSE coalesce(failed_at, statement_timestamp()) END,
    unhandled_since = CASE WHEN $7 IS NULL THEN coalesce(unhandled_since, statement_timestamp()) END,
    claimed_by = NULL, deaths = 0
WHERE position = $1 AND consumer = $2 AND NOT parked AND ", owned!());

    park = concat!("
UPDATE {posta}retry
SET parked = true, dead_letter = $7, due_at = ", never!(), ", payload = '', claimed_by = NULL
WHERE position = $1 AND consumer = $2 AND NOT parked AND ", owned!());

    // Back into its place. What else is in the row has stayed as it was.
    readmit_place = "
UPDATE {posta}retry
SET parked = false, due_at = statement_timestamp(), attempts = 0, deaths = 0, last_error = NULL, failed_at = NULL,
    unhandled_since = NULL, held_at = statement_timestamp(), message_type = $3, version = $4, headers = $5::jsonb, content_type = $6, payload = $7,
    enqueued_at = coalesce($8, enqueued_at)
WHERE consumer = $1 AND dead_letter = $2 AND parked";

    // To the end. If the first of its key is just leaving, this one may wait for it in vain, and is
    // found by `orphaned`.
    readmit = "
INSERT INTO {posta}retry (consumer, dead_letter, message_type, version, headers, content_type, payload, enqueued_at,
                          slot, ordering_key, message_id, attempts, due_at)
SELECT $1, $2, $3, $4, $5::jsonb, $6, $7, $8, $9, $10, $11, 0,
       CASE WHEN NOT EXISTS (
           SELECT FROM {posta}retry e WHERE e.consumer = $1 AND e.slot = $9 AND e.ordering_key = $10
       ) THEN statement_timestamp() END
ON CONFLICT (consumer, message_id) DO NOTHING";

    unpark = "
DELETE FROM {posta}retry WHERE consumer = $1 AND dead_letter = $2 AND parked
RETURNING position, slot, ordering_key, dead_letter";

    withdraw = "
DELETE FROM {posta}retry WHERE position = $1
RETURNING position, slot, ordering_key, dead_letter";

    held = "
SELECT count(*) FILTER (WHERE NOT parked), count(DISTINCT ordering_key) FROM {posta}retry WHERE consumer = $1";

    held_count = "
SELECT count(*) FROM (
    SELECT FROM {posta}retry WHERE consumer = $1 AND slot = $2 AND ordering_key = $3 AND NOT parked LIMIT $4
) AS held";

    held_of_key = concat!(held!(), "FROM {posta}retry r
WHERE r.consumer = $1 AND r.slot = $2 AND r.ordering_key = $3
ORDER BY r.position LIMIT $4");
});
