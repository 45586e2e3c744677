-- Posta's tables, version 2: dead letters that an operator can repair, parked keys, scheduled messages.

-- A parked row keeps its key's place: it is never due, and its key waits behind it. The message itself is the dead letter's.
--
-- Never is the last day of the year 9999, so that processes of version 1, which know nothing of `parked`, find the row on
-- hold and not due, and take the indexes that they have always taken. (NULL would tell them that the row has lost its
-- head, and infinity cannot be subtracted from.)
ALTER TABLE {posta}outbox
    ADD COLUMN parked      boolean NOT NULL DEFAULT false,
    -- The letter that this row keeps the place of, or that goes out again with it.
    ADD COLUMN dead_letter bigint,
    -- When it failed first.
    ADD COLUMN failed_at   timestamptz,
    ADD CONSTRAINT outbox_parked_is_dead CHECK (NOT parked OR dead_letter IS NOT NULL),
    ADD CONSTRAINT outbox_parked_is_never_due
        CHECK (parked = (held_until IS NOT DISTINCT FROM timestamptz '9999-12-31 00:00:00+00'));

-- Rows that wait behind another of their key are moved out of the lane's way when they are many: they look as if they were on
-- hold, with attempts = 1, until the day before never. These are their keys.
CREATE INDEX outbox_behind ON {posta}outbox (slot, ordering_key, position)
    WHERE held_until = timestamptz '9999-12-30 00:00:00+00';

CREATE INDEX outbox_letter ON {posta}outbox (dead_letter) WHERE dead_letter IS NOT NULL;

ALTER TABLE {posta}retry
    ADD COLUMN parked      boolean NOT NULL DEFAULT false,
    ADD COLUMN dead_letter bigint,
    ADD COLUMN failed_at   timestamptz,
    -- Which process runs it, or ran it when that process died.
    ADD COLUMN claimed_by  uuid,
    -- How many processes died while they ran it.
    ADD COLUMN deaths      integer NOT NULL DEFAULT 0,
    -- Since when it is found without a handler.
    ADD COLUMN unhandled_since timestamptz,
    ADD CONSTRAINT retry_deaths_range CHECK (deaths >= 0),
    ADD CONSTRAINT retry_parked_is_dead CHECK (NOT parked OR (dead_letter IS NOT NULL AND ordering_key IS NOT NULL)),
    ADD CONSTRAINT retry_parked_is_never_due
        CHECK (parked = (due_at IS NOT DISTINCT FROM timestamptz '9999-12-31 00:00:00+00'));

-- What a process lets go when it gives its partition up.
CREATE INDEX retry_claimed ON {posta}retry (consumer, slot) WHERE claimed_by IS NOT NULL;
CREATE INDEX retry_letter ON {posta}retry (dead_letter) WHERE dead_letter IS NOT NULL;

ALTER TABLE {posta}dead_letter
    ADD COLUMN slot            smallint,
    ADD COLUMN state           text NOT NULL DEFAULT 'dead',
    -- Its key waits for what becomes of it.
    ADD COLUMN parked          boolean NOT NULL DEFAULT false,
    ADD COLUMN replays         integer NOT NULL DEFAULT 0,
    -- The number of the revision that is replayed; 0 is the message as it was set aside.
    ADD COLUMN revision        integer NOT NULL DEFAULT 0,
    -- The error without what differs between two occurrences of it.
    ADD COLUMN fingerprint     text NOT NULL DEFAULT '',
    ADD COLUMN first_failed_at timestamptz,
    -- When it was set aside first, if that is not dead_at: it was set aside again.
    ADD COLUMN first_dead_at   timestamptz,
    ADD COLUMN ended_at        timestamptz,
    ADD CONSTRAINT dead_letter_slot_range CHECK (slot BETWEEN 0 AND 63),
    ADD CONSTRAINT dead_letter_state CHECK (state IN ('dead', 'replaying', 'replayed', 'discarded')),
    ADD CONSTRAINT dead_letter_ended CHECK ((state IN ('replayed', 'discarded')) = (ended_at IS NOT NULL)),
    ADD CONSTRAINT dead_letter_parked CHECK (NOT parked OR (state IN ('dead', 'replaying') AND ordering_key IS NOT NULL)),
    ADD CONSTRAINT dead_letter_counts CHECK (replays >= 0 AND revision >= 0);

CREATE INDEX dead_letter_dead ON {posta}dead_letter (position) INCLUDE (consumer) WHERE state = 'dead';
-- Hashes, since a foreign id or key can be longer than a B-tree takes.
CREATE INDEX dead_letter_message ON {posta}dead_letter USING hash (message_id) WHERE message_id IS NOT NULL;
CREATE INDEX dead_letter_key ON {posta}dead_letter USING hash (ordering_key) WHERE ordering_key IS NOT NULL;

-- What an operator made of a dead letter's message. The original stays in dead_letter.
CREATE TABLE {posta}dead_letter_revision (
    dead_letter  bigint NOT NULL,
    revision     integer NOT NULL,
    version      bigint,
    content_type text,
    payload      bytea NOT NULL,
    who          text NOT NULL,
    reason       text NOT NULL,
    revised_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT dead_letter_revision_pkey PRIMARY KEY (dead_letter, revision),
    CONSTRAINT dead_letter_revision_range CHECK (revision >= 1)
);

