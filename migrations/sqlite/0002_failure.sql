-- Posta's tables, version 2: dead letters that an operator can repair, parked keys, scheduled messages.

-- A parked row keeps its key's place: its key waits behind it, and it is never due. The message itself is the dead letter's.
-- Never is the last time that there is, not NULL: so a process of version 1 leaves the place alone too.
ALTER TABLE {posta}outbox ADD COLUMN parked INTEGER NOT NULL DEFAULT 0
    CONSTRAINT outbox_parked_range CHECK (parked IN (0, 1));
-- The letter that this row keeps the place of, or that goes out again with it.
ALTER TABLE {posta}outbox ADD COLUMN dead_letter INTEGER
    CONSTRAINT outbox_parked_is_dead
        CHECK (parked = 0 OR (dead_letter IS NOT NULL AND held_until IS 9223372036854775807));
-- When it failed first.
ALTER TABLE {posta}outbox ADD COLUMN failed_at INTEGER;

-- Rows that wait behind another of their key are moved out of the lane's way when they are many: they look as if they were on
-- hold, with attempts = 1, until the last time but one. These are their keys.
CREATE INDEX {posta}outbox_behind ON {posta}outbox (slot, ordering_key, position) WHERE held_until = 9223372036854775806;

CREATE INDEX {posta}outbox_letter ON {posta}outbox (dead_letter) WHERE dead_letter IS NOT NULL;

ALTER TABLE {posta}retry ADD COLUMN parked INTEGER NOT NULL DEFAULT 0
    CONSTRAINT retry_parked_range CHECK (parked IN (0, 1));
ALTER TABLE {posta}retry ADD COLUMN dead_letter INTEGER
    CONSTRAINT retry_parked_is_dead
        CHECK (parked = 0 OR (dead_letter IS NOT NULL AND due_at IS 9223372036854775807 AND ordering_key IS NOT NULL));
ALTER TABLE {posta}retry ADD COLUMN failed_at INTEGER;
-- Which process runs it, or ran it when that process died.
ALTER TABLE {posta}retry ADD COLUMN claimed_by BLOB;
-- How many processes died while they ran it.
ALTER TABLE {posta}retry ADD COLUMN deaths INTEGER NOT NULL DEFAULT 0
    CONSTRAINT retry_deaths_range CHECK (deaths >= 0);
-- Since when it is found without a handler.
ALTER TABLE {posta}retry ADD COLUMN unhandled_since INTEGER;

-- What a process lets go when it gives its partition up.
CREATE INDEX {posta}retry_claimed ON {posta}retry (consumer, slot) WHERE claimed_by IS NOT NULL;
CREATE INDEX {posta}retry_letter ON {posta}retry (dead_letter) WHERE dead_letter IS NOT NULL;

ALTER TABLE {posta}dead_letter ADD COLUMN slot INTEGER;
ALTER TABLE {posta}dead_letter ADD COLUMN state TEXT NOT NULL DEFAULT 'dead'
    CONSTRAINT dead_letter_state CHECK (state IN ('dead', 'replaying', 'replayed', 'discarded'));
-- Its key waits for what becomes of it.
ALTER TABLE {posta}dead_letter ADD COLUMN parked INTEGER NOT NULL DEFAULT 0
    CONSTRAINT dead_letter_parked
        CHECK (parked = 0 OR (parked = 1 AND state IN ('dead', 'replaying') AND ordering_key IS NOT NULL));
ALTER TABLE {posta}dead_letter ADD COLUMN replays INTEGER NOT NULL DEFAULT 0;
-- The number of the revision that is replayed; 0 is the message as it was set aside.
ALTER TABLE {posta}dead_letter ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;
-- The error without what differs between two occurrences of it.
ALTER TABLE {posta}dead_letter ADD COLUMN fingerprint TEXT NOT NULL DEFAULT '';
ALTER TABLE {posta}dead_letter ADD COLUMN first_failed_at INTEGER;
-- When it was set aside first, once it has been set aside again: then dead_at is the last time.
ALTER TABLE {posta}dead_letter ADD COLUMN first_dead_at INTEGER;
ALTER TABLE {posta}dead_letter ADD COLUMN ended_at INTEGER
    CONSTRAINT dead_letter_ended CHECK ((state IN ('replayed', 'discarded')) = (ended_at IS NOT NULL));

CREATE INDEX {posta}dead_letter_dead ON {posta}dead_letter (position) WHERE state = 'dead';
CREATE INDEX {posta}dead_letter_message ON {posta}dead_letter (message_id);

-- What an operator made of a dead letter's message. The original stays in dead_letter.
CREATE TABLE {posta}dead_letter_revision (
    dead_letter  INTEGER NOT NULL,
    revision     INTEGER NOT NULL,
    version      INTEGER,
    content_type TEXT,
    who          TEXT NOT NULL,
    reason       TEXT NOT NULL,
    revised_at   INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER) * 1000),
    payload      BLOB NOT NULL,
    PRIMARY KEY (dead_letter, revision),
    CONSTRAINT dead_letter_revision_range CHECK (revision >= 1)
);

