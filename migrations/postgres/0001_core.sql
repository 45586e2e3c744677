-- Posta's tables, version 1. {posta} stands for the schema with its dot, {name} for the schema.

-- The slot of an ordering key: first byte of its SHA-256, modulo 64. Immutable in truth: these databases are UTF-8.
CREATE FUNCTION {posta}slot_of(key text) RETURNS smallint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (get_byte(sha256(convert_to(key, 'UTF8')), 0) & 63)::smallint;

-- What waits for dispatch. The columns are a public contract: a plain INSERT of message_type and payload is enough.
CREATE TABLE {posta}outbox (
    -- Order of insertion. CACHE 1 (the default), so that numbers rise within and across sessions as they are taken.
    position     bigint GENERATED ALWAYS AS IDENTITY,
    message_id   uuid NOT NULL DEFAULT gen_random_uuid(),
    message_type text NOT NULL,
    version      integer NOT NULL DEFAULT 1,
    ordering_key text,
    headers      jsonb NOT NULL DEFAULT '{}',
    content_type text NOT NULL DEFAULT 'application/json',
    payload      bytea NOT NULL,
    enqueued_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Computed here, so that a plain INSERT cannot get it wrong.
    slot         smallint NOT NULL
                 GENERATED ALWAYS AS ({posta}slot_of(COALESCE(ordering_key, message_id::text))) STORED,
    attempts     integer NOT NULL DEFAULT 0,
    held_until   timestamptz,
    last_error   text,
    CONSTRAINT outbox_pkey PRIMARY KEY (position),
    CONSTRAINT outbox_message_id_key UNIQUE (message_id),
    CONSTRAINT outbox_message_type_size CHECK (octet_length(message_type) BETWEEN 1 AND 252),
    CONSTRAINT outbox_version_range CHECK (version >= 1),
    CONSTRAINT outbox_ordering_key_size CHECK (octet_length(ordering_key) BETWEEN 1 AND 255),
    CONSTRAINT outbox_headers_object CHECK (jsonb_typeof(headers) = 'object'),
    CONSTRAINT outbox_attempts_range CHECK (attempts >= 0),
    -- A row that failed says why and is on hold; one that did not is neither.
    CONSTRAINT outbox_hold_has_reason CHECK ((attempts > 0) = (last_error IS NOT NULL)),
    CONSTRAINT outbox_hold_is_failure CHECK ((attempts > 0) = (held_until IS NOT NULL))
)
-- A backlog of a million rows must not put the vacuum off until a fifth of it has been dispatched.
WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.05);

-- The dispatcher reads lane by lane in order. Rows that have failed are not in here: however many there are, none is walked over.
-- The sum is there so that no other index (the primary key) has this order; a planner that took that one would walk over all lanes.
CREATE INDEX outbox_waiting ON {posta}outbox (slot, (position + 0)) WHERE held_until IS NULL;
-- Rows that have failed, by the end of their hold, and by the key that they hold.
CREATE INDEX outbox_due ON {posta}outbox (slot, held_until, position) WHERE held_until IS NOT NULL;
CREATE INDEX outbox_held ON {posta}outbox (slot, ordering_key, position) INCLUDE (held_until)
    WHERE held_until IS NOT NULL AND ordering_key IS NOT NULL;

-- What was dispatched, kept apart from what waits so that it never slows it.
CREATE TABLE {posta}dispatched (
    position      bigint NOT NULL,
    message_id    uuid NOT NULL,
    message_type  text NOT NULL,
    version       integer NOT NULL,
    ordering_key  text,
    headers       jsonb NOT NULL,
    content_type  text NOT NULL,
    payload       bytea NOT NULL,
    enqueued_at   timestamptz NOT NULL,
    slot          smallint NOT NULL,
    attempts      integer NOT NULL,
    dispatched_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT dispatched_pkey PRIMARY KEY (position)
);

CREATE INDEX dispatched_at ON {posta}dispatched USING brin (dispatched_at);

-- What has been handled: the primary key is what makes an effect happen once.
CREATE TABLE {posta}inbox (
    consumer   text NOT NULL,
    message_id uuid NOT NULL,
    handled_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT inbox_pkey PRIMARY KEY (consumer, message_id)
);

