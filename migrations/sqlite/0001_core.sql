-- Posta's tables, version 1. {posta} stands for the prefix with its underscore.
--
-- Times are whole microseconds since 1970 in UTC by this database's clock, whose resolution is a millisecond. The defaults
-- keep to functions that SQLite has had since 2013, since the program that inserts with plain SQL brings its own SQLite: unhex()
-- and unixepoch('subsec') would fail there until 3.42 (2023). Payloads are last, since SQLite walks through a large
-- value's pages to reach the columns behind it.

-- What waits for dispatch. The columns are a public contract: a plain INSERT of message_type and payload is enough.
CREATE TABLE {posta}outbox (
    -- Order of insertion; AUTOINCREMENT, so that a number is never used twice.
    position     INTEGER PRIMARY KEY AUTOINCREMENT,
    -- 16 bytes. The default is a UUID of version 4.
    message_id   BLOB NOT NULL DEFAULT (CAST(
                     randomblob(6)
                     || substr(x'404142434445464748494a4b4c4d4e4f', 1 + (random() & 15), 1) || randomblob(1)
                     || substr(x'808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f'
                            || x'a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebf', 1 + (random() & 63), 1)
                     || randomblob(7) AS BLOB)),
    message_type TEXT NOT NULL,
    version      INTEGER NOT NULL DEFAULT 1,
    ordering_key TEXT,
    headers      TEXT NOT NULL DEFAULT '{}',
    content_type TEXT NOT NULL DEFAULT 'application/json',
    payload      BLOB NOT NULL,
    enqueued_at  INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER) * 1000),
    -- NULL until a dispatcher computes it, for rows that plain SQL inserted: SQLite has no SHA-256.
    slot         INTEGER,
    attempts     INTEGER NOT NULL DEFAULT 0,
    held_until   INTEGER,
    last_error   TEXT,
    CONSTRAINT outbox_message_id_key UNIQUE (message_id),
    CONSTRAINT outbox_message_id_size CHECK (typeof(message_id) = 'blob' AND length(message_id) = 16),
    CONSTRAINT outbox_message_type_size CHECK (length(CAST(message_type AS BLOB)) BETWEEN 1 AND 252),
    CONSTRAINT outbox_version_range CHECK (version BETWEEN 1 AND 2147483647),
    CONSTRAINT outbox_ordering_key_size CHECK (length(CAST(ordering_key AS BLOB)) BETWEEN 1 AND 255),
    CONSTRAINT outbox_headers_object CHECK (json_valid(headers) AND json_type(headers) = 'object'),
    CONSTRAINT outbox_slot_range CHECK (slot BETWEEN 0 AND 63),
    CONSTRAINT outbox_attempts_range CHECK (attempts >= 0),
    CONSTRAINT outbox_hold_has_reason CHECK ((attempts > 0) = (last_error IS NOT NULL)),
    CONSTRAINT outbox_hold_is_failure CHECK ((attempts > 0) = (held_until IS NOT NULL))
);

-- A lane's front. Rows on hold are not in it: however many there are, they are not in the way of the others.
CREATE INDEX {posta}outbox_lane ON {posta}outbox (slot, position) WHERE held_until IS NULL;
-- Rows on hold, by the time at which they may be tried again, and by the key that waits for them.
CREATE INDEX {posta}outbox_due ON {posta}outbox (slot, held_until) WHERE held_until IS NOT NULL;
CREATE INDEX {posta}outbox_held ON {posta}outbox (slot, ordering_key, position) WHERE held_until IS NOT NULL;

-- What was dispatched, kept apart from what waits so that it never slows it.
CREATE TABLE {posta}dispatched (
    position      INTEGER PRIMARY KEY,
    message_id    BLOB NOT NULL,
    message_type  TEXT NOT NULL,
    version       INTEGER NOT NULL,
    ordering_key  TEXT,
    headers       TEXT NOT NULL,
    content_type  TEXT NOT NULL,
    enqueued_at   INTEGER NOT NULL,
    slot          INTEGER NOT NULL,
    attempts      INTEGER NOT NULL,
    dispatched_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER) * 1000),
    payload       BLOB NOT NULL
);

-- What has been handled: the primary key is what makes an effect happen once.
CREATE TABLE {posta}inbox (
    consumer   TEXT NOT NULL,
    message_id BLOB NOT NULL,
    handled_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER) * 1000),
    PRIMARY KEY (consumer, message_id)
) WITHOUT ROWID;

