-- Posta's tables, version 1. {posta} stands for the prefix with its underscore. Times are whole microseconds since
-- 1970 in UTC by this database's clock; booleans of the clock are made by Posta's statements.

-- What waits for dispatch. The columns are a public contract: a plain INSERT of message_type and payload is enough.
CREATE TABLE {posta}outbox (
    -- Order of insertion; AUTOINCREMENT, so that a number is never used twice.
    position     INTEGER PRIMARY KEY AUTOINCREMENT,
    -- 16 bytes. The default is a UUID of version 4.
    message_id   BLOB NOT NULL DEFAULT (unhex(hex(randomblob(6)) || '4' || substr(hex(randomblob(2)), 2) || substr('89AB', 1 + (abs(random()) % 4), 1) || substr(hex(randomblob(2)), 2) || hex(randomblob(6)))),
    message_type TEXT NOT NULL,
    version      INTEGER NOT NULL DEFAULT 1,
    ordering_key TEXT,
    headers      TEXT NOT NULL DEFAULT '{}',
    content_type TEXT NOT NULL DEFAULT 'application/json',
    payload      BLOB NOT NULL,
    enqueued_at  INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
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

CREATE INDEX {posta}outbox_lane ON {posta}outbox (slot, position);
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
    payload       BLOB NOT NULL,
    enqueued_at   INTEGER NOT NULL,
    slot          INTEGER NOT NULL,
    attempts      INTEGER NOT NULL,
    dispatched_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER))
);

-- What has been handled: the primary key is what makes an effect happen once.
CREATE TABLE {posta}inbox (
    consumer   TEXT NOT NULL,
    message_id BLOB NOT NULL,
    handled_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
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
    payload      BLOB NOT NULL,
    enqueued_at  INTEGER,
    attempts     INTEGER NOT NULL,
    -- NULL: a successor, due when it has become the first of its key.
    due_at       INTEGER,
    last_error   TEXT,
    held_at      INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    CONSTRAINT retry_message_key UNIQUE (consumer, message_id),
    CONSTRAINT retry_slot_range CHECK (slot BETWEEN 0 AND 63),
    CONSTRAINT retry_attempts_range CHECK (attempts >= 0),
    CONSTRAINT retry_failure_has_reason CHECK ((attempts > 0) = (last_error IS NOT NULL)),
    CONSTRAINT retry_only_keys_wait CHECK (due_at IS NOT NULL OR ordering_key IS NOT NULL)
);

CREATE INDEX {posta}retry_key ON {posta}retry (consumer, ordering_key, position) WHERE ordering_key IS NOT NULL;
CREATE INDEX {posta}retry_due ON {posta}retry (consumer, slot, due_at) WHERE due_at IS NOT NULL;

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
    payload      BLOB NOT NULL,
    enqueued_at  INTEGER,
    attempts     INTEGER NOT NULL,
    reason       TEXT NOT NULL,
    error        TEXT NOT NULL,
    dead_at      INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER))
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
    payload      BLOB NOT NULL,
    enqueued_at  INTEGER NOT NULL
);

CREATE INDEX {posta}queue_consumer ON {posta}queue (consumer, slot, position);