-- Messages that are not due yet. When they are, the owner of their lane moves them to the outbox.
CREATE TABLE {posta}scheduled (
    position     bigint GENERATED ALWAYS AS IDENTITY,
    due_at       timestamptz NOT NULL,
    message_id   uuid NOT NULL DEFAULT gen_random_uuid(),
    message_type text NOT NULL,
    version      integer NOT NULL DEFAULT 1,
    ordering_key text,
    headers      jsonb NOT NULL DEFAULT '{}',
    content_type text NOT NULL DEFAULT 'application/json',
    payload      bytea NOT NULL,
    scheduled_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    slot         smallint NOT NULL
                 GENERATED ALWAYS AS ({posta}slot_of(COALESCE(ordering_key, message_id::text))) STORED,
    CONSTRAINT scheduled_pkey PRIMARY KEY (position),
    CONSTRAINT scheduled_message_id_key UNIQUE (message_id),
    CONSTRAINT scheduled_message_type_size CHECK (octet_length(message_type) BETWEEN 1 AND 252),
    CONSTRAINT scheduled_version_range CHECK (version >= 1),
    CONSTRAINT scheduled_ordering_key_size CHECK (octet_length(ordering_key) BETWEEN 1 AND 255),
    CONSTRAINT scheduled_headers_object CHECK (jsonb_typeof(headers) = 'object')
);

CREATE INDEX scheduled_due ON {posta}scheduled (slot, due_at, position);

-- A selection of dead letters, frozen when it was made, that is replayed step by step.
CREATE TABLE {posta}replay_run (
    position     bigint GENERATED ALWAYS AS IDENTITY,
    state        text NOT NULL DEFAULT 'running',
    who          text NOT NULL,
    reason       text NOT NULL,
    -- The filter by which it was chosen, for people.
    selection    text NOT NULL,
    -- Letters a second; NULL: no cap.
    rate         integer,
    -- It stops when so many of its letters have died again; NULL: never.
    failures_max integer,
    -- The next step is not before this.
    next_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- How many of its letters are in which state: whatever changes a letter's changes these, in the same transaction.
    waiting      bigint NOT NULL DEFAULT 0,
    replaying    bigint NOT NULL DEFAULT 0,
    replayed     bigint NOT NULL DEFAULT 0,
    failed       bigint NOT NULL DEFAULT 0,
    left_out     bigint NOT NULL DEFAULT 0,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at     timestamptz,
    CONSTRAINT replay_run_pkey PRIMARY KEY (position),
    CONSTRAINT replay_run_state CHECK (state IN ('running', 'paused', 'cancelled', 'stopped', 'finished')),
    CONSTRAINT replay_run_rate CHECK (rate >= 1),
    CONSTRAINT replay_run_failures CHECK (failures_max >= 1),
    CONSTRAINT replay_run_counts CHECK (waiting >= 0 AND replaying >= 0 AND replayed >= 0 AND failed >= 0 AND left_out >= 0),
    CONSTRAINT replay_run_ended CHECK ((state IN ('running', 'paused', 'stopped')) = (ended_at IS NULL))
);

CREATE INDEX replay_run_running ON {posta}replay_run (next_at) WHERE state = 'running';

CREATE TABLE {posta}replay_item (
    run         bigint NOT NULL,
    -- The order of the run.
    number      bigint NOT NULL,
    dead_letter bigint NOT NULL,
    state       text NOT NULL DEFAULT 'waiting',
    CONSTRAINT replay_item_pkey PRIMARY KEY (run, number),
    CONSTRAINT replay_item_letter_key UNIQUE (run, dead_letter),
    -- left: it was not dead any more, is no valid message, waits for a letter that the run does not move, or was recalled.
    CONSTRAINT replay_item_state CHECK (state IN ('waiting', 'replaying', 'replayed', 'failed', 'left'))
);

CREATE INDEX replay_item_waiting ON {posta}replay_item (run, number) WHERE state = 'waiting';
CREATE INDEX replay_item_replaying ON {posta}replay_item (run, dead_letter) WHERE state = 'replaying';

-- The record: what operators did.
CREATE TABLE {posta}operator_action (
    position    bigint GENERATED ALWAYS AS IDENTITY,
    done_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    who         text NOT NULL,
    action      text NOT NULL,
    reason      text NOT NULL,
    dead_letter bigint,
    replay_run  bigint,
    details     text NOT NULL DEFAULT '',
    CONSTRAINT operator_action_pkey PRIMARY KEY (position)
);

CREATE INDEX operator_action_letter ON {posta}operator_action (dead_letter) WHERE dead_letter IS NOT NULL;

-- Which consumer has a handler for which message type, as its processes say when they start.
CREATE TABLE {posta}handled_type (
    consumer     text NOT NULL,
    message_type text NOT NULL,
    version      integer NOT NULL,
    seen_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT handled_type_pkey PRIMARY KEY (consumer, message_type)
);