-- Messages that are not due yet. When they are, the owner of their lane moves them to the outbox.
CREATE TABLE {posta}scheduled (
    position     INTEGER PRIMARY KEY AUTOINCREMENT,
    due_at       INTEGER NOT NULL,
    message_id   BLOB NOT NULL,
    message_type TEXT NOT NULL,
    version      INTEGER NOT NULL DEFAULT 1,
    ordering_key TEXT,
    headers      TEXT NOT NULL DEFAULT '{}',
    content_type TEXT NOT NULL DEFAULT 'application/json',
    scheduled_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER) * 1000),
    slot         INTEGER NOT NULL,
    payload      BLOB NOT NULL,
    CONSTRAINT scheduled_message_id_key UNIQUE (message_id),
    CONSTRAINT scheduled_message_id_size CHECK (typeof(message_id) = 'blob' AND length(message_id) = 16),
    CONSTRAINT scheduled_message_type_size CHECK (length(CAST(message_type AS BLOB)) BETWEEN 1 AND 252),
    CONSTRAINT scheduled_version_range CHECK (version BETWEEN 1 AND 2147483647),
    CONSTRAINT scheduled_ordering_key_size CHECK (length(CAST(ordering_key AS BLOB)) BETWEEN 1 AND 255),
    CONSTRAINT scheduled_headers_object CHECK (json_valid(headers) AND json_type(headers) = 'object'),
    CONSTRAINT scheduled_slot_range CHECK (slot BETWEEN 0 AND 63)
);

CREATE INDEX {posta}scheduled_due ON {posta}scheduled (slot, due_at, position);

-- A selection of dead letters, frozen when it was made, that is replayed step by step.
CREATE TABLE {posta}replay_run (
    position     INTEGER PRIMARY KEY AUTOINCREMENT,
    state        TEXT NOT NULL DEFAULT 'running',
    who          TEXT NOT NULL,
    reason       TEXT NOT NULL,
    -- The filter by which it was chosen, for people.
    selection    TEXT NOT NULL,
    -- Letters a second; NULL: no cap.
    rate         INTEGER,
    -- It stops when so many of its letters have died again; NULL: never.
    failures_max INTEGER,
    -- The next step is not before this.
    next_at      INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER) * 1000),
    -- How many of its letters are in which state: whatever changes a letter's changes these, in the same transaction.
    waiting      INTEGER NOT NULL DEFAULT 0,
    replaying    INTEGER NOT NULL DEFAULT 0,
    replayed     INTEGER NOT NULL DEFAULT 0,
    failed       INTEGER NOT NULL DEFAULT 0,
    left_out     INTEGER NOT NULL DEFAULT 0,
    created_at   INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER) * 1000),
    ended_at     INTEGER,
    CONSTRAINT replay_run_state CHECK (state IN ('running', 'paused', 'cancelled', 'stopped', 'finished')),
    CONSTRAINT replay_run_rate CHECK (rate >= 1),
    CONSTRAINT replay_run_failures CHECK (failures_max >= 1),
    CONSTRAINT replay_run_counts CHECK (waiting >= 0 AND replaying >= 0 AND replayed >= 0 AND failed >= 0 AND left_out >= 0),
    CONSTRAINT replay_run_ended CHECK ((state IN ('running', 'paused', 'stopped')) = (ended_at IS NULL))
);

CREATE INDEX {posta}replay_run_running ON {posta}replay_run (next_at) WHERE state = 'running';

CREATE TABLE {posta}replay_item (
    run         INTEGER NOT NULL,
    -- The order of the run.
    number      INTEGER NOT NULL,
    dead_letter INTEGER NOT NULL,
    state       TEXT NOT NULL DEFAULT 'waiting',
    PRIMARY KEY (run, number),
    CONSTRAINT replay_item_letter_key UNIQUE (run, dead_letter),
    -- left: it was not dead any more, is no valid message, waits for a letter that the run does not move, or was recalled.
    CONSTRAINT replay_item_state CHECK (state IN ('waiting', 'replaying', 'replayed', 'failed', 'left'))
) WITHOUT ROWID;

CREATE INDEX {posta}replay_item_waiting ON {posta}replay_item (run, number) WHERE state = 'waiting';
CREATE INDEX {posta}replay_item_replaying ON {posta}replay_item (run, dead_letter) WHERE state = 'replaying';

-- The record: what operators did.
CREATE TABLE {posta}operator_action (
    position    INTEGER PRIMARY KEY AUTOINCREMENT,
    done_at     INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER) * 1000),
    who         TEXT NOT NULL,
    action      TEXT NOT NULL,
    reason      TEXT NOT NULL,
    dead_letter INTEGER,
    replay_run  INTEGER,
    details     TEXT NOT NULL DEFAULT ''
);

CREATE INDEX {posta}operator_action_letter ON {posta}operator_action (dead_letter) WHERE dead_letter IS NOT NULL;

-- Which consumer has a handler for which message type, as its processes say when they start.
CREATE TABLE {posta}handled_type (
    consumer     TEXT NOT NULL,
    message_type TEXT NOT NULL,
    version      INTEGER NOT NULL,
    seen_at      INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER) * 1000),
    PRIMARY KEY (consumer, message_type)
) WITHOUT ROWID;

CREATE INDEX {posta}dispatched_message ON {posta}dispatched (message_id);
-- What was dispatched in a span of time, to go out again.
CREATE INDEX {posta}dispatched_time ON {posta}dispatched (dispatched_at, position);