-- What failed at a consumer and waits for its next try, and the successors of its key behind it.
CREATE TABLE {posta}retry (
    position     bigint GENERATED ALWAYS AS IDENTITY,
    consumer     text NOT NULL,
    slot         smallint NOT NULL,
    message_id   uuid NOT NULL,
    message_type text NOT NULL,
    version      integer NOT NULL,
    ordering_key text,
    headers      jsonb NOT NULL,
    content_type text NOT NULL,
    payload      bytea NOT NULL,
    enqueued_at  timestamptz,
    attempts     integer NOT NULL,
    -- NULL: a successor, due when it has become the first of its key.
    due_at       timestamptz,
    last_error   text,
    held_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT retry_pkey PRIMARY KEY (position),
    CONSTRAINT retry_message_key UNIQUE (consumer, message_id),
    CONSTRAINT retry_slot_range CHECK (slot BETWEEN 0 AND 63),
    CONSTRAINT retry_attempts_range CHECK (attempts >= 0),
    CONSTRAINT retry_failure_has_reason CHECK ((attempts > 0) = (last_error IS NOT NULL)),
    CONSTRAINT retry_only_keys_wait CHECK (due_at IS NOT NULL OR ordering_key IS NOT NULL)
);

-- The first of a key, and whether a key is on hold.
CREATE INDEX retry_key ON {posta}retry (consumer, slot, ordering_key, position) WHERE ordering_key IS NOT NULL;
-- Whose time has come.
CREATE INDEX retry_due ON {posta}retry (consumer, slot, due_at, position) WHERE due_at IS NOT NULL;
-- The keys that have successors, to find those whose head is gone.
CREATE INDEX retry_waiting ON {posta}retry (consumer, slot, ordering_key, position) WHERE due_at IS NULL;

-- Messages that are set aside. Every part as it was found, valid or not.
CREATE TABLE {posta}dead_letter (
    position     bigint GENERATED ALWAYS AS IDENTITY,
    -- NULL: set aside on the way from the outbox to the broker.
    consumer     text,
    message_id   text,
    message_type text,
    version      bigint,
    ordering_key text,
    headers      jsonb NOT NULL,
    content_type text,
    payload      bytea NOT NULL,
    enqueued_at  timestamptz,
    attempts     integer NOT NULL,
    reason       text NOT NULL,
    error        text NOT NULL,
    dead_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT dead_letter_pkey PRIMARY KEY (position)
);

CREATE INDEX dead_letter_consumer ON {posta}dead_letter (consumer, position);

-- Time-limited ownership of lanes (resource 'outbox') and partitions (resource 'consumer:<name>').
CREATE TABLE {posta}lease (
    resource   text NOT NULL,
    number     smallint NOT NULL,
    owner      uuid,
    -- One more at each change of owner: what settles carry.
    epoch      bigint NOT NULL DEFAULT 0,
    expires_at timestamptz,
    CONSTRAINT lease_pkey PRIMARY KEY (resource, number),
    CONSTRAINT lease_owner_has_expiry CHECK ((owner IS NULL) = (expires_at IS NULL))
) WITH (fillfactor = 50);

-- The processes that share a resource.
CREATE TABLE {posta}member (
    resource   text NOT NULL,
    member     uuid NOT NULL,
    expires_at timestamptz NOT NULL,
    CONSTRAINT member_pkey PRIMARY KEY (resource, member)
) WITH (fillfactor = 50);

-- The database broker: which consumer takes which message types, and what waits for it.
CREATE TABLE {posta}subscription (
    message_type text NOT NULL,
    consumer     text NOT NULL,
    CONSTRAINT subscription_pkey PRIMARY KEY (message_type, consumer)
);

CREATE TABLE {posta}queue (
    position     bigint GENERATED ALWAYS AS IDENTITY,
    consumer     text NOT NULL,
    slot         smallint NOT NULL,
    message_id   uuid NOT NULL,
    message_type text NOT NULL,
    version      integer NOT NULL,
    ordering_key text,
    headers      jsonb NOT NULL,
    content_type text NOT NULL,
    payload      bytea NOT NULL,
    enqueued_at  timestamptz NOT NULL,
    CONSTRAINT queue_pkey PRIMARY KEY (position)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.05);

CREATE INDEX queue_consumer ON {posta}queue (consumer, slot, position);
