-- The service's tables. Times are microseconds since 1970, by the database's clock.
CREATE TABLE IF NOT EXISTS documents (
    id         INTEGER PRIMARY KEY,
    signatures INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS signatures (
    request_id  INTEGER PRIMARY KEY,
    document_id INTEGER NOT NULL REFERENCES documents,
    number      INTEGER NOT NULL,
    signed_at   INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER))
);
CREATE TABLE IF NOT EXISTS feeds (
    document_id INTEGER PRIMARY KEY,
    entries     INTEGER NOT NULL
);
-- Not unique by request_id, on purpose: if a message took effect twice, it would show.
CREATE TABLE IF NOT EXISTS notifications (
    document_id INTEGER NOT NULL,
    entry       INTEGER NOT NULL,
    request_id  INTEGER NOT NULL,
    number      INTEGER NOT NULL,
    written_at  INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    PRIMARY KEY (document_id, entry)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS mailboxes (
    document_id INTEGER PRIMARY KEY,
    mails       INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS mails (
    document_id INTEGER NOT NULL,
    place       INTEGER NOT NULL,
    entry       INTEGER NOT NULL,
    request_id  INTEGER NOT NULL,
    PRIMARY KEY (document_id, place)
) WITHOUT ROWID;

-- The main job's own tables: what it is to do, and how far it has come.
CREATE TABLE IF NOT EXISTS run (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    documents  INTEGER NOT NULL,
    keys       INTEGER NOT NULL,
    duplicates INTEGER NOT NULL,
    seed       INTEGER NOT NULL,
    kills      INTEGER NOT NULL,
    finished   INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS run_copies (
    request_id INTEGER PRIMARY KEY,
    message_id TEXT NOT NULL,
    enqueued   INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS run_lines (
    document_id INTEGER NOT NULL,
    round       INTEGER NOT NULL,
    notified    INTEGER NOT NULL,
    mailed      INTEGER NOT NULL,
    PRIMARY KEY (document_id, round)
) WITHOUT ROWID;