-- What failed at a consumer and waits for its next try, and the successors of its key behind it.
CREATE TABLE {posta}retry (
    position     INTEGER PRIMARY KEY AUTOINCREMENT,
    consumer     TEXT NOT NULL,
    slot         INTEGER NOT NULL,
    message_id   BLOB NOT NULL,
    message_type TEXT NOT NULL,
    version      INTEGER NOT NULL,
    ordering_key TEXT,
    headers      TEXT NOT NULL,
    content_type TEXT NOT NULL,
    enqueued_at  INTEGER,
    attempts     INTEGER NOT NULL,
    -- NULL: a successor, due when it has become the first of its key.
    due_at       INTEGER,
    last_error   TEXT,
    held_at      INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER) * 1000),
    payload      BLOB NOT NULL,
    CONSTRAINT retry_message_key UNIQUE (consumer, message_id),
    CONSTRAINT retry_slot_range CHECK (slot BETWEEN 0 AND 63),
    CONSTRAINT retry_attempts_range CHECK (attempts >= 0),
    CONSTRAINT retry_failure_has_reason CHECK ((attempts > 0) = (last_error IS NOT NULL)),
    CONSTRAINT retry_only_keys_wait CHECK (due_at IS NOT NULL OR ordering_key IS NOT NULL)
);

CREATE INDEX {posta}retry_key ON {posta}retry (consumer, ordering_key, position) WHERE ordering_key IS NOT NULL;
CREATE INDEX {posta}retry_due ON {posta}retry (consumer, slot, due_at) WHERE due_at IS NOT NULL;
-- Successors, to walk from key to key past any number of them.
CREATE INDEX {posta}retry_waiting ON {posta}retry (consumer, slot, ordering_key, position) WHERE due_at IS NULL;

-- Messages that are set aside. Every part as it was found, valid or not.
CREATE TABLE {posta}dead_letter (
    position     INTEGER PRIMARY KEY AUTOINCREMENT,
    -- NULL: set aside on the way from the outbox to the broker.
    consumer     TEXT,
    message_id   TEXT,
    message_type TEXT,
    version      INTEGER,
    ordering_key TEXT,
    headers      TEXT NOT NULL,
    content_type TEXT,
    enqueued_at  INTEGER,
    attempts     INTEGER NOT NULL,
    reason       TEXT NOT NULL,
    error        TEXT NOT NULL,
    dead_at      INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER) * 1000),
    payload      BLOB NOT NULL
);

CREATE INDEX {posta}dead_letter_consumer ON {posta}dead_letter (consumer, position);

-- Time-limited ownership of lanes (resource 'outbox') and partitions (resource 'consumer:<name>').
CREATE TABLE {posta}lease (
    resource   TEXT NOT NULL,
    number     INTEGER NOT NULL,
    owner      BLOB,
    -- One more at each change of owner: what settles carry.
    epoch      INTEGER NOT NULL DEFAULT 0,
    expires_at INTEGER,
    PRIMARY KEY (resource, number),
    CONSTRAINT lease_owner_has_expiry CHECK ((owner IS NULL) = (expires_at IS NULL))
) WITHOUT ROWID;

-- The processes that share a resource.
CREATE TABLE {posta}member (
    resource   TEXT NOT NULL,
    member     BLOB NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (resource, member)
) WITHOUT ROWID;

-- The database broker: which consumer takes which message types, and what waits for it.
CREATE TABLE {posta}subscription (
    message_type TEXT NOT NULL,
    consumer     TEXT NOT NULL,
    PRIMARY KEY (message_type, consumer)
) WITHOUT ROWID;

CREATE TABLE {posta}queue (
    position     INTEGER PRIMARY KEY AUTOINCREMENT,
    consumer     TEXT NOT NULL,
    slot         INTEGER NOT NULL,
    message_id   BLOB NOT NULL,
    message_type TEXT NOT NULL,
    version      INTEGER NOT NULL,
    ordering_key TEXT,
    headers      TEXT NOT NULL,
    content_type TEXT NOT NULL,
    enqueued_at  INTEGER NOT NULL,
    payload      BLOB NOT NULL
);

CREATE INDEX {posta}queue_consumer ON {posta}queue (consumer, slot, position);
